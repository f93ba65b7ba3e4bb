"""The reach that hidden rows choose: as a slow search would, by given losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from density_regression.nn.heads import squared_error_doubt
from density_regression.nn.model import DensityRegression
from density_regression.nn.tempering import DEFAULT_REACH
from density_regression.tabular.table import TrainingRows
from density_regression.training import reach
from density_regression.training.reach import DETAILS, PRIOR, PRIOR_STRENGTH, REACHES
from training.reach_helpers import hidings_of, table, trained


def slow_losses(
    model: DensityRegression, held_out: TrainingRows, rows: TrainingRows
) -> dict[tuple[float, float], float]:
    """The loss of every choice by numpy, from the model's parts and the formulas alone."""
    head, tempering = model.head, model.tempering
    head.detail.fill_(1.0)
    head.offset.zero_()

    def parts(table: TrainingRows) -> tuple[np.ndarray, ...]:
        with torch.no_grad():
            mean, log_std = head(table.x, None)
            log_density = model.density.log_prob(table.x)
        return tuple(part.double().numpy().reshape(-1) for part in (table.y, mean, 2 * log_std, log_density))

    def average(values: np.ndarray, table: TrainingRows) -> float:
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
def test_losses_are_those_of_the_formulas_and_of_a_model_that_applies_them(weighted: bool) -> None:
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
    evaluation = reach._Evaluation(model, held_out, rows)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    choices = list(product(REACHES, DETAILS))
    found = dict(zip(choices, evaluation.losses(*zip(*choices, strict=True)), strict=True))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    for choice in ((0.25, 0.5), (3.0, 0.75), (64.0, 1.0)):
        alone = evaluation.losses(*zip(choice, strict=True))
        evaluation.apply(*choice)
        assert float(model.tempering.learnt_reach) == choice[0]
        assert float(model.head.detail) == choice[1]
        with torch.no_grad():
            # The model's variance is larger than the most likely one by this.
            moments = model.row_moments(model.encode(held_out.x))
            model.head.offset.add_(squared_error_doubt(moments, held_out.y, held_out.weight)[0])
            own = -model(rows.x).log_prob(rows.y)[:, 0]
        assert alone == pytest.approx([(rows.weight @ own / rows.weight.sum()).item()], abs=2e-3)
    expected = slow_losses(model, held_out, rows)
    assert [found[choice] for choice in choices] == pytest.approx([expected[choice] for choice in choices], abs=2e-3)


def test_a_loss_that_is_no_number_is_never_chosen() -> None:
    held_out = table(50)
    model = trained(held_out, held_out)
    rows = held_out._replace(y=torch.full((50, 1), 1e30))
    assert reach._Evaluation(model, held_out, rows).losses([1.0, 2.0], [1.0, 1.0]) == [math.inf, math.inf]


def test_choice_equals_a_slow_search() -> None:
    rows, held_out = table(400), table(150, seed=1)
    model = trained(rows, held_out)
    hidings = hidings_of(model, rows, held_out, seed=0)
    networks = [trained(part.train, part.held_out) for part in hidings]
    inside = slow_losses(model, held_out, held_out)
    outside = [
        slow_losses(network, part.held_out, part.hidden) for network, part in zip(networks, hidings, strict=True)
    ]
    numbers = (sum(len(part.hidden.x) for part in hidings), len(held_out.x))
    total = {
        choice: inside[choice]
        + np.mean(sorted(part[choice] for part in outside)[2:])
        + sum(e / n * math.log2(c / t) ** 2 for c, t, e, n in zip(choice, PRIOR, PRIOR_STRENGTH, numbers, strict=True))
        for choice in inside
    }
    reach.choose_reach(model, held_out, networks, hidings)
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
    """In the place of evaluations: losses by a formula, and what was chosen."""

    def __init__(self, chosen: list[tuple[float, float]], formulas: list[Callable[[float, float], float]]) -> None:
        self.chosen, self.formulas = chosen, formulas

    def __call__(self, model: Any, held_out: TrainingRows, evaluated: TrainingRows) -> SimpleNamespace:
        formula = self.formulas.pop(0) if self.formulas else None

        def losses(reaches: Sequence[float], details: Sequence[float]) -> list[float]:
            return [formula(*choice) for choice in zip(reaches, details, strict=True)]

        return SimpleNamespace(losses=losses, apply=lambda *choice: self.chosen.append(choice))


