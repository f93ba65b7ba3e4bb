"""The history of the evidence in a few hundred numbers, whatever the length of the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

__all__ = ["Trace"]

MOST: Final = 400
"""Most numbers that are kept."""


class Trace:
    """The highest log-evidence among each so many rows; twice as many rows each time there is no more room."""

    def __init__(self) -> None:
        self.rows_each = 1
        self.highest: list[float | None] = []

    def update(self, rows: Sequence[int], log_values: Sequence[float]) -> None:
        """Take log-evidence (n,) after some rows (n,), numbered from 1."""
        for row, value in zip(rows, log_values, strict=True):
            place = (row - 1) // self.rows_each
            while place >= MOST:
                self._halve()
                place = (row - 1) // self.rows_each
            if place >= len(self.highest):
                self.highest += [None] * (place + 1 - len(self.highest))
            highest = self.highest[place]
            self.highest[place] = value if highest is None else max(highest, value)

    def points(self) -> list[tuple[int, float]]:
        """Middle row and highest log-evidence of each part of the stream that has some."""
        each = self.rows_each
        return [(i * each + (each + 1) // 2, value) for i, value in enumerate(self.highest) if value is not None]

    def _halve(self) -> None:
        values = self.highest
        pairs = [[value for value in values[i : i + 2] if value is not None] for i in range(0, len(values), 2)]
        self.highest = [max(pair, default=None) for pair in pairs]
        self.rows_each *= 2

    def to_json(self) -> dict[str, Any]:
        """All that is kept."""
        return {"rows_each": self.rows_each, "highest": self.highest}

    def take(self, saved: dict[str, Any]) -> None:
        """Undo `to_json`."""
        self.rows_each, self.highest = int(saved["rows_each"]), list(saved["highest"])
