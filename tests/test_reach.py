"""The learnt reach: chosen by hidden rows as a slow search would, and wide where it must be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from density_regression import DensityRegressor, fit_together, load, reach
from density_regression.datasets import make_cubic
from density_regression.density import TYPICAL_REACH, RobustTempering
from density_regression.model import DensityRegression
from density_regression.reach import DETAILS, EVIDENCE, REACHES, TYPICAL
from density_regression.tables import Table
from density_regression.training import TrainingOptions, fit_density_regression

QUICK = {"hidden": (16,), "epochs": 30, "n_threads": 1, "verbose": False, "random_state": 0}


def table(n: int, seed: int = 0, columns: int = 1) -> Table:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, columns, generator=generator) * 4 - 2
    y = x[:, :1].pow(3) + 0.1 * torch.randn(n, 1, generator=generator)
    return Table(x, y / 3, torch.ones(n))


def on_inputs(columns: int = 1, **settings: Any) -> DensityRegression:
    """A model whose features are its inputs."""
    return DensityRegression(nn.Identity(), columns, **settings)


def trained(rows: Table, held_out: Table, **settings: Any) -> DensityRegression:
    model = on_inputs(rows.x.shape[1], **settings)
    settings = {"options": TrainingOptions(epochs=5), "scale_targets": False, "verbose": False}
    fit_density_regression(model, rows.batches(32), held_out.batches(1000), **settings)
    return model


def learnt(regressor: DensityRegressor) -> float:
    return float(regressor.model_.tempering.learnt_reach)


# -- what is hidden ---------------------------------------------------------------------------------------------------


def test_hidden_rows_are_the_ends_and_no_row_is_in_two_parts() -> None:
    rows, held_out = table(300), table(100, seed=1)
    everything = torch.cat([rows.x, held_out.x])[:, 0]
    hidings = reach._hide(trained(rows, held_out), rows, held_out, seed=0)
    assert len(hidings) == 4
    for train, held, hidden in hidings:
        assert torch.equal(torch.cat([train.x, held.x, hidden.x])[:, 0].sort()[0], everything.sort()[0])
        # One dimension has one direction: the outer eighths are hidden whatever its sign.
        assert len(hidden.x) == 100
        # Of the others a fifth is held out.
        assert len(held.x) == 60
        inside = torch.cat([train.x, held.x])[:, 0]
        assert inside.min() > hidden.x[hidden.x < 0].max()
        assert inside.max() < hidden.x[hidden.x > 0].min()
        # Targets and weights stayed with their rows.
        truth = dict(zip(everything.tolist(), torch.cat([rows.y, held_out.y])[:, 0].tolist(), strict=True))
        assert all(truth[x] == y for x, y in zip(hidden.x[:, 0].tolist(), hidden.y[:, 0].tolist(), strict=True))


@pytest.mark.parametrize(("rows", "size"), [(600, 700), (2000, 800), (9500, 1200), (60_000, 3000)])
def test_large_tables_are_sampled(rows: int, size: int) -> None:
    model = trained(table(300, columns=3), table(100, seed=1, columns=3))
    hidings = reach._hide(model, table(rows, columns=3), table(100, seed=1, columns=3), seed=0)
    assert all(sum(len(part.x) for part in hiding) == size for hiding in hidings)


def test_directions_differ() -> None:
    rows, held_out = table(500, columns=3), table(300, seed=1, columns=3)
    hidings = reach._hide(trained(rows, held_out), rows, held_out, seed=0)
    chosen = [set(hiding.hidden.x[:, 0].tolist()) for hiding in hidings]
    assert all(len(a & b) < 0.9 * len(a) for i, a in enumerate(chosen) for b in chosen[:i])


def test_a_table_that_holds_out_itself_is_counted_once() -> None:
    rows = table(300)
    for train, held, hidden in reach._hide(trained(rows, rows), rows, rows, seed=0):
        assert torch.equal(torch.cat([train.x, held.x, hidden.x]).sort(0)[0], rows.x.sort(0)[0])


def test_the_seed_says_what_is_hidden_and_held_out() -> None:
    rows = table(300, columns=3)
    model = trained(rows, rows)
    one, again, other = (reach._hide(model, rows, rows, seed) for seed in (0, 0, 1))
    for part, same, different in zip(one, again, other, strict=True):
        assert all(torch.equal(a.x, b.x) for a, b in zip(part, same, strict=True))
        assert not any(torch.equal(a.x, b.x) for a, b in zip(part, different, strict=True))
        # Held out at random, not from one side.
        assert abs(part.held_out.x.mean() - part.train.x.mean()) < 0.4


def test_rows_are_hidden_by_whitened_features() -> None:
    """One column is ten times larger: as they are, its ends would be hidden along every direction."""
    rows = table(800, columns=2)
    rows = rows._replace(x=rows.x * torch.tensor([1.0, 10.0]))
    hidings = reach._hide(trained(rows, rows), rows, rows, seed=0)
    assert min(hiding.hidden.x[:, 1].abs().min() for hiding in hidings) < 5


@pytest.mark.parametrize(
    ("settings", "rows", "expected"),
    [
        ({}, 100, True),
        ({}, 99, False),
        ({"density": None}, 500, False),
        ({"tempering": "exact"}, 500, False),
        ({"tempering": RobustTempering(reach=3.0)}, 500, False),
    ],
)
def test_what_can_learn_a_reach(settings: dict[str, Any], rows: int, expected: bool) -> None:
    assert reach.can_learn_reach(on_inputs(**settings), rows) is expected


# -- how the networks are trained -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize(
    ("rows", "given", "expected"),
    [
        # About 200 steps of batches of 128, but at most 50 epochs, and no more of either than the caller's.
        (1000, {"epochs": 100, "patience": None}, (25, 50)),
        (1100, {"epochs": 100, "patience": 200}, (23, 50)),
        (128, {"epochs": 100, "patience": 7}, (50, 7)),
        (1000, {"epochs": 10, "patience": 30}, (10, 30)),
    ],
)
def test_training_is_short(
    rows: int, given: dict[str, Any], expected: tuple[int, int], stacked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Any, ...]] = []

    def together(networks: Any, trains: Any, held_outs: Any, *, refit: bool = True, **how: Any) -> bool:
        # The head of step 1 will do.
        assert not refit
        told.extend(zip(networks, trains, held_outs, how.pop("seeds"), [how] * len(networks), strict=True))
        return stacked

    def alone(network: Any, train: Any, held_out: Any, **how: Any) -> None:
        told.append((network, train, held_out, how["options"].seed, how))

    monkeypatch.setattr(reach, "fit_density_regressions_together", together)
    monkeypatch.setattr(reach, "fit_density_regression", alone)
    tables = [[table(n, seed=10 * i + n) for n in (rows, 40, 30)] for i in range(2)]
    work = [reach.Work(on_inputs(), reach.Hiding(*parts), seed) for parts, seed in zip(tables, (5, 6), strict=True)]
    options = TrainingOptions(learning_rate=0.02, seed=1, **given)
    reach._train(work, options)
    # Together, if that can be; else each of them once more.
    assert len(told) == (2 if stacked else 4)
    for (network, train, held_out, seed, how), part in zip(told, work if stacked else 2 * work, strict=True):
        assert network is part.network
        assert seed == part.seed
        assert not how["verbose"]
        assert (how["options"].epochs, how["options"].patience, how["options"].learning_rate) == (*expected, 0.02)
        (x, *_), *others = held_out
        assert torch.equal(x, part.hiding.held_out.x)
        assert not others
        assert len(train) == math.ceil(rows / 128)
        # In an order that is the seed's.
        train.rewind()
        shuffled = part.hiding.train.batches(128, torch.Generator().manual_seed(part.seed))
        assert all(torch.equal(a[0], b[0]) for a, b in zip(train, shuffled, strict=True))


def test_each_model_has_networks_and_rows_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    trained_at_once: list[list[reach.Work]] = []
    chosen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(reach, "_hide", lambda *which: [(*which, i) for i in range(4)])
    monkeypatch.setattr(reach, "_train", lambda work, options: trained_at_once.append([*work, options]))
    monkeypatch.setattr(reach, "_choose", lambda *which: chosen.append(which))
    models = [torch.nn.Identity() for _ in range(11)]
    trains, held_outs = ([f"{name} {i}" for i in range(11)] for name in ("train", "held out"))
    seeds = [100 * i for i in range(11)]
    reach.learn_reach(models, trains, held_outs, lambda: torch.rand(1).item(), "options", seeds)
    # Forty at a time.
    assert [len(part) - 1 for part in trained_at_once] == [40, 4]
    assert all(part.pop() == "options" for part in trained_at_once)
    work = [one for part in trained_at_once for one in part]
    for i, (model, held_out, networks, hidings) in enumerate(chosen):
        assert (model, held_out) == (models[i], held_outs[i])
        assert hidings == [(models[i], trains[i], held_outs[i], seeds[i], k) for k in range(4)]
        # Fresh networks depend on the model's seed alone, and differ.
        torch.manual_seed(seeds[i])
        assert networks == [torch.rand(1).item() for _ in range(4)]
        assert work[4 * i : 4 * i + 4] == [
            reach.Work(network, hiding, seeds[i] + k)
            for k, (network, hiding) in enumerate(zip(networks, hidings, strict=True))
        ]


# -- what is chosen ---------------------------------------------------------------------------------------------------


def slow_losses(model: DensityRegression, held_out: Table, rows: Table) -> dict[tuple[float, float], float]:
    """The loss of every choice by numpy, from the model's parts and the formulas alone."""
    head, tempering = model.head, model.tempering
    head.detail.fill_(1.0)
    head.offset.zero_()

    def parts(table: Table) -> tuple[np.ndarray, ...]:
        with torch.no_grad():
            mean, log_std = head(table.x, None)
            log_density = model.density.log_prob(table.x)
        return tuple(part.double().numpy().reshape(-1) for part in (table.y, mean, 2 * log_std, log_density))

    def average(values: np.ndarray, table: Table) -> float:
        return float(np.average(values, weights=table.weight.double().numpy()))

    level = math.log(average(np.exp(parts(held_out)[2]), held_out))

    def total(log_variance: np.ndarray, log_density: np.ndarray, span: float, detail: float) -> np.ndarray:
        excess = np.maximum(float(tempering.reference) - log_density, 0) / (span * float(tempering.spread))
        return level + detail * (log_variance - level) + float(tempering.exponent) * np.log1p(2 * excess)

    losses = {}
    for span, detail in product(REACHES, DETAILS):
        y, mean, log_variance, log_density = parts(held_out)
        ratio = (y - mean) ** 2 / np.exp(total(log_variance, log_density, span, detail))
        y, mean, log_variance, log_density = parts(rows)
        variance = np.exp(total(log_variance, log_density, span, detail)) * average(ratio, held_out)
        losses[span, detail] = average(0.5 * (np.log(2 * np.pi * variance) + (y - mean) ** 2 / variance), rows)
    return losses


