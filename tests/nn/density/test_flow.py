"""Flows: change of variables by autograd, training, and the tail beyond the trusted radius."""

import math
import sys

import pytest
import torch

from density_regression.nn.density import FlowDensity, GaussianDensity, RadialFlowDensity, flow
from density_regression.nn.density.base import FEATURE_LIMIT
from density_regression.nn.density.flow import fit_flow
from density_regression.nn.density.flow_tail import continue_radially, trusted_radius

KINDS = ["realnvp", "maf", "nsf"]


def small(kind: str, **options: object) -> FlowDensity:
    settings = {"transforms": 2, "hidden": (16,), "epochs": 2, "variance": 1.0, **options}
    return FlowDensity(kind, **settings).double()


def rows(n: int = 300, d: int = 3, seed: int = 0) -> torch.Tensor:
    """Two clusters in every coordinate."""
    generator = torch.Generator().manual_seed(seed)
    sign = torch.randint(2, (n, 1), generator=generator) * 2.0 - 1.0
    return 2 * sign + 0.5 * torch.randn(n, d, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_is_base_plus_jacobian_by_autograd(kind: str, d: int) -> None:
    density = small(kind).fit(rows(d=d))
    t = density.whitening(rows(5, d=d, seed=1))[0]
    transform = density.flow().transform
    for row in t:
        jacobian = torch.autograd.functional.jacobian(lambda x: transform(x[None])[0], row)
        base = torch.distributions.Normal(0.0, 1.0).log_prob(transform(row[None])[0]).sum()
        expected = base + torch.linalg.slogdet(jacobian).logabsdet
        torch.testing.assert_close(density._log_prob(row[None])[0], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_one_coordinate_integrates_to_one_and_is_not_gaussian(kind: str) -> None:
    z = rows(d=1)
    density = small(kind, epochs=20, batch_size=16, learning_rate=1e-2).fit(z)
    axis = torch.linspace(-60, 60, 100_001, dtype=torch.float64)
    mass = density.log_prob(axis[:, None]).exp().sum() * (axis[1] - axis[0])
    # Not to the last digit: the tail stands in for the little that the flow puts beyond its radius.
    assert mass.item() == pytest.approx(1.0, abs=1e-2)
    gaussian = GaussianDensity(variance=1.0).double().fit(z)
    assert density.log_prob(z).mean() > gaussian.log_prob(z).mean() + 0.3


@pytest.mark.parametrize("kind", ["realnvp", "maf"])
def test_training_raises_the_likelihood(kind: str) -> None:
    noise = torch.randn(600, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    banana = torch.stack([noise[:, 0], noise[:, 0] ** 2 + 0.3 * noise[:, 1]], dim=1)
    train, held_out = banana[:400], banana[400:]
    densities = [small(kind, epochs=epochs, batch_size=32, learning_rate=1e-2) for epochs in (1, 20)]
    first, last = (density.fit(train, held_out=held_out).log_prob(held_out).mean() for density in densities)
    assert last > first + 0.3


def test_weights_say_which_rows_count() -> None:
    z = rows(d=2)
    right = z[:, 0] > 0
    held_out = rows(d=2, seed=1)
    weight = torch.where(right, 1.0, 1e-3).double()
    density = small("realnvp", epochs=10, learning_rate=1e-2).fit(z, weight, held_out=held_out[held_out[:, 0] > 0])
    assert density.log_prob(z[right]).mean() > density.log_prob(z[~right]).mean() + 3


def test_best_parameters_are_kept_and_patience_ends_training() -> None:
    """Training rows pull the location to 3, held-out rows sit at 1: the best epoch lies on the way."""
    location = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    t, held_out = torch.full((64, 1), 3.0).double(), torch.full((8, 1), 1.0).double()

    def log_prob(x: torch.Tensor) -> torch.Tensor:
        return -0.5 * (x - location).square().sum(-1)

    scores = fit_flow(
        log_prob,
        [location],
        t,
        torch.ones(64, dtype=torch.float64),
        held_out,
        torch.Generator().manual_seed(0),
        epochs=200,
        batch_size=64,
        learning_rate=0.1,
        patience=4,
    )
    assert location.item() == pytest.approx(1.0, abs=0.06)
    assert log_prob(held_out).mean().item() == max(scores)
    assert len(scores) - 1 - scores.index(max(scores)) == 4


def test_a_first_epoch_that_helps_is_kept() -> None:
    location = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    t = torch.ones(10, 1).double()

    def log_prob(x: torch.Tensor) -> torch.Tensor:
        return -0.5 * (x - location).square().sum(-1)

    how = {"epochs": 1, "batch_size": 5, "learning_rate": 0.01, "patience": 1}
    scores = fit_flow(log_prob, [location], t, torch.ones(10).double(), t, torch.Generator(), **how)
    # Two steps of Adam, each by the rate.
    assert location.item() == pytest.approx(0.02, rel=1e-3)
    assert scores == pytest.approx([-0.5, -0.5 * 0.98**2], rel=1e-3)


def test_weighted_likelihood_is_maximised() -> None:
    location = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    t = torch.tensor([[3.0], [-1.0]]).double().repeat(32, 1)
    weight = torch.tensor([0.5, 1.5]).double().repeat(32)
    held_out = torch.zeros(1, 1).double()  # the weighted mean; the plain one is 1

    def log_prob(x: torch.Tensor) -> torch.Tensor:
        return -0.5 * (x - location).square().sum(-1)

    with torch.no_grad():
        location.fill_(0.5)
    fit_flow(
        log_prob,
        [location],
        t,
        weight,
        held_out,
        torch.Generator().manual_seed(0),
        epochs=100,
        batch_size=64,
        learning_rate=0.05,
        patience=10,
    )
    assert location.item() == pytest.approx(0.0, abs=0.03)


def test_training_that_breaks_keeps_what_it_had() -> None:
    z = rows(d=2)
    density = small("realnvp", learning_rate=1e9).fit(z)
    assert density.log_prob(z).mean() > -20


def test_fitting_and_loading_leave_the_global_generator_alone() -> None:
    z = rows(d=2)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    density = small("realnvp", epochs=1).fit(z)
    small("realnvp", epochs=1).load_state_dict(density.state_dict())
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


def test_settings_reach_the_training_and_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(flow, "fit_flow", lambda *parts, **how: told.append((parts, how)))
    how = {"epochs": 3, "batch_size": 17, "learning_rate": 0.02, "patience": 2}
    z = rows(40)
    for density in (small("maf", **how), RadialFlowDensity(**how, variance=1.0).double()):
        density.fit(z, torch.linspace(1, 2, 40).double(), held_out=z[:9], generator=torch.Generator().manual_seed(1))
        (_, _, t, weight, held_out, _), given = told.pop()
        assert given == how
        # Weights go with their rows.
        order = torch.cdist(t, density.whitening(z)[0]).argmin(1)
        torch.testing.assert_close(weight, torch.linspace(1, 2, 40).double()[order] / 1.5)
        assert held_out.shape == (9, 3)
        assert density.radius.item() == pytest.approx(2 * t.norm(dim=1).max().item())


@pytest.mark.parametrize("kind", KINDS)
def test_a_flow_is_as_deep_and_wide_as_it_is_told(kind: str) -> None:
    def parameters(**options: object) -> int:
        return sum(p.numel() for p in small(kind, **options)._build(3).parameters())

    assert parameters(transforms=4) == 2 * parameters(transforms=2)
    assert parameters(hidden=(16, 16)) > parameters(hidden=(16,)) > parameters(hidden=(8,))


def test_batches_are_of_the_size_asked_for_and_new_in_each_epoch() -> None:
    location = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    t = torch.arange(10.0).double()[:, None]
    seen: list[list[float]] = []

    def log_prob(x: torch.Tensor) -> torch.Tensor:
        seen.append(x[:, 0].tolist())
        return -0.5 * (x - location).square().sum(-1)

    fit_flow(
        log_prob,
        [location],
        t,
        torch.ones(10).double(),
        t[:1],
        torch.Generator().manual_seed(0),
        epochs=2,
        batch_size=4,
        learning_rate=1e-3,
        patience=5,
    )
    assert [len(part) for part in seen] == [1, 4, 4, 2, 1, 4, 4, 2, 1]
    epochs = [[*seen[i], *seen[i + 1], *seen[i + 2]] for i in (1, 5)]
    assert all(sorted(epoch) == t[:, 0].tolist() for epoch in epochs)
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_one_row_far_out_moves_parameters_no_more_than_others(size: float) -> None:
    """Gradients are clipped: after a huge one, Adam would take small ones for none, for long."""
    location = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    t = torch.cat([torch.full((1, 1), size), torch.ones(199, 1)]).double()

    def log_prob(x: torch.Tensor) -> torch.Tensor:
        return -0.5 * (x - location).square().sum(-1)

    how = {"epochs": 1, "batch_size": 1, "learning_rate": 0.01, "patience": 5}
    fit_flow(log_prob, [location], t, torch.ones(200).double(), t[1:], torch.Generator().manual_seed(0), **how)
    assert location.item() > 0.7


def test_result_does_not_depend_on_the_global_generator() -> None:
    z = rows(d=2)
    torch.manual_seed(1)
    first = small("realnvp", epochs=1).fit(z).log_prob(z)
    torch.manual_seed(2)
    torch.testing.assert_close(small("realnvp", epochs=1).fit(z).log_prob(z), first, rtol=0, atol=0)


def test_loading_replaces_a_flow_of_another_width() -> None:
    wide, narrow = small("maf", epochs=1).fit(rows(d=3)), small("maf", epochs=1).fit(rows(d=2))
    narrow.load_state_dict(wide.state_dict())
    torch.testing.assert_close(narrow.log_prob(rows(d=3)), wide.log_prob(rows(d=3)), rtol=0, atol=0)


def test_missing_zuko_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zuko.flows", None)
    # Said at once, before anything is trained.
    with pytest.raises(ImportError, match=r"density-regression\[flow\]"):
        small("realnvp")


@pytest.mark.parametrize(
    ("name", "value"),
    [("kind", "glow"), ("transforms", 0), ("epochs", 0), ("batch_size", 0), ("patience", 0), ("learning_rate", 0.0)],
)
def test_bad_arguments_are_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        FlowDensity(**{name: value})


class TestTail:
    radius = torch.tensor(4.0, dtype=torch.float64)

    @staticmethod
    def inside(t: torch.Tensor) -> torch.Tensor:
        return torch.sin(t).sum(-1)

    def test_leaves_the_inside_alone(self) -> None:
        t = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        t[0] = 0.0
        assert torch.equal(continue_radially(self.inside, t, self.radius), self.inside(t))

    def test_is_continuous_and_follows_the_formula_outside(self) -> None:
        direction = torch.tensor([[2.0, -1.0, 2.0]], dtype=torch.float64) / 3
        below, above = (continue_radially(self.inside, r * direction, self.radius) for r in (4 - 1e-9, 4 + 1e-9))
        torch.testing.assert_close(below, above, atol=1e-7, rtol=0)
        outside = continue_radially(self.inside, 12 * direction, self.radius)
        torch.testing.assert_close(outside, self.inside(4 * direction) - (144 - 16) / 2)

    def test_starts_with_the_slope_of_a_standard_normal(self) -> None:
        direction = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
        r = torch.tensor(4.0 + 1e-9, dtype=torch.float64, requires_grad=True)
        continue_radially(lambda t: torch.zeros_like(t[:, 0]), r * direction, self.radius).sum().backward()
        assert r.grad is not None
        assert r.grad.item() == pytest.approx(-4.0)

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("size", [1.0, FEATURE_LIMIT])
    def test_whatever_the_flow_says_the_result_is_finite(self, value: float, size: float) -> None:
        t = torch.full((2, 500), size)
        result = continue_radially(lambda t: torch.full_like(t[:, 0], value), t, self.radius.float())
        assert bool(result.isfinite().all())
        assert bool((result <= FEATURE_LIMIT).all())

    def test_radius_is_twice_the_farthest_and_never_too_small(self) -> None:
        t = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
        assert trusted_radius(t).item() == pytest.approx(10.0)
        assert trusted_radius(torch.zeros(5, 9)).item() == pytest.approx(6.0)
