"""The code of a table, against one worked out by hand and against a slow one, row by row."""

from __future__ import annotations

import json
import math
import statistics
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from density_regression.io.store import InvalidModelError
from density_regression.tabular.columns import Columns, read_frame
from density_regression.tabular.columns.coders import MOST_CATEGORIES, CategoryColumn, DateColumn, LeftOut, NumberColumn

TRAIN = pd.DataFrame(
    {
        "age": [1.0, np.nan, 3.0, 8.0],
        "town": ["Ulm", "Bonn", None, "Ulm"],
        "day": ["1970-01-02", "1970-01-03", "1970-01-01", "1970-01-02"],
        "open": [True, False, True, True],
        "constant": [7, 7, 7, 7],
        "rank": [4, 3, 2, 1],
    }
)


def fitted(frame: pd.DataFrame) -> Columns:
    return Columns.fit(read_frame(frame), [str(name) for name in frame.columns])


def coded(columns: Columns, frame: pd.DataFrame) -> np.ndarray:
    return columns.code(read_frame(frame, columns.used))


def improbability(columns: Columns, frame: pd.DataFrame) -> np.ndarray:
    """The sum of log(1/p), from the last coded column."""
    return coded(columns, frame)[:, -1] ** 2 / (4 * len(columns.names))


def test_by_hand() -> None:
    columns = fitted(TRAIN)
    names = ("age", "age (missing)", "town=Ulm", "town (rare)", "town (missing)", "day", "open", "rank", "(never seen)")
    assert columns.names == names
    expected = [
        [1, 0, 1, 0, 0, 1, 1, 4, 0],
        [3, 1, 0, 1, 0, 2, 0, 3, 0],
        [3, 0, 0, 0, 1, 0, 1, 2, 0],
        [8, 0, 1, 0, 0, 1, 1, 1, 0],
    ]
    np.testing.assert_array_equal(coded(columns, TRAIN), expected)
    np.testing.assert_array_equal(columns.coded(read_frame(TRAIN)), expected)


def test_what_training_did_not_have() -> None:
    columns = fitted(TRAIN)
    later = TRAIN.iloc[[0] * 7].reset_index(drop=True).astype({"open": object, "constant": float, "rank": float})
    later.loc[1, "town"] = "Kiel"
    later.loc[2, "rank"] = np.nan
    later.loc[3, "open"] = None
    later.loc[4, "constant"] = 8.0
    later.loc[5, "day"] = None
    later.loc[6, ["town", "constant"]] = ["Kiel", np.nan]
    rows = coded(columns, later)
    # Unknown towns are coded as the rare one is; gaps get the medians 2.5, 1 and 1.
    np.testing.assert_array_equal(rows[1, 2:5], [0, 1, 0])
    assert (rows[2, 7], rows[3, 6], rows[5, 5]) == (2.5, 1.0, 1.0)
    # Of six rows none; of towns one of two occurred once, so that two of six are expected to be new.
    never, new = math.log(6), math.log(6 / 2)
    np.testing.assert_allclose(improbability(columns, later), [0, new, never, never, never, never, new + never])


def test_a_constant_is_known_by_float32_too() -> None:
    columns = fitted(pd.DataFrame({"a": ["x", "y"] * 5, "c": 0.1, "d": 0.0}))
    assert columns.names == ("a=x", "a=y", "(never seen)")
    later = pd.DataFrame(
        {"a": ["x"] * 4, "c": [np.float64(np.float32(0.1)), 0.1001, 0.1, 0.1], "d": [0, 0, -0.0, 1e-9]}
    )
    np.testing.assert_array_equal(improbability(columns, later) > 0, [False, True, False, True])


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([1.0, 2.0, 3.0], ("x",)),
        ([1.0, None, 3.0], ("x", "x (missing)")),
        ([None, None, 1.0], ("x (missing)",)),
        ([True, False, None], ("x", "x (missing)")),
        (["a", "a", "b"], ("x=a", "x (rare)")),
        (["a", "a", None], ("x=a", "x (missing)")),
        (["a", "a", "a"], ()),
        (["a", "b", "c"], ()),
        (["2020-01-01", "2020-01-02", None], ("x", "x (missing)")),
        (["2020-01-01", "2020-01-02", "soon"], ()),
        (["01:00", "13:30", "23:00"], ("x", "x (sine of the day)", "x (cosine of the day)")),
        (["01:00", "01:30", "02:00"], ("x",)),
    ],
)
def test_names(values: list[Any], names: tuple[str, ...]) -> None:
    columns = fitted(pd.DataFrame({"x": pd.Series(values, dtype=object), "y": [1, 2, 3]}))
    assert columns.names == (*names, "y", "(never seen)")


