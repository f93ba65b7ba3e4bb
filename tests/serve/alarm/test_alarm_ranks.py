"""Sequential ranks: uniform and independent for exchangeable scores, in constant memory."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from density_regression.serve.alarm import ranks
from density_regression.serve.alarm.ranks import SequentialRanks, coarse


class Draws:
    """Draws that are all the same."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self, n: int) -> np.ndarray:
        return np.full(n, self.value)


def ends(reference: tuple[float, ...], scores: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest p-values, by the draws."""
    results = []
    for value in (0.0, 1.0):
        sequential = SequentialRanks(reference)
        sequential._draws = Draws(value)
        results.append(sequential.update(scores))
    return results[0], results[1]


@pytest.mark.parametrize("values", [(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (1.0, 1.0, 2.0, 2.0, 2.0, 3.0)])
@pytest.mark.parametrize("edges", [1001, 2])
def test_over_all_orders_p_values_are_exactly_uniform_and_independent(
    values: tuple[float, ...], edges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three scores after a reference of three: each box of 4 x 5 x 6 has the same probability."""
    monkeypatch.setattr(ranks, "MOST_EDGES", edges)
    boxes = np.zeros((4, 5, 6))
    orders = list(permutations(values))
    for order in orders:
        low, high = ends(order[:3], order[3:])
        for place in product(range(4), range(5), range(6)):
            shares = [
                max(0.0, min(high[i], (place[i] + 1) / n) - max(low[i], place[i] / n)) / (high[i] - low[i])
                for i, n in enumerate((4, 5, 6))
            ]
            boxes[place] += np.prod(shares)
    assert_allclose(boxes / len(orders), 1 / 120, rtol=1e-9)


def test_with_as_many_edges_as_reference_scores_the_ranks_of_the_first_score_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    reference = coarse(rng.normal(size=30))
    for score in [*coarse(rng.normal(size=20)), *reference[:5]]:
        low, high = ends(tuple(reference), (float(score),))
        assert_allclose(low[0], (reference < score).sum() / 31)
        assert_allclose(high[0], ((reference <= score).sum() + 1) / 31)


def test_ranks_are_those_of_a_slow_loop_over_cells() -> None:
    rng = np.random.default_rng(1)
    reference, scores = rng.normal(size=2500), np.concatenate([rng.normal(size=700), rng.integers(-3, 3, 100)])
    sequential = SequentialRanks(reference, seed=5)
    assert len(sequential.edges) <= 1001
    found = sequential.update(scores)
    draws = np.random.default_rng(5).random(len(scores))

    def cell(score: float) -> float:
        """Position of the cell: an edge's own, or half way between two."""
        below = int((sequential.edges < score).sum())
        return below if score in sequential.edges else below - 0.5

    seen = [cell(score) for score in coarse(reference)]
    for p, draw, score in zip(found, draws, coarse(scores), strict=True):
        seen.append(cell(score))
        earlier = np.array(seen)
        assert p == pytest.approx(((earlier < seen[-1]).sum() + draw * (earlier == seen[-1]).sum()) / len(seen))
    assert sequential.total == len(seen)


def test_p_values_are_uniform_and_uncorrelated_in_simulation() -> None:
    rng = np.random.default_rng(2)
    p = np.array([SequentialRanks(rng.gumbel(size=20), seed=i).update(rng.gumbel(size=60)) for i in range(2000)])
    counts = np.array([np.bincount((10 * column).astype(int), minlength=10) for column in p.T])
    # The statistic of a chi-squared test has mean 9 and variance 18.
    statistic = ((counts - 200) ** 2 / 200).sum(axis=1)
    assert abs(statistic.mean() - 9) < 4 * np.sqrt(18 / 60)
    lagged = [np.mean((p[:, lag:] - 0.5) * (p[:, :-lag] - 0.5)) * 12 for lag in (1, 2, 10)]
    assert np.abs(lagged).max() < 4 / np.sqrt(p.size)


def test_batches_and_a_saved_state_change_nothing() -> None:
    rng = np.random.default_rng(3)
    reference, scores = rng.normal(size=200), rng.normal(size=900)
    whole = SequentialRanks(reference, seed=1).update(scores)
    sequential = SequentialRanks(reference, seed=1)
    parts = []
    for part in np.split(scores, [1, 2, 300, 301, 700]):
        parts.append(sequential.update(part))
        sequential = SequentialRanks.from_json(sequential.to_json())
    assert_array_equal(np.concatenate(parts), whole)


def test_memory_is_constant() -> None:
    rng = np.random.default_rng(4)
    sequential = SequentialRanks(rng.normal(size=50_000))
    size = len(sequential.counts)
    sequential.update(rng.normal(size=50_000))
    assert len(sequential.counts) == size <= 2003
    assert sequential.total == 100_000


def test_scores_that_differ_by_rounding_are_ties() -> None:
    scores = np.array([-12.345678, 0.1234567, 3e5, -7e-5])
    assert_array_equal(coarse(scores), coarse(scores * (1 + 1e-7)))
    assert_allclose(coarse(scores), scores, rtol=2**-12)
    assert_array_equal(np.diff(coarse(np.linspace(-3, 3, 10_001))) >= 0, True)
    assert np.isfinite(coarse([-np.inf, np.inf, 0.0])).all()
    assert coarse([0.0])[0] == 0.0


def test_an_empty_reference_is_refused() -> None:
    with pytest.raises(ValueError, match="reference is empty"):
        SequentialRanks([])


def test_counts_that_do_not_fit_are_refused() -> None:
    saved = SequentialRanks([1.0, 2.0]).to_json()
    with pytest.raises(ValueError, match="counts of scores"):
        SequentialRanks.from_json(saved | {"counts": [1, 2]})
    with pytest.raises(ValueError, match="counts of scores"):
        SequentialRanks.from_json(saved | {"counts": [0, -1, 0, 1, 0]})
