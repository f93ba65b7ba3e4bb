"""Each step moves its own part; step 3; what it caches."""

import copy
import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import chisquare
from torch import Tensor, nn

from density_regression import (
    DensityRegression,
    DensityRegressor,
    GaussianDensity,
    KernelDensity,
    TrainingOptions,
    fit_density_regression,
    fit_together,
    training,
)
from density_regression.density import Density, RobustTempering
from density_regression.head import HEADS, Head
from density_regression.training import (
    cache_features,
    fit_density,
    fit_density_regressions_together,
    pretrain,
    refit_head,
)
from steps.helpers import (
    SMALL_DENSITIES,
    assert_equal,
    batches,
    features,
    finite,
    generator,
    head_nll,
    network,
    on_features,
    state,
    wave,
)

# -- each step moves its own part only --------------------------------------------------------------------------------


@pytest.mark.parametrize("density", SMALL_DENSITIES.values(), ids=SMALL_DENSITIES.keys())
def test_step_two_leaves_encoder_and_head(density: Callable[[], Density]) -> None:
    model = network(density=density())
    train, held_out = (cache_features(model, batches(*wave(seed=seed))) for seed in (0, 10))
    before = state(model)
    assert not model.density.fitted
    fit_density(model, train, held_out)
    after = state(model)
    assert model.density.fitted
    assert_equal(after, before, "encoder.")
    assert_equal(after, before, "head.")
    assert after["tempering.reference"] != before["tempering.reference"]


@pytest.mark.parametrize("density", SMALL_DENSITIES.values(), ids=SMALL_DENSITIES.keys())
def test_step_three_leaves_encoder_density_and_tempering(density: Callable[[], Density]) -> None:
    model = network(density=density())
    train, held_out = (cache_features(model, batches(*wave(seed=seed))) for seed in (0, 10))
    fit_density(model, train, held_out)
    before = state(model)
    refit_head(model, train, held_out)
    after = state(model)
    for part in ("encoder.", "density.", "tempering."):
        assert_equal(after, before, part)
    assert not torch.equal(after["head.linear.weight"], before["head.linear.weight"])
    assert not torch.equal(after["head.offset"], before["head.offset"])


def test_step_three_does_without_a_density() -> None:
    model = network(density=None)
    train, held_out = (cache_features(model, batches(*wave(seed=seed))) for seed in (0, 10))
    fit_density(model, train, held_out)
    before = state(model)
    refit_head(model, train, held_out)
    assert_equal(state(model), before, "encoder.")
    assert head_nll(model.head, held_out) < 1.0


def test_step_one_knows_nothing_of_the_density() -> None:
    """Fitting again a model that was fitted starts from step 1 as if it had no density and no bounds."""
    loader, held_out = batches(*wave(), seed=0), batches(*wave(seed=10))
    model = network()
    fit_density_regression(model, loader, held_out, options=TrainingOptions(epochs=3))
    again = network()
    again.load_state_dict(model.state_dict())
    plain = network(density=None)
    plain.encoder.load_state_dict(model.encoder.state_dict())
    plain.head.load_state_dict(model.head.state_dict())
    options = TrainingOptions(epochs=2)
    assert pretrain(again, batches(*wave()), held_out, options) == pretrain(plain, batches(*wave()), held_out, options)