@pytest.mark.parametrize(
    ("start", "step", "cycles"),
    [
        ("2020-01-01", "1D", ("week",)),
        ("2020-01-01", "5h", ("day",)),
        ("2020-01-01", "7D", ()),
        ("2020-01-01", "1min", ()),
        ("2020-01-01", "28D", ("year",)),
        ("2020-01-01", "300h", ("day", "week", "year")),
    ],
)
def test_cycles_where_the_range_makes_them_meaningful(start: str, step: str, cycles: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"x": pd.date_range(start, periods=32, freq=step)})
    (coder,) = fitted(frame).coders
    assert isinstance(coder, DateColumn)
    assert coder.cycles == cycles
    typed = coded(fitted(frame), frame)
    text = frame.assign(x=frame["x"].dt.strftime("%Y-%m-%dT%H:%M:%S"))
    np.testing.assert_array_equal(coded(fitted(text), text), typed)
    np.testing.assert_array_equal(coded(fitted(text), frame), typed)
    for i in range(len(cycles)):
        np.testing.assert_allclose(np.hypot(typed[:, 1 + 2 * i], typed[:, 2 + 2 * i]), 1.0)


def test_midnight_and_noon_have_no_sine() -> None:
    frame = pd.DataFrame({"x": pd.date_range("2020-01-01", periods=10, freq="12h")})
    columns = fitted(frame)
    sine = coded(columns, frame)[:, columns.names.index("x (sine of the day)")]
    assert (sine == 0).all()


def test_frequent_and_rare_values() -> None:
    words = [f"w{number:02}" for number in range(MOST_CATEGORIES + 3) for _ in range(20)] + ["zz"] * 25 + ["once"]
    columns = fitted(pd.DataFrame({"word": words}))
    (coder,) = columns.coders
    assert isinstance(coder, CategoryColumn)
    # The most frequent first; of those that tie the first by the alphabet.
    assert coder.values == ("zz", *(f"w{number:02}" for number in range(MOST_CATEGORIES - 1)))
    assert coder.rare == (*(f"w{number:02}" for number in range(MOST_CATEGORIES - 1, MOST_CATEGORIES + 3)), "once")
    later = coded(columns, pd.DataFrame({"word": ["w52", "never", "w00", "once"]}))
    np.testing.assert_array_equal(later[:, :-1].argmax(axis=1), [MOST_CATEGORIES, MOST_CATEGORIES, 1, MOST_CATEGORIES])
    np.testing.assert_array_equal(later[:, :-1].sum(axis=1), 1)
    np.testing.assert_array_equal(later[:, -1] > 0, [False, True, False, False])


def test_text_of_its_own_in_nearly_every_row_is_left_out_by_name() -> None:
    frame = pd.DataFrame(
        {
            "id": [f"a{i}" for i in range(40)],
            "town": ["Ulm", "Bonn"] * 20,
            "price": [f"{i}.5" for i in range(39)] + ["?"],
        }
    )
    with pytest.warns(UserWarning, match=r"'id' \(40 different texts in 40 rows, such as 'a0'\), 'price' .*to_numeric"):
        columns = fitted(frame)
    assert columns.used == [1]
    assert [type(coder) for coder in columns.coders] == [LeftOut, CategoryColumn, LeftOut]
    assert columns.names == ("town=Bonn", "town=Ulm", "(never seen)")
    np.testing.assert_array_equal(coded(columns, frame), columns.coded(read_frame(frame)))
    with pytest.raises(ValueError, match="no column to learn from: 'id'"):
        fitted(frame[["id"]])


def test_dates_in_another_form_are_named() -> None:
    frame = pd.DataFrame({"sold": ["24/03/2019", "1/12/2019"] * 20, "n": range(40)})
    with pytest.warns(UserWarning, match=r"'sold' of X is taken for categories, but looks like dates .*to_datetime"):
        assert len(fitted(frame).names) == 4
    frame["sold"] = [f"{i % 28 + 1}/{i // 28 + 1}/2019" for i in range(40)]
    with pytest.warns(UserWarning, match=r"Left out of X: 'sold' .* look like dates: .*to_datetime"):
        fitted(frame)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("age", "old", r"column 'age' of X has 'old' \(row 1\), but numbers in training: give numbers"),
        ("open", "yes", "column 'open' of X has 'yes' .*, but booleans in training"),
        ("day", "soon", "column 'day' of X has 'soon' .*, but dates in training: give such as \"2026-11-19\""),
        ("day", 5, "column 'day' of X has a number .*, but dates in training"),
        ("town", pd.Timestamp("2020-01-01"), "column 'town' of X has a date .*, but text in training"),
    ],
)
def test_values_of_another_kind_are_refused(column: str, value: Any, message: str) -> None:
    later = TRAIN.head(2).assign(**{column: pd.Series([None, value], dtype=object)})
    with pytest.raises(ValueError, match=message):
        coded(fitted(TRAIN), later)


