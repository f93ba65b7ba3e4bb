"""What every density promises, whichever it is."""

import json
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from density_regression.nn.density import (
    DENSITIES,
    Density,
    FlowDensity,
    GaussianDensity,
    KernelDensity,
    MixtureDensity,
    RadialFlowDensity,
)
from density_regression.nn.density.base import bound_features

MAKERS: dict[str, Callable[[], Density]] = {
    "gaussian": GaussianDensity,
    "mixture": lambda: MixtureDensity(3),
    "mixture-auto": MixtureDensity,
    "kernel-exponential": lambda: KernelDensity("exponential", max_points=100),
    "kernel-gaussian": lambda: KernelDensity("gaussian", 0.4, max_points=100),
    "radial": lambda: RadialFlowDensity(layers=3, epochs=3),
    "realnvp": lambda: FlowDensity("realnvp", transforms=2, hidden=(16,), epochs=3),
    "maf": lambda: FlowDensity("maf", transforms=2, hidden=(16,), epochs=3),
    "nsf": lambda: FlowDensity("nsf", transforms=1, hidden=(16,), epochs=2),
}
COLUMNS = 5


def rows(n: int = 240, seed: int = 0) -> torch.Tensor:
    """Two clusters in three dimensions, a column that follows from two of them and a dead one; float64."""
    generator = torch.Generator().manual_seed(seed)
    sign = torch.randint(2, (n, 1), generator=generator) * 2.0 - 1.0
    z = 2 * sign + torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return torch.cat([z, z[:, :1] - z[:, 1:2], torch.ones(n, 1, dtype=torch.float64)], dim=1)


