"""How one column becomes numbers, by what its training rows had: number, category, date, or left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from density_regression.tabular.arrays import Floats
from density_regression.tabular.columns.dates import PERIODS, is_date, is_time, parsed
from density_regression.tabular.columns.values import Values, as_text

__all__ = ["MISSING", "RARE", "CategoryColumn", "Coder", "DateColumn", "LeftOut", "NumberColumn", "fit_coder"]

MOST_CATEGORIES: Final = 50
"""Most values of a column of text that have a code of their own."""

USUAL_ROWS: Final = 10
"""Rows with a value that suffice for a code of its own; one in a hundred rows suffices too, if they are two."""

MOST_KNOWN: Final = 10_000
"""Most different values of a column of text: with more it is left out."""

FEW_VALUES: Final = 10
ROWS_PER_VALUE: Final = 3
"""A column of text with more than ten different values is left out if fewer rows than this share one, on average."""

CONSTANT: Final = 1e-12
"""Largest relative difference of values from their median in a column that counts as constant."""

SAME: Final = 1e-6
"""Largest relative difference of later values from a constant (of dates, in days) that counts as none: float32's."""

RARE, MISSING = "rare", "missing"

NO_WAVE: Final = 1e-9
"""Sines and cosines below this are 0: at noon and midnight a sine is nothing but rounding, which must not be scaled."""


@dataclass(frozen=True)
class Coder:
    """One column's code.

    Attributes
    ----------
    name : str
        Of the column; its position, where columns have no names.
    rows, known : int
        Number of training rows, and of those with a value.
    """

    name: str
    rows: int
    known: int
    kind: ClassVar[str]

    @property
    def gaps(self) -> bool:
        """Whether training rows had gaps."""
        return self.known < self.rows

    @property
    def codes(self) -> tuple[str, ...]:
        """Names of the coded columns."""
        raise NotImplementedError

    def write(self, column: Values, label: str, out: Floats, strange: Floats) -> None:
        """Write the code (n, c) of values, and add to `strange` (n,) log(1/p) of those that training never had."""
        raise NotImplementedError

    @property
    def never(self) -> float:
        """log(1/p) of what no training row had: of n rows without it the next has it with p = 1 / (n + 2) (Laplace)."""
        return float(np.log(self.rows + 2.0))


@dataclass(frozen=True)
class Measured(Coder):
    """Values on a line: themselves, the training median in gaps, and an indicator of gaps if training rows had some.

    A constant column has no value in the code: whether a row differs from it is what counts.
    """

    median: float
    constant: bool

    @property
    def codes(self) -> tuple[str, ...]:
        """The value unless constant, and the indicator of gaps."""
        return (self.name,) * (not self.constant) + (f"{self.name} ({MISSING})",) * self.gaps

    def write(self, column: Values, label: str, out: Floats, strange: Floats) -> None:
        """See `Coder`."""
        values = self.read(column, label)
        gaps = np.isnan(values)
        if self.gaps:
            out[:, -1] = gaps
        else:
            strange += self.never * gaps
        if self.constant:
            strange += self.never * ~(gaps | self.same(values))
        else:
            out[:, 0] = np.where(gaps, self.median, values)

    def read(self, column: Values, label: str) -> Floats:
        """Values as numbers (n,), NaN for gaps."""
        raise NotImplementedError

    @property
    def tolerance(self) -> float:
        """Largest distance from a constant that counts as none; below 0 if there was no value at all."""
        raise NotImplementedError

    def same(self, values: Floats) -> NDArray[np.bool_]:
        """Which values are those of a constant column."""
        with np.errstate(over="ignore"):
            return np.asarray(np.abs(values - self.median) <= self.tolerance)


@dataclass(frozen=True)
class NumberColumn(Measured):
    """Numbers or booleans."""

    type: Literal["number", "boolean"]
    kind: ClassVar[str] = "number"

    @property
    def tolerance(self) -> float:
        """See `Measured`."""
        return SAME * abs(self.median) if self.known else -1.0

    def read(self, column: Values, label: str) -> Floats:
        """See `Measured`."""
        if column.kind in ("number", "boolean"):
            return column.values
        if (gaps := column.gaps).all():
            return np.full(len(gaps), np.nan)
        raise ValueError(_refused(column, ~gaps, label, f"{self.type}s", "give numbers, or leave it empty"))


