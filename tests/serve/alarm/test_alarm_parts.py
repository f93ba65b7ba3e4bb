"""Groups of rows, the correlation of neighbours, and the trace of the evidence."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from density_regression.serve.alarm.groups import Groups
from density_regression.serve.alarm.neighbours import Neighbours
from density_regression.serve.alarm.settings import Settings
from density_regression.serve.alarm.trace import Trace


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_groups_are_those_of_a_table_whatever_the_batches(mean: bool, size: int) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=50)
    # Rows 4, 8, 12 and so on have no score.
    numbers = [number for number in range(1, 100) if number % 4][:50]
    table = scores[: 50 // size * size].reshape(-1, size)
    last = numbers[size - 1 :: size]
    groups = Groups(size, mean=mean)
    found = []
    for start, stop in ((0, 1), (1, 5), (5, 5), (5, 29), (29, 50)):
        found.append(groups.update(scores[start:stop], numbers[start:stop]))
        saved, groups = groups.to_json(), Groups(size, mean=mean)
        groups.take(saved)
    assert_allclose(np.concatenate([part.scores for part in found]), table.mean(axis=1) if mean else table[:, -1])
    assert [row for part in found for row in part.last] == last
    assert [row for part in found for row in part.first] == [1, *(row + 1 for row in last[:-1])]


def test_a_mean_does_not_depend_on_where_a_batch_ends() -> None:
    scores = np.random.default_rng(0).normal(size=30) * 1e8
    one, many = Groups(10, mean=True), Groups(10, mean=True)
    whole = one.update(scores, list(range(1, 31))).scores
    parts = [many.update(scores[i : i + 1], [i + 1]).scores for i in range(30)]
    assert_array_equal(np.concatenate(parts), whole)


def correlation(p: np.ndarray, batch: int = 1000) -> Neighbours:
    neighbours = Neighbours()
    for start in range(0, len(p), batch):
        neighbours.update(p[start : start + batch], list(range(start + 1, start + batch + 1)), 1)
    return neighbours


def test_the_correlation_is_that_of_the_series() -> None:
    rng = np.random.default_rng(0)
    noise = rng.random(20_001)
    alike = (noise[1:] + noise[:-1]) / 2
    assert correlation(alike).correlation == pytest.approx(0.5, abs=0.03)
    assert correlation(alike, 7).correlation == pytest.approx(0.5, abs=0.03)
    assert correlation(alike).alike
    assert correlation(noise).correlation == pytest.approx(0.0, abs=0.03)
    assert not correlation(noise).alike
    assert correlation(noise[:20]).correlation is None


def test_a_change_of_level_is_no_correlation() -> None:
    rng = np.random.default_rng(0)
    neighbours = Neighbours()
    neighbours.update(np.concatenate([rng.random(500), 0.1 * rng.random(500)]), list(range(1, 1001)), 501)
    assert abs(neighbours.correlation) < 0.1
    assert neighbours.mean_since == pytest.approx(0.05, abs=0.01)
    neighbours.divide()
    neighbours.update(rng.random(500), list(range(1001, 1501)), 1001)
    assert abs(neighbours.correlation) < 0.1
    joined = Neighbours()
    joined.update(np.concatenate([rng.random(500), 0.1 * rng.random(500)]), list(range(1, 1001)), 1)
    assert joined.correlation > 0.4


def test_a_trace_keeps_the_highest_of_each_part() -> None:
    values = np.random.default_rng(0).normal(size=5000)
    trace = Trace()
    for start in range(0, 5000, 37):
        part = values[start : start + 37]
        trace.update(range(start + 1, start + 1 + len(part)), part.tolist())
    each = trace.rows_each
    points = trace.points()
    assert 200 < len(points) <= 400
    assert [value for _, value in points] == [values[i : i + each].max() for i in range(0, 5000, each)]
    assert max(row for row, _ in points) <= 5000 + each
    again = Trace()
    again.take(trace.to_json())
    assert again.points() == points


def test_a_trace_of_few_rows_far_apart() -> None:
    trace = Trace()
    trace.update([1, 100_000], [1.0, 2.0])
    assert [value for _, value in trace.points()] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"every": 0}, "every must be an integer of at least 1, got 0"),
        ({"block": 2.5}, "block must be an integer"),
        ({"every": 2, "block": 2}, "give one"),
        ({"false_alarms_per": 9.0}, "false_alarms_per must be a number of rows, at least 10"),
        ({"false_alarms_per": 200.0, "block": 24}, "at least 240"),
        ({"false_alarms_per": float("nan")}, "false_alarms_per"),
        ({"chance": 1.0}, "chance must be None or a probability"),
        ({"direction": "up"}, "direction must be one of unfamiliar, changed, got 'up'"),
    ],
)
def test_settings_that_make_no_alarm_are_refused(setting: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**setting)


def test_the_threshold_counts_watches_and_rows_of_a_score() -> None:
    assert Settings(false_alarms_per=1000.0).threshold == 1000
    assert Settings(false_alarms_per=1000.0, targets=True).threshold == 3000
    assert Settings(false_alarms_per=1000.0, block=24).threshold == pytest.approx(1000 / 24)
    assert Settings(chance=0.05, targets=True).threshold == pytest.approx(60)
    assert "one false alarm in 1,000 rows" in Settings(false_alarms_per=1000.0).promise
    assert "at most 0.05" in Settings(chance=0.05).promise