@pytest.mark.parametrize("together", [False, True])
def test_without_held_out_rows_some_are_set_aside_for_the_density(together: bool) -> None:
    """Kernels at the very rows that choose their bandwidth would be as narrow as can be."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=200)
    settings: dict[str, Any] = {"epochs": 10, "hidden": (20,), "density": KernelDensity(max_points=500)}
    fitted = [DensityRegressor(validation_fraction=0, random_state=seed, **settings) for seed in range(2)]
    if together:
        fit_together(fitted, [(X, y), (X, y)])
    else:
        fitted[0].fit(X, y)
    density = fitted[0].model_.density
    assert isinstance(density, KernelDensity)
    assert len(density.points) == 160
    assert density.width > 0.05
    assert np.median(fitted[0].predict(X, return_std=True)[1]) < 1.0


class Told(GaussianDensity):
    """Writes down what it is fitted to."""

    def fit(self, z: Tensor, sample_weight: Tensor | None = None, **how: Any) -> Self:
        self.told = (z, sample_weight, how["held_out"], how["generator"].initial_seed())
        return super().fit(z, sample_weight, **how)


def test_density_and_tempering_are_fitted_to_the_rows_and_judged_by_the_others() -> None:
    model, train, held_out = on_features(density=Told()), features(), features(50, seed=1)
    train, held_out = (
        rows._replace(weight=torch.rand(len(rows.z), generator=generator(i), dtype=torch.float64))
        for i, rows in enumerate((train, held_out))
    )
    fit_density(model, train, held_out, seed=7)
    z, weight, held, seed = model.density.told
    assert z is train.z
    assert weight is train.weight
    assert held is held_out.z
    assert seed == 7
    expected = RobustTempering().double().fit(*[model.density.log_prob(held_out.z)] * 2, held_out.weight)
    assert torch.equal(model.tempering.reference, expected.reference)
    assert torch.equal(model.tempering.spread, expected.spread)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_steps_two_and_three_are_given_the_held_out_rows(
    apart: bool, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(training, "fit_density", lambda model, *rows, seed: told.append((*rows, seed)))
    monkeypatch.setattr(training, "refit_head", lambda model, *rows, **how: told.append(rows[:2]))
    train = batches(*wave(40))
    held_out = batches(*wave(20, seed=1)) if apart else train
    options = TrainingOptions(epochs=1, seed=3)
    if together:
        models = [network(seed) for seed in range(2)]
        fit_density_regressions_together(
            models, [train] * 2, [held_out] * 2, options=options, seeds=[3, 4], verbose=False
        )
    else:
        fit_density_regression(network(), train, held_out, options=options, verbose=False)
    (rows, held, seed), (again, judges) = told[:2]
    assert len(rows.z) == len(again.z) == 40
    assert len(judges.z) == (20 if apart else 40)
    assert (held is not None and len(held.z) == 20) if apart else held is None
    assert seed == 3
    assert [one[2] for one in told[2::2]] == ([4] if together else [])


@pytest.mark.parametrize(
    ("losses", "kept", "rounds"),
    [
        # Three in a row that are no better end it; ten are the most.
        ([5.0, 4.0, 6.0, 6.0, 3.0, 7.0, 3.0, 9.0, 1.0], 4, 7),
        ([5.0, 6.0, 6.0, 6.0, 1.0], 0, 3),
        ([12.0 - i for i in range(20)], 10, 10),
        ([math.inf, math.inf, 2.0, math.inf, math.inf, math.inf, 1.0], 2, 5),
    ],
)
def test_step_three_keeps_the_best_round(
    losses: list[float], kept: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def finished(head: Head, *_: Any) -> tuple[Head, float]:
        head = shifted(head, float(len(seen)))
        seen.append(losses[len(seen)])
        return head, seen[-1]

    monkeypatch.setattr(training, "_finished", finished)
    model, train = on_features("mean", density=None), features(30)
    refit_head(model, train, train)
    assert len(seen) == 1 + rounds
    assert model.head.offset.item() == kept


def test_a_round_is_judged_with_the_bounds_of_weighted_rows() -> None:
    train, held_out = features(200), features(100, seed=1)
    train = train._replace(weight=(train.z[:, 0] > 0).double() + 0.1)
    head = on_features("mean").head
    nn.init.normal_(head.linear.weight, generator=generator())
    done, loss = training._finished(head, training._Rows(train, None), training._Rows(held_out, None))
    by_hand = copy.deepcopy(head)
    by_hand.bound(train.z, train.weight)
    by_hand.calibrate(held_out.z, held_out.y, None, held_out.weight)
    assert_equal(state(done), state(by_hand), "")
    assert loss == pytest.approx(head_nll(by_hand, held_out))
    assert (head.offset == 0).all()


def test_a_single_row_is_all_there_is() -> None:
    model, rows = on_features(density="gaussian"), features(1)
    fit_density(model, rows, None)
    assert finite(model)


# -- the head's offset ------------------------------------------------------------------------------------------------


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
def test_the_offset_is_the_most_likely_one(n: int, with_density: bool, weighted: bool) -> None:
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
        assert head.offset[target].item() == pytest.approx(best, abs=1e-5)


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
    exact = -(((rows.y - mean) / log_std.exp()) ** 2).mean().log()
    assert head.offset.item() == pytest.approx(exact.item(), abs=1e-3)
    assert head_nll(head, rows) == pytest.approx(
        min(head_nll(shifted(head, exact.item() + step), rows) for step in (-0.01, 0.0, 0.01)), abs=1e-6
    )


def shifted(head: Head, offset: float) -> Head:
    head = copy.deepcopy(head)
    head.offset.fill_(offset)
    return head


def test_a_perfect_fit_on_a_few_rows_is_not_believed() -> None:
    head, rows = on_features().head, features(4)
    head.calibrate(rows.z, head(rows.z).mean.detach(), None, rows.weight)
    assert head.offset.item() == pytest.approx(math.log(5), abs=1e-6)


@pytest.mark.parametrize("head", HEADS)
def test_after_step_three_no_other_offset_is_better(head: str) -> None:
    model, train, held_out = on_features(head), features(), features(seed=1)
    fit_density(model, train, held_out)
    refit_head(model, train, held_out)
    log_density = model.tempered(held_out.z)
    found = head_nll(model.head, held_out, log_density)
    for step in (-0.1, 0.1):
        assert head_nll(shifted(model.head, model.head.offset.item() + step), held_out, log_density) > found


# -- step 3 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("head", HEADS)
def test_step_three_never_ends_worse_than_it_began(head: str, seed: int) -> None:
    """Twelve rows for ten features: the likelihood of the training rows has no maximum to speak of."""
    model = on_features(head, dims=10, seed=seed)
    train, held_out = features(12, 10, seed), features(400, 10, seed + 50)
    model.head.start(*train)
    fit_density(model, train, held_out)
    log_density = model.tempered(held_out.z)
    start = copy.deepcopy(model.head)
    start.bound(train.z, train.weight)
    start.calibrate(held_out.z, held_out.y, log_density, held_out.weight)
    refit_head(model, train, held_out)
    assert head_nll(model.head, held_out, log_density) <= head_nll(start, held_out, log_density) + 1e-9


def test_what_fits_the_training_rows_best_may_not_be_kept() -> None:
    """The case before is a hard one indeed: without held-out rows the same step ends far worse on new ones."""
    train, held_out = features(12, 10), features(400, 10, 50)
    losses = []
    for judge in (held_out, train):
        model = on_features("mean", dims=10, density=None)
        model.head.start(*train)
        refit_head(model, train, judge)
        losses.append(head_nll(model.head, held_out))
    assert losses[0] < losses[1] - 1.0


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("targets", [1, 2])
def test_columns_say_what_rows_say(head: str, targets: int) -> None:
    """Moments and gradients; of features wider than the head, the first are read."""
    model = on_features(head, targets=targets).head
    nn.init.normal_(model.linear.weight, generator=generator())
    z = torch.randn(50, 5, dtype=torch.float64, generator=generator(1))
    log_density = torch.randn(50, dtype=torch.float64, generator=generator(2))
    ways = []
    for moments in (model(z, log_density), model.of_columns(z.T.contiguous(), log_density)):
        total = moments.mean.square().sum() + moments.log_std.square().sum()
        ways.append((*moments, *torch.autograd.grad(total, list(model.parameters()))))
    for rows, columns in zip(*ways, strict=True):
        torch.testing.assert_close(rows, columns, rtol=1e-12, atol=1e-12)


def test_second_order_finds_the_optimum() -> None:
    """The mean head alone, against scipy on the likelihood written out by hand."""
    rows = features(400)
    z, y = rows.z.numpy(), rows.y.numpy()[:, 0]

    def loss(weights: np.ndarray) -> float:
        location, s = z @ weights[:3] + weights[3], z @ weights[4:7] + weights[7]
        variance = np.exp(-s) / 2
        return float(np.mean(0.5 * np.log(2 * np.pi * variance) + 0.5 * (y - location) ** 2 / variance))

    best = minimize(loss, np.zeros(8), method="BFGS", options={"gtol": 1e-7})
    model = on_features("mean", density=None)
    refit_head(model, rows, rows)
    weight, bias = model.head.linear.weight.detach().numpy(), model.head.linear.bias.detach().numpy()
    found = np.concatenate([weight[0], bias[:1], weight[1], bias[1:]])
    # Not quite there: of all rounds that is kept whose bounded head is best.
    assert loss(found) - best.fun < 1e-3
    np.testing.assert_allclose(found, best.x, atol=0.05)


@pytest.mark.parametrize("head", HEADS)
def test_second_order_improves_on_the_start(head: str) -> None:
    model, train, held_out = on_features(head), features(), features(seed=1)
    fit_density(model, train, held_out)
    log_density = model.tempered(held_out.z)
    before = head_nll(model.head, held_out, log_density)
    refit_head(model, train, held_out)
    assert head_nll(model.head, held_out, log_density) < before - 0.5


@pytest.mark.parametrize("head", HEADS)
def test_a_sample_serves_where_features_do_not_fit(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, train, held_out = on_features(head), features(4000), features(seed=1)
    stream = batches(train.z, train.y, 64)
    fit_density(model, train, held_out)
    log_density = model.tempered(held_out.z)
    start = copy.deepcopy(model.head)
    before = head_nll(start, held_out, log_density)
    losses = []
    for limit in (4000, 1000):
        monkeypatch.setattr(training, "MAX_CACHED_VALUES", model.features * limit)
        model.head = copy.deepcopy(start)
        sample = cache_features(model, stream)
        assert len(sample.z) == limit
        refit_head(model, sample, held_out)
        losses.append(head_nll(model.head, held_out, log_density))
    assert losses[1] == pytest.approx(losses[0], abs=0.02)
    assert max(losses) < before - 0.5


# -- cached features --------------------------------------------------------------------------------------------------


def test_features_that_fit_are_cached_in_order() -> None:
    x = torch.arange(60.0).reshape(30, 2)
    weight = torch.linspace(0.1, 1.0, 30)
    model = DensityRegression(nn.Identity(), 2)
    model.train()
    cached = cache_features(model, batches(x, x[:, :1] + 0.5, 7, weight))
    assert not model.training
    assert torch.equal(cached.z, x)
    assert torch.equal(cached.y, x[:, :1] + 0.5)
    assert torch.equal(cached.weight, weight)
    assert not cached.z.requires_grad


@pytest.mark.parametrize("size", [13, 700, 20_000])
def test_features_that_do_not_fit_are_sampled_uniformly(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MAX_CACHED_VALUES", 2000)
    x = torch.arange(20_000.0)[:, None]
    cached = cache_features(DensityRegression(nn.Identity(), 1), batches(x, 2 * x, size, x[:, 0] + 1))
    assert len(cached.z.unique()) == len(cached.z) == 2000
    assert torch.equal(cached.y, 2 * cached.z)
    assert torch.equal(cached.weight, cached.z[:, 0] + 1)
    # By where they lie in the data, and by where they lie in their batch.
    for position in (cached.z[:, 0] // 1000, cached.z[:, 0] % size // (size / 13)):
        counts = position.long().bincount(minlength=13)
        assert chisquare(counts.numpy()).pvalue > 1e-3
    # Two of them nearer to each other than chance brings about would mean that batches are kept whole.
    assert cached.z[:, 0].sort().values.diff().max() < 150


def test_rows_without_weight_take_no_place_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MAX_CACHED_ROWS", 20)
    rows = features(100, dims=1)
    weight = torch.zeros(100).double()
    weight[::10] = 1.0
    table = batches(rows.z, rows.y, 30, weight)
    assert torch.equal(cache_features(on_features(dims=1), table).z, rows.z[::10])


@pytest.mark.parametrize("size", [7, 300, 5000])
def test_a_loader_that_does_not_fit_is_sampled_uniformly(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are known only as they come, so that a sample is kept up to date."""
    monkeypatch.setattr(training, "MAX_CACHED_VALUES", 500)
    x = torch.arange(5000.0)[:, None]
    loader = [(x[i : i + size], 2 * x[i : i + size], x[i : i + size, 0] + 1) for i in range(0, 5000, size)]
    cached = cache_features(DensityRegression(nn.Identity(), 1), loader)
    assert len(cached.z.unique()) == len(cached.z) == 500
    assert torch.equal(cached.y, 2 * cached.z)
    assert torch.equal(cached.weight, cached.z[:, 0] + 1)
    assert chisquare((cached.z[:, 0] // 500).long().bincount(minlength=10).numpy()).pvalue > 1e-3


def test_rows_of_a_loader_without_weight_are_left_out() -> None:
    rows = features(20, dims=1)
    weight = (torch.arange(20) % 3 == 0).double()
    y = torch.where(weight[:, None] > 0, rows.y, math.nan)
    loader = [(rows.z[i : i + 5], y[i : i + 5], weight[i : i + 5]) for i in range(0, 20, 5)]
    cached = cache_features(on_features(dims=1), loader)
    assert torch.equal(cached.z, rows.z[::3])
    assert torch.equal(cached.y, rows.y[::3])
    assert torch.equal(cached.weight, torch.ones(7).double())


def test_rows_of_a_table_are_limited_and_positions_of_images_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MAX_CACHED_ROWS", 20)
    x = torch.randn(30, 2, generator=generator())
    model = DensityRegression(nn.Identity(), 2)
    assert len(cache_features(model, batches(x, x[:, :1])).z) == 20
    images = x[..., None].expand(30, 2, 4)
    assert len(cache_features(model, batches(images, images[:, :1])).z) == 120


def test_exactly_as_many_as_fit_are_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MAX_CACHED_VALUES", 60)
    x = torch.arange(60.0).reshape(30, 2)
    model = DensityRegression(nn.Identity(), 2)
    cached = cache_features(model, batches(x, x[:, :1], 7))
    assert torch.equal(cached.z, x)
    cached = cache_features(model, batches(*(torch.cat([part, part[:1]]) for part in (x, x[:, :1])), 7))
    assert len(cached.z) == 30


@pytest.mark.parametrize("shape", [(5,), (3, 4)], ids=["sequence", "image"])
def test_one_row_is_cached_for_each_position(shape: tuple[int, ...]) -> None:
    x = torch.randn(6, 2, *shape, generator=generator())
    y = torch.randn(6, 3, *shape, generator=generator(1))
    weight = torch.arange(1.0, 7.0)
    cached = cache_features(DensityRegression(nn.Identity(), 2, targets=3), batches(x, y, 4, weight))
    places = list(np.ndindex(*shape))
    assert torch.equal(cached.z, torch.stack([x[(row, slice(None), *at)] for row in range(6) for at in places]))
    assert torch.equal(cached.y, torch.stack([y[(row, slice(None), *at)] for row in range(6) for at in places]))
    assert torch.equal(cached.weight, torch.stack([weight[row] for row in range(6) for _ in places]))
