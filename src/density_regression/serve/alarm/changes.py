"""The estimated change-point, and what the rows before and since are like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from density_regression.serve.alarm.columns import UsualColumn
from density_regression.serve.alarm.moves import BEFORE, PENDING, SINCE, ColumnCounts
from density_regression.serve.alarm.neighbours import Neighbours
from density_regression.serve.alarm.ranks import Floats

__all__ = ["Cells", "Change"]

Cells = Sequence[NDArray[np.intp]]

BET: Final = 1.5
"""Bet whose capital tells the change-point; of large ones the capital falls quickly while nothing has changed."""


class Change:
    """A change-point estimated by Page's CUSUM, with counts of the columns' values before and since.

    ``log W <- max(log W, 0) + log(1 + e (p - 1/2))`` with the bet e = -1.5 against small p-values, or 1.5 against large
    ones: the change is where W was last 1 or less.

    Parameters
    ----------
    sign : -1 or 1
        Whether p-values are expected to be small, or large.
    """

    def __init__(self, sign: int) -> None:
        self.sign, self.since, self.log_capital = sign, 1, 0.0
        self.counts = ColumnCounts((), 0)
        self.neighbours = Neighbours()

    def count_columns(
        self, columns: Sequence[UsualColumn], rows: int, cells: Cells, first_row: int, scored: int
    ) -> None:
        """Count values of these columns, also in the latest rows, which have `cells`, and scores up to row `scored`."""
        self.counts = ColumnCounts(columns, rows)
        count = len(cells[0]) if len(cells) else 0
        cut, stop = (int(np.clip(row - first_row, 0, count)) for row in (self.since, scored + 1))
        for start, end, place in ((0, min(cut, stop), BEFORE), (min(cut, stop), stop, SINCE), (stop, count, PENDING)):
            self.counts.add(cells, start, end, place)

    def update(self, p_values: Floats, first: Sequence[int]) -> None:
        """Take p-values (n,) of groups of rows that begin at rows `first` (n,)."""
        capital = np.concatenate([[0.0], np.cumsum(np.log1p(self.sign * BET * (p_values - 0.5)))])
        # The first group goes on with the change before, unless there is none.
        begins = np.concatenate([[min(-self.log_capital, 0.0)], capital[1:-1]])
        place = len(begins) - 1 - int(np.argmin(begins[::-1]))
        since = self.since if place == 0 and self.log_capital > 0.0 else first[place]
        self.log_capital = float(capital[-1] - begins[place])
        if since != self.since:
            self.counts.move(SINCE, BEFORE)
            self.since = since
        self.neighbours.update(p_values, first, since)

    def assign(self, cells: Cells, start: int, stop: int, first_row: int) -> None:
        """Count rows from `start` to `stop` of a batch, which now have scores, and those pending."""
        if start == 0:
            # They belong to the first group of the batch, so that all come before the change, or none.
            self.counts.move(PENDING, BEFORE if self.since > first_row else SINCE)
        cut = int(np.clip(self.since - first_row, start, stop))
        self.counts.add(cells, start, cut, BEFORE)
        self.counts.add(cells, cut, stop, SINCE)

    def restart(self) -> None:
        """Look for another change, as this one was found."""
        self.log_capital = 0.0
        self.neighbours.divide()

    def to_json(self) -> dict[str, Any]:
        """All sums and counts."""
        return {
            "since": self.since,
            "log_capital": self.log_capital,
            "counts": self.counts.to_json(),
            "neighbours": self.neighbours.to_json(),
        }

    def take(self, saved: dict[str, Any], columns: Sequence[UsualColumn], rows: int) -> None:
        """Undo `to_json`; `columns` and `rows` are as for `ColumnCounts`."""
        self.since, self.log_capital = int(saved["since"]), float(saved["log_capital"])
        self.counts = ColumnCounts(columns, rows)
        self.counts.take(saved["counts"])
        self.neighbours.take(saved["neighbours"])