@pytest.mark.parametrize("weighted", [False, True])
def test_losses_are_those_of_the_formulas_and_of_a_model_that_settles(weighted: bool) -> None:
    held_out, rows = table(150, seed=1), table(200, seed=2)
    rows = rows._replace(x=3 * rows.x)
    if weighted:
        held_out, rows = (
            part._replace(weight=torch.rand(len(part.x), generator=torch.Generator().manual_seed(i)))
            for i, part in enumerate((held_out, rows))
        )
    model = trained(table(400), held_out)
    # Losses of the mean that was learnt, and a scale that is not.
    model.head.offset.add_(1.0)
    judge = reach._Judge(model, held_out, rows)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    choices = list(product(REACHES, DETAILS))
    found = dict(zip(choices, judge.losses(*zip(*choices, strict=True)), strict=True))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    for choice in ((0.25, 0.5), (3.0, 0.75), (64.0, 1.0)):
        alone = judge.losses(*zip(choice, strict=True))
        judge.settle(*choice)
        assert float(model.tempering.learnt_reach) == choice[0]
        assert float(model.head.detail) == choice[1]
        with torch.no_grad():
            own = -model(rows.x).log_prob(rows.y)[:, 0]
        assert alone == pytest.approx([(rows.weight @ own / rows.weight.sum()).item()], abs=2e-3)
    expected = slow_losses(model, held_out, rows)
    assert [found[choice] for choice in choices] == pytest.approx([expected[choice] for choice in choices], abs=2e-3)


