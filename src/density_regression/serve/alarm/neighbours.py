"""Whether rows depend on their neighbours: serial correlation of p-values, which should have none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from density_regression.serve.alarm.ranks import Floats

__all__ = ["Neighbours"]

FEWEST: Final = 50
"""Fewest neighbours that tell a correlation."""

LEAST: Final = 0.05
"""Correlation below which rows count as independent; with twice that, false alarms are 2.5 times as many."""


class Neighbours:
    """Correlation of p-values with their predecessors.

    ``1 - mean of squared differences of neighbours / (2 variance)`` (von Neumann, 1941). The variance is that within
    parts, which are divided where an alarm has found a change: another level is no correlation.
    """

    def __init__(self) -> None:
        # Before the estimated change and since: count, sum, sum of squares, differences, sum of their squares.
        self._sums = np.zeros((2, 5))
        # Of the parts before: degrees of freedom, squares about the mean, differences, sum of their squares.
        self._closed = np.zeros(4)
        self._last: float | None = None
        self._since = 1

    def update(self, p_values: Floats, first: Sequence[int], since: int) -> None:
        """Take p-values (n,) of rows that begin at `first` (n,), the estimated change being at row `since`."""
        cut = 0
        if since != self._since:
            cut, self._since = int(np.searchsorted(first, since)), since
            self._sums = np.array([self._sums.sum(axis=0), np.zeros(5)])
        self._add(0, p_values[:cut])
        self._add(1, p_values[cut:])

    def divide(self) -> None:
        """Begin new parts, as the change was found."""
        self._closed = self._parts()
        self._sums, self._last = np.zeros((2, 5)), None

    def _add(self, part: int, p: Floats) -> None:
        if len(p):
            differences = np.diff(p if self._last is None else np.concatenate([[self._last], p]))
            self._sums[part] += [len(p), p.sum(), (p**2).sum(), len(differences), (differences**2).sum()]
            self._last = float(p[-1])

    def _parts(self) -> Floats:
        count, total, squares, differences, jumps = self._sums.T
        within = squares - total**2 / np.maximum(count, 1)
        parts = np.array([np.maximum(count - 1, 0), within, differences, jumps]).sum(axis=1)
        return np.asarray(self._closed + parts)

    @property
    def correlation(self) -> float | None:
        """Serial correlation; None if fewer than 50 p-values tell."""
        freedom, within, differences, jumps = self._parts().tolist()
        if differences < FEWEST:
            return None
        return 1.0 - (jumps / differences) / (2.0 * within / freedom) if within > 1e-12 else 1.0

    @property
    def mean_since(self) -> float:
        """Mean p-value since the estimated change; 1/2 if there is none."""
        count, total = self._sums[1, :2]
        return float(total / count) if count else 0.5

    @property
    def alike(self) -> bool:
        """Whether neighbours are so much alike that the promise does not hold."""
        correlation = self.correlation
        return correlation is not None and correlation > max(LEAST, 4.0 / math.sqrt(self._parts()[2]))

    def to_json(self) -> dict[str, Any]:
        """All sums."""
        closed = self._closed.tolist()
        return {"sums": self._sums.tolist(), "closed": closed, "last": self._last, "since": self._since}

    def take(self, saved: dict[str, Any]) -> None:
        """Undo `to_json`."""
        sums, closed = (np.array(saved[name], dtype=np.float64) for name in ("sums", "closed"))
        if sums.shape != self._sums.shape or closed.shape != self._closed.shape:
            raise ValueError("the sums of neighbours have another shape")
        self._sums, self._closed = sums, closed
        self._last, self._since = saved["last"], int(saved["since"])
