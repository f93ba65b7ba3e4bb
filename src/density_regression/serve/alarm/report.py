"""What an alarm says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

from density_regression.serve.alarm.moves import ColumnMove

__all__ = ["AlarmReport", "Watched"]

Watched = Literal["inputs", "errors", "bias"]

MOST_COLUMNS: Final = 5
"""Most columns that the text tells of."""


@dataclass(frozen=True)
class AlarmReport:
    """An alarm; rows are numbered from 1, as they came.

    Attributes
    ----------
    watched : str
        "inputs": log-densities of the inputs. "errors": distances of the targets from the predicted means, in standard
        deviations. "bias": the same with their signs.
    row : int
        Row at which it rang.
    since : int
        Row since which scores have been different: an estimate.
    evidence, threshold : float
        The evidence, and what it had to reach.
    mean_rank : float
        Mean rank, from 0 to 1, of the scores since then among all before them: 1/2 if nothing has changed. It is low
        where inputs are unfamiliar, errors are large, or targets are below the prediction.
    neighbours : float or None
        Correlation of the ranks of neighbouring rows, without the change itself; None if few rows tell.
    neighbours_alike : bool
        Whether that is so large that the promise does not hold; see `Alarm`.
    columns : tuple of ColumnMove
        Columns that have moved since, the one that chance explains least first.
    columns_known : bool
        Whether it is known what was usual in the columns.
    until : int
        Row at which it rang last: as long as a change goes on it rings again and again, and that is one alarm.
    """

    watched: Watched
    row: int
    since: int
    evidence: float
    threshold: float
    mean_rank: float
    neighbours: float | None
    neighbours_alike: bool
    columns: tuple[ColumnMove, ...]
    columns_known: bool
    until: int

    def __str__(self) -> str:
        count = self.row - self.since + 1
        since = f"about row {self.since:,} on ({count:,} row{'s' * (count > 1)})"
        lines = [
            f"Alarm at row {self.row:,}: {self._what()} from {since}. Mean rank since then {self.mean_rank:.2f}, "
            f"usually 0.50; evidence {self.evidence:,.0f}, threshold {self.threshold:,.0f}."
        ]
        if self.neighbours_alike:
            lines.append(
                f"But neighbouring rows are alike (rank correlation {self.neighbours:.2f}), so the stated rate of "
                "false alarms does not hold: take one score for each block of rows."
            )
        lines += [f"  {move}" for move in self.columns[:MOST_COLUMNS]]
        if more := len(self.columns) - MOST_COLUMNS:
            lines += [f"  and {more} more column{'s' * (more > 1)}"] if more > 0 else []
        if not self.columns:
            known = "no column by itself, only how they go together" if self.columns_known else "not known"
            lines.append(f"  Columns that moved: {known}.")
        return "\n".join(lines)

    def _what(self) -> str:
        if self.watched == "errors":
            return "targets are further from the predictions than before, in standard deviations,"
        if self.watched == "bias":
            return f"targets are {'lower' if self.mean_rank < 0.5 else 'higher'} than before, beside the predictions,"
        return f"inputs are {'less' if self.mean_rank < 0.5 else 'more'} familiar than before"

    def to_json(self) -> dict[str, Any]:
        """The report as plain numbers and strings."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """Undo `to_json`."""
        return cls(**{**saved, "columns": tuple(ColumnMove(**move) for move in saved["columns"])})
