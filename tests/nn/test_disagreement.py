"""Heads with disagreement: the density multiplies that part of the variance alone, and no finite input escapes it."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from density_regression import DensityRegression
from density_regression.nn.density import DENSITIES, Density, FlowDensity, RadialFlowDensity
from density_regression.nn.heads import ADDED_RATIO, HEADS, Head, MeanHead
from density_regression.nn.network import Features
from density_regression.tabular.table import Floats
from density_regression.training.algorithm import fit_density
from density_regression.training.refit import refit_head

RANGE = math.log(1.2 * ADDED_RATIO), math.log(5.0)
"""Bounds of log r."""

huge = st.floats(-(2.0**127), 2.0**127, width=32)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(head: str = "mean", features: int = 3, targets: int = 1, seed: int = 0) -> Head:
    """A head with disagreement whose weights are not those it begins with, and whose log r has bounds."""
    made = HEADS[head](features, targets, disagreement=True)
    with torch.no_grad():
        made.linear.weight.normal_(0.0, 0.5, generator=generator(seed))
        made.linear.bias.normal_(0.0, 0.5, generator=generator(seed + 1))
    made.bound_ratio(*(torch.full((targets,), end) for end in RANGE))
    return made


def bounded(low: float, high: float) -> Head:
    """A head in float64 with these bounds of log r."""
    head = MeanHead(1, disagreement=True).double()
    head.bound_ratio(torch.tensor([low]), torch.tensor([high]))
    return head


def small(name: str) -> Density:
    """A density by name, with little training where it is trained."""
    kinds: dict[str, Literal["realnvp", "maf", "nsf"]] = {"flow": "realnvp", "maf": "maf", "nsf": "nsf"}
    if name in kinds:
        return FlowDensity(kinds[name], transforms=1, hidden=(8,), epochs=2)
    return RadialFlowDensity(layers=2, epochs=2) if name == "radial" else DENSITIES[name]()


@cache
def fitted(density: str | None = "mixture", head: str = "mean", *, double: bool = True) -> DensityRegression:
    """A model on Gaussian features (the encoder is the identity), after steps 2 and 3."""
    source = generator()
    z = torch.randn(300, 3, generator=source) @ torch.randn(3, 3, generator=source)
    y = (z[:, :1] / z.std()).sin() + 0.3 * torch.randn(300, 1, generator=source)
    made = None if density is None else small(density)
    model = DensityRegression(nn.Identity(), 3, head=drawn(head), density=made)
    if double:
        model, z, y = model.double(), z.double(), y.double()
    train, held_out = (Features(z[i::2], y[i::2], torch.ones_like(y[i::2, 0])) for i in range(2))
    fit_density(model, train, held_out)
    refit_head(model, train, held_out)
    return model.eval()


def typical_rows() -> Tensor:
    """Fifty of the rows that `fitted` held out."""
    source = generator()
    z = torch.randn(300, 3, generator=source) @ torch.randn(3, 3, generator=source)
    return z[1::6].double()


def softplus(values: Floats) -> Floats:
    return np.logaddexp(0.0, values)


# -- the head ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("targets", [1, 3])
def test_variance_is_noise_times_one_plus_r_over_the_density(targets: int) -> None:
    head = drawn(targets=targets).double()
    for name, value in {"s_low": -2.0, "s_high": 3.0, "level": 0.4, "detail": 0.7, "offset": 0.3}.items():
        getattr(head, name).copy_(value + 0.1 * torch.arange(targets))
    z = 2 * torch.randn(40, 3, generator=generator(2)).double()
    log_density = torch.linspace(-9, 3, 40).double()
    with torch.no_grad():
        mean, log_std = head(z, log_density)
        alone = head(z).log_std
        log_noise = head.noise(z)
    outputs = z.numpy() @ head.linear.weight.detach().numpy().T + head.linear.bias.detach().numpy()
    location, s, third = np.split(outputs, 3, axis=1)
    low, high, level, detail, offset = (
        getattr(head, name).numpy() for name in ("s_low", "s_high", "level", "detail", "offset")
    )
    # Corners of an eighth of the interval, or of one unit at the most.
    beta = 8.0 / np.minimum(high - low, 8.0)
    kept = low + (softplus(beta * (s - low)) - softplus(beta * (s - high))) / beta
    noise = 0.5 * np.exp(-(level + detail * (kept - level) + offset))
    r = np.exp(RANGE[0] + softplus(third) - softplus(third - (RANGE[1] - RANGE[0])))
    density = np.exp(log_density.numpy())[:, None]
    np.testing.assert_allclose(mean.numpy(), location, rtol=1e-9)
    np.testing.assert_allclose(np.exp(2 * log_std.numpy()), noise * (1 + r / density), rtol=1e-6)
    np.testing.assert_allclose(np.exp(2 * alone.numpy()), noise * (1 + r), rtol=1e-6)
    # The share that stands beside the disagreement is noise.
    np.testing.assert_allclose(np.exp(2 * log_noise.numpy()), noise * 1.1, rtol=1e-6)


@given(output=huge, low=st.floats(-10, 10), width=st.floats(0, 100))
@settings(deadline=None, max_examples=200)
def test_r_stays_within_its_bounds_for_any_output(output: float, low: float, width: float) -> None:
    head = bounded(low, low + width).float()
    log_ratio = head.log_ratio(torch.tensor([[output]])).item()
    # No bounds are further apart than thirty.
    assert low - 1e-5 <= log_ratio <= low + min(width, 30.0) + 1e-5


@pytest.mark.parametrize("output", [-math.inf, -3e38, -1e9, 1e9, 3e38, math.inf])
def test_the_bounds_are_reached_far_out(output: float) -> None:
    found = bounded(-2.0, 5.0).float().log_ratio(torch.tensor([[output]])).item()
    assert found == pytest.approx(5.0 if output > 0 else -2.0, abs=1e-5)


@given(output=st.floats(5, 25), low=st.floats(-10, 10))
def test_well_inside_its_range_r_is_what_the_head_says(output: float, low: float) -> None:
    found = bounded(low, low + 30.0).log_ratio(torch.tensor([[output]]).double()).item()
    assert found == pytest.approx(low + output, abs=0.01)


def test_r_rises_with_its_output_and_has_no_range_where_its_bounds_are_out_of_order() -> None:
    outputs = torch.linspace(-15, 25, 400)[:, None].double()
    assert (bounded(-1.0, 9.0).log_ratio(outputs).diff(dim=0) > 0).all()
    torch.testing.assert_close(bounded(2.0, 1.0).log_ratio(outputs), torch.full_like(outputs, 2.0))


@pytest.mark.parametrize("name", HEADS)
def test_a_density_that_goes_to_zero_widens_the_variance_without_bound(name: str) -> None:
    """At least as fast as the least r over the density, whatever the third output says."""
    head = drawn(name).double()
    with torch.no_grad():
        head.linear.bias[2] = -1e6
        z = torch.randn(1, 3, generator=generator(3)).double().expand(7, 3)
        logs = -torch.tensor([0.0, 5.0, 10.0, 20.0, 40.0, 80.0, 130.0]).double()
        log_var = 2 * head(z, logs).log_std[:, 0]
        log_noise = 2 * head.noise(z)[:, 0] - math.log(1 + ADDED_RATIO)
    assert (log_var.diff() > 0).all()
    assert (log_var >= log_noise + RANGE[0] - logs - 1e-6).all()
    assert log_var[-1] > 100


@pytest.mark.parametrize("log_density", [-1e30, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_std_and_its_inverse_are_finite_at_any_density(log_density: float, dtype: torch.dtype) -> None:
    head = drawn().to(dtype)
    with torch.no_grad():
        z = torch.zeros(1, 3, dtype=dtype)
        log_std = head(z, torch.tensor([log_density], dtype=dtype)).log_std
        noise = head.noise(z).exp()
    assert log_std.exp().isfinite().all()
    assert (1 / log_std.exp()).isfinite().all()
    # A high density leaves the noise; a low one is as wide as float32 allows.
    if log_density > 0:
        torch.testing.assert_close(log_std.exp(), noise / math.sqrt(1 + ADDED_RATIO))
    else:
        assert log_std.item() > 70


@pytest.mark.parametrize("name", HEADS)
def test_a_fresh_head_says_nothing_of_noise_and_disagreement(name: str) -> None:
    head = HEADS[name](4, 2, disagreement=True)
    assert head.linear.weight.shape == (6, 4)
    assert (head.linear.weight[2:] == 0).all()
    assert (head.linear.weight[:2] != 0).all()
    z = 10 * torch.randn(20, 4, generator=generator())
    with torch.no_grad():
        log_std = head(z).log_std
    torch.testing.assert_close(log_std, log_std[:1].expand(20, 2))


def test_the_state_of_a_head_without_disagreement_has_no_bounds_of_r() -> None:
    plain, own = (MeanHead(3, disagreement=disagreement).state_dict() for disagreement in (False, True))
    assert set(own) - set(plain) == {"ratio_low", "ratio_range"}
    assert not set(plain) - set(own)
    assert plain["linear.weight"].shape == (2, 3)


def test_state_dict_goes_into_a_fresh_head() -> None:
    head, fresh = drawn(targets=2), MeanHead(3, 2, disagreement=True)
    fresh.load_state_dict(head.state_dict())
    z, log_density = torch.randn(20, 3, generator=generator()), torch.linspace(-9, 0, 20)
    with torch.no_grad():
        assert all(torch.equal(*pair) for pair in zip(fresh(z, log_density), head(z, log_density), strict=True))


def test_step_one_sees_noise_and_disagreement_unbounded_by_what_follows() -> None:
    head, z = drawn(targets=2).double(), torch.randn(30, 3, generator=generator()).double()
    for name in ("s_low", "s_high", "detail", "offset"):
        getattr(head, name).fill_(0.5)
    with torch.no_grad():
        mean, log_noise, log_ratio = head.taught(z)
        assert log_ratio is not None
        _, s, third = head.linear(z).chunk(3, dim=1)
        torch.testing.assert_close(log_noise, -s - math.log(2))
        torch.testing.assert_close(log_ratio, head.log_ratio(third))
        unbounded = head.unbounded(z)
    torch.testing.assert_close(unbounded.mean, mean)
    torch.testing.assert_close(torch.exp(2 * unbounded.log_std), log_noise.exp() * (1 + log_ratio.exp()))


def test_noise_apart_leaves_the_disagreement_to_train_the_encoder() -> None:
    head, z = drawn(), torch.randn(30, 3, generator=generator()).requires_grad_()
    head.noise_apart = True
    mean, log_noise, log_ratio = head.taught(z)
    assert log_ratio is not None
    of_features = [
        torch.autograd.grad(part.sum(), z, retain_graph=True, allow_unused=True)[0] for part in (mean, log_ratio)
    ]
    assert all(gradient.abs().sum() > 0 for gradient in of_features)
    (of_noise,) = torch.autograd.grad(log_noise.sum(), z, allow_unused=True)
    assert of_noise is None


# -- the parts of the variance ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(DENSITIES))
def test_parts_add_up_to_the_whole(name: str) -> None:
    model = fitted(name)
    x = torch.cat([scale * typical_rows() for scale in (0.1, 1.0, 3.0, 1e3)])
    with torch.no_grad():
        aleatoric, epistemic, disagreement, distance = model.decompose(x)
        law = model(x)
    assert disagreement is not None
    assert distance is not None
    torch.testing.assert_close(aleatoric**2 + disagreement**2 + distance**2, law.variance)
    torch.testing.assert_close(epistemic**2, disagreement**2 + distance**2)
    assert (disagreement > 0).all()
    assert (distance[-50:] > disagreement[-50:]).all()
    with torch.no_grad():
        torch.testing.assert_close(aleatoric, model.head.noise(x).exp())


def test_the_parts_of_scaled_targets_are_in_their_units() -> None:
    x = torch.cat([typical_rows(), 30 * typical_rows()])
    model = fitted("gaussian")
    with torch.no_grad():
        plain = model.decompose(x)
        try:
            model.scale_targets(torch.tensor([7.0]), torch.tensor([100.0]))
            scaled, variance = model.decompose(x), model(x).variance
        finally:
            model.scale_targets(None, None)
    for part, own in zip(scaled, plain, strict=True):
        assert part is not None
        assert own is not None
        torch.testing.assert_close(part, 100 * own)
    torch.testing.assert_close(scaled.aleatoric**2 + scaled.epistemic**2, variance)


def test_without_a_density_there_is_disagreement_and_no_distance() -> None:
    x = torch.cat([typical_rows(), 1e3 * typical_rows()])
    with torch.no_grad():
        parts, variance = fitted(None).decompose(x), fitted(None)(x).variance
    assert parts.disagreement is not None
    assert parts.distance is not None
    assert (parts.distance == 0).all()
    assert (parts.disagreement > 0).all()
    torch.testing.assert_close(parts.aleatoric**2 + parts.disagreement**2, variance)


def test_a_head_without_disagreement_has_distance_alone() -> None:
    plain = DensityRegression(nn.Identity(), 3, density="gaussian").double()
    rows = Features(typical_rows(), typical_rows()[:, :1], torch.ones(50).double())
    fit_density(plain, rows, rows)
    refit_head(plain, rows, rows)
    x = torch.cat([typical_rows(), 30 * typical_rows()])
    with torch.no_grad():
        parts, variance = plain.decompose(x), plain(x).variance
    assert parts.disagreement is not None
    assert parts.distance is not None
    assert (parts.disagreement == 0).all()
    torch.testing.assert_close(parts.distance, parts.epistemic)
    torch.testing.assert_close(parts.aleatoric**2 + parts.distance**2, variance)
    assert (parts.distance[50:] > 0).all()


@pytest.mark.parametrize("name", sorted(DENSITIES))
def test_distance_is_none_where_the_density_is_at_least_the_reference(name: str) -> None:
    model = fitted(name)
    with torch.no_grad():
        distance = model.decompose(typical_rows()).distance
        assert model.density is not None
        known = model.density.log_prob(typical_rows()) >= model.tempering.reference
    assert distance is not None
    assert 10 < known.sum() < 50
    assert (distance[known] == 0).all()
    assert (distance[~known] > 0).all()


@pytest.mark.parametrize("name", sorted(DENSITIES))
def test_along_a_ray_the_distance_grows_without_bound_and_the_disagreement_does_not(name: str) -> None:
    ray = torch.tensor([[1.0, -0.5, 0.25]]).double()
    with torch.no_grad():
        parts = [fitted(name).decompose(10.0**power * ray) for power in range(1, 8)]
        noise = [part.aleatoric.item() for part in parts]
    distances = [part.distance.item() for part in parts if part.distance is not None]
    disagreements = [part.disagreement.item() for part in parts if part.disagreement is not None]
    assert len(distances) == len(disagreements) == 7
    assert all(after > before for before, after in pairwise(distances)), distances
    # s is bounded, and so is r.
    assert distances[-1] > 1e4 * distances[0]
    assert math.isfinite(distances[-1])
    assert all(d <= n * math.sqrt(math.exp(RANGE[1])) for d, n in zip(disagreements, noise, strict=True))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", sorted(DENSITIES))
@given(exponent=st.floats(-30, 38), seed=st.integers(0, 2**16))
@settings(deadline=None, max_examples=15)
def test_predictions_of_any_finite_features_are_finite(name: str, head: str, exponent: float, seed: int) -> None:
    x = torch.randn(8, 3, generator=generator(seed)).clamp(-3, 3) * 10.0**exponent
    model = fitted(name, head, double=False)
    with torch.no_grad():
        law, parts = model(x), model.decompose(x)
    assert law.mean.dtype == torch.float32
    assert law.mean.isfinite().all()
    assert law.stddev.isfinite().all()
    assert (law.stddev > 0).all()
    assert all(part is not None and part.isfinite().all() for part in parts)
