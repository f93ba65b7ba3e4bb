"""Many components of one covariance, of which the nearest gives the density, against sums and normals of scipy."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from torch import Tensor

from density_regression.nn.density import MixtureDensity
from density_regression.nn.density.base import FEW_DIMENSIONS
from density_regression.nn.density.nearest import ROWS_OF_CENTER, WIDTHS, fit_nearest, log_joint
from density_regression.tabular.table import Floats

COLUMNS = 14


def clusters(n: int = 400, seed: int = 0, columns: int = COLUMNS, width: float = 0.3) -> Tensor:
    """Rows about twelve places, in an order of no meaning."""
    places = 2 * torch.randn(12, columns, generator=torch.Generator().manual_seed(99)).double()
    source = torch.Generator().manual_seed(seed)
    label = torch.randint(12, (n,), generator=source)
    return places[label] + width * torch.randn(n, columns, generator=source).double()


def fitted(z: Tensor, centers: int = 20, max_dims: int | None = 12) -> MixtureDensity:
    return MixtureDensity(centers=centers, max_dims=max_dims, variance=1.0).double().fit(z)


@functools.cache
def of_clusters() -> MixtureDensity:
    """With two directions that are left to the residual."""
    density = fitted(clusters())
    assert density.quadratics().shared
    assert density.whitening.has_residual
    return density


def normals(density: MixtureDensity) -> tuple[Floats, Floats, Floats]:
    """Weights (K,) of sum one, means (K, q) and covariance (q, q) of whitened features, from what is stored."""
    factor, shift, log_norm = (part.numpy() for part in density.quadratics())
    covariance = np.linalg.inv(factor @ factor.T)
    means = np.linalg.solve(factor.T, shift.reshape(len(log_norm), -1).T).T
    weight = np.exp(log_norm - log_norm.max())
    return weight / weight.sum(), means, covariance


def log_joints(density: MixtureDensity, t: Floats) -> Floats:
    """Log of weight times density of each component (K, n), one by one."""
    weight, means, covariance = normals(density)
    each = [stats.multivariate_normal(mean, covariance).logpdf(t) for mean in means]
    return np.log(weight)[:, None] + np.stack(each)


def points() -> Tensor:
    return torch.cat([clusters(60, 1), 3 * clusters(20, 2), clusters(20, 3, width=1.0), 100 * clusters(10, 4)])


# -- the density ------------------------------------------------------------------------------------------------------


def test_log_density_is_that_of_the_nearest_normal_less_one_number() -> None:
    """And that of the residual; the number is the logarithm of an integral, the same for all rows."""
    density = of_clusters()
    t, rest = density.whitening(points())
    expected = log_joints(density, t.numpy()).max(0) + rest.numpy()
    less = expected - density.log_prob(points()).numpy()
    np.testing.assert_allclose(less, less[0], atol=1e-6)
    # At least the largest of the weights, at most all.
    assert np.log(normals(density)[0].max()) < less[0] < 0


@pytest.mark.parametrize("width", [0.3, 2.0])
def test_that_number_is_the_integral(width: float) -> None:
    """Estimated from draws of scipy, by their mean ratio to the density they are drawn from."""
    density = fitted(clusters(width=width), max_dims=None)
    weight, means, covariance = normals(density)
    rng = np.random.default_rng(5)
    drawn = means[rng.choice(len(weight), size=6000, p=weight)]
    drawn = drawn + rng.multivariate_normal(np.zeros(len(covariance)), covariance, size=len(drawn))
    log_mixture = np.logaddexp.reduce(log_joints(density, drawn), axis=0)
    log_prob = density._log_prob(torch.from_numpy(drawn)).numpy()
    assert np.exp(log_prob - log_mixture).mean() == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("width", [0.3, 1.5])
def test_integrates_to_one_over_a_fine_grid(width: float) -> None:
    rows = clusters(300, columns=2, width=width)
    rows = (rows - rows.mean(0)) / rows.std(0)
    generator = torch.Generator().manual_seed(0)
    components = fit_nearest(rows[:240], torch.ones(240).double(), rows[240:], 30, generator)
    assert components.shared
    axis = torch.linspace(-9, 9, 601, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    mass = log_joint(components, grid.T).amax(0).exp().sum() * (axis[1] - axis[0]) ** 2
    assert mass.item() == pytest.approx(1.0, rel=0.02)


def test_centers_and_covariance_by_hand() -> None:
    """Of clusters so far apart that each is one centre's: their means, and the rows about them with a prior of one."""
    places = 30 * torch.eye(10).double()[:6]
    source = torch.Generator().manual_seed(0)
    rows = places.repeat_interleave(40, 0) + torch.randn(240, 10, generator=source).double()
    held_out = places.repeat_interleave(40, 0) + torch.randn(240, 10, generator=source).double()
    weight = torch.rand(240, generator=source).double() + 0.5
    factor, shift, log_norm = fit_nearest(rows, weight, held_out, 6, torch.Generator().manual_seed(1))
    means = torch.linalg.solve(factor.T, shift.reshape(6, 10).T).T
    covariance = torch.linalg.inv(factor @ factor.T)
    scatter, own = torch.eye(10).double(), weight.reshape(6, 40)
    for k, part in enumerate(rows.reshape(6, 40, 10)):
        mean = np.average(part.numpy(), axis=0, weights=own[k].numpy())
        place = int(torch.cdist(means, places[k : k + 1]).argmin())
        np.testing.assert_allclose(means[place].numpy(), mean, atol=1e-9)
        assert (log_norm - log_norm[0]).exp()[place].item() == pytest.approx(
            (own[k].sum() / own[torch.cdist(places, means[:1]).argmin()].sum()).item()
        )
        centered = part - torch.from_numpy(mean)
        scatter += (centered.T * own[k]) @ centered
    expected = scatter / (weight.sum() - 6 + 1)
    width = (covariance / expected).diagonal().mean().sqrt().item()
    assert min(abs(width - tried) for tried in WIDTHS) < 1e-9
    torch.testing.assert_close(covariance, width**2 * expected)
    assert 0.8 < width < 1.3


