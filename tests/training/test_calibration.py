"""Calibration: the offset of the log-variance that the head learns from held-out rows."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from density_regression.nn.heads import HEADS, Moments, squared_error_doubt
from density_regression.training.algorithm import fit_density
from density_regression.training.refit import refit_head
from training.helpers import features, generator, head_nll, on_features, shifted


def doubt(squared: np.ndarray, weight: np.ndarray) -> float:
    """By how much the log of the variance exceeds its most likely value."""
    mean = np.average(squared, weights=weight)
    return math.log1p(float(np.sum((weight * (squared - mean)) ** 2)) / (weight.sum() * mean) ** 2)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("targets", [1, 2])
def test_the_offset_leaves_the_mean(head: str, targets: int) -> None:
    model = on_features(head, targets=targets).head
    rows = features(40, targets=targets)
    before = model(rows.z).mean
    model.calibrate(*rows[:2], None, rows.weight)
    assert torch.equal(model(rows.z).mean, before)
    assert (model.offset != 0).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("with_density", [False, True])
@pytest.mark.parametrize("n", [3, 40])
def test_the_offset_is_the_most_likely_one_less_the_doubt(n: int, with_density: bool, weighted: bool) -> None:
    """Against a minimiser that knows only the likelihood: held-out rows, and one more of their mean weight."""
    head = on_features(targets=2).head
    z, y, weight = features(n, targets=2)
    weight = 0.1 + torch.rand(n, generator=generator(5), dtype=torch.float64) if weighted else weight
    log_density = torch.linspace(-4, 1, n, dtype=torch.float64) if with_density else None
    mean, log_std = head(z, log_density)
    head.calibrate(z, y, log_density, weight)
    for target in range(2):
        squared = (((y - mean) / log_std.exp())[:, target] ** 2).detach().numpy()

        def loss(b: float, squared: np.ndarray = squared) -> float:
            rows = weight.numpy() @ (0.5 * squared * np.exp(b) - 0.5 * b)
            return float(rows + weight.mean() * (0.5 * np.exp(b) - 0.5 * b))

        best = minimize_scalar(loss, bracket=(-1.0, 1.0), tol=1e-10).x
        assert head.offset[target].item() == pytest.approx(best - doubt(squared, weight.numpy()), abs=1e-5)


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_the_offset_does_not_depend_on_the_unit_of_weights(unit: float) -> None:
    heads = [on_features().head for _ in range(2)]
    z, y, weight = features(5)
    for head, own in zip(heads, (weight, unit * weight), strict=True):
        head.calibrate(z, y, None, own)
    torch.testing.assert_close(heads[0].offset, heads[1].offset)


def test_the_pseudo_row_fades_as_rows_come_in() -> None:
    head, rows = on_features().head, features(20_000)
    mean, log_std = head(rows.z)
    head.calibrate(*rows[:2], None, rows.weight)
    squared = ((rows.y - mean) / log_std.exp()) ** 2
    exact = -squared.mean().log()
    assert head.offset.item() == pytest.approx(exact.item(), abs=1e-3)
    assert head.offset.item() == pytest.approx(
        exact.item() - doubt(squared.detach().numpy()[:, 0], np.ones(20_000)), abs=1e-4
    )
    assert head_nll(head, rows) == pytest.approx(
        min(head_nll(shifted(head, exact.item() + step), rows) for step in (-0.01, 0.0, 0.01)), abs=1e-6
    )


def test_a_perfect_fit_on_a_few_rows_is_not_believed() -> None:
    head, rows = on_features().head, features(4)
    head.calibrate(rows.z, head(rows.z).mean.detach(), None, rows.weight)
    # Errors of one size say no more about the doubt than about the scale.
    assert head.offset.item() == pytest.approx(math.log(5), abs=1e-6)


@pytest.mark.parametrize("freedom", [4.5, 30])
def test_the_doubt_is_what_the_bootstrap_has(freedom: float) -> None:
    """Samples drawn from the sample: the factor on their estimates that suits the sample's own mean best."""
    rng = np.random.default_rng(0)
    n, y = 150, rng.standard_t(freedom, 150)
    estimates = (y[rng.integers(n, size=(20_000, n))] ** 2).mean(1)
    best = minimize_scalar(lambda c: np.mean(c + np.mean(y**2) / (np.exp(c) * estimates)), bracket=(0.0, 1.0)).x
    moments = Moments(torch.zeros(n, 1), torch.full((n, 1), 3.0))
    found = squared_error_doubt(moments, torch.from_numpy(y)[:, None], torch.ones(n))
    assert found.shape == (1, 1)
    assert found.item() == pytest.approx(best, rel=0.15)
    assert found.item() > 1.5 / n


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=9), st.integers(0, 10**6))
def test_the_doubt_is_at_most_a_factor_of_three(y: list[float], seed: int) -> None:
    weight = torch.rand(len(y), generator=generator(seed)).double() ** 9
    weight[0] = 1.0
    moments = Moments(torch.zeros(len(y), 1), torch.linspace(-80, 80, len(y)).double()[:, None])
    found = squared_error_doubt(moments, torch.tensor(y).double()[:, None], weight)
    assert 0.0 <= found.item() <= math.log(3) + 1e-6


@pytest.mark.parametrize("head", HEADS)
def test_after_step_three_no_offset_far_from_it_is_better(head: str) -> None:
    model, train, held_out = on_features(head), features(), features(seed=1)
    fit_density(model, train, held_out)
    refit_head(model, train, held_out)
    log_density = model.tempered(held_out.z)
    found = head_nll(model.head, held_out, log_density)
    for step in (-0.1, 0.1):
        assert head_nll(shifted(model.head, model.head.offset.item() + step), held_out, log_density) > found
