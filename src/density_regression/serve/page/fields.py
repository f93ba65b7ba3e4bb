"""What a form asks for: the columns that a model reads, with their typical values and training ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from density_regression.serve.bundle import Bundle, Input
from density_regression.tabular.columns.dates import parsed
from density_regression.tabular.profile import ColumnProfile, Profile

__all__ = ["Field", "Value", "fields_of", "profile_of"]

Value = float | str | None
"""A value of a column: a number (of a boolean 0 or 1, of a date its days since 1970, of a time its share of the day),
or the text of a category; None for a gap."""

BEYOND: Final = 0.5
"""By how much of the training range one may go beyond it, on either side."""

DAYS: Final = (-719_162.0, 2_932_896.0)
"""The years 1 to 9999, which a date of ISO form can say."""

HALF: Final = 4
"""Place of the median among the quantiles of a profile."""


@dataclass(frozen=True)
class Field:
    """One column.

    Attributes
    ----------
    name : str
        Of the column.
    kind : str
        "number", "boolean", "category", "date" or "time".
    typical : float, str or None
        The median, or the most frequent value.
    ends : tuple of float, or None
        Smallest and largest value of the training rows; None if nobody knows, and for categories.
    rare_ends : tuple of float, or None
        First and last percentile.
    whole : bool
        Whether only whole numbers, or days, were seen.
    values : tuple of str
        Values of a category in training, the frequent ones first.
    shares : tuple of pairs
        Values of categories and booleans ("True" and "False") with the share of the training rows that has them, as far
        as that is known.
    gaps : float or None
        Share of the training rows without a value; None if nobody knows.
    takes_gaps : bool
        Whether the model can do without a value.
    named : bool
        Whether columns have names; if not, `name` is the column's position.
    """

    name: str
    kind: str
    typical: Value
    ends: tuple[float, float] | None = None
    rare_ends: tuple[float, float] | None = None
    whole: bool = False
    values: tuple[str, ...] = ()
    shares: tuple[tuple[str, float], ...] = ()
    gaps: float | None = None
    takes_gaps: bool = False
    named: bool = True

    @property
    def label(self) -> str:
        """What the column is called on the page."""
        return self.name if self.named else f"column {self.name}"

    @property
    def on_a_line(self) -> bool:
        """Whether values are numbers, dates or times, which one can slide along."""
        return self.kind in ("number", "date", "time")

    @property
    def span(self) -> tuple[float, float] | None:
        """From where to where one can slide: the training range, and half of it on either side."""
        if self.ends is None:
            return None
        low, high = self.ends
        if self.kind == "time":
            return 0.0, 1.0 - 1.0 / 1440.0
        more = BEYOND * (high - low) if high > low else max(abs(high), 1.0)
        if not math.isfinite(low - more) or not math.isfinite(high + more):
            return self.ends
        span = low - more, high + more
        if self.whole:
            span = math.floor(span[0]), math.ceil(span[1])
        if self.kind == "date":
            span = max(span[0], DAYS[0]), min(span[1], DAYS[1])
        return span

    def is_beyond(self, value: Value) -> bool:
        """Whether a value is a number outside the training range."""
        return self.ends is not None and isinstance(value, float) and not self.ends[0] <= value <= self.ends[1]

    def is_new(self, value: Value) -> bool:
        """Whether a value is the text of a category that no training row had."""
        return self.kind == "category" and isinstance(value, str) and value not in self.values

    def share(self, value: Value) -> float | None:
        """Share of the training rows with a value, or with a gap for None; None if nobody knows."""
        if value is None:
            return self.gaps
        return dict(self.shares).get(str(value == 1.0) if self.kind == "boolean" else str(value))


def fields_of(bundle: Bundle, profile: Profile | None) -> list[Field]:
    """The columns that a model reads, in the order of training."""
    known = {column.name: column for column in profile.columns} if profile else {}
    coded = {column["name"]: column for column in bundle.columns or ()}
    fields = [_field(part, known.get(part.name), coded.get(part.name)) for part in bundle.inputs]
    return fields if bundle.named else [replace(field, named=False) for field in fields]


def profile_of(bundle: Bundle) -> Profile | None:
    """The profile of the training rows; None for a model without, and for one that cannot be read."""
    try:
        return None if bundle.profile is None else Profile.from_json(bundle.profile)
    except ValueError:
        return None


def _field(part: Input, known: ColumnProfile | None, coded: dict[str, Any] | None) -> Field:
    kind = known.kind if known is not None and known.kind != "left out" else part.kind
    gaps = known.gaps if known is not None else None if coded is None else 1.0 - coded["known"] / max(coded["rows"], 1)
    shares = tuple(zip(known.values, known.shares, strict=True)) if known is not None else ()
    takes_gaps = coded is not None
    if kind == "category":
        values = tuple(dict.fromkeys([*(coded or {}).get("values", ()), *(coded or {}).get("rare", ())]))
        typical: Value = max(shares, key=lambda pair: pair[1])[0] if shares else next(iter(values), None)
        return Field(part.name, kind, typical, values=values, shares=shares, gaps=gaps, takes_gaps=takes_gaps)
    if known is None or not known.quantiles:
        typical = float((coded or {}).get("median", 0.0))
        return Field(part.name, kind, float(round(typical)) if kind == "boolean" else typical, takes_gaps=takes_gaps)
    line = [float(value) for value in _on_a_line(known.quantiles, kind)]
    if kind == "boolean":
        return Field(part.name, kind, line[HALF], gaps=gaps, takes_gaps=takes_gaps, shares=shares)
    whole = all(value == math.floor(value) for value in line)
    ends, rare_ends = (line[0], line[-1]), (line[1], line[-2])
    median = line[HALF] if kind != "number" else _short(line[HALF], *ends)
    return Field(part.name, kind, median, ends, rare_ends, whole, gaps=gaps, takes_gaps=takes_gaps)


def _short(value: float, low: float, high: float) -> float:
    """A value to a thousandth of its range, in few digits."""
    if not 0 < high - low < math.inf:
        return value
    step = math.floor(math.log10(high - low)) - 3
    return min(max(round(value, -step), low), high)


def _on_a_line(values: Sequence[float | str], kind: str) -> Sequence[Any]:
    return values if kind in ("number", "boolean") else parsed([str(value) for value in values]).tolist()