def test_held_out_rows_choose_the_width() -> None:
    rows, generator = clusters(300, columns=10), torch.Generator()
    widths = [
        torch.linalg.inv(fit_nearest(rows, torch.ones(300).double(), held_out, 20, generator.manual_seed(0)).factor)
        for held_out in (rows, rows + 0.6 * torch.randn(300, 10, generator=torch.Generator().manual_seed(1)).double())
    ]
    assert (widths[0].norm() < 0.7 * widths[1].norm()).item()


def test_few_dimensions_keep_the_usual_mixture() -> None:
    few, many = (clusters(columns=q) for q in (FEW_DIMENSIONS, FEW_DIMENSIONS + 1))
    for max_dims, z in ((None, few), (FEW_DIMENSIONS - 1, many)):
        density, usual = (
            MixtureDensity(centers=centers, variance=1.0, max_dims=max_dims).double().fit(z) for centers in (20, 0)
        )
        assert not density.quadratics().shared
        for one, other in zip(density.quadratics(), usual.quadratics(), strict=True):
            assert torch.equal(one, other)
    for max_dims in (None, FEW_DIMENSIONS):
        assert fitted(many, max_dims=max_dims).quadratics().shared
    assert not MixtureDensity(variance=1.0).double().fit(many).quadratics().shared


