"""Bets, evidence and the estimated change-point, against definitions and against another package."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from density_regression.serve.alarm.betting import BETS, Jumper
from density_regression.serve.alarm.changes import Change
from density_regression.serve.alarm.detectors import Detector, ShiryaevRoberts, Ville


def low_then_uniform(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.random(n), rng.beta(1, 4, n), rng.random(n)])


@pytest.mark.parametrize("bets", BETS.values())
def test_factors_are_those_of_the_formula(bets: tuple[float, ...]) -> None:
    p_values = low_then_uniform(50, 0)
    capital = {bet: 1 / len(bets) for bet in bets}
    expected = []
    for p in p_values:
        total = sum(capital.values())
        capital = {
            bet: (0.99 * part + 0.01 / len(bets) * total) * (1 + bet * (p - 0.5)) for bet, part in capital.items()
        }
        expected.append(sum(capital.values()) / total)
    assert_allclose(Jumper(bets).factors(p_values.tolist()), expected, rtol=1e-12)


@pytest.mark.parametrize("bets", BETS.values())
def test_a_factor_is_expected_to_be_one_whatever_came_before(bets: tuple[float, ...]) -> None:
    grid = (np.arange(1000) + 0.5) / 1000
    factors = []
    for p in grid:
        jumper = Jumper(bets)
        factors.append(jumper.factors([*low_then_uniform(20, 1).tolist(), p])[-1])
    assert np.mean(factors) == pytest.approx(1.0, abs=1e-9)
    assert min(factors) > 0


def test_bets_on_small_p_values_gain_by_these_alone() -> None:
    small, large = [0.02] * 100, [0.98] * 100
    gains = {
        (direction, name): math.log(np.prod(Jumper(bets).factors(p)))
        for direction, bets in BETS.items()
        for name, p in (("small", small), ("large", large))
    }
    assert gains["unfamiliar", "small"] > gains["changed", "small"] > 30
    assert gains["changed", "large"] > 30
    assert gains["unfamiliar", "large"] < 0


def test_several_gamblers_at_once_gain_what_each_gains() -> None:
    p = np.random.default_rng(0).random((40, 3))
    together = np.array(Jumper(BETS["changed"]).factors(p))
    apart = [Jumper(BETS["changed"]).factors(column.tolist()) for column in p.T]
    assert_allclose(together.T, apart)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_online_cp_has_the_same_capital_and_evidence(seed: int) -> None:
    martingale = pytest.importorskip("online_cp.martingale")
    p_values = low_then_uniform(150, seed)
    inner = martingale.SimpleJumper(J=0.01, E=[-1, 0, 1])
    theirs = martingale.ShiryaevRobertsWrapper(inner)
    factors = Jumper(BETS["changed"]).factors(p_values.tolist())
    evidence = ShiryaevRoberts(math.inf)
    for factor, p, log_capital in zip(factors, p_values, np.cumsum(np.log(factors)), strict=True):
        theirs.update(float(p))
        assert log_capital == pytest.approx(inner.logM, abs=1e-9)
        assert evidence.advance([factor])[0] == pytest.approx(math.log(theirs.R), abs=1e-9)


def test_shiryaev_roberts_sums_the_capitals_of_gamblers_who_begin_at_each_row() -> None:
    factors = np.random.default_rng(0).uniform(0.5, 1.5, 60)
    expected = [sum(np.prod(factors[start : n + 1]) for start in range(n + 1)) for n in range(60)]
    assert_allclose(np.exp(ShiryaevRoberts(math.inf).advance(factors.tolist())), expected, rtol=1e-9)


def test_ville_is_the_product() -> None:
    factors = np.random.default_rng(0).uniform(0.5, 1.5, 60)
    assert_allclose(Ville(math.inf).advance(factors.tolist()), np.cumsum(np.log(factors)))


def test_uniform_p_values_have_an_expected_evidence_of_their_number() -> None:
    p = np.random.default_rng(0).random((100, 20_000))
    total = np.zeros(20_000)
    for factor in Jumper(BETS["unfamiliar"]).factors(p):
        total = (total + 1) * factor
    assert total.mean() == pytest.approx(100, abs=4 * total.std() / math.sqrt(20_000))


def detector(threshold: float = 1e4) -> Detector:
    return Detector(Jumper(BETS["changed"]), ShiryaevRoberts(math.log(threshold)))


def test_it_rings_at_the_first_row_that_reaches_the_threshold_and_begins_anew() -> None:
    p_values = np.concatenate([np.random.default_rng(0).random(100), np.full(100, 0.01)])
    stretches = list(detector().update(p_values))
    assert all(stretch.rings for stretch in stretches[:-1])
    first, second = stretches[:2]
    assert max(first.log_values[:-1]) < math.log(1e4) <= first.log_values[-1]
    assert 100 < first.stop < 140
    assert second.log_values[0] < 1
    assert stretches[-1].stop == 200


def test_a_detector_goes_on_from_its_state() -> None:
    p_values = low_then_uniform(100, 3)
    whole = list(detector().update(p_values))
    first, second = detector(), detector()
    parts = list(first.update(p_values[:130]))
    second.take(first.to_json())
    parts += list(second.update(p_values[130:]))
    values = [[value for stretch in part for value in stretch.log_values] for part in (whole, parts)]
    assert values[0] == values[1]
    with pytest.raises(ValueError, match="shares of the bets"):
        second.take(first.to_json() | {"shares": [0.5, 0.5]})


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("sizes", [[180], [1] * 180, [59, 2, 119]])
def test_the_change_point_is_that_of_pages_recursion(sign: int, sizes: list[int]) -> None:
    for seed in range(5):
        p_values = low_then_uniform(60, seed)
        change, start = Change(sign), 0
        log_capital, since = 0.0, 1
        for size in sizes:
            change.update(p_values[start : start + size], range(10 * start + 1, 10 * (start + size) + 1, 10))
            for row in range(start, start + size):
                if log_capital <= 0:
                    log_capital, since = 0.0, 10 * row + 1
                log_capital += math.log(1 + 1.5 * sign * (p_values[row] - 0.5))
            assert change.since == since
            assert change.log_capital == pytest.approx(log_capital)
            start += size
