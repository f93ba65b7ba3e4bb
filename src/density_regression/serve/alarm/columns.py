"""Columns as counts of values: what was usual in them, by the model's profile or by a stream's first rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.serve.alarm.ranks import Floats
from density_regression.tabular.columns.dates import iso_texts, parsed
from density_regression.tabular.columns.values import Values, as_text
from density_regression.tabular.profile import LEVELS, Profile, quantiles

__all__ = ["CategoryColumn", "Event", "NumberColumn", "UsualColumn", "of_profile", "of_rows", "usual_from_json"]

MOST_VALUES: Final = 50
"""Most values of a category that are counted apart."""

Cells = NDArray[np.intp]


class Event(NamedTuple):
    """Something that a value may be, such as above 3: the cells for it, and bounds of its usual share of the rows."""

    text: str
    cells: NDArray[np.bool_]
    low: float
    high: float


@dataclass(frozen=True)
class NumberColumn:
    """Numbers, booleans, dates (days since 1970) or times (shares of a day), in cells.

    There is a cell for each edge, for each open interval between edges, and for gaps.

    Attributes
    ----------
    name, kind : str
        Kind is "number", "boolean", "date" or "time".
    edges : tuple of float
        In order, each once.
    below, above : tuple of pairs
        Lowest and highest usual share of the rows that are below, and above, each edge.
    gaps : float
        Usual share of the rows without a value.
    """

    name: str
    kind: str
    edges: tuple[float, ...]
    below: tuple[tuple[float, float], ...]
    above: tuple[tuple[float, float], ...]
    gaps: float

    @classmethod
    def of_quantiles(cls, name: str, kind: str, quantiles: Sequence[float], gaps: float) -> NumberColumn:
        """From quantiles at `LEVELS`, each the smallest value that such a share of the values does not exceed."""
        edges = sorted(set(quantiles))
        levels = [[level for level, value in zip(LEVELS, quantiles, strict=True) if value == edge] for edge in edges]
        share = 1.0 - gaps
        # Of an edge with levels from l to m, at most l are below it and at most 1 - m above it.
        below = [
            (share * before[-1] if before else 0.0, share * at[0])
            for before, at in zip([[], *levels], levels, strict=False)
        ]
        after = [*levels[1:], []]
        above = [
            (share * (1.0 - then[0]) if then else 0.0, share * (1.0 - at[-1]))
            for at, then in zip(levels, after, strict=True)
        ]
        return cls(name, kind, tuple(map(float, edges)), tuple(below), tuple(above), float(gaps))

    @property
    def size(self) -> int:
        """Number of cells."""
        return 2 * len(self.edges) + 2

    def cells(self, values: Values) -> Cells:
        """Cell (n,) of each value."""
        numbers = values.values
        if values.kind == "text":
            numbers = parsed(numbers) if self.kind in ("date", "time") else np.full(len(numbers), np.nan)
        edges, gaps = np.array(self.edges), np.isnan(numbers)
        cells = np.searchsorted(edges, numbers, "left") + np.searchsorted(edges, numbers, "right")
        return np.where(gaps, self.size - 1, cells)

    def events(self) -> list[Event]:
        """Below and above each edge, and no value at all."""
        cells = np.arange(self.size)
        gap = cells == self.size - 1
        texts = self._texts(np.array(self.edges))
        events = [Event("missing", gap, self.gaps, self.gaps)]
        for i, text in enumerate(texts):
            events.append(Event(f"below {text}", cells < 2 * i + 1, *self.below[i]))
            events.append(Event(f"above {text}", (cells > 2 * i + 1) & ~gap, *self.above[i]))
        return events

    def usual(self) -> Floats:
        """Usual share of the rows in each cell, roughly: quantiles do not tell what an edge itself has."""
        shares = np.zeros(self.size)
        below = np.array([high for _, high in self.below])
        up_to = (1.0 - self.gaps) - np.array([high for _, high in self.above])
        shares[1:-2:2] = up_to - below
        shares[2:-3:2] = below[1:] - up_to[:-1]
        shares[-1] = self.gaps
        return shares.clip(0.0)

    def median(self, counts: NDArray[Any]) -> str:
        """The median of values with these counts (size,), roughly: linear between edges."""
        cumulated = np.cumsum(counts[:-1])
        if not len(cumulated) or not cumulated[-1]:
            return ""
        half = cumulated[-1] / 2
        cell = int(np.searchsorted(cumulated, half))
        if cell in (0, len(cumulated) - 1):
            return f"{'below' if cell == 0 else 'above'} {self._texts(np.array(self.edges))[-1 if cell else 0]}"
        if cell % 2:
            return self._texts(np.array(self.edges))[cell // 2]
        low, high = self.edges[cell // 2 - 1], self.edges[cell // 2]
        part = (half - cumulated[cell - 1]) / counts[cell]
        return self._texts(np.array([low + part * (high - low)]), rounded=True)[0]

    def _texts(self, values: Floats, *, rounded: bool = False) -> list[str]:
        if self.kind not in ("date", "time"):
            return [f"{value:.4g}" if rounded else f"{value:.6g}" for value in values]
        texts = [str(text).removesuffix(".000000").removesuffix(":00") for text in iso_texts(values, self.kind)]
        # Of a date that lies between others the time of day says nothing.
        return [text[:10] if self.kind == "date" and rounded else text.removesuffix("T00:00") for text in texts]


@dataclass(frozen=True)
class CategoryColumn:
    """Categories, in cells: one for each frequent value, one for all others, and one for gaps.

    Attributes
    ----------
    name, kind : str
        Kind is "category" or "boolean".
    values : tuple of str
        Frequent values.
    shares : tuple of float
        Usual share of the rows that has each.
    gaps : float
        Usual share of the rows without a value.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    shares: tuple[float, ...]
    gaps: float

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.values) + 2

    def cells(self, values: Values) -> Cells:
        """Cell (n,) of each value."""
        places = {value: place for place, value in enumerate(self.values)}
        if values.kind == "text":
            texts = values.values.tolist()
        else:
            texts = [
                None if gap else as_text(value) for value, gap in zip(values.values.tolist(), values.gaps, strict=True)
            ]
            places |= {
                as_text(float(value == "True")): place for value, place in places.items() if self.kind == "boolean"
            }
        other = len(self.values)
        return np.array([other + 1 if text is None else places.get(text, other) for text in texts], dtype=np.intp)

    def events(self) -> list[Event]:
        """Each frequent value, another one, and none at all."""
        texts = [*(repr(value) for value in self.values), "another value than the frequent ones", "missing"]
        other = max(0.0, 1.0 - sum(self.shares) - self.gaps)
        shares = [*self.shares, other, self.gaps]
        cells = np.arange(self.size)
        return [
            Event(text, cells == i, share, share) for i, (text, share) in enumerate(zip(texts, shares, strict=True))
        ]

    def usual(self) -> Floats:
        """Usual share of the rows in each cell."""
        return np.array([event.low for event in self.events()])

    def median(self, counts: NDArray[Any]) -> str:
        """None: categories have no order."""
        return ""