def test_values_that_fit_another_kind() -> None:
    columns = fitted(
        pd.DataFrame({"class": ["1", "2", "1", "2"], "flag": ["True", "False"] * 2, "old": [True, False] * 2})
    )
    expected = coded(columns, pd.DataFrame({"class": ["2", "1"], "flag": ["True", "False"], "old": [False, True]}))
    actual = coded(columns, pd.DataFrame({"class": [2.0, 1.0], "flag": [True, False], "old": [0, 1]}))
    np.testing.assert_array_equal(actual, expected)
    empty = pd.DataFrame({"class": [np.nan], "flag": [None], "old": [None]})
    assert improbability(columns, empty)[0] == pytest.approx(3 * math.log(6))


def test_json_and_back() -> None:
    frame = TRAIN.assign(clock=["01:00", "23:00", None, "12:00"])
    columns = fitted(frame)
    assert Columns.from_json(json.loads(json.dumps(columns.to_json(), allow_nan=False))) == columns


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"median": float("nan")},
        {"rows": -1},
        {"rows": 2.0},
        {"name": 3},
        {"more": 1},
        {"type": "date"},
    ],
)
def test_a_changed_file_is_refused(change: dict[str, Any]) -> None:
    saved = fitted(TRAIN).to_json()
    with pytest.raises(InvalidModelError, match="saved columns"):
        Columns.from_json([saved[0] | change, *saved[1:]])


def test_values_of_any_size() -> None:
    frame = pd.DataFrame({"x": [1e308, 1.1e308, None, -1e308, 1e308, 1.2e308], "y": list("aabbab")})
    rows = coded(fitted(frame), frame)
    assert np.isfinite(rows).all()
    assert rows[2, 0] == 1e308


# -- against a slow code, row by row -------------------------------------------------------------------------------


def slow_code(train: pd.DataFrame, row: dict[str, Any]) -> list[float]:
    """The code of one row by the definition: of numbers, and of text with two frequent values at most."""
    result, strange, width = [], 0.0, 1
    n = len(train)
    for name in train.columns:
        known = [value for value in train[name].tolist() if value is not None and value == value]  # noqa: PLR0124
        value = row[name]
        gap = value is None or value != value  # noqa: PLR0124
        had_gaps = len(known) < n
        part: list[float] = []
        if name.startswith("n"):
            constant = len(set(known)) <= 1
            if not constant:
                part.append(statistics.median(known) if gap else value)
            elif not gap and (not known or value != known[0]):
                strange += math.log(n + 2)
            part += [float(gap)] * had_gaps
        else:
            counts = {text: known.count(text) for text in known}
            frequent = sorted((t for t in counts if counts[t] >= 2), key=lambda t: (-counts[t], t))
            rare = [text for text in counts if counts[text] < 2]
            if len(frequent) + bool(rare) + had_gaps >= 2:
                part = [float(value == text) for text in frequent]
                part += [float(not gap and value not in frequent)] * bool(rare)
                part += [float(gap)] * had_gaps
            if not gap and value not in counts:
                strange += math.log((n + 2) / (len(rare) + 1))
        if gap and not had_gaps:
            strange += math.log(n + 2)
        result += part
        width += len(part)
    return [*result, math.sqrt(4 * width * strange)]


NUMBERS = st.one_of(st.none(), st.sampled_from([-2.0, 0.0, 1.0, 4.5]))
TEXTS = st.one_of(st.none(), st.sampled_from("abcd"))
ROWS = st.fixed_dictionaries({"n1": NUMBERS, "t1": TEXTS, "n2": NUMBERS, "t2": TEXTS})


@settings(max_examples=200, deadline=None)
@given(st.lists(ROWS, min_size=2, max_size=10), st.lists(ROWS, min_size=1, max_size=4))
def test_against_a_slow_code(train: list[dict[str, Any]], later: list[dict[str, Any]]) -> None:
    def frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
        types = {name: float if name.startswith("n") else object for name in rows[0]}
        return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=types[name]) for name in types})

    assume(any(value is not None for row in train for value in row.values()))
    table = frame(train).astype(object).where(frame(train).notna(), None)
    with warnings.catch_warnings(action="error"):
        columns = fitted(frame(train))
    assert all(isinstance(coder, NumberColumn | CategoryColumn) for coder in columns.coders)
    expected = [slow_code(table, row) for row in (*train, *later)]
    np.testing.assert_allclose(coded(columns, frame([*train, *later])), expected, rtol=1e-12, atol=1e-12)
    assert (coded(columns, frame(train))[:, -1] == 0).all()
