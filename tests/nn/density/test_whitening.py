"""Whitening: unit variance, what it drops is still seen, and nothing overflows."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from density_regression.nn.density import GaussianDensity
from density_regression.nn.density.base import Whitening, bound_features


def correlated(n: int = 300, d: int = 4, seed: int = 0) -> torch.Tensor:
    """Full-rank Gaussian rows with a mean, in float64."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(d, d, generator=generator, dtype=torch.float64) + 2 * torch.eye(d, dtype=torch.float64)
    rows = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return rows @ mix + torch.arange(d, dtype=torch.float64)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("variance", [0.9, 1.0])
def test_kept_coordinates_have_zero_mean_and_unit_covariance(weighted: bool, variance: float) -> None:
    z = correlated()
    weight = torch.linspace(0.1, 3.0, len(z), dtype=torch.float64) if weighted else torch.ones(len(z)).double()
    t, _ = Whitening(variance).double().fit(z, weight)(z)
    share = weight / weight.sum()
    torch.testing.assert_close(share @ t, torch.zeros(t.shape[1]).double(), atol=1e-10, rtol=0)
    torch.testing.assert_close((t * share[:, None]).T @ t, torch.eye(t.shape[1]).double(), atol=1e-8, rtol=0)


def test_variance_share_sets_the_number_of_directions() -> None:
    z = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = z * torch.tensor([10.0, 5.0, 1.0, 0.1], dtype=torch.float64)
    # Shares of the variance: 0.79, 0.20, 0.008, 0.00008.
    assert [Whitening(v).double().fit(z).kept for v in (0.5, 0.9, 0.995, 1.0)] == [1, 2, 3, 4]
    assert Whitening(1.0, max_dims=2).double().fit(z).kept == 2


def test_one_direction_and_all_of_the_variance_may_be_asked_for() -> None:
    z = correlated()
    assert Whitening(1.0).double().fit(z).kept == 4
    assert Whitening(1.0, max_dims=1).double().fit(z).kept == 1
    assert Whitening(0.01).double().fit(z).kept == 1


@pytest.mark.parametrize(("columns", "width"), [(4, 16), (16, 16), (17, 32)])
def test_a_row_does_not_depend_on_the_others_of_its_batch(columns: int, width: int) -> None:
    """Products are padded to a multiple of 16 columns; the padding is zero, and is not among the coordinates."""
    z = correlated(d=columns).float()
    whitening = Whitening(1.0).fit(z)
    assert whitening.projection.shape == (columns, width)
    assert whitening.reconstruction.shape == (width, columns)
    assert whitening(z)[0].shape == (300, columns)
    assert not whitening.projection[:, columns:].any()
    assert not whitening.reconstruction[columns:].any()
    restored = whitening.center + whitening(z)[0] @ whitening.reconstruction[:columns]
    torch.testing.assert_close(restored, z, atol=1e-3, rtol=1e-4)


def test_log_det_is_that_of_the_projection() -> None:
    z = correlated()
    whitening = Whitening(1.0).double().fit(z)
    _, rest = whitening(z)
    expected = torch.linalg.slogdet(whitening.projection[:, : whitening.kept]).logabsdet
    torch.testing.assert_close(rest, expected.expand(len(z)))


