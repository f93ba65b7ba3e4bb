"""Coding of the columns of a data frame as numbers: text, dates, booleans and gaps."""

from __future__ import annotations

__all__ = ["MAX_VALUES", "ColumnCoder"]

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from density_regression.io.extras import import_extra

if TYPE_CHECKING:
    import pandas as pd

MAX_VALUES: Final = 20
"""Most values of a text column that have a code of their own."""

_TRUTH: Final = {"true": 1.0, "false": 0.0}
_ISO_DATE: Final = r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}.*)?"

Floats = NDArray[np.float64]


class ColumnCoder:
    """Turns a data frame into numbers by what it has seen in the training rows.

    The kind of a column is that of its training values. Numbers stay as they are, booleans are 0 and 1, and dates in
    ISO form are days since 1970. Their gaps (also infinite values, and values of another kind in later rows) are filled
    with the training median; if training rows have gaps, an indicator column follows. Text has one column of 0 and 1
    for each of its `MAX_VALUES` most frequent values, one for all others, and one for gaps. Coded columns that are
    constant in the training rows are left out, so a value that training never saw may have no code: it is 0 throughout.

    `names` are those of the coded columns, such as "age", "age (missing)", "town=Ulm" and "town (other)".

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"speed": [1.0, 3.0, None], "town": ["Ulm", "Bern", "Ulm"]})
    >>> coder = ColumnCoder().fit(frame)
    >>> coder.names
    ('speed', 'speed (missing)', 'town=Ulm', 'town=Bern')
    >>> coder.transform(frame)[0].tolist()
    [1.0, 0.0, 1.0, 0.0]
    """

    names: tuple[str, ...]

    def fit(self, frame: pd.DataFrame) -> Self:
        """Learn kinds, medians and frequent values from training rows, which must have different column names."""
        self._columns = [_fit_column(str(name), frame[name]) for name in frame.columns]
        coded = self._code(frame)
        self._varying = np.array([len(values) > 0 and bool(np.ptp(values) > 0) for values in coded.T], dtype=bool)
        names = [name for column in self._columns for name in column.names]
        self.names = tuple(name for name, varies in zip(names, self._varying, strict=True) if varies)
        return self

    def transform(self, frame: pd.DataFrame) -> Floats:
        """Coded rows of shape (n, len(names)), without gaps; columns are found by name."""
        missing = [column.name for column in self._columns if column.name not in map(str, frame.columns)]
        if missing:
            raise ValueError(f"frame lacks the column(s) {', '.join(missing)}, which the training rows have: add them.")
        return self._code(frame)[:, self._varying]

    def _code(self, frame: pd.DataFrame) -> Floats:
        named = {str(name): frame[name] for name in frame.columns}
        parts = [column.code(named[column.name]) for column in self._columns]
        return np.column_stack([np.empty((len(frame), 0)), *parts])


class _NumberColumn(NamedTuple):
    """Numbers, booleans or dates; `median` (NaN if training rows have no value) fills gaps."""

    name: str
    kind: Literal["number", "boolean", "date"]
    median: float
    has_gaps: bool

    @property
    def names(self) -> list[str]:
        return [self.name, f"{self.name} (missing)"] if self.has_gaps else [self.name]

    def code(self, column: pd.Series[Any]) -> Floats:
        values = _numbers(column, self.kind)
        gaps = np.isnan(values)
        filled = np.where(gaps, 0.0 if np.isnan(self.median) else self.median, values)
        return np.column_stack([filled, gaps]) if self.has_gaps else filled[:, None]


class _TextColumn(NamedTuple):
    """Text, with its frequent values."""

    name: str
    values: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [*(f"{self.name}={value}" for value in self.values), f"{self.name} (other)", f"{self.name} (missing)"]

    def code(self, column: pd.Series[Any]) -> Floats:
        place = {value: index for index, value in enumerate(self.values)}
        other, missing = len(place), len(place) + 1
        codes = [missing if text is None else place.get(text, other) for text in _texts(column)]
        return np.eye(missing + 1)[codes].reshape(len(codes), missing + 1)


def _fit_column(name: str, column: pd.Series[Any]) -> _NumberColumn | _TextColumn:
    kind = _kind(column)
    if kind == "text":
        counts = Counter(text for text in _texts(column) if text is not None)
        # Of equally frequent values the first by the alphabet, whatever the order of rows.
        return _TextColumn(name, tuple(sorted(counts, key=lambda value: (-counts[value], value))[:MAX_VALUES]))
    values = _numbers(column, kind)
    known = values[~np.isnan(values)]
    return _NumberColumn(name, kind, float(np.median(known)) if len(known) else np.nan, len(known) < len(values))


def _kind(column: pd.Series[Any]) -> Literal["number", "boolean", "date", "text"]:
    """Kind of the values, not of the column's type: that may be due to rows which are not for training."""
    if column.dtype.kind in "iuf":
        return "number"
    texts = [text for text in _texts(column) if text is not None]
    if texts and all(text.lower() in _TRUTH for text in texts):
        return "boolean"
    if all(map(_is_number, texts)):
        return "number"
    pd = _pandas()
    is_date = pd.Series(texts, dtype="str").str.fullmatch(_ISO_DATE).all()
    return "date" if is_date and not np.isnan(_days(texts)).any() else "text"


def _numbers(column: pd.Series[Any], kind: str) -> Floats:
    """Values (n,), NaN for gaps, infinite values and values of another kind."""
    if kind == "number" and column.dtype.kind in "iuf":
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    elif kind == "number":
        values = np.array([float(text) if text and _is_number(text) else np.nan for text in _texts(column)])
    elif kind == "boolean":
        values = np.array([_TRUTH.get((text or "").lower(), np.nan) for text in _texts(column)])
    else:
        values = _days(_texts(column))
    return np.where(np.isfinite(values), values, np.nan).astype(np.float64)


def _days(texts: Iterable[str | None]) -> Floats:
    """Days since 1970 began, NaN for what is no date."""
    pd = _pandas()
    times = pd.to_datetime(pd.Series(list(texts), dtype="object"), format="ISO8601", errors="coerce", utc=True)
    days: Floats = ((times - pd.Timestamp("1970-01-01", tz="UTC")) / pd.Timedelta(days=1)).to_numpy(dtype=np.float64)
    return days


def _texts(column: pd.Series[Any]) -> list[str | None]:
    gaps = column.isna().to_numpy()
    return [None if gap else str(value).strip() for value, gap in zip(column, gaps, strict=True)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    # Python reads 1_000 as a number, tables do not.
    return "_" not in text


def _pandas() -> Any:
    return import_extra("pandas", needed_by="A table with text or dates", extra="data")
