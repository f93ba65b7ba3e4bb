"""The values of a table's columns as they were given: numbers, booleans, text, dates and times, with gaps."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.tabular.arrays import Floats
from density_regression.tabular.columns.dates import days_of

__all__ = ["Kind", "Table", "Values", "as_text", "of_array", "of_objects"]

Kind = Literal["number", "boolean", "text", "date", "time"]


class Values(NamedTuple):
    """One column: its kind, and its values (n,).

    Text is an array of objects, None for gaps; all others are float64, NaN for gaps: numbers, 0 and 1 for booleans,
    days since 1970 began for dates (in UTC, if they have a time zone), and shares of a day for times.
    """

    kind: Kind
    values: NDArray[Any]

    @property
    def gaps(self) -> NDArray[np.bool_]:
        """Which values are missing, (n,)."""
        if self.kind == "text":
            return np.fromiter((value is None for value in self.values), np.bool_, len(self.values))
        return np.asarray(np.isnan(self.values))


@dataclass(frozen=True)
class Table:
    """Columns of equal length, and a label for each: its name or, for arrays, its position."""

    labels: tuple[str, ...]
    columns: tuple[Values, ...]

    def __len__(self) -> int:
        return len(self.columns[0].values)

    def __getitem__(self, rows: NDArray[Any] | slice) -> Table:
        """Some of the rows, by index, by mask or by a slice."""
        return Table(self.labels, tuple(Values(kind, values[rows]) for kind, values in self.columns))

    @property
    def is_plain(self) -> bool:
        """Whether there are numbers and booleans alone, without gaps."""
        plain = ("number", "boolean")
        return all(column.kind in plain and not np.isnan(column.values).any() for column in self.columns)

    def refuse_infinity(self) -> None:
        """Raise a `ValueError` that names the first column with an infinite value."""
        for label, (kind, values) in zip(self.labels, self.columns, strict=True):
            if kind != "text" and len(bad := np.flatnonzero(np.isinf(values))):
                raise ValueError(
                    f"{label} contains infinity (row {bad[0]}): leave the value empty (NaN), or drop the row."
                )

    def arrays(self) -> list[NDArray[Any]]:
        """Arrays of numbers that are equal for equal tables, to tell one fit from another."""
        header = "\0".join(f"{label} {kind}" for label, (kind, _) in zip(self.labels, self.columns, strict=True))
        texts = [np.frombuffer(header.encode("utf-8", "surrogatepass"), np.uint8)]
        for kind, values in self.columns:
            if kind == "text":
                joined = "\0".join("" if value is None else value for value in values)
                texts.append(np.frombuffer(joined.encode("utf-8", "surrogatepass"), np.uint8))
            else:
                texts.append(values)
        return texts


def of_array(values: Floats, labels: Sequence[str]) -> Table:
    """A table of numbers (n, c), NaN for gaps."""
    return Table(tuple(labels), tuple(Values("number", column) for column in values.T))


def of_objects(values: Sequence[Any], label: str) -> Values:
    """A column of Python objects, all of one kind; None, NaN, NaT and the empty text are gaps."""
    gaps = [_is_gap(value) for value in values]
    seen: set[type] = set()
    kinds: dict[str, tuple[int, Any]] = {}
    for row, (value, gap) in enumerate(zip(values, gaps, strict=True)):
        if not gap and type(value) not in seen:
            seen.add(type(value))
            kinds.setdefault(_kind(value, label, row), (row, value))
    if kinds.keys() == {"number", "boolean"}:
        # In Python, booleans are numbers too.
        del kinds["boolean"]
    if len(kinds) > 1:
        (one, (row, first)), (other, (later, second)) = list(kinds.items())[:2]
        raise ValueError(
            f"{label} has mixed types: {first!r:.40} (row {row}) is a {one}, {second!r:.40} (row {later}) a {other}. "
            "Give values of one type, and None or NaN where one is missing."
        )
    kind = next(iter(kinds), "text")
    if kind == "text":
        result = np.empty(len(values), dtype=object)
        result[:] = [None if gap else str(value) for value, gap in zip(values, gaps, strict=True)]
        return Values("text", result)
    read = _READERS[kind]
    numbers = [np.nan if gap else read(value) for value, gap in zip(values, gaps, strict=True)]
    return Values("number" if kind == "duration" else kind, np.array(numbers, dtype=np.float64))  # type: ignore[arg-type]


def as_text(value: Any) -> str:
    """A value as the text of a category: whole numbers without a fraction, all others as Python writes them."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


def _is_gap(value: Any) -> bool:
    if value is None or (isinstance(value, str) and not value) or type(value).__name__ in ("NAType", "NaTType"):
        return True
    # Not a number and no time differ from themselves.
    return isinstance(value, float | np.floating | Decimal | np.datetime64 | np.timedelta64) and bool(value != value)  # noqa: PLR0124


def _kind(value: Any, label: str, row: int) -> str:
    for kind, types in _TYPES.items():
        if isinstance(value, types):
            return kind
    remedy = "decode it" if isinstance(value, bytes) else "give numbers, text, dates or times, a column for each"
    what = type(value).__name__
    raise ValueError(f"{label} holds a {what} ({value!r:.40}, row {row}), which is no kind of column: {remedy}.")


def _of_day(value: datetime.time) -> float:
    return (value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6) / 86400


def _moment(value: Any) -> float:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return float(days_of(np.array([np.datetime64(value, "us")]))[0])


def _seconds(value: Any) -> float:
    return float(value.total_seconds() if isinstance(value, datetime.timedelta) else value / np.timedelta64(1, "s"))


# In this order: a boolean is a number too, and a moment a date.
_TYPES: Final[dict[str, Any]] = {
    "boolean": bool | np.bool_,
    "duration": datetime.timedelta | np.timedelta64,
    "number": Real | Decimal,
    "text": str,
    "date": datetime.date | np.datetime64,
    "time": datetime.time,
}

_READERS: Final[dict[str, Callable[[Any], float]]] = {
    **{"boolean": float, "number": float},
    **{"duration": _seconds, "date": _moment, "time": _of_day},
}
