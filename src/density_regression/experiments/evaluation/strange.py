"""What strange rows have in common: each column's values in them beside those in the other rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from density_regression.experiments.evaluation.columns import CUTS, KnownColumn
from density_regression.tabular.table import Floats

__all__ = ["OTHERS", "STRANGE", "CategoryTally", "NumberTally", "StrangeRows", "Tally"]

OTHERS, STRANGE = 0, 1
"""Places of the two groups of rows."""

MOST_NEW_VALUES: Final = 1000
"""Most different values that training never had of which one column keeps a count, in each group."""

Mask = NDArray[np.bool_]


class Groups:
    """Numbers (2,) of the other rows and of the strange ones, and of those with a value that training never had."""

    def __init__(self) -> None:
        self.rows = np.zeros(2, dtype=np.int64)
        self.never = np.zeros(2, dtype=np.int64)

    def share(self, counts: NDArray[np.int64], group: int) -> float:
        """Share of a group's rows; NaN if there are none."""
        return float(counts[group] / self.rows[group]) if self.rows[group] else math.nan

    def _count_rows(self, strange: Mask, never: Mask) -> None:
        for group, rows in ((OTHERS, ~strange), (STRANGE, strange)):
            self.rows[group] += np.count_nonzero(rows)
            self.never[group] += np.count_nonzero(never & rows)


class Tally(Groups):
    """Counts of one column, for the other rows and for the strange ones."""

    def __init__(self, column: KnownColumn) -> None:
        super().__init__()
        self.column = column
        self.gaps = np.zeros(2, dtype=np.int64)

    def update(self, values: NDArray[Any], strange: Mask) -> Mask:
        """Add values (n,) of rows of which some are `strange` (n,); returns which of them training never had (n,)."""
        gaps, never = self._add(values, strange)
        never |= gaps & (self.column.gaps == 0)
        self._count_rows(strange, never)
        self.gaps += np.count_nonzero(gaps & ~strange), np.count_nonzero(gaps & strange)
        return never

    def _add(self, values: NDArray[Any], strange: Mask) -> tuple[Mask, Mask]:
        """Add values, and return which are gaps and which training never had."""
        raise NotImplementedError


class NumberTally(Tally):
    """Numbers, dates and booleans: how many lie beyond each training quantile, and their mean and deviation.

    `beyond` (2, 8) counts rows below the quantiles at levels under 0.5, and above the others.
    """

    def __init__(self, column: KnownColumn) -> None:
        super().__init__(column)
        self.beyond = np.zeros((2, len(CUTS)), dtype=np.int64)
        self.true = np.zeros(2, dtype=np.int64)
        self._count, self.mean, self._squares = np.zeros(2), np.zeros(2), np.zeros(2)

    def _add(self, values: NDArray[Any], strange: Mask) -> tuple[Mask, Mask]:
        gaps = np.isnan(values)
        never = np.zeros(len(values), dtype=bool)
        cuts = self.column.cuts
        for group, rows in ((OTHERS, ~strange), (STRANGE, strange)):
            known = values[rows & ~gaps]
            self._merge(group, known)
            self.true[group] += np.count_nonzero(known == 1.0)
            for i, level in enumerate(CUTS if cuts is not None else ()):
                assert cuts is not None
                outside = known < cuts[i] if level < 0.5 else known > cuts[i]
                self.beyond[group, i] += np.count_nonzero(outside)
        if cuts is not None:
            never = (values < cuts[0]) | (values > cuts[-1])
        return gaps, never

    def _merge(self, group: int, values: Floats) -> None:
        """Merge count, mean and sum of squared deviations (Chan, Golub & LeVeque, 1979)."""
        n, before = len(values), self._count[group]
        if not n:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            mean = values.mean()
            step = mean - self.mean[group]
            between = step**2 * (before / (before + n)) * n
            self._squares[group] += ((values - mean) ** 2).sum() + between
            self.mean[group] += step * n / (before + n)
        self._count[group] += n

    @property
    def shift(self) -> float:
        """Mean of the strange rows less that of the others, in the others' standard deviations; NaN if not known."""
        if min(self._count) < 2:
            return math.nan
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = (self.mean[STRANGE] - self.mean[OTHERS]) / np.sqrt(self._squares[OTHERS] / self._count[OTHERS])
        return float(shift) if np.isfinite(shift) else math.nan


class CategoryTally(Tally):
    """Text: counts of the values of the training rows, and of others, of which no more than a thousand are kept."""

    def __init__(self, column: KnownColumn) -> None:
        super().__init__(column)
        self.known: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self.new: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    def _add(self, values: NDArray[Any], strange: Mask) -> tuple[Mask, Mask]:
        gaps = np.fromiter((value is None for value in values), np.bool_, len(values))
        seen = self.column.values
        never = np.fromiter((value is not None and value not in seen for value in values), np.bool_, len(values))
        for group, rows in ((OTHERS, ~strange), (STRANGE, strange)):
            self.known[group].update(values[rows & ~gaps & ~never].tolist())
            for value, count in Counter(values[rows & never].tolist()).items():
                if value in self.new[group] or len(self.new[group]) < MOST_NEW_VALUES:
                    self.new[group][value] += count
        return gaps, never


class StrangeRows(Groups):
    """Tallies of all columns, and of rows with any value that training never had."""

    def __init__(self, columns: Sequence[KnownColumn]) -> None:
        super().__init__()
        self.tallies = [CategoryTally(one) if one.is_text else NumberTally(one) for one in columns]
        self.never = np.zeros(2, dtype=np.int64)

    def update(self, columns: Sequence[NDArray[Any]], strange: Mask) -> None:
        """Add a batch: the values (n,) of each column, and which rows (n,) are strange."""
        never = np.zeros(len(strange), dtype=bool)
        for tally, values in zip(self.tallies, columns, strict=True):
            never |= tally.update(values, strange)
        self._count_rows(strange, never)