def test_dead_and_collinear_columns_leave_one_residual_coordinate() -> None:
    z = correlated(d=3)
    wide = torch.cat([z, z[:, :1] - 2 * z[:, 1:2], torch.full((len(z), 2), 4.0).double()], dim=1)
    whitening = Whitening(1.0).double().fit(wide)
    assert (whitening.kept, whitening.dims, whitening.has_residual) == (3, 4, True)
    t, rest = whitening(wide)
    # No training row leaves the subspace, so none pays for the residual.
    torch.testing.assert_close(rest, whitening.log_det.expand(len(rest)))
    torch.testing.assert_close(t.std(0, correction=0), torch.ones(3).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_silent_unit_that_fires_lowers_the_density(dtype: torch.dtype) -> None:
    z = torch.cat([correlated(d=3), torch.zeros(300, 1).double()], dim=1).to(dtype)
    density = GaussianDensity().to(dtype).fit(z)
    fired = z.clone()
    fired[:, 3] = z[:, :3].std()
    assert bool((density.log_prob(fired) < density.log_prob(z) - 10).all())


def test_residual_is_a_normal_coordinate() -> None:
    z = torch.cat([correlated(d=2), torch.zeros(300, 1).double()], dim=1)
    whitening = Whitening(1.0).double().fit(z)
    fired = z[:1] + torch.tensor([0.0, 0.0, 0.7]).double()
    expected = torch.distributions.Normal(torch.tensor(0.0).double(), whitening.residual_scale)
    jacobian = -whitening.scales.log().sum()
    torch.testing.assert_close(whitening(fired)[1][0], expected.log_prob(torch.tensor(0.7).double()) + jacobian)


@pytest.mark.parametrize(
    "z",
    [
        torch.full((50, 3), 7.3),
        torch.full((50, 3), 1e12),
        torch.zeros(50, 3),
        torch.randn(1, 3, generator=torch.Generator().manual_seed(0)),
        torch.zeros(1, 1),
        torch.linspace(-1, 1, 50)[:, None],
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
    ],
    ids=["constant", "constant-huge", "zero", "single-row", "single-zero", "one-column", "two-rows"],
)
def test_degenerate_features_are_finite_and_most_likely_where_they_are(z: torch.Tensor) -> None:
    density = GaussianDensity().fit(z)
    inside = density.log_prob(z)
    size = 10 * z.abs().amax().clamp_min(1.0)
    near, far = density.log_prob(bound_features(z - size)), density.log_prob(bound_features(z - 1e30))
    assert all(bool(values.isfinite().all()) for values in (inside, near, far))
    assert bool((inside > near.maximum(far)).all())


def test_constant_features_leave_room_for_rounding() -> None:
    z = torch.full((100, 4), 0.1)
    whitening = Whitening().fit(z)
    t, _ = whitening(z * (1 + 2**-23))
    assert 0 < t.abs().amax() < 10


def test_constant_features_are_centred_without_rounding() -> None:
    z = torch.full((1001, 3), 0.1, dtype=torch.float64)
    assert torch.equal(Whitening().double().fit(z).center, z[0])


def test_constant_column_may_round() -> None:
    z = torch.cat([1e-3 * correlated(d=2), torch.full((300, 1), 1e6 + 0.3).double()], dim=1).float()
    density = GaussianDensity().fit(z)
    rounded = z.clone()
    rounded[:, 2] = torch.nextafter(z[:, 2], torch.tensor(torch.inf))
    assert bool((density.log_prob(z) - density.log_prob(rounded) < 5).all())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_large_constant_column_leaves_the_others_their_scale(place: int) -> None:
    """Its rounding is a width of its own direction alone."""
    columns = list((1e-3 * correlated(d=2)).T)
    columns.insert(place, torch.full((300,), 1e6).double())
    z = torch.stack(columns, 1)
    whitening = Whitening().double().fit(z)
    assert whitening.kept == 2
    torch.testing.assert_close(whitening(z)[0].std(0, correction=0), torch.ones(2).double())
    assert whitening.residual_scale.item() == pytest.approx(0.1, rel=0.01)


def test_small_features_with_a_residual_do_not_overflow() -> None:
    z = torch.cat([1e-12 * correlated(d=2), torch.zeros(300, 1).double()], dim=1).float()
    density = GaussianDensity().fit(z)
    assert density.whitening.has_residual
    assert bool(density.log_prob(bound_features(torch.eye(3) * 1e30)).isfinite().all())


def test_exports_for_any_number_of_rows_without_a_residual() -> None:
    z = correlated().float()
    density = GaussianDensity(variance=1.0).fit(z)
    assert not density.whitening.has_residual
    exported = torch.export.export(density, (z[:4],), dynamic_shapes={"z": {0: torch.export.Dim("n", min=1)}}).module()
    torch.testing.assert_close(exported(z), density.log_prob(z))


@given(exponent=st.integers(-12, 12), offset=st.floats(-5, 5))
@settings(deadline=None, max_examples=30)
def test_whitened_coordinates_do_not_depend_on_the_unit(exponent: int, offset: float) -> None:
    z = correlated(n=60) + offset
    factor = 10.0**exponent
    here, there = Whitening().double().fit(z), Whitening().double().fit(bound_features(z * factor))
    inside = (z * factor).abs().amax(1) < 1e11
    if exponent < 11:
        torch.testing.assert_close(here(z)[0][inside].abs(), there(z * factor)[0][inside].abs(), rtol=1e-6, atol=1e-6)
        change = there.log_det - here.log_det
        torch.testing.assert_close(change.item(), -here.dims * math.log(factor), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_features_of_any_size_in_float32(size: float) -> None:
    z = (correlated() * size).float()
    density = GaussianDensity().fit(z)
    assert bool(density.log_prob(bound_features(z)).isfinite().all())
    assert density.whitening(bound_features(z))[0].std(0).sub(1).abs().amax() < 1e-2


def test_columns_of_very_different_size_keep_the_large_ones() -> None:
    z = correlated() * torch.tensor([1e-12, 1.0, 1e6, 1e6]).double()
    whitening = Whitening().double().fit(z)
    assert whitening.dims == 3
    assert whitening.center.allclose(z.mean(0))


def test_weights_equal_repetitions() -> None:
    z = correlated(n=40)
    weight = torch.arange(40) % 3 + 1
    weighted = Whitening().double().fit(z, weight)
    repeated = Whitening().double().fit(z.repeat_interleave(weight, dim=0))
    torch.testing.assert_close(weighted(z)[0].abs(), repeated(z)[0].abs())
    torch.testing.assert_close(weighted.log_det, repeated.log_det)


@pytest.mark.parametrize(("name", "value"), [("variance", 0.0), ("variance", 1.5), ("max_dims", 0)])
def test_bad_arguments_are_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Whitening(**{name: value})


@pytest.mark.parametrize("rows", [40, 700])
@pytest.mark.parametrize("max_dims", [5, None])
def test_many_features_have_the_principal_directions_of_their_covariance(rows: int, max_dims: int | None) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(rows, 600, generator=generator, dtype=torch.float64) * torch.linspace(4, 0.1, 600).double().exp()
    weight = torch.rand(rows, generator=generator, dtype=torch.float64)
    whitening = Whitening(0.99, max_dims).double().fit(z, weight)
    share = weight / weight.sum()
    centered = z - share @ z
    _, spread, directions = torch.linalg.svd(centered * share.sqrt()[:, None], full_matrices=False)
    kept = whitening.kept
    assert kept == min(int((spread.square().cumsum(0) < 0.99 * spread.square().sum()).sum()) + 1, max_dims or 600)
    torch.testing.assert_close(whitening.scales, spread[:kept])
    torch.testing.assert_close(whitening(z)[0].abs(), (centered @ directions[:kept].T / spread[:kept]).abs())
    left_over = (spread[kept:].square().sum()).clamp_min(Whitening.FLOOR * spread.square().sum()).sqrt()
    torch.testing.assert_close(whitening.residual_scale, left_over)


@pytest.mark.parametrize("z", [torch.ones(30, 700), torch.eye(2, 700).repeat(9, 1)])
def test_many_features_that_hardly_move(z: torch.Tensor) -> None:
    whitening = Whitening().fit(z)
    there, _ = whitening(z)
    assert there.isfinite().all()
    assert whitening.dims <= 3
    assert (whitening(z + 1.0)[1] < whitening(z)[1]).all()
