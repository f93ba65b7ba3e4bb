"""Which columns have moved, and by how much: counts of their values before and since an estimated change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from density_regression.serve.alarm.columns import Event, UsualColumn

__all__ = ["BEFORE", "PENDING", "SINCE", "ColumnCounts", "ColumnMove"]

BEFORE, SINCE, PENDING = range(3)
"""Rows before the estimated change, rows since, and rows whose score is not known yet."""

NOTABLE: Final = 4.0
"""Strength from which on a move is told: of a hundred columns that stay as they are, hardly one reaches it."""


@dataclass(frozen=True)
class ColumnMove:
    """How a column has moved, told by the event whose share of the rows has changed most.

    Attributes
    ----------
    column : str
        Name of the column.
    event : str
        Such as "above 14.2", "missing" or "'white'".
    before, since : float
        Share of the rows for which it was so, before the change and since; rows that trained count as before.
    median_before, median_since : str
        Medians of a column of numbers, dates or times, roughly; empty for others.
    strength : float
        Signed root of the likelihood ratio of the two shares, in standard deviations; positive if it is more frequent.
    """

    column: str
    event: str
    before: float
    since: float
    median_before: str
    median_since: str
    strength: float

    def __str__(self) -> str:
        shares = (
            f"{self.column}: {self.event} in {_percent(self.since)} of the rows since, {_percent(self.before)} before"
        )
        same = self.median_before == self.median_since
        return shares + ("" if same else f"; median {self.median_since or 'none'}, was {self.median_before or 'none'}")


class ColumnCounts:
    """Counts of the values of columns: before an estimated change, since, and in rows that have no score yet.

    Parameters
    ----------
    columns : sequence of UsualColumn
        With their usual shares.
    rows : int
        Number of rows that the usual shares come from; 0 if those rows are counted here, too.
    """

    def __init__(self, columns: Sequence[UsualColumn], rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.counts = [np.zeros((3, column.size), dtype=np.int64) for column in columns]

    def add(self, cells: Sequence[NDArray[np.intp]], start: int, stop: int, place: int) -> None:
        """Count rows from `start` to `stop` of cells (n,) for each column."""
        if stop > start:
            for counts, column in zip(self.counts, cells, strict=True):
                counts[place] += np.bincount(column[start:stop], minlength=counts.shape[1])

    def move(self, place: int, to: int) -> None:
        """Count rows of one place for another."""
        for counts in self.counts:
            counts[to] += counts[place]
            counts[place] = 0

    def moves(self) -> list[ColumnMove]:
        """Columns that have moved, the one that chance explains least first."""
        found = [self._move(column, counts) for column, counts in zip(self.columns, self.counts, strict=True)]
        notable = [move for move in found if move is not None and abs(move.strength) >= NOTABLE]
        return sorted(notable, key=lambda move: -abs(move.strength))

    def _move(self, column: UsualColumn, counts: NDArray[np.int64]) -> ColumnMove | None:
        before, since = (int(counts[place].sum()) for place in (BEFORE, SINCE))
        if not since or not self.rows + before:
            return None
        tried = [self._of(event, column, counts, before, since) for event in column.events()]
        return max(tried, key=lambda move: abs(move.strength))

    def _of(self, event: Event, column: UsualColumn, counts: NDArray[np.int64], before: int, since: int) -> ColumnMove:
        """The move as one event tells it; of the usual shares that are possible, the one nearest to that since."""
        share = float(counts[SINCE][event.cells].sum() / since)
        counted, total = counts[BEFORE][event.cells].sum(), self.rows + before
        low, high = ((self.rows * bound + counted) / total for bound in (event.low, event.high))
        was = float(np.clip(share, low, high))
        mean = (total * was + since * share) / (total + since)
        ratio = max(0.0, 2.0 * (total * _divergence(was, mean) + since * _divergence(share, mean)))
        usual = counts[BEFORE] + self.rows * column.usual()
        return ColumnMove(
            column=column.name,
            event=event.text,
            before=was,
            since=share,
            median_before=column.median(usual),
            median_since=column.median(counts[SINCE]),
            strength=math.copysign(math.sqrt(ratio), share - was),
        )

    def to_json(self) -> list[list[list[int]]]:
        """All counts."""
        return [counts.tolist() for counts in self.counts]

    def take(self, saved: Sequence[Any]) -> None:
        """Undo `to_json`."""
        counts = [np.array(part, dtype=np.int64) for part in saved]
        if [part.shape for part in counts] != [part.shape for part in self.counts]:
            raise ValueError("the counts of values do not fit the columns")
        self.counts = counts


def _divergence(share: float, mean: float) -> float:
    """Kullback-Leibler divergence of two shares, in nats."""
    parts = ((share, mean), (1.0 - share, 1.0 - mean))
    return sum(part * math.log(part / of) for part, of in parts if part > 0 and of > 0)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share in (0.0, 1.0) or 0.01 <= share < 0.995 else f"{100 * share:.2g} %"
