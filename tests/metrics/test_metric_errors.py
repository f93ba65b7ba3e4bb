"""R2, widths, and likelihoods of other laws, against scikit-learn, scipy and by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import r2_score
from torch.distributions import (
    AffineTransform,
    Categorical,
    Distribution,
    Exponential,
    Independent,
    MixtureSameFamily,
    Normal,
    StudentT,
    TransformedDistribution,
)

from density_regression import metrics

RNG = np.random.default_rng(0)
Y = RNG.normal(3.0, 2.0, size=40)
MEAN = Y + RNG.normal(size=40)
TABLE, TABLE_MEAN = Y.reshape(20, 2) * [1.0, 1e6], MEAN.reshape(20, 2) * [1.0, 1e6]


# R2


@pytest.mark.parametrize(("y", "mean"), [(Y, MEAN), (TABLE, TABLE_MEAN), (Y + 1e9, MEAN + 1e9), (Y, -MEAN)])
def test_r2_against_sklearn(y: np.ndarray, mean: np.ndarray) -> None:
    assert metrics.r2(y, mean) == pytest.approx(r2_score(y, mean), rel=1e-6)


@pytest.mark.parametrize(
    ("y", "mean"),
    [
        ([2.0, 2.0, 2.0], [2.0, 2.0, 2.0]),
        ([2.0, 2.0, 2.0], [2.0, 2.0, 2.5]),
        ([[2.0, 1.0], [2.0, 3.0]], [[2.0, 1.0], [2.0, 2.0]]),
        ([[2.0, 1.0], [2.0, 3.0]], [[2.5, 1.0], [2.0, 2.0]]),
    ],
)
def test_r2_of_constant_targets_is_as_in_sklearn(y: list[float], mean: list[float]) -> None:
    assert metrics.r2(y, mean) == pytest.approx(r2_score(y, mean))


def test_r2_of_constant_targets_that_do_not_average_to_themselves() -> None:
    y = np.full(3, 0.1)
    assert y.mean() != 0.1
    assert metrics.r2(y, y + 1) == 0.0
    assert metrics.r2(y, y) == 1.0


def test_r2_of_one_row() -> None:
    assert metrics.r2([2.0], [2.0]) == 1.0
    assert metrics.r2([2.0], [3.0]) == 0.0


@given(st.floats(-5, 5), st.sampled_from([1e-200, 1e-3, 1.0, 1e200]))
def test_r2_does_not_depend_on_the_unit_and_is_0_for_the_mean(shift: float, unit: float) -> None:
    assert metrics.r2(unit * Y, unit * (MEAN + shift)) == pytest.approx(metrics.r2(Y, MEAN + shift), abs=1e-9)
    assert metrics.r2(unit * Y, np.full_like(Y, unit * Y.mean())) == pytest.approx(0.0, abs=1e-9)
    assert metrics.r2(unit * Y, unit * Y) == 1.0


# Widths


def test_sharpness_counts_in_units() -> None:
    std = np.array([1.0, 2.0, 4.0])
    assert metrics.sharpness(std, unit=2.0) == pytest.approx(math.sqrt(7) / 2)
    assert metrics.sharpness(std) == pytest.approx(math.sqrt(7))
    assert metrics.sharpness(1e200 * std, unit=1e200) == pytest.approx(math.sqrt(7))


@pytest.mark.parametrize("unit", [0.0, -1.0, math.nan, math.inf])
def test_sharpness_refuses_bad_units(unit: float) -> None:
    with pytest.raises(ValueError, match="unit must be positive and finite"):
        metrics.sharpness([1.0], unit=unit)


@pytest.mark.parametrize("level", [0.1, 0.5, 0.95])
def test_interval_width_against_scipy(level: float) -> None:
    std = np.abs(Y) + 0.1
    low, high = stats.norm(0.0, std).interval(level)
    assert metrics.interval_width(std, level) == pytest.approx(np.mean(high - low), rel=1e-9)
    assert metrics.interval_width(std.reshape(-1, 2), level) == pytest.approx(np.mean(high - low), rel=1e-9)


def test_interval_width_is_the_interval_score_of_targets_inside() -> None:
    assert metrics.interval_width([1.0, 3.0]) == pytest.approx(metrics.interval_score([0, 0], [0, 0], [1.0, 3.0]))
    assert metrics.interval_width([0.5]) == pytest.approx(1.959964, abs=1e-6)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, math.nan])
def test_interval_width_refuses_bad_levels(level: float) -> None:
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        metrics.interval_width([1.0], level)


@pytest.mark.parametrize("bad", [[], [0.0], [-1.0], [math.nan], 1.0])
def test_interval_width_refuses_bad_std(bad: object) -> None:
    with pytest.raises(ValueError, match="std"):
        metrics.interval_width(bad)


# Likelihood in the law itself


def laws() -> dict[str, tuple[Distribution, float]]:
    """Laws of Y (40,), and their mean negative log-likelihoods by scipy."""
    loc, scale = torch.from_numpy(MEAN), torch.linspace(0.5, 2.0, 40, dtype=torch.float64)
    parts = Normal(torch.stack([loc, loc + 1], -1), torch.stack([scale, 2 * scale], -1))
    mixture = MixtureSameFamily(Categorical(torch.tensor([0.25, 0.75], dtype=torch.float64).expand(40, 2)), parts)
    pdf = 0.25 * stats.norm(MEAN, scale).pdf(Y) + 0.75 * stats.norm(MEAN + 1, 2 * scale).pdf(Y)
    return {
        "Normal": (Normal(loc, scale), metrics.nll(Y, MEAN, scale.numpy())),
        "Student": (StudentT(3.0, loc, scale), -float(stats.t(3.0, MEAN, scale).logpdf(Y).mean())),
        "Cauchy-like": (StudentT(1.0, loc, scale), -float(stats.cauchy(MEAN, scale).logpdf(Y).mean())),
        "mixture": (mixture, -float(np.log(pdf).mean())),
    }


@pytest.mark.parametrize("name", list(laws()))
def test_nll_own_against_scipy(name: str) -> None:
    law, expected = laws()[name]
    result = metrics.nll_own(Y, law)
    assert type(result) is float
    assert result == pytest.approx(expected, rel=1e-9)


def test_nll_own_of_a_table_is_over_all_entries() -> None:
    scale = torch.rand(20, 2, dtype=torch.float64) + 0.5
    law = Normal(torch.from_numpy(MEAN.reshape(20, 2)), scale)
    expected = metrics.nll(Y.reshape(20, 2), MEAN.reshape(20, 2), scale.numpy())
    assert metrics.nll_own(Y.reshape(20, 2), law) == pytest.approx(expected)
    assert metrics.nll_own(Y.reshape(20, 2), Independent(law, 1)) == pytest.approx(expected)


@pytest.mark.filterwarnings("error")
def test_nll_own_of_a_single_precision_law_with_gradients() -> None:
    loc = torch.tensor(MEAN, dtype=torch.float32, requires_grad=True)
    expected = metrics.nll(Y, loc.detach().numpy(), np.ones(40))
    assert metrics.nll_own(Y, Normal(loc, torch.ones(40))) == pytest.approx(expected, rel=1e-6)


def test_nll_own_of_a_law_without_a_mean() -> None:
    standard = Normal(torch.zeros(40, dtype=torch.float64), torch.ones(40, dtype=torch.float64))
    moved = TransformedDistribution(standard, AffineTransform(3.0, 2.0))
    assert metrics.nll_own(Y, moved) == pytest.approx(-stats.norm(3.0, 2.0).logpdf(Y).mean())


def test_nll_own_refuses_what_it_cannot_score() -> None:
    law = Normal(torch.zeros(3), torch.ones(3))
    for bad in ([0.0, 0.0], [[0.0, 0.0, 0.0]], [[0.0], [0.0], [0.0]]):
        with pytest.raises(ValueError, match="law must have the shape of y_true"):
            metrics.nll_own(bad, law)
    with pytest.raises(ValueError, match="NaN or infinite"):
        metrics.nll_own([0.0, 0.0, math.nan], law)
    with pytest.raises(ValueError, match="support"):
        metrics.nll_own([-1.0], Exponential(torch.ones(1), validate_args=True))


# Edges, and callers who let NumPy raise


def test_a_target_at_the_very_end_of_the_interval_lies_in_it() -> None:
    end = float(stats.norm.ppf(0.75))
    assert metrics.coverage([end, -end, 1.01 * end, 0.0], np.zeros(4), np.ones(4), level=0.5) == 0.75


@pytest.mark.parametrize("name", ["nll", "crps", "coverage", "calibration_error", "ence", "ause", "rmse", "mae"])
def test_callers_may_let_numpy_raise(name: str) -> None:
    """Of targets 2e308 apart, and 1e160 or 50 standard deviations away."""
    score = getattr(metrics, name)
    for y, mean, std in (([1e308, 0.0], [-1e308, 1.0], [1e300, 1.0]), ([1e160, 50.0], [0.0, 0.0], [1.0, 1.0])):
        arguments = (y, mean) if name in ("rmse", "mae") else (y, mean, std)
        with np.errstate(all="ignore"):
            expected = score(*arguments)
        with np.errstate(all="raise"):
            assert score(*arguments) == expected


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: metrics.crps([1.0], [1.0, 2.0], [1.0]), "mean"),
        (lambda: metrics.crps([1.0], [math.nan], [1.0]), "mean"),
        (lambda: metrics.crps([math.nan], [1.0], [1.0]), "y_true"),
        (lambda: metrics.crps([1.0], [1.0], [math.nan]), "std"),
        (lambda: metrics.crps([1.0], [1.0], [1.0, 2.0]), "std"),
        (lambda: metrics.crps([1.0], [1.0], [0.0]), "std"),
        (lambda: metrics.auroc([math.nan], [1.0]), "familiar"),
        (lambda: metrics.auroc([1.0], [math.nan]), "strange"),
    ],
)
def test_errors_begin_with_the_argument(call, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} "):
        call()
