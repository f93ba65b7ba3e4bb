"""Data frames of pandas and polars and tables of Arrow, read column by column; none of the three is imported here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from density_regression.io.extras import import_extra
from density_regression.tabular.columns.dates import days_of
from density_regression.tabular.columns.values import Table, Values, as_text, of_objects

__all__ = ["column_names", "is_frame", "read_frame"]


def is_frame(X: Any) -> bool:
    """Whether a table has columns of types of their own: a data frame of pandas or polars, or a table of Arrow."""
    return _library(X) is not None


def column_names(X: Any) -> list[Any]:
    """Names of a frame's columns, in their order."""
    return list(X.column_names if hasattr(X, "column_names") else X.columns)


def read_frame(X: Any, positions: Sequence[int] | None = None, name: str = "X") -> Table:
    """The columns of a frame, or those at some positions."""
    names, library = column_names(X), _library(X)
    positions = range(len(names)) if positions is None else positions
    labels = [f"column {names[position]!r} of {name}" for position in positions]
    if not labels or not X.shape[0]:
        found = "0 feature(s)" if not labels else "0 sample(s)"
        raise ValueError(f"Found array with {found} (shape={tuple(X.shape)}) while a minimum of 1 is required.")
    read = _READERS[str(library)]
    columns = tuple(read(X, position, label) for position, label in zip(positions, labels, strict=True))
    return Table(tuple(labels), columns)


def _library(X: Any) -> str | None:
    """Which library a frame is of; what another one exchanges by Arrow's protocol is read by Arrow."""
    package = type(X).__module__.partition(".")[0]
    if package == "pandas" and hasattr(X, "iloc") and hasattr(X, "columns"):
        return "pandas"
    if package == "polars" and hasattr(X, "get_columns"):
        return "polars"
    return "pyarrow" if package == "pyarrow" and hasattr(X, "column_names") else None


# -- pandas -----------------------------------------------------------------------------------------------------


def _read_pandas(frame: Any, position: int, label: str) -> Values:
    column = frame.iloc[:, position]
    name, kind = type(column.dtype).__name__, getattr(column.dtype, "kind", "O")
    if name == "ArrowDtype":
        return _arrow_values(column.array.__arrow_array__(), label)
    if kind in "biuf":
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return Values("boolean" if kind == "b" else "number", values)
    if kind == "m":
        return Values("number", column.dt.total_seconds().to_numpy(dtype=np.float64, na_value=np.nan))
    if hasattr(column, "cat"):
        # Of gaps the code is -1.
        texts = [*(as_text(value) or None for value in column.cat.categories), None]
        return Values("text", np.array(texts, dtype=object)[column.cat.codes.to_numpy()])
    if kind == "M" or name == "PeriodDtype":
        column = column.dt.to_timestamp() if kind != "M" else column
        column = column if column.dt.tz is None else column.dt.tz_convert(None)
        return Values("date", days_of(column.to_numpy(dtype="datetime64[us]")))
    gaps = column.isna().to_numpy()
    values = column.to_numpy(dtype=object)
    return of_objects([None if gap else value for value, gap in zip(values, gaps, strict=True)], label)


# -- polars -----------------------------------------------------------------------------------------------------


def _read_polars(frame: Any, position: int, label: str) -> Values:
    column = frame.to_series(position)
    kind = column.dtype
    polars = sys.modules["polars"]
    if kind.is_numeric() or kind == polars.Boolean:
        values = column.cast(polars.Float64).fill_null(np.nan).to_numpy()
        return Values("boolean" if kind == polars.Boolean else "number", values)
    if kind in (polars.Date, polars.Datetime):
        # Moments with a time zone are kept in UTC.
        counts = column.cast(polars.Datetime("us")).to_physical()
        return Values("date", counts.cast(polars.Float64).fill_null(np.nan).to_numpy() / 86_400_000_000)
    if kind == polars.Time:
        return Values("time", column.to_physical().cast(polars.Float64).fill_null(np.nan).to_numpy() / 86_400e9)
    if kind == polars.Duration:
        seconds = column.dt.total_microseconds().cast(polars.Float64).fill_null(np.nan).to_numpy() / 1e6
        return Values("number", seconds)
    if kind in (polars.Categorical, polars.Enum):
        column = column.cast(polars.String)
    return of_objects(column.to_list(), label)


# -- Arrow ------------------------------------------------------------------------------------------------------


def _read_arrow(table: Any, position: int, label: str) -> Values:
    return _arrow_values(table.column(position), label)


def _arrow_values(column: Any, label: str) -> Values:
    arrow = import_extra("pyarrow", needed_by="A table of Arrow", extra="data")
    types = arrow.types
    is_category = types.is_dictionary(column.type)
    kind = column.type.value_type if is_category else column.type
    numbered = is_category and types.is_primitive(kind) and not types.is_boolean(kind)
    if numbered or types.is_string(kind) or types.is_large_string(kind):
        return _arrow_texts(column.cast(kind).cast(arrow.string()) if numbered else column)
    column = column.cast(kind)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        values = _to_numpy(column.cast(arrow.float64(), safe=False))
        return Values("boolean" if types.is_boolean(kind) else "number", values)
    if types.is_date(kind) or types.is_timestamp(kind):
        counts = column.cast(arrow.timestamp("us"), safe=False)
        return Values("date", _to_numpy(counts.cast(arrow.int64()).cast(arrow.float64(), safe=False)) / 86_400_000_000)
    if types.is_time(kind):
        counts = column.cast(arrow.time64("ns"), safe=False).cast(arrow.int64())
        return Values("time", _to_numpy(counts.cast(arrow.float64(), safe=False)) / 86_400e9)
    if types.is_duration(kind):
        counts = column.cast(arrow.duration("us"), safe=False).cast(arrow.int64())
        return Values("number", _to_numpy(counts.cast(arrow.float64(), safe=False)) / 1e6)
    return of_objects(column.to_pylist(), label)


def _arrow_texts(column: Any) -> Values:
    """Text, or categories that are; each different one is made an object of Python once."""
    arrow = import_extra("pyarrow", needed_by="A table of Arrow", extra="data")
    if not arrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if hasattr(column, "chunks"):
        column = column.unify_dictionaries().combine_chunks()
        column = column.chunk(0) if hasattr(column, "chunks") else column
    texts = np.array([*(text or None for text in column.dictionary.to_pylist()), None], dtype=object)
    return Values("text", texts[column.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)])


def _to_numpy(column: Any) -> Any:
    """Float64 values, NaN for nulls, of a column in one piece (of a record batch) or in several (of a table)."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


_READERS: Final[dict[str, Callable[[Any, int, str], Values]]] = {
    "pandas": _read_pandas,
    "polars": _read_polars,
    "pyarrow": _read_arrow,
}
