"""Frames of pandas and polars and tables of Arrow are read alike; what is no column is refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from density_regression.tabular.columns import Table, is_frame, of_array, read_frame

COLUMNS: dict[str, list[Any]] = {
    "count": [1, 2, None],
    "size": [0.5, None, -2.0],
    "old": [True, None, False],
    "town": ["Ulm", "", None],
    "moment": [dt.datetime(1970, 1, 2, 12), None, dt.datetime(1969, 12, 31)],
    "day": [dt.date(1970, 1, 3), None, dt.date(1970, 1, 1)],
    "clock": [dt.time(6), None, dt.time(12)],
    "took": [dt.timedelta(hours=1), None, dt.timedelta(seconds=-2)],
    "nothing": [None, None, None],
}
NONE = np.nan
EXPECTED: dict[str, tuple[str, list[Any]]] = {
    "count": ("number", [1, 2, NONE]),
    "size": ("number", [0.5, NONE, -2]),
    "old": ("boolean", [1, NONE, 0]),
    "town": ("text", ["Ulm", None, None]),
    "moment": ("date", [1.5, NONE, -1]),
    "day": ("date", [2, NONE, 0]),
    "clock": ("time", [0.25, NONE, 0.5]),
    "took": ("number", [3600, NONE, -2]),
    "nothing": ("text", [None, None, None]),
}
LIBRARIES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "pandas with Arrow": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, objects": lambda columns: pd.DataFrame(columns, dtype=object),
    "polars": pl.DataFrame,
    "Arrow": pa.table,
    "Arrow, a batch": pa.RecordBatch.from_pydict,
}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Callable[[dict[str, list[Any]]], Any]:
    """From columns to a frame of one library."""
    return LIBRARIES[request.param]


def test_every_library_gives_the_same(library: Callable[..., Any]) -> None:
    frame = library(COLUMNS)
    assert is_frame(frame)
    table = read_frame(frame)
    assert table.labels == tuple(f"column {name!r} of X" for name in COLUMNS)
    assert len(table) == 3
    for (kind, values), (expected_kind, expected) in zip(table.columns, EXPECTED.values(), strict=True):
        assert kind == expected_kind
        wanted = np.array(expected, dtype=object if kind == "text" else float)
        np.testing.assert_array_equal(values, wanted)
        assert values.dtype == wanted.dtype


def test_some_columns_alone(library: Callable[..., Any]) -> None:
    table = read_frame(library(COLUMNS), [3, 0])
    assert table.labels == ("column 'town' of X", "column 'count' of X")
    np.testing.assert_array_equal(table.columns[1].values, [1, 2, np.nan])


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        (pd.Series(["a", None, "b"], dtype="category"), "text", ["a", None, "b"]),
        (pd.Series([1, None, 2.5], dtype="category"), "text", ["1", None, "2.5"]),
        (pd.Series(["a", pd.NA], dtype="string"), "text", ["a", None]),
        (pd.array([1, None], dtype="Int64"), "number", [1, NONE]),
        (pd.array([True, None], dtype="boolean"), "boolean", [1, NONE]),
        (pd.date_range("1970-01-02", periods=2, tz="Europe/Berlin"), "date", [1 - 1 / 24, 2 - 1 / 24]),
        (pd.period_range("1970-01", periods=2, freq="M"), "date", [0, 31]),
        (pd.Series([pd.Timestamp("1970-01-02", tz="UTC"), None], dtype=object), "date", [1, NONE]),
        (pd.Series([Decimal("1.5"), None], dtype=object), "number", [1.5, NONE]),
        (pd.Series([np.float32(1.5), 2, True], dtype=object), "number", [1.5, 2, 1]),
        (pl.Series(["a", None], dtype=pl.Categorical), "text", ["a", None]),
        (pl.Series(["a", None], dtype=pl.Enum(["b", "a"])), "text", ["a", None]),
        (pl.Series(["1.50", None]).cast(pl.Decimal(9, 2)), "number", [1.5, NONE]),
        (
            pl.Series([dt.datetime(1970, 1, 2)]).dt.replace_time_zone("Europe/Berlin"),
            "date",
            [1 - 1 / 24],
        ),
        (pa.array(["a", None]).dictionary_encode(), "text", ["a", None]),
        (pa.array([7, None, 7]).dictionary_encode(), "text", ["7", None, "7"]),
        (pa.array([Decimal("1.5"), None]), "number", [1.5, NONE]),
        (pa.array([dt.datetime(1970, 1, 2)], pa.timestamp("ns", "Europe/Berlin")), "date", [1]),
        (pa.array([2**60 + 1, None]), "number", [2.0**60, NONE]),
    ],
    ids=lambda value: f"{type(value).__module__.partition('.')[0]} {value.dtype}" if hasattr(value, "dtype") else "",
)
def test_types_of_one_library(column: Any, kind: str, expected: list[Any]) -> None:
    frames = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
    (values,) = read_frame(frames[type(column).__module__.partition(".")[0]]({"x": column})).columns
    assert values.kind == kind
    if kind == "text":
        assert values.values.tolist() == expected
    else:
        np.testing.assert_allclose(values.values, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "a"], r"column 'x' of X has mixed types: 1 \(row 0\) is a number, 'a' \(row 1\) a text"),
        (["a", None, dt.date(2020, 1, 1)], r"'a' \(row 0\) is a text, .* \(row 2\) a date"),
        ([[1, 2], [3]], r"column 'x' of X holds a list \(\[1, 2\], row 0\), which is no kind of column"),
        ([None, {"a": 1}], r"holds a dict \({'a': 1}, row 1\)"),
        ([b"a"], "holds a bytes .* decode it"),
        ([1j, 2j], "holds a complex"),
    ],
)
def test_what_is_no_column_is_refused(values: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_frame(pd.DataFrame({"x": pd.Series(values, dtype=object)}))


def test_nested_columns_of_polars_and_arrow_are_refused() -> None:
    for frame in (pl.DataFrame({"x": [[1], [2]]}), pa.table({"x": [[1], [2]]}), pl.DataFrame({"x": [{"a": 1}]})):
        with pytest.raises(ValueError, match=r"column 'x' of X holds a (list|dict)"):
            read_frame(frame)


def test_a_frame_without_rows_or_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="0 sample"):
        read_frame(pd.DataFrame({"x": []}))
    with pytest.raises(ValueError, match="0 feature"):
        read_frame(pl.DataFrame())


def test_infinity_is_refused_by_name() -> None:
    table = read_frame(pd.DataFrame({"town": ["Ulm", "Ulm"], "size": [1.0, -np.inf]}))
    with pytest.raises(ValueError, match=r"column 'size' of X contains infinity \(row 1\)"):
        table.refuse_infinity()


@pytest.mark.parametrize(
    "other", [np.zeros((2, 1)), [[1.0]], pd.Series([1.0]), pl.Series([1.0]), pl.LazyFrame({"x": [1]})]
)
def test_what_is_no_frame(other: Any) -> None:
    assert not is_frame(other)


def test_plain_tables() -> None:
    plain = pd.DataFrame({"a": [1, 2], "b": [True, False], "c": pd.array([1, 2], dtype="Int64")})
    assert read_frame(plain).is_plain
    for odd in ([1.0, None], ["a", "b"], [dt.date(2020, 1, 1)] * 2, ["1", "2"]):
        assert not read_frame(plain.assign(d=odd)).is_plain


def test_rows_of_a_table() -> None:
    table = read_frame(pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", None, "y"]}))
    for rows in (np.array([2, 0]), np.array([True, False, True]), slice(1, None)):
        part = table[rows]
        np.testing.assert_array_equal(part.columns[0].values, table.columns[0].values[rows])
        assert part.columns[1].values.tolist() == table.columns[1].values[rows].tolist()


def test_equal_tables_have_equal_arrays_and_others_have_not() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", None]})

    def content(table: Table) -> list[bytes]:
        return [array.tobytes() for array in table.arrays()]

    assert content(read_frame(frame)) == content(read_frame(frame.copy()))
    others = [
        frame.assign(a=[1.0, 3.0]),
        frame.assign(b=["x", "y"]),
        frame.rename(columns={"a": "c"}),
        frame[["b", "a"]],
    ]
    assert len({str(content(read_frame(other))) for other in [frame, *others]}) == 5


def test_an_array_of_numbers() -> None:
    table = of_array(np.array([[1.0, np.nan], [3.0, 4.0]]), ["a", "b"])
    assert [values.tolist() for _, values in table.columns[:1]] == [[1.0, 3.0]]
    assert table.columns[1].gaps.tolist() == [True, False]