UsualColumn = NumberColumn | CategoryColumn


def of_profile(profile: Profile) -> list[UsualColumn]:
    """Columns of a model's `profile_`, but for those that it leaves out."""
    columns: list[UsualColumn] = []
    for column in profile.columns:
        if column.values:
            columns.append(CategoryColumn(column.name, column.kind, column.values, column.shares, column.gaps))
        elif column.quantiles:
            dates = column.kind in ("date", "time")
            ends = parsed(map(str, column.quantiles)).tolist() if dates else list(map(float, column.quantiles))
            columns.append(NumberColumn.of_quantiles(column.name, column.kind, ends, column.gaps))
    return columns


def of_rows(table: Mapping[str, Values]) -> list[UsualColumn]:
    """Columns of a stream's first rows; text with a value of its own in most of them is left out."""
    columns: list[UsualColumn] = []
    for name, values in table.items():
        kind, given, gaps = values.kind, values.values, values.gaps
        known, share = given[~gaps], float(gaps.mean())
        if kind == "text":
            dates = parsed(known)
            if len(known) and not np.isnan(dates).any():
                kind, known = "date" if "-" in known[0] else "time", dates
        if kind != "text":
            if len(known):
                columns.append(NumberColumn.of_quantiles(name, kind, quantiles(known.astype(np.float64)), share))
            continue
        counted = [(value, count) for value, count in Counter(known.tolist()).most_common(MOST_VALUES) if count > 1]
        if 2 * sum(count for _, count in counted) > len(known):
            shares = [count / len(given) for _, count in counted]
            columns.append(CategoryColumn(name, "category", tuple(value for value, _ in counted), tuple(shares), share))
    return columns


def usual_from_json(saved: dict[str, Any]) -> UsualColumn:
    """Undo `dataclasses.asdict` of a column."""
    parts: Any = {name: tuple(map(_frozen, part)) if isinstance(part, list) else part for name, part in saved.items()}
    column: UsualColumn = NumberColumn(**parts) if "edges" in parts else CategoryColumn(**parts)
    if isinstance(column, NumberColumn):
        if list(column.edges) != sorted(set(column.edges)) or not len(column.edges) == len(column.below) == len(
            column.above
        ):
            raise ValueError(f"the edges of column {column.name!r} are not in order")
    elif len(column.values) != len(column.shares):
        raise ValueError(f"column {column.name!r} has other shares than values")
    return column


def _frozen(part: Any) -> Any:
    return tuple(part) if isinstance(part, list) else part