def fit(name: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> Density:
    generator = torch.Generator().manual_seed(seed)
    return MAKERS[name]().to(dtype).fit(rows().to(dtype), generator=generator)


@pytest.fixture(scope="module", params=MAKERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def exact(name: str) -> Density:
    """Fitted in float64."""
    return fit(name)


@pytest.fixture(scope="module")
def single(name: str) -> Density:
    """Fitted in float32."""
    return fit(name, torch.float32)


directions = st.lists(st.floats(-1, 1), min_size=COLUMNS, max_size=COLUMNS).filter(
    lambda values: math.hypot(*values) > 0.1
)


@given(direction=directions, start=st.integers(0, 239))
@settings(deadline=None, max_examples=25)
def test_log_density_falls_without_bound_along_every_ray(exact: Density, direction: list[float], start: int) -> None:
    """`lemma:density`: away from the data, log p goes to minus infinity."""
    z = rows()
    step = torch.tensor(direction, dtype=torch.float64)
    step = step / step.norm() * (z - z.mean(0)).norm(dim=1).amax()
    distance = 10.0 ** torch.arange(7, dtype=torch.float64)
    log_prob = exact.log_prob(z[start] + distance[:, None] * step)
    assert bool((log_prob[1:].diff() < 0).all())
    for bound in (-1e2, -1e4, -1e6):
        assert bool((log_prob < bound).any())
    # Ten times the distance takes off ten times as much, or more.
    assert log_prob[-1] < 5 * log_prob[-2]


def test_training_rows_are_likelier_than_strange_ones(exact: Density) -> None:
    z = rows()
    assert exact.log_prob(z).amin() > exact.log_prob(z + 30).amax()
    between = torch.zeros(1, COLUMNS, dtype=torch.float64)
    between[:, -1] = 7.0  # the dead column fires
    assert exact.log_prob(between) < exact.log_prob(z).amin()


@given(
    exponent=st.floats(-30, 30),
    negative=st.booleans(),
    column=st.integers(-1, COLUMNS - 1),
    start=st.integers(0, 200),
)
@settings(deadline=None, max_examples=40)
def test_never_nan_or_infinite_in_float32(
    single: Density, exponent: float, negative: bool, column: int, start: int
) -> None:
    factor = torch.ones(COLUMNS)
    factor[slice(None) if column < 0 else column] = (-1.0 if negative else 1.0) * 10.0**exponent
    z = rows().float()[start : start + 20] * factor
    log_prob = single.log_prob(bound_features(z))
    assert log_prob.shape == (len(z),)
    assert bool(log_prob.isfinite().all())


def test_features_that_overflowed_are_far_away(single: Density) -> None:
    z = torch.tensor([math.inf, -math.inf, math.nan])[:, None].expand(3, COLUMNS)
    log_prob = single.log_prob(bound_features(z))
    assert bool(log_prob.isfinite().all())
    assert log_prob.amax() < single.log_prob(rows().float()).amin() - 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_state_loads_into_a_fresh_object(exact: Density, single: Density, dtype: torch.dtype) -> None:
    density = exact if dtype == torch.float64 else single
    fresh = type(density)(**json.loads(json.dumps(density.config()))).to(dtype)
    assert not fresh.fitted
    fresh.load_state_dict(density.state_dict())
    assert fresh.fitted
    assert fresh.config() == density.config()
    assert fresh.dims == density.dims
    z = rows(seed=1).to(dtype) * 2
    assert torch.equal(fresh.log_prob(z), density.log_prob(z))
    assert not any(parameter.requires_grad for parameter in fresh.parameters())


def test_converts_to_float64(single: Density) -> None:
    z = rows(seed=1)
    double = type(single)(**single.config())
    double.load_state_dict(single.state_dict())
    log_prob = double.to(torch.float64).log_prob(z)
    assert log_prob.dtype == torch.float64
    torch.testing.assert_close(log_prob, single.log_prob(z.float()).double(), rtol=1e-3, atol=1e-3)


def test_exports_for_any_number_of_rows(single: Density) -> None:
    z = rows(seed=1).float()
    exported = torch.export.export(single, (z[:4],), dynamic_shapes={"z": {0: torch.export.Dim("n", min=1)}}).module()
    for batch in (z, z[:1], z[:7] * 1e4):
        torch.testing.assert_close(exported(batch), single.log_prob(batch), rtol=1e-4, atol=1e-4)


def test_same_seed_same_density(name: str, exact: Density) -> None:
    z = rows(seed=1)
    assert torch.equal(fit(name).log_prob(z), exact.log_prob(z))


def test_nothing_is_left_to_train_but_gradients_reach_the_features(exact: Density) -> None:
    z = rows()[:5].requires_grad_(True)
    assert not any(parameter.requires_grad for parameter in exact.parameters())
    (gradient,) = torch.autograd.grad(exact.log_prob(z).sum(), z)
    assert bool(gradient.isfinite().all())
    assert bool((gradient.norm(dim=1) > 0).all())


def test_the_global_generator_is_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    fit(name)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("z", [torch.zeros(1, 2), torch.full((30, 2), 5.0), torch.randn(2, 1), torch.randn(12, 3)])
def test_few_and_constant_rows_are_fitted(name: str, z: torch.Tensor) -> None:
    density = MAKERS[name]().fit(z)
    assert bool(density.log_prob(z).isfinite().all())
    assert bool(density.log_prob(bound_features(z + 1e30)).isfinite().all())


@pytest.mark.parametrize("name", ["gaussian", "mixture", "kernel-gaussian"])
@pytest.mark.parametrize("small", [0.0, 1e-14])
def test_rows_without_weight_are_as_good_as_removed(name: str, small: float) -> None:
    z, others = rows(), rows(100, seed=3)[:, [1, 2, 0, 3, 4]] + 1
    # So far apart, in the one direction it is given, that EM finds the same two clusters from every start.
    z = z + 16 * (z[:, :3].sum(1, keepdim=True) > 0) * torch.tensor([1, 0, 0, 1, 0])
    weight = torch.cat([torch.ones(len(z)), torch.full((len(others),), small)]).double()
    makers = {**MAKERS, "mixture": lambda: MixtureDensity(2, max_dims=1, max_iterations=500, tolerance=1e-13)}
    makers["kernel-gaussian"] = lambda: KernelDensity("gaussian", 0.4)
    removed = makers[name]().double().fit(z, held_out=z)
    weighted = makers[name]().double().fit(torch.cat([z, others]), weight, held_out=z)
    points = z + 0.1
    torch.testing.assert_close(weighted.log_prob(points), removed.log_prob(points), rtol=1e-5, atol=1e-5)


def test_before_the_fit_nothing_is_known(name: str) -> None:
    with pytest.raises(ValueError, match="not fitted yet: call fit first"):
        MAKERS[name]().log_prob(rows())


def test_rows_without_weight_are_never_set_aside_nor_all_that_is_left(name: str) -> None:
    z = rows(5)
    alone = MAKERS[name]().double().fit(z[2:3])
    weighted = MAKERS[name]().double().fit(z, torch.eye(5)[2])
    assert torch.equal(weighted.log_prob(z), alone.log_prob(z))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.ones(239), r"sample_weight must be of shape \(240,\), one for each row, got \(239,\)"),
        (torch.ones(240, 1), r"got \(240, 1\)"),
        (torch.zeros(240), "some of it above 0"),
        (torch.linspace(-1, 9, 240), "at least 0"),
        (torch.full((240,), math.nan), "at least 0"),
        (torch.full((240,), math.inf), "finite"),
    ],
)
def test_bad_weights_are_named(weight: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianDensity().double().fit(rows(), weight)


def test_rows_are_drawn_when_there_are_too_many() -> None:
    z = rows(2000)
    few = KernelDensity("gaussian", 0.4, max_rows=100).double().fit(z)
    assert few.get_buffer("points").shape[0] == 80  # a fifth is set aside


class Recorded(GaussianDensity):
    """Writes down what a density learns from."""

    def _fit(self, t: torch.Tensor, weight: torch.Tensor, held_out: torch.Tensor, generator: torch.Generator) -> None:
        self.seen = (t, weight, held_out)


def numbered(n: int, start: int = 0) -> torch.Tensor:
    """Rows that tell their number: whitening keeps the order of a single column."""
    return torch.arange(start, start + n, dtype=torch.float64)[:, None]


def numbers(density: Density, t: torch.Tensor) -> list[int]:
    """The rows that these whitened ones were."""
    return (
        (density.whitening.center + t * density.whitening.scales * density.whitening.projection.sign()[0, 0])[:, 0]
        .round()
        .int()
        .tolist()
    )


@pytest.mark.parametrize(("n", "aside"), [(100, 20), (7, 1), (2, 1)])
def test_a_fifth_is_set_aside_at_random_where_nothing_is_held_out(n: int, aside: int) -> None:
    z, weight = numbered(n), torch.arange(1.0, n + 1).double()
    for held_out in (None, z[:0]):
        density = Recorded().double().fit(z, weight, held_out=held_out)
        train, weights, held = density.seen
        chosen, others = numbers(density, train), numbers(density, held)
        assert len(others) == aside
        assert sorted(chosen + others) == list(range(n))
        # Weights stay with their rows, and have a mean of 1.
        torch.testing.assert_close(weights, weight[chosen] / weight[chosen].mean())
        if n == 100:
            assert 30 < sum(others) / aside < 70
            assert others != sorted(others)
            assert min(others) < 20
    alone = Recorded().double().fit(z[:1])
    assert [len(part) for part in alone.seen] == [1, 1, 1]


def test_rows_and_held_out_rows_are_drawn_at_random_where_they_are_too_many() -> None:
    z, held_out = numbered(1000), numbered(600, start=200)
    density = Recorded(max_rows=50).double().fit(z, held_out=held_out)
    train, weights, held = (part for part in density.seen)
    for part, first, last in ((numbers(density, train), 0, 999), (numbers(density, held), 200, 799)):
        assert len(set(part)) == 50
        assert first <= min(part) < first + 150
        assert last - 150 < max(part) <= last
    assert torch.equal(weights, torch.ones(50).double())
    # Centre and scale are those of all rows.
    assert density.whitening.center.item() == pytest.approx(499.5)
    few = Recorded(max_rows=1).double().fit(z, held_out=held_out)
    assert [len(part) for part in few.seen] == [1, 1, 1]


@pytest.mark.parametrize("held_out", [False, True])
def test_what_is_drawn_depends_on_the_generator_alone(held_out: bool) -> None:
    fits = []
    for seed, own in ((0, 5), (1, 5), (1, 6)):
        torch.manual_seed(seed)
        density = Recorded(max_rows=50).double()
        density.fit(
            numbered(200),
            held_out=numbered(200) if held_out else None,
            generator=torch.Generator().manual_seed(own),
        )
        fits.append([numbers(density, density.seen[0]), numbers(density, density.seen[2])])
    assert fits[0] == fits[1]
    assert fits[1][0] != fits[2][0]
    assert fits[1][1] != fits[2][1]


@pytest.mark.parametrize("name", ["mixture", "kernel-exponential", "radial"])
def test_weights_have_no_unit(name: str) -> None:
    weight = torch.linspace(0.1, 1.0, 240).double()
    one, other = (MAKERS[name]().double().fit(rows(), unit * weight) for unit in (1.0, 1024.0))
    torch.testing.assert_close(one.log_prob(rows(seed=1)), other.log_prob(rows(seed=1)))


@pytest.mark.parametrize("shape", [(0, 3), (4,), (2, 3, 4)])
def test_bad_shapes_are_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        GaussianDensity().fit(torch.zeros(shape))


def test_every_name_builds_a_density() -> None:
    for build in DENSITIES.values():
        density = build(variance=0.9, max_dims=2, max_rows=50)
        assert isinstance(density, Density)
        assert (density.variance, density.max_dims, density.max_rows) == (0.9, 2, 50)


def test_some_rows_are_needed() -> None:
    for build in DENSITIES.values():
        with pytest.raises(ValueError, match="max_rows must be at least 1, got 0"):
            build(max_rows=0)


@pytest.mark.parametrize("name", ["gaussian", "mixture", "kernel"])
def test_log_prob_of_features_that_are_no_numbers_is_a_number(name):
    density = DENSITIES[name]().fit(torch.randn(50, 3, generator=torch.Generator().manual_seed(0)))
    strange = torch.tensor([[float("inf"), 0, 0], [float("nan"), 0, 0], [-float("inf"), float("inf"), 3e38]])
    found = density.log_prob(strange)
    assert torch.isfinite(found).all()
    assert (found < density.log_prob(torch.zeros(1, 3))).all()


def test_an_unfitted_state_loads_into_a_fitted_flow():
    fresh, fitted = RadialFlowDensity(layers=2, epochs=1), RadialFlowDensity(layers=2, epochs=1)
    fitted.fit(torch.randn(50, 3, generator=torch.Generator().manual_seed(0)))
    fitted.load_state_dict(fresh.state_dict())
    assert not fitted.fitted