def test_a_loss_that_is_no_number_is_never_chosen() -> None:
    held_out = table(50)
    model = trained(held_out, held_out)
    rows = held_out._replace(y=torch.full((50, 1), 1e30))
    assert reach._Judge(model, held_out, rows).losses([1.0, 2.0], [1.0, 1.0]) == [math.inf, math.inf]


def test_choice_equals_a_slow_search() -> None:
    rows, held_out = table(400), table(150, seed=1)
    model = trained(rows, held_out)
    hidings = reach._hide(model, rows, held_out, seed=0)
    networks = [trained(part.train, part.held_out) for part in hidings]
    inside = slow_losses(model, held_out, held_out)
    outside = [
        slow_losses(network, part.held_out, part.hidden) for network, part in zip(networks, hidings, strict=True)
    ]
    numbers = (sum(len(part.hidden.x) for part in hidings), len(held_out.x))
    total = {
        choice: inside[choice]
        + np.mean(sorted(part[choice] for part in outside)[2:])
        + sum(e / n * math.log2(c / t) ** 2 for c, t, e, n in zip(choice, TYPICAL, EVIDENCE, numbers, strict=True))
        for choice in inside
    }
    reach._choose(model, held_out, networks, hidings)
    span, detail = min(total, key=total.get)
    assert float(model.head.detail) == detail
    # The fine step is at most half a doubling away.
    assert abs(math.log2(float(model.tempering.learnt_reach) / span)) <= 0.51
    # And the scale is that of the held-out rows.
    with torch.no_grad():
        predicted = model(held_out.x)
    squares = ((held_out.y - predicted.mean) / predicted.stddev).square()
    assert squares.mean().item() == pytest.approx(1.0, abs=0.02)