@dataclass(frozen=True)
class DateColumn(Measured):
    """Dates or times: days, and sine and cosine of the cycles that training rows went through."""

    type: Literal["date", "time"]
    cycles: tuple[str, ...]
    kind: ClassVar[str] = "date"

    @property
    def codes(self) -> tuple[str, ...]:
        """The value unless constant, two columns for each cycle, and the indicator of gaps."""
        own, missing = super().codes[: not self.constant], super().codes[not self.constant :]
        waves = tuple(f"{self.name} ({wave} of the {cycle})" for cycle in self.cycles for wave in ("sine", "cosine"))
        return own + waves + missing

    @property
    def tolerance(self) -> float:
        """See `Measured`."""
        return SAME if self.known else -1.0

    def write(self, column: Values, label: str, out: Floats, strange: Floats) -> None:
        """See `Coder`."""
        super().write(column, label, out, strange)
        for i, cycle in enumerate(self.cycles):
            angle = 2.0 * np.pi * np.mod(out[:, 0] / PERIODS[cycle], 1.0)
            for wave, place in ((np.sin(angle), 1 + 2 * i), (np.cos(angle), 2 + 2 * i)):
                out[:, place] = np.where(np.abs(wave) < NO_WAVE, 0.0, wave)

    def read(self, column: Values, label: str) -> Floats:
        """Days since 1970 began (n,), or shares of a day, NaN for gaps."""
        if column.kind == self.type:
            return column.values
        wrong = ~column.gaps
        if column.kind == "text":
            days = parsed(column.values, self.type)
            wrong &= np.isnan(days)
        else:
            days = np.full(len(wrong), np.nan)
        if not wrong.any():
            return days
        remedy = 'such as "22:20"' if self.type == "time" else 'such as "2026-11-19" or "2026-11-19T22:20"'
        raise ValueError(_refused(column, wrong, label, f"{self.type}s", f"give {remedy}, or leave it empty"))


@dataclass(frozen=True)
class CategoryColumn(Coder):
    """Text: 1 in the column of a frequent value, else in that of rare ones, or of gaps; 0 in all others.

    Attributes
    ----------
    values : tuple of str
        The frequent values, each with a code of its own.
    rare : tuple of str
        All other values of the training rows. One that training never had is coded as these are.
    once : int
        How many values occur once: the share of rows with a new value is about theirs (Good, 1953).
    """

    values: tuple[str, ...]
    rare: tuple[str, ...]
    once: int
    kind: ClassVar[str] = "category"

    @property
    def constant(self) -> bool:
        """Whether training rows have one code only."""
        return len(self.values) + bool(self.rare) + self.gaps < 2

    @property
    def codes(self) -> tuple[str, ...]:
        """The frequent values, the rare ones, and gaps."""
        if self.constant:
            return ()
        own = tuple(f"{self.name}={value}" for value in self.values)
        return own + (f"{self.name} ({RARE})",) * bool(self.rare) + (f"{self.name} ({MISSING})",) * self.gaps

    @property
    def new(self) -> float:
        """log(1/p) of a value that no training row had, with p = (once + 1) / (n + 2)."""
        return self.never - float(np.log(self.once + 1.0))

    def write(self, column: Values, label: str, out: Floats, strange: Floats) -> None:
        """See `Coder`."""
        texts = self.read(column, label)
        rare, missing, new = (len(self.values) + i for i in range(3))
        codes = np.fromiter(map(self._place.get, texts, repeat(new)), np.intp, len(texts))
        if not self.gaps:
            strange += self.never * (codes == missing)
        strange += self.new * (codes == new)
        if self.constant:
            return
        # The column of each code; none has that of gaps if there were none, nor of rare values.
        columns = np.full(new + 1, -1)
        columns[:rare] = np.arange(rare)
        if self.rare:
            columns[[rare, new]] = rare
        if self.gaps:
            columns[missing] = out.shape[1] - 1
        out[:] = 0.0
        chosen = columns[codes]
        coded = np.flatnonzero(chosen >= 0)
        out[coded, chosen[coded]] = 1.0

    def read(self, column: Values, label: str) -> NDArray[Any]:
        """Values as text (n,), None for gaps; numbers and booleans as Python writes them."""
        if column.kind == "text":
            return column.values
        gaps = column.gaps
        if column.kind in ("date", "time") and not gaps.all():
            raise ValueError(_refused(column, ~gaps, label, "text", "give text"))
        values = column.values.astype(bool) if column.kind == "boolean" else column.values
        texts = [None if gap else as_text(value) for value, gap in zip(values.tolist(), gaps, strict=True)]
        result = np.empty(len(texts), dtype=object)
        result[:] = texts
        return result

    @cached_property
    def _place(self) -> dict[str | None, int]:
        """Code of each text: of the frequent ones, then of the rare ones together, then of gaps."""
        rare = len(self.values)
        return {None: rare + 1, **dict.fromkeys(self.rare, rare), **{value: i for i, value in enumerate(self.values)}}


