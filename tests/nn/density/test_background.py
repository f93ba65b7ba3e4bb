"""The mixture's background: one wide component more, which alone is left far away."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from density_regression.nn.density import MixtureDensity
from density_regression.tabular.table import Floats

CENTERS = torch.tensor([[-6.0, 0.0, 1.0], [6.0, 0.0, 0.0], [0.0, 9.0, -1.0]], dtype=torch.float64)


def clusters(n: int = 300, seed: int = 0, width: float = 0.5) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    label = torch.randint(3, (n,), generator=source)
    return CENTERS[label] + width * torch.randn(n, 3, generator=source, dtype=torch.float64)


def both(background: float, z: Tensor | None = None, **settings: Any) -> tuple[MixtureDensity, MixtureDensity]:
    """The same mixture with and without background."""
    with_, without = (
        MixtureDensity(**{"components": 3, **settings}, background=weight).double().fit(clusters() if z is None else z)
        for weight in (background, 0.0)
    )
    return with_, without


def wide(t: Tensor) -> Floats:
    """Log-density of the background, of whitened rows."""
    return np.asarray(stats.multivariate_normal(np.zeros(t.shape[1]), 1.5**2 * np.eye(t.shape[1])).logpdf(t.numpy()))


def points() -> Tensor:
    return torch.cat([clusters(40, 1), 3 * clusters(40, 2), 100 * clusters(10, 3)])


@pytest.mark.parametrize("background", [1e-12, 0.02, 0.5, 0.999])
@pytest.mark.parametrize("settings", [{"variance": 1.0}, {"max_dims": 2}, {"components": 1}, {"components": "auto"}])
def test_log_density_is_that_of_the_mixture_beside_a_wide_normal(settings: dict[str, Any], background: float) -> None:
    """With whatever is left over by the directions kept."""
    density, plain = both(background, **settings)
    t, rest = density.whitening(points())
    known = (plain.log_prob(points()) - rest).numpy()
    expected = np.logaddexp(math.log1p(-background) + known, math.log(background) + wide(t))
    np.testing.assert_allclose((density.log_prob(points()) - rest).numpy(), expected, rtol=1e-7, atol=1e-7)
    assert len(density.log_norm) == len(plain.log_norm) + 1
    assert density.whitening.has_residual == ("max_dims" in settings)


def test_it_integrates_to_one() -> None:
    density = MixtureDensity(3, variance=1.0, background=0.3).double().fit(clusters()[:, :2])
    axis = torch.linspace(-60, 60, 601, dtype=torch.float64)
    mass = density.log_prob(torch.cartesian_prod(axis, axis)).exp().sum() * (axis[1] - axis[0]) ** 2
    assert mass.item() == pytest.approx(1.0, abs=1e-6)


def test_far_away_the_wide_component_is_all_there_is() -> None:
    """However tight the clusters are, the log-density falls alike."""
    ray = torch.tensor([[1.0, -2.0, 0.5]]).double() * torch.tensor([[50.0], [100.0], [1e4]])
    for width in (0.05, 1.0):
        density, plain = both(0.02, clusters(width=width), variance=1.0)
        t, rest = density.whitening(ray)
        np.testing.assert_allclose((density.log_prob(ray) - rest).numpy(), math.log(0.02) + wide(t), rtol=1e-9)
        assert (plain.log_prob(ray) < density.log_prob(ray) - 100).all()


def test_among_the_rows_little_changes() -> None:
    density, plain = both(0.02)
    change = density.log_prob(clusters()) - plain.log_prob(clusters())
    assert change.abs().max() < 1.0
    assert change.abs().mean() < 0.05


def test_without_background_nothing_is_added() -> None:
    density = MixtureDensity(3).double().fit(clusters())
    assert MixtureDensity().background == 0.0
    assert torch.equal(density.log_prob(points()), both(0.5)[1].log_prob(points()))
    assert len(density.log_norm) == 3


def test_far_away_it_is_finite_in_float32() -> None:
    density = MixtureDensity(background=0.02).fit(clusters().float())
    sizes = 10.0 ** torch.arange(-30, 38, 4)
    found = density.log_prob(sizes[:, None] * torch.tensor([1.0, -1.0, 0.5]))
    assert found.isfinite().all()
    assert (found[-5:] < found[0]).all()


@pytest.mark.parametrize("background", [-1e-9, 1.0, 1.5, math.inf, -math.inf, math.nan])
def test_a_weight_that_is_none_is_named(background: float) -> None:
    with pytest.raises(ValueError, match="background must be at least 0 and below 1, got"):
        MixtureDensity(background=background)


def test_state_and_settings_go_into_a_fresh_density() -> None:
    density, plain = both(0.1)
    assert density.config()["background"] == 0.1
    for one in (density, plain):
        fresh = MixtureDensity(**one.config()).double()
        fresh.load_state_dict(one.state_dict())
        assert torch.equal(fresh.log_prob(points()), one.log_prob(points()))
    # The state alone tells whether there is a background.
    other = MixtureDensity().double()
    other.load_state_dict(density.state_dict())
    assert torch.equal(other.log_prob(points()), density.log_prob(points()))
