"""Settings of an alarm, and the promise that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Final, get_args

from density_regression.serve.alarm.betting import BETS, Direction, Jumper
from density_regression.serve.alarm.detectors import Evidence, ShiryaevRoberts, Ville
from density_regression.serve.alarm.groups import Groups

__all__ = ["Settings"]

FEWEST: Final = 10
"""Fewest scores for each false alarm that may be asked for."""


@dataclass(frozen=True)
class Settings:
    """Settings of an `Alarm`, which describes them."""

    false_alarms_per: float = 100_000.0
    chance: float | None = None
    direction: Direction = "unfamiliar"
    every: int = 1
    block: int = 1
    warm_up: int = 100
    targets: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what makes no alarm."""
        for name in ("every", "block", "warm_up"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        if self.every > 1 and self.block > 1:
            raise ValueError(f"every={self.every} and block={self.block} both make one score of many rows: give one.")
        rows = self.false_alarms_per
        if not isinstance(rows, Real) or isinstance(rows, bool) or not FEWEST * self.rows_each <= rows < math.inf:
            raise ValueError(
                f"false_alarms_per must be a number of rows, at least {FEWEST * self.rows_each} ({FEWEST} scores), "
                f"got {rows!r}."
            )
        if self.chance is not None and not (isinstance(self.chance, Real) and 0 < self.chance < 1):
            raise ValueError(f"chance must be None or a probability between 0 and 1, got {self.chance!r}.")
        if self.direction not in get_args(Direction):
            raise ValueError(f"direction must be one of {', '.join(get_args(Direction))}, got {self.direction!r}.")

    @property
    def rows_each(self) -> int:
        """Rows for each score."""
        return self.every * self.block

    @property
    def watches(self) -> int:
        """Number of kinds of scores that are watched."""
        return 3 if self.targets else 1

    @property
    def threshold(self) -> float:
        """What the evidence of each watch must reach, so that all together keep the promise."""
        if self.chance is not None:
            return self.watches / self.chance
        return self.watches * self.false_alarms_per / self.rows_each

    @property
    def promise(self) -> str:
        """What holds as long as nothing changes."""
        if self.chance is not None:
            return (
                f"As long as rows are exchangeable with those before them, the chance that there is ever a false alarm "
                f"is at most {self.chance:g}."
            )
        rows = f"{self.false_alarms_per:,.10g}"
        return (
            f"As long as rows are exchangeable with those before them, there is on average at most one false alarm in "
            f"{rows} rows, and the chance of one within N rows is at most N / {rows}."
        )

    def groups(self) -> Groups:
        """Rows in groups, for a watch."""
        return Groups(self.rows_each, mean=self.block > 1)

    def jumper(self, *, both: bool = False) -> Jumper:
        """A gambler, for a watch; `both` lets it profit from large p-values, too."""
        return Jumper(BETS["changed" if both else self.direction])

    def evidence(self) -> Evidence:
        """Evidence and threshold, for a watch."""
        kind = ShiryaevRoberts if self.chance is None else Ville
        return kind(math.log(self.threshold))