@dataclass(frozen=True)
class LeftOut(Coder):
    """Text of which nearly every row has its own: a name, an identifier, a sentence.

    Attributes
    ----------
    different : int
        How many different values training rows had.
    example : str
        One of them.
    numbers : float
        Share of the values that read as numbers.
    """

    different: int
    example: str
    numbers: float
    kind: ClassVar[str] = "left out"

    @property
    def codes(self) -> tuple[str, ...]:
        """None."""
        return ()

    def write(self, column: Values, label: str, out: Floats, strange: Floats) -> None:
        """Nothing."""


def fit_coder(name: str, column: Values) -> Coder:
    """The code of a column by its training values."""
    kind, values = column
    rows = len(values)
    if kind == "text":
        counts = Counter(text for text in values if text is not None)
        date = _kind_of_date(counts)
        if date is None:
            return _fit_category(name, rows, counts)
        kind, values = date, parsed(values)
    known = values[~np.isnan(values)]
    median = _median(known) if len(known) else 0.0
    with np.errstate(over="ignore"):
        away = np.abs(known - median).max(initial=0.0)
    if kind == "date" or kind == "time":  # noqa: PLR1714
        constant = bool(away <= SAME)
        return DateColumn(name, rows, len(known), median, constant, kind, () if constant else _cycles(known, kind))
    return NumberColumn(name, rows, len(known), median, bool(away <= CONSTANT * abs(median)), kind)


def _median(values: Floats) -> float:
    """Median of values of any size: the mean of two huge ones may overflow."""
    half = len(values) // 2
    ordered = np.partition(values, [half - 1, half] if len(values) % 2 == 0 else half)
    return float(ordered[half] if len(values) % 2 else 0.5 * ordered[half - 1] + 0.5 * ordered[half])


def _kind_of_date(texts: Iterable[str]) -> Literal["date", "time"] | None:
    texts = list(texts)
    if texts and all(map(is_date, texts)):
        return "date"
    return "time" if texts and all(map(is_time, texts)) else None


def _cycles(days: Floats, kind: str) -> tuple[str, ...]:
    """Cycles that days went through at least once, with different values in them; times of day, by half."""
    spread = float(np.ptp(days))
    if kind == "time":
        return ("day",) if spread >= 0.5 else ()
    phases = {"day": np.mod(days, 1.0), "week": np.floor(np.mod(days, 7.0)), "year": np.mod(days, PERIODS["year"])}
    return tuple(name for name, phase in phases.items() if spread >= PERIODS[name] and np.ptp(phase) > SAME)


def _fit_category(name: str, rows: int, counts: Counter[str]) -> Coder:
    known = counts.total()
    if len(counts) > FEW_VALUES and (len(counts) * ROWS_PER_VALUE > known or len(counts) > MOST_KNOWN):
        share = sum(count for text, count in counts.items() if _is_number(text)) / known
        return LeftOut(name, rows, known, len(counts), next(iter(counts)), share)
    # Of equally frequent values the first by the alphabet, whatever the order of rows.
    ordered = sorted(counts, key=lambda value: (-counts[value], value))
    least = min(USUAL_ROWS, max(2, known // 100))
    own = [value for value in ordered[:MOST_CATEGORIES] if counts[value] >= least]
    once = sum(count == 1 for count in counts.values())
    return CategoryColumn(name, rows, known, tuple(own), tuple(ordered[len(own) :]), once)


def _refused(column: Values, wrong: NDArray[np.bool_], label: str, wanted: str, remedy: str) -> str:
    row = int(np.flatnonzero(wrong)[0])
    value = column.values[row]
    shown = f"{value!r:.40}" if column.kind == "text" else f"a {column.kind}"
    return f"{label} has {shown} (row {row}), but {wanted} in training: {remedy}."


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