class GivenLosses:
    """In the place of the judges: losses by a formula, and what was settled on."""

    def __init__(self, settled: list[tuple[float, float]], formulas: list[Callable[[float, float], float]]) -> None:
        self.settled, self.formulas = settled, formulas

    def __call__(self, model: Any, held_out: Table, judging: Table) -> SimpleNamespace:
        formula = self.formulas.pop(0) if self.formulas else None

        def losses(reaches: Sequence[float], details: Sequence[float]) -> list[float]:
            return [formula(*choice) for choice in zip(reaches, details, strict=True)]

        return SimpleNamespace(losses=losses, settle=lambda *choice: self.settled.append(choice))


def settled(
    monkeypatch: pytest.MonkeyPatch,
    inside: Callable[[float, float], float],
    outside: Sequence[Callable[[float, float], float]],
    rows: int = 10**6,
) -> tuple[float, float]:
    """Reach and detail chosen by these losses, of which hidden and held-out rows are so many."""
    found: list[tuple[float, float]] = []
    monkeypatch.setattr(reach, "_Judge", GivenLosses(found, [inside, *outside]))
    # Tables that take no memory: a single value, seen as many.
    many = Table(*(torch.zeros(1, 1).expand(rows, 1) for _ in range(2)), torch.ones(1).expand(rows))
    part = many.take(slice(rows // len(outside)))
    reach._choose(None, many, [None] * len(outside), [reach.Hiding(part, part, part)] * len(outside))
    (choice,) = found
    return choice


def preferring(best: float, level: float = 0.0, detail: float = 1.0, strength: float = 1.0) -> Callable[..., float]:
    """A loss that is least, and then `level`, at this reach and detail."""
    return lambda r, d: level + strength * (math.log2(r / best) ** 2 + (d - detail) ** 2)


def test_the_harder_half_of_the_directions_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    def indifferent(r: float, d: float) -> float:
        return 0.0

    easy, hard = preferring(0.25), preferring(32.0, level=100.0)
    for order in ([easy, easy, hard, hard], [hard, easy, easy, hard]):
        assert settled(monkeypatch, indifferent, order)[0] == 32.0
    # Of five, the middle one counts among the harder ones; they have an equal say.
    wide = preferring(128.0, level=200.0)
    assert settled(monkeypatch, indifferent, [wide, easy, hard, easy, preferring(2.0, level=50.0)])[0] == 16.0 * 2**0.5


def test_rows_inside_have_a_say_equal_to_those_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = [preferring(64.0, level=10.0 * i) for i in range(4)]
    assert settled(monkeypatch, preferring(1.0), outside)[0] == 8.0
    assert settled(monkeypatch, preferring(1.0, strength=3.0), outside)[0] == pytest.approx(2**1.5)


def test_who_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each network its hidden rows; the model at most 5,000 of its held-out rows, and all of them set its scale."""
    told: list[tuple[Any, ...]] = []

    def judge(*which: Any) -> SimpleNamespace:
        told.append(which)
        return SimpleNamespace(losses=lambda reaches, _: [0.0] * len(reaches), settle=lambda *_: None)

    monkeypatch.setattr(reach, "_Judge", judge)
    held_out = table(12_000)
    hidings = [reach.Hiding(table(3), table(4), table(5)) for _ in range(4)]
    reach._choose("model", held_out, "abcd", hidings)
    inside, *outside, last = told
    assert outside == [(name, part.held_out, part.hidden) for name, part in zip("abcd", hidings, strict=True)]
    assert (inside[0], last[0], last[1]) == ("model", "model", held_out)
    for some in inside[1:]:
        # Every third, as they may be in an order.
        assert torch.equal(some.x, held_out.x[::3])
        assert torch.equal(some.y, held_out.y[::3])
    told.clear()
    reach._choose("model", table(5000), "abcd", hidings)
    assert [len(part.x) for part in told[0][1:]] == [5000, 5000]


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("power", [-3.5, -3.0, -0.5, 0.0, 2.5, 7.0, 7.5])
def test_reaches_are_half_powers_of_two(power: float, detail: float, monkeypatch: pytest.MonkeyPatch) -> None:
    best = preferring(2.0**power, detail=detail)
    assert settled(monkeypatch, best, [best] * 4) == (pytest.approx(2.0**power), detail)


@pytest.mark.parametrize(("share", "believed"), [(0.98, False), (1.02, True)])
def test_evidence_is_weighed_in_nats_of_all_rows(share: float, believed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 nats of the hidden rows for each squared doubling of the typical reach, 10 of the inner for the detail."""
    rows = 1000
    # From 4, the power of two next to the typical reach, to 16; the last step is then to the half power nearer to it.
    needed = 20.0 * (math.log2(16.0 / TYPICAL_REACH) ** 2 - math.log2(4.0 / TYPICAL_REACH) ** 2)
    outside = [lambda r, d: -(r == 16.0) * share * needed / rows] * 4
    expected = 16.0 if believed else 2.0**1.5
    assert settled(monkeypatch, lambda r, d: 0.0, outside, rows) == (pytest.approx(expected), 0.5)
    # A detail of 1 is twice the typical one.
    inside = settled(monkeypatch, lambda r, d: -(d == 1.0) * share * 10.0 / rows, [lambda r, d: 0.0] * 4, rows)
    assert inside == (pytest.approx(2.0**1.5), 1.0 if believed else 0.5)


def test_reach_is_long_where_the_mean_holds_outside_and_short_where_it_does_not() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 1))
    noise = 0.05 * rng.standard_normal(600)
    # The default network is linear beyond its data: right about a line, wrong about a wave.
    line, wave = (
        DensityRegressor(**QUICK | {"epochs": 100, "batch_size": 64}).fit(X, y + noise)
        for y in (X[:, 0], np.sin(4 * X[:, 0]))
    )
    assert learnt(line) > 2 * learnt(wave)


