"""One score for every N rows, for rows that depend on their neighbours."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.serve.alarm.ranks import Floats

__all__ = ["Grouped", "Groups"]


class Grouped(NamedTuple):
    """Scores (m,) of groups that are complete, and the numbers (m,) of the first and the last row of each."""

    scores: Floats
    first: list[int]
    last: list[int]


class Groups:
    """Rows in groups of N: of each the mean of the scores, or the score of the last row.

    A group begins after the last row of the group before, with rows that have no score counted in.

    Parameters
    ----------
    rows : int
        Rows with a score in a group, N.
    mean : bool
        Whether the mean stands for a group; otherwise its last row does.
    """

    def __init__(self, rows: int, *, mean: bool) -> None:
        self.rows, self.mean = rows, mean
        self._sum, self._count, self._next = 0.0, 0, 1

    def update(self, scores: Floats, numbers: list[int]) -> Grouped:
        """Groups that are completed by the rows of these scores (n,) and numbers (n,), counted from 1."""
        n, size = len(scores), self.rows
        stops = np.arange(size - self._count, n + 1, size)
        result = self._means(scores, stops) if self.mean else scores[stops - 1]
        self._count = (self._count + n) % size
        last = [numbers[stop - 1] for stop in stops.tolist()]
        first = [self._next, *(number + 1 for number in last[:-1])][: len(last)]
        self._next = last[-1] + 1 if last else self._next
        return Grouped(result, first, last)

    def _means(self, scores: Floats, stops: NDArray[np.intp]) -> Floats:
        sums = []
        for part in np.split(scores, stops):
            # One term after the other, so that a sum does not depend on where a batch ends.
            sums.append(float(np.cumsum(np.concatenate([[self._sum], part]))[-1]))
            self._sum = 0.0
        self._sum = sums.pop()
        return np.array(sums) / self.rows

    def to_json(self) -> dict[str, Any]:
        """What is known of the group that is not complete."""
        return {"sum": self._sum, "count": self._count, "next": self._next}

    def take(self, saved: dict[str, Any]) -> None:
        """Undo `to_json`."""
        self._sum, self._count, self._next = float(saved["sum"]), int(saved["count"]), int(saved["next"])
