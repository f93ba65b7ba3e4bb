"""One kind of score watched over a stream, from scores of rows to alarms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from density_regression.serve.alarm.betting import Jumper
from density_regression.serve.alarm.changes import Cells, Change
from density_regression.serve.alarm.columns import UsualColumn
from density_regression.serve.alarm.detectors import Detector, Evidence
from density_regression.serve.alarm.groups import Groups
from density_regression.serve.alarm.moves import PENDING, ColumnMove
from density_regression.serve.alarm.neighbours import Neighbours
from density_regression.serve.alarm.ranks import Floats, SequentialRanks
from density_regression.serve.alarm.trace import Trace

__all__ = ["Ring", "Watch"]


class Ring(NamedTuple):
    """What a watch knows when it rings; rows are numbered from 1.

    `goes_on` says that it is the change of the alarm before: there were fewer quiet rows between than it took to ring.
    `mean_rank` is the mean p-value since row `since`, 1/2 if nothing has changed. `correlation` is that of neighbouring
    rows, None if few rows tell, and `alike` whether it is so large that the promise does not hold.
    """

    row: int
    since: int
    log_evidence: float
    mean_rank: float
    correlation: float | None
    alike: bool
    moves: list[ColumnMove]
    goes_on: bool


class Watch:
    """Scores of one kind, low where a row is suspicious, from groups of rows by ranks and bets to evidence.

    Parameters
    ----------
    reference : array-like or None
        Scores to begin with. None: the first `warm_up` scores of the stream serve, in which nothing can be found.
    groups : Groups
    jumper : Jumper
    evidence : Evidence
    warm_up : int
    seed : int
    """

    def __init__(
        self,
        reference: ArrayLike | None,
        *,
        groups: Groups,
        jumper: Jumper,
        evidence: Evidence,
        warm_up: int,
        seed: int,
    ) -> None:
        self.groups, self.warm_up, self._seed = groups, warm_up, seed
        self.ranks = None if reference is None else SequentialRanks(reference, seed=seed)
        self.detector = Detector(jumper, evidence)
        self.changes = [Change(sign) for sign in (-1, 1) if sign in np.sign(jumper.bets)]
        self.trace = Trace()
        self._first_scores: list[float] = []
        self._scored = 0
        self._rang: int | None = None

    @property
    def warming_up(self) -> bool:
        """Whether scores are still collected to compare others with."""
        return self.ranks is None

    @property
    def neighbours(self) -> Neighbours:
        """Whether rows depend on their neighbours."""
        return self.changes[0].neighbours

    def count_columns(self, columns: Sequence[UsualColumn], rows: int, cells: Cells = (), first_row: int = 1) -> None:
        """Count values of these columns, from now on and in earlier rows, of which `cells` are known."""
        for change in self.changes:
            change.count_columns(columns, rows, cells, first_row, self._scored)

    def update(self, scores: Floats, cells: Cells, first_row: int) -> list[Ring]:
        """Alarms in the rows from number `first_row` on with these scores (n,), NaN where there is none."""
        known = np.flatnonzero(~np.isnan(scores))
        grouped = self.groups.update(scores[known], (first_row + known).tolist())
        warm = self._warm(grouped.scores)
        p_values = np.empty(0) if self.ranks is None else self.ranks.update(grouped.scores[warm:])
        first, last = grouped.first, grouped.last
        done = self._advance(cells, 0, last[warm - 1], first_row) if warm else 0
        rings, begin = [], warm
        for stretch in self.detector.update(p_values):
            stop = warm + stretch.stop
            for change in self.changes:
                change.update(p_values[begin - warm : stretch.stop], first[begin:stop])
            done = self._advance(cells, done, last[stop - 1], first_row)
            self.trace.update(last[begin:stop], stretch.log_values)
            if stretch.rings:
                rings.append(self._ring(last[stop - 1], stretch.log_values[-1]))
            begin = stop
        for change in self.changes:
            change.counts.add(cells, done, len(scores), PENDING)
        return rings

    def _warm(self, scores: Floats) -> int:
        """Collect scores to compare others with; the number of those taken."""
        if self.ranks is not None:
            return 0
        taken = min(len(scores), self.warm_up - len(self._first_scores))
        self._first_scores += scores[:taken].tolist()
        if len(self._first_scores) == self.warm_up:
            self.ranks = SequentialRanks(self._first_scores, seed=self._seed)
            self._first_scores = []
        return taken

    def _advance(self, cells: Cells, start: int, row: int, first_row: int) -> int:
        """Count rows of a batch from `start` up to number `row`, which has a score; where they end."""
        self._scored, stop = row, row - first_row + 1
        for change in self.changes:
            change.assign(cells, start, stop, first_row)
        return stop

    def _ring(self, row: int, log_evidence: float) -> Ring:
        change = max(self.changes, key=lambda change: change.log_capital)
        since, neighbours = change.since, change.neighbours
        goes_on = self._rang is not None and since - self._rang - 1 < row - since + 1
        ring = Ring(
            row=row,
            since=since,
            log_evidence=log_evidence,
            mean_rank=neighbours.mean_since,
            correlation=neighbours.correlation,
            alike=neighbours.alike,
            moves=[] if goes_on else change.counts.moves(),
            goes_on=goes_on,
        )
        self._rang = row
        for change in self.changes:
            change.restart()
        return ring

    def to_json(self) -> dict[str, Any]:
        """All that later alarms depend on, beside the settings."""
        return {
            "groups": self.groups.to_json(),
            "ranks": None if self.ranks is None else self.ranks.to_json(),
            "first_scores": self._first_scores,
            "detector": self.detector.to_json(),
            "changes": [change.to_json() for change in self.changes],
            "trace": self.trace.to_json(),
            "scored": self._scored,
            "rang": self._rang,
        }

    def take(self, saved: dict[str, Any], columns: Sequence[UsualColumn], rows: int) -> None:
        """Undo `to_json`; `columns` and `rows` are as for `ColumnCounts`."""
        self.groups.take(saved["groups"])
        self.ranks = None if saved["ranks"] is None else SequentialRanks.from_json(saved["ranks"])
        self._first_scores = [float(score) for score in saved["first_scores"]]
        self.detector.take(saved["detector"])
        for change, part in zip(self.changes, saved["changes"], strict=True):
            change.take(part, columns, rows)
        self.trace.take(saved["trace"])
        self._scored = int(saved["scored"])
        self._rang = None if saved["rang"] is None else int(saved["rang"])