def chosen(
    monkeypatch: pytest.MonkeyPatch,
    inside: Callable[[float, float], float],
    outside: Sequence[Callable[[float, float], float]],
    rows: int = 10**6,
) -> tuple[float, float]:
    """Reach and detail chosen by these losses, of which hidden and held-out rows are so many."""
    found: list[tuple[float, float]] = []
    monkeypatch.setattr(reach, "_Evaluation", GivenLosses(found, [inside, *outside]))
    # Tables that take no memory: a single value, seen as many.
    many = TrainingRows(*(torch.zeros(1, 1).expand(rows, 1) for _ in range(2)), torch.ones(1).expand(rows))
    part = TrainingRows(*(values[: rows // len(outside)] for values in many))
    reach.choose_reach(None, many, [None] * len(outside), [reach.Hiding(part, part, part)] * len(outside))
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
        assert chosen(monkeypatch, indifferent, order)[0] == 32.0
    # Of five, the middle one counts among the harder ones; they have an equal say.
    wide = preferring(128.0, level=200.0)
    assert chosen(monkeypatch, indifferent, [wide, easy, hard, easy, preferring(2.0, level=50.0)])[0] == 16.0 * 2**0.5


def test_rows_inside_have_a_say_equal_to_those_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = [preferring(64.0, level=10.0 * i) for i in range(4)]
    assert chosen(monkeypatch, preferring(1.0), outside)[0] == 8.0
    assert chosen(monkeypatch, preferring(1.0, strength=3.0), outside)[0] == pytest.approx(2**1.5)


def test_whose_rows_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each network its hidden rows; the model at most 5,000 of its held-out rows, and all of them set its scale."""
    told: list[tuple[Any, ...]] = []

    def evaluation(*which: Any) -> SimpleNamespace:
        told.append(which)
        return SimpleNamespace(losses=lambda reaches, _: [0.0] * len(reaches), apply=lambda *_: None)

    monkeypatch.setattr(reach, "_Evaluation", evaluation)
    held_out = table(12_000)
    hidings = [reach.Hiding(table(3), table(4), table(5)) for _ in range(4)]
    reach.choose_reach("model", held_out, "abcd", hidings)
    inside, *outside, last = told
    assert outside == [(name, part.held_out, part.hidden) for name, part in zip("abcd", hidings, strict=True)]
    assert (inside[0], last[0], last[1]) == ("model", "model", held_out)
    for some in inside[1:]:
        # Every third, as they may be in an order.
        assert all(torch.equal(part, whole[::3]) for part, whole in zip(some, held_out, strict=True))
    told.clear()
    reach.choose_reach("model", table(5000), "abcd", hidings)
    assert [len(part[0]) for part in told[0][1:]] == [5000, 5000]


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("power", [-3.5, -3.0, -0.5, 0.0, 2.5, 7.0, 7.5])
def test_reaches_are_half_powers_of_two(power: float, detail: float, monkeypatch: pytest.MonkeyPatch) -> None:
    best = preferring(2.0**power, detail=detail)
    assert chosen(monkeypatch, best, [best] * 4) == (pytest.approx(2.0**power), detail)


@pytest.mark.parametrize(("share", "believed"), [(0.98, False), (1.02, True)])
def test_evidence_is_weighed_in_nats_of_all_rows(share: float, believed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 nats of the hidden rows for each squared doubling of the typical reach, 10 of the inner for the detail."""
    rows = 1000
    # From 4, the power of two next to the typical reach, to 16; the last step is then to the half power nearer to it.
    needed = 20.0 * (math.log2(16.0 / DEFAULT_REACH) ** 2 - math.log2(4.0 / DEFAULT_REACH) ** 2)
    outside = [lambda r, d: -(r == 16.0) * share * needed / rows] * 4
    expected = 16.0 if believed else 2.0**1.5
    assert chosen(monkeypatch, lambda r, d: 0.0, outside, rows) == (pytest.approx(expected), 0.5)
    # A detail of 1 is twice the typical one.
    inside = chosen(monkeypatch, lambda r, d: -(d == 1.0) * share * 10.0 / rows, [lambda r, d: 0.0] * 4, rows)
    assert inside == (pytest.approx(2.0**1.5), 1.0 if believed else 0.5)