def test_hidden_rows_that_are_few_leave_the_reach_typical() -> None:
    X, y = make_cubic(n=99, random_state=0)
    regressor = DensityRegressor(**QUICK).fit(X, y)
    assert learnt(regressor) == TYPICAL_REACH
    assert regressor.report_.seconds["learn_reach"] == 0.0
    assert float(regressor.model_.head.detail) == 1.0


@pytest.mark.parametrize(
    "settings",
    [{"tempering": "exact"}, {"tempering": "rescaled"}, {"density": None}, {"tempering": RobustTempering(reach=3.0)}],
    ids=str,
)
def test_what_has_no_reach_to_learn_trains_no_further_networks(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("networks were trained")

    monkeypatch.setattr(reach, "_train", refuse)
    X, y = make_cubic(n=200, random_state=0)
    regressor = DensityRegressor(**QUICK, **settings).fit(X, y)
    if isinstance(settings.get("tempering"), RobustTempering):
        assert learnt(regressor) == 3.0
    with pytest.raises(AssertionError, match="networks"):
        DensityRegressor(**QUICK).fit(X, y)
    encoder = nn.Sequential(nn.Linear(1, 8), nn.ReLU())
    assert learnt(DensityRegressor.from_trained(encoder, X, y, **QUICK)) == TYPICAL_REACH


# -- as part of a fit -------------------------------------------------------------------------------------------------


def test_same_again_gives_the_same_and_the_callers_generator_is_left_alone() -> None:
    X, y = make_cubic(n=200, random_state=0)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, other = (DensityRegressor(**QUICK).fit(X, y) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert learnt(one) == learnt(other)
    np.testing.assert_array_equal(one.predict(X, return_std=True), other.predict(X, return_std=True))


def test_together_as_alone() -> None:
    tables = [make_cubic(n=200, random_state=seed) for seed in range(2)]
    together = [DensityRegressor(**QUICK | {"random_state": seed}) for seed in range(2)]
    fit_together(together, tables)
    for seed, regressor in enumerate(together):
        alone = DensityRegressor(**QUICK | {"random_state": seed}).fit(*tables[seed])
        assert abs(math.log2(learnt(regressor) / learnt(alone))) <= 0.51
        assert regressor.report_.seconds["learn_reach"] > 0


def test_networks_that_cannot_be_stacked_are_trained_one_by_one() -> None:
    X, y = make_cubic(n=200, random_state=0)

    def encoder(columns: int) -> nn.Module:
        return nn.Sequential(nn.Linear(columns, 16), nn.BatchNorm1d(16), nn.ReLU())

    regressor = DensityRegressor(encoder=encoder, **QUICK).fit(X, y)
    assert regressor.report_.seconds["learn_reach"] > 0
    assert np.isfinite(regressor.predict(X * 1e6, return_std=True)).all()


def test_saved_with_the_model(tmp_path: Any) -> None:
    X, y = make_cubic(n=200, random_state=0)
    regressor = DensityRegressor(**QUICK).fit(X, y)
    again = load(regressor.save(tmp_path / "model") or tmp_path / "model")
    assert learnt(again) == learnt(regressor) != TYPICAL_REACH
    np.testing.assert_array_equal(again.predict(10 * X, return_std=True), regressor.predict(10 * X, return_std=True))


def test_filling_a_gap_with_rows_shrinks_the_epistemic_part_there_and_leaves_the_noise() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (900, 1))
    y = X[:, 0] + 0.3 * rng.standard_normal(900)
    apart = np.abs(X[:, 0]) > 1.5
    gap, filled = (
        DensityRegressor(**QUICK | {"epochs": 60, "batch_size": 64}).fit(X[rows], y[rows]).decompose([[0.0]])
        for rows in (apart, np.ones(900, dtype=bool))
    )
    assert filled.epistemic[0] < 0.5 * gap.epistemic[0]
    assert filled.aleatoric[0] == pytest.approx(gap.aleatoric[0], rel=0.3)
    assert filled.aleatoric[0] == pytest.approx(0.3, rel=0.3)
    # Twice as many rows at the same places: it measures a distance, not how many rows there were.
    twice = (
        DensityRegressor(**QUICK | {"epochs": 60, "batch_size": 64})
        .fit(np.tile(X, (2, 1)), np.tile(y, 2))
        .decompose([[0.0]])
    )
    assert twice.aleatoric[0] == pytest.approx(filled.aleatoric[0], rel=0.3)
