"""Columns that move: what was usual, events, counts before and since, and rows as they are given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from density_regression.serve.alarm.changes import Change
from density_regression.serve.alarm.columns import CategoryColumn, NumberColumn, of_profile, of_rows
from density_regression.serve.alarm.moves import BEFORE, PENDING, SINCE, ColumnCounts
from density_regression.serve.alarm.rows import columns_of, scores_of, standardised
from density_regression.tabular.columns.values import Values
from density_regression.tabular.profile import LEVELS, ColumnProfile, Profile


def number(values: list[float] | np.ndarray) -> Values:
    return Values("number", np.array(values, dtype=np.float64))


def text(values: list[str | None]) -> Values:
    return Values("text", np.array(values, dtype=object))


@pytest.mark.parametrize("kind", ["continuous", "few values"])
def test_bounds_of_events_have_the_true_shares_between_them(kind: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=2000) if kind == "continuous" else rng.integers(0, 6, 2000).astype(float)
    values[rng.random(2000) < 0.1] = np.nan
    (column,) = of_rows({"x": number(values)})
    assert isinstance(column, NumberColumn)
    cells = column.cells(number(values))
    for event in column.events():
        share = event.cells[cells].mean()
        assert event.low - 1e-3 <= share <= event.high + 1e-3, event.text
    assert len(column.events()) == 2 * len(column.edges) + 1
    assert column.usual().sum() == pytest.approx(1.0)
    assert (column.usual() >= 0).all()


def test_upper_bounds_of_a_continuous_column_are_its_levels() -> None:
    column = NumberColumn.of_quantiles("x", "number", [float(i) for i in range(9)], 0.0)
    assert_allclose([high for _, high in column.below], LEVELS)
    assert_allclose([high for _, high in column.above], 1 - np.array(LEVELS))


def test_cells_are_edges_intervals_and_gaps() -> None:
    column = NumberColumn.of_quantiles("x", "number", [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 2.0], 0.0)
    assert_array_equal(column.cells(number([-1, 0, 0.5, 1, 1.5, 2, 3, np.nan])), [0, 1, 2, 3, 4, 5, 6, 7])
    assert_array_equal(column.cells(text(["a", None])), [7, 7])


def test_dates_and_times_in_any_form() -> None:
    columns = (
        ColumnProfile("day", "date", 0.0, tuple(f"2024-01-0{i + 1}" for i in range(9))),
        ColumnProfile("at", "time", 0.5, tuple(f"0{i}:30" for i in range(9))),
        ColumnProfile("note", "left out", 0.0),
    )
    profile = Profile(100, columns, ())
    day, at = of_profile(profile)
    assert isinstance(day, NumberColumn)
    assert isinstance(at, NumberColumn)
    frame = pd.DataFrame({"day": pd.to_datetime(["2024-01-02", "2024-01-20", None])})
    (values,) = columns_of(frame, ["day"]).values()
    assert_array_equal(day.cells(values), day.cells(text(["2024-01-02", "2024-01-20", None])))
    assert [event.text for event in day.events()][:3] == ["missing", "below 2024-01-01", "above 2024-01-01"]
    assert "below 03:30" in [event.text for event in at.events()]
    assert at.cells(text(["03:30"]))[0] == 7


def test_categories_with_rare_values_and_gaps() -> None:
    rows = text(["a"] * 50 + ["b"] * 30 + [None] * 10 + [f"rare {i}" for i in range(10)])
    (column,) = of_rows({"x": rows})
    assert isinstance(column, CategoryColumn)
    assert column.values == ("a", "b")
    assert_allclose(column.usual(), [0.5, 0.3, 0.1, 0.1])
    assert_array_equal(column.cells(text(["b", "new", None])), [1, 2, 3])
    (numbers,) = of_rows({"x": text(["1", "2"] * 50)})
    assert_array_equal(numbers.cells(number([1.0, 2.0, np.nan])), [0, 1, 3])
    flag = CategoryColumn("x", "boolean", ("True", "False"), (0.2, 0.8), 0.0)
    assert_array_equal(flag.cells(Values("boolean", np.array([1.0, 0.0, np.nan]))), [0, 1, 3])


def test_text_that_is_dates_or_all_different() -> None:
    days = [f"2024-02-{1 + i % 28:02d}" for i in range(100)]
    columns = of_rows({"day": text(days), "name": text([f"n{i}" for i in range(100)]), "none": number([np.nan] * 100)})
    assert [(column.name, column.kind) for column in columns] == [("day", "date")]


def counts(column: NumberColumn | CategoryColumn, before: Values, since: Values, rows: int = 0) -> ColumnCounts:
    result = ColumnCounts([column], rows)
    for values, place in ((before, BEFORE), (since, SINCE)):
        cells = column.cells(values)
        result.add([cells], 0, len(cells), place)
    return result


def test_a_move_is_told_by_the_event_that_changed_most() -> None:
    rng = np.random.default_rng(0)
    usual = rng.normal(size=2000)
    (column,) = of_rows({"x": number(usual)})
    (move,) = counts(column, number(usual), number(rng.normal(6.0, size=30))).moves()
    assert move.event == f"above {column.edges[-1]:.6g}"
    assert (move.before, move.since) == (0.0, 1.0)
    assert move.median_since == f"above {column.edges[-1]:.6g}"
    assert float(move.median_before) == pytest.approx(np.median(usual), abs=0.02)
    # The root of twice the log-likelihood ratio of 30 of 30 against 0 of 2,000.
    expected = -2 * (30 * np.log(30 / 2030) + 2000 * np.log(2000 / 2030))
    assert move.strength == pytest.approx(np.sqrt(expected))
    (gone,) = counts(column, number(usual), number([np.nan] * 20 + [0.0] * 10)).moves()
    assert (gone.event, gone.since) == ("missing", pytest.approx(2 / 3))
    assert "x: missing in 66.7 % of the rows since, 0 % before" in str(gone)


def test_a_profile_counts_as_so_many_rows_before() -> None:
    rng = np.random.default_rng(0)
    usual = number(rng.normal(size=4000))
    (column,) = of_rows({"x": usual})
    (alone,) = counts(column, number([]), number([9.0] * 20), rows=4000).moves()
    (counted,) = counts(column, usual, number([9.0] * 20)).moves()
    assert (alone.event, alone.before, alone.strength) == (counted.event, counted.before, counted.strength)
    assert float(alone.median_before) == pytest.approx(float(counted.median_before), abs=1e-3)


@pytest.mark.parametrize("rows", [0, 2000])
def test_columns_that_stay_are_not_told(rows: int) -> None:
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(200):
        usual = (
            number(rng.normal(size=2000)),
            number(rng.integers(0, 4, 2000)),
            text(rng.choice(list("abc"), 2000).tolist()),
        )
        names = dict(zip("nic", usual, strict=True))
        since = {
            "n": number(rng.normal(size=40)),
            "i": number(rng.integers(0, 4, 40)),
            "c": text(rng.choice(list("abc"), 40).tolist()),
        }
        for column in of_rows(names):
            before = names[column.name] if rows == 0 else Values(names[column.name].kind, names[column.name].values[:0])
            told += len(counts(column, before, since[column.name], rows).moves())
    assert told <= 3


def test_rows_that_wait_for_a_score_count_for_neither() -> None:
    (column,) = of_rows({"x": number(np.arange(100.0))})
    result = ColumnCounts([column], 100)
    cells = [column.cells(number(np.full(30, 500.0)))]
    result.add(cells, 0, 30, PENDING)
    assert result.moves() == []
    result.move(PENDING, SINCE)
    assert len(result.moves()) == 1
    result.move(SINCE, BEFORE)
    assert result.moves() == []
    with pytest.raises(ValueError, match="do not fit the columns"):
        result.take([[[0, 1]]])


def test_rows_that_waited_are_of_the_group_that_ends_next() -> None:
    """Groups of two rows: of three batches with one row, five and two, the change is found at row 5."""
    (column,) = of_rows({"x": number(np.arange(100.0))})
    change = Change(-1)
    change.count_columns([column], 100, [], 1, 0)
    values = [column.cells(number([value])) for value in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)]
    batches = [(0, 1), (1, 6), (6, 8)]
    cells = [[np.concatenate(values[start:stop])] for start, stop in batches]
    change.counts.add(cells[0], 0, 1, PENDING)
    change.update(np.array([0.9, 0.9, 0.01]), [1, 3, 5])
    change.assign(cells[1], 0, 5, 2)
    change.update(np.array([0.01]), [7])
    change.assign(cells[2], 0, 2, 7)
    assert change.since == 5
    (counted,) = change.counts.counts
    for place, rows in ((BEFORE, values[:4]), (SINCE, values[4:])):
        assert_array_equal(counted[place], np.bincount(np.concatenate(rows), minlength=column.size))
    assert not counted[PENDING].any()


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow", "mapping"])
def test_columns_by_name_whatever_the_table(library: str) -> None:
    data = {"b": [1.0, None], "a": ["x", None], "c": [1, 2]}
    table = {
        "pandas": lambda: pd.DataFrame(data),
        "polars": lambda: pl.DataFrame(data),
        "arrow": lambda: pa.table(data),
        "mapping": lambda: data | {"b": np.array([1.0, np.nan])},
    }[library]()
    found = columns_of(table, ["a", "b"])
    assert found.keys() == {"a", "b"}
    assert_array_equal(found["b"].values, [1.0, np.nan])
    assert found["a"].values.tolist() == ["x", None]


def test_columns_of_arrays_by_position() -> None:
    array = np.arange(6.0).reshape(3, 2)
    assert columns_of(array, ["a", "b"])["b"].values.tolist() == [1.0, 3.0, 5.0]
    assert columns_of(array, None).keys() == {"0", "1"}
    assert columns_of(pd.DataFrame(array, columns=["p", "q"]), ["0", "1"])["1"].values.tolist() == [1.0, 3.0, 5.0]


def test_scores_are_checked() -> None:
    with pytest.raises(ValueError, match=r"scores is NaN in row 1"):
        scores_of([0.0, np.nan], "scores")
    with pytest.raises(ValueError, match=r"shape \(n,\), got shape \(1, 2\)"):
        scores_of([[0.0, 1.0]], "scores")
    with pytest.raises(ValueError, match="must be numbers"):
        scores_of(["a"], "scores")
    with pytest.raises(ValueError, match="errors has 1 rows, but there are 2"):
        scores_of([0.0], "errors", 2)


def test_standardised_targets_have_the_ranks_of_the_probability_integral_transform() -> None:
    from scipy.stats import lognorm, norm

    rng = np.random.default_rng(0)
    mean, std, y = rng.normal(size=50), rng.uniform(0.5, 2, 50), rng.normal(size=50)
    assert_allclose(norm.cdf(standardised(y, mean, std)), norm(mean, std).cdf(y))
    law = lognorm(s=std, scale=np.exp(mean))
    assert_allclose(norm.cdf(standardised(np.exp(y), law.mean(), law.std(), "log")), law.cdf(np.exp(y)))
    assert np.isnan(standardised([np.nan], [0.0], [1.0])[0])
    assert standardised([0.0], [1.0], [1.0], "log")[0] == -np.inf
