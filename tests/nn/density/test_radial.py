"""Radial flows: the Jacobian by autograd, invertibility, and what they can learn."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from density_regression.nn.density import GaussianDensity, RadialFlowDensity
from density_regression.nn.density.radial import RadialFlow


def flow(q: int, layers: int, alpha: float = 0.5, slope: float = 0.5, seed: int = 0) -> RadialFlow:
    """A flow with random centres and the same raw parameters everywhere, in float64."""
    generator = torch.Generator().manual_seed(seed)
    result = RadialFlow(q, layers).double().requires_grad_(False)
    result.center.copy_(torch.randn(layers, q, generator=generator))
    result.raw_alpha.fill_(alpha)
    result.raw_slope.fill_(slope)
    return result


@pytest.mark.parametrize("q", [1, 2, 5])
@pytest.mark.parametrize("layers", [1, 4])
@pytest.mark.parametrize("slope", [-3.0, 0.0, 3.0])
def test_log_det_is_that_of_the_jacobian_by_autograd(q: int, layers: int, slope: float) -> None:
    module = flow(q, layers, slope=slope)
    t = torch.randn(6, q, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    _, log_det = module(t)
    for row, value in zip(t, log_det, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda x: module(x[None])[0][0], row)
        torch.testing.assert_close(value, torch.linalg.slogdet(jacobian).logabsdet)


def test_one_layer_equals_the_formula_of_rezende_and_mohamed() -> None:
    module = flow(2, 1, alpha=0.3, slope=1.2)
    alpha = torch.nn.functional.softplus(module.raw_alpha) + 1e-6
    beta = alpha * (torch.nn.functional.softplus(module.raw_slope) + module.FLOOR - 1)
    t = torch.tensor([[0.4, -1.7]], dtype=torch.float64)
    offset = t - module.center
    h = 1 / (alpha + offset.norm())
    torch.testing.assert_close(module(t)[0], t + beta * h * offset)


@given(
    alpha=st.floats(-30, 30),
    slope=st.floats(-30, 30),
    q=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=50)
def test_every_layer_is_monotone_along_rays_from_its_centre(alpha: float, slope: float, q: int, seed: int) -> None:
    module = flow(q, 1, alpha=alpha, slope=slope, seed=seed)
    direction = torch.randn(q, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    distance = torch.logspace(-3, 3, 200, dtype=torch.float64)
    moved, log_det = module(module.center + distance[:, None] * direction / direction.norm())
    moved = (moved - module.center) @ (direction / direction.norm())
    assert bool((moved.diff() > 0).all())
    assert moved[0] > 0
    assert bool(log_det.isfinite().all())


@given(alpha=st.floats(-200, 200), slope=st.floats(-200, 200))
@settings(deadline=None, max_examples=50)
def test_any_parameters_are_finite_in_float32(alpha: float, slope: float) -> None:
    module = flow(3, 2, alpha=alpha, slope=slope).float()
    t = torch.cat([module.center, torch.randn(5, 3, generator=torch.Generator().manual_seed(0))])
    u, log_det = module(t)
    assert bool(u.isfinite().all())
    assert bool(log_det.isfinite().all())


def test_integrates_to_one() -> None:
    module = flow(2, 4, slope=2.0)
    axis = torch.linspace(-12, 12, 601, dtype=torch.float64)
    mass = module.log_prob(torch.cartesian_prod(axis, axis)).exp().sum() * (axis[1] - axis[0]) ** 2
    assert mass.item() == pytest.approx(1.0, abs=1e-3)


def test_learns_more_than_a_gaussian() -> None:
    generator = torch.Generator().manual_seed(0)
    sign = torch.randint(2, (600, 1), generator=generator) * 2.0 - 1.0
    z = 2 * sign + 0.5 * torch.randn(600, 2, generator=generator, dtype=torch.float64)
    train, held_out = z[:400], z[400:]
    radial = RadialFlowDensity(variance=1.0, batch_size=64).double().fit(train, held_out=held_out)
    gaussian = GaussianDensity(variance=1.0).double().fit(train)
    assert radial.log_prob(held_out).mean() > gaussian.log_prob(held_out).mean() + 0.1


def test_bad_number_of_layers_is_named() -> None:
    with pytest.raises(ValueError, match="layers"):
        RadialFlowDensity(layers=0)