@given(
    arrays(np.float64, COLUMNS, elements=st.floats(-1, 1)).filter(lambda v: np.linalg.norm(v) > 0.1),
    st.integers(0, 399),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_farther_along_any_direction_is_less_likely_without_bound(way: Floats, row: int, left_over: bool) -> None:
    density = of_clusters()
    direction = torch.from_numpy(way / np.linalg.norm(way))
    if left_over:
        # Within the space that the kept directions leave, if there is enough of it.
        whitening, q = density.whitening, density.whitening.kept
        outside = direction - direction @ whitening.projection[:, :q] @ whitening.reconstruction[:q]
        direction = outside / outside.norm() if outside.norm() > 1e-3 else direction
    steps = torch.tensor([0.0, 30.0, 100.0, 1e3, 1e5, 1e8]).double()
    found = density.log_prob(clusters()[row] + steps[:, None] * direction)
    assert (found.diff() < 0).all()
    # As the square of the distance, in units of some feature.
    assert (found[1:] < found[0] - 1e-2 * steps[1:] ** 2).all()


# -- rows of all kinds ------------------------------------------------------------------------------------------------


def test_rows_without_weight_are_as_good_as_none() -> None:
    z = clusters(200)
    weight = torch.rand(200, generator=torch.Generator().manual_seed(0)).double() * (torch.arange(200) % 3 > 0)
    held_out = clusters(50, 5)
    junk = torch.where(weight[:, None] > 0, z, torch.tensor(1e6).double())
    all_, some = (MixtureDensity(centers=16, variance=1.0).double() for _ in range(2))
    all_.fit(junk, weight, held_out=held_out)
    some.fit(z[weight > 0], weight[weight > 0], held_out=held_out)
    assert all_.quadratics().shared
    assert torch.equal(all_.log_prob(points()), some.log_prob(points()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "z",
    [
        clusters(50).repeat(8, 1),
        clusters(15).repeat(20, 1),
        torch.cat([clusters(200), torch.full((200, 3), 7.0)], 1),
        clusters(30),
        (clusters(200) > 0).double(),
        1e9 * clusters(200),
        1e-9 * clusters(200),
        clusters(200) ** 7,
    ],
    ids=["duplicates", "few places", "constant columns", "few rows", "binary", "large", "small", "heavy tails"],
)
def test_rows_of_any_kind_have_a_finite_log_density(z: Tensor, dtype: torch.dtype) -> None:
    density = MixtureDensity(centers=128, variance=1.0).to(dtype).fit(z.to(dtype))
    components = density.quadratics()
    assert components.shared
    assert len(components.log_norm) <= min(128, max(len(z) // ROWS_OF_CENTER, 1), len(z.unique(dim=0)))
    assert all(part.isfinite().all() for part in components)
    sizes = 10.0 ** torch.arange(-30, 38, 4).to(dtype)
    way = torch.linspace(-1, 1, z.shape[1]).to(dtype)
    near, far = density.log_prob(z.to(dtype)), density.log_prob(sizes[:, None] * way)
    assert near.isfinite().all()
    assert far.isfinite().all()
    assert far[-1] < near.median() - 100


def test_one_or_two_rows() -> None:
    for n in (1, 2, 3):
        density = MixtureDensity(centers=128).fit(clusters(n).float())
        assert len(density.log_norm) == 1
        assert density.log_prob(clusters(20).float()).isfinite().all()


def test_components_hold_so_many_rows_on_average() -> None:
    z, held_out = clusters(80), clusters(20, 1)
    for centers, expected in ((128, 80 // ROWS_OF_CENTER), (5, 5), (1, 1)):
        density = MixtureDensity(centers=centers, variance=1.0).double().fit(z, held_out=held_out)
        assert len(density.log_norm) == expected
    # Of a single normal nothing is left over by its maximum.
    t, rest = density.whitening(points())
    np.testing.assert_allclose(density.log_prob(points()), log_joints(density, t.numpy())[0] + rest.numpy(), rtol=1e-6)


def test_a_negative_number_of_centers_is_named() -> None:
    with pytest.raises(ValueError, match="centers must be at least 0, got -1"):
        MixtureDensity(centers=-1)


def test_state_and_settings_go_into_a_fresh_density() -> None:
    density = of_clusters()
    assert density.config()["centers"] == 20
    fresh = MixtureDensity(**density.config()).double()
    fresh.load_state_dict(density.state_dict())
    assert torch.equal(fresh.log_prob(points()), density.log_prob(points()))
    # The state alone tells how it is to be read.
    other = MixtureDensity().double()
    other.load_state_dict(density.state_dict())
    assert torch.equal(other.log_prob(points()), density.log_prob(points()))
