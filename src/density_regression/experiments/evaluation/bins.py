"""Errors of rows by bins: of the predicted standard deviation, or of familiarity."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.experiments.evaluation.forecast import Forecast
from density_regression.tabular.table import Floats

__all__ = ["FAMILIARITY_EDGES", "UNFAMILIAR", "BinnedErrors", "ErrorBin", "ErrorsByFamiliarity", "ErrorsByStd"]

UNFAMILIAR: Final = 0.01
"""Familiarity below which a row is strange: 99 in 100 held-out rows were more familiar."""

FAMILIARITY_EDGES: Final = (UNFAMILIAR, 0.05, 0.1, 0.25, 0.5, 0.75)

BINS_PER_OCTAVE: Final = 32
SMALLEST_EXPONENT, LARGEST_EXPONENT = -1074, 1024
"""Logarithms to base 2 of the smallest and the largest float64."""

COVERAGE: Final = 0.9


class ErrorBin(NamedTuple):
    """Rows of one bin.

    `low` and `high` are the edges; `rows` their number, `rmse` the root mean squared error and `std` the root mean
    predicted variance in the target's units, and `inside` the share of targets in the 90 % interval.
    """

    low: float
    high: float
    rows: int
    rmse: float
    std: float
    inside: float


class BinnedErrors:
    """Counts, squared errors, variances and coverage of rows in fixed bins, given batch by batch."""

    def __init__(self, bins: int) -> None:
        self.rows = np.zeros(bins, dtype=np.int64)
        self._squares, self._variances = np.zeros(bins), np.zeros(bins)
        self._inside = np.zeros(bins, dtype=np.int64)

    def add(self, places: NDArray[np.intp], rows: Forecast) -> None:
        """Add a batch whose rows (n,) belong to bins of these numbers."""
        low, high = rows.interval(COVERAGE)
        inside = (low <= rows.y) & (rows.y <= high)
        bins = len(self.rows)
        with np.errstate(over="ignore"):
            self._squares += np.bincount(places, (rows.y - rows.mean) ** 2, bins)
            self._variances += np.bincount(places, rows.std**2, bins)
        self.rows += np.bincount(places, minlength=bins)
        self._inside += np.bincount(places[inside], minlength=bins)

    def merged(self, first: int, last: int, low: float, high: float) -> ErrorBin:
        """Bins `first` to `last`, without the latter, as one of these edges; they have a row at least."""
        part = slice(first, last)
        rows = int(self.rows[part].sum())
        with np.errstate(over="ignore"):
            rmse, std = (float(np.sqrt(sums[part].sum() / rows)) for sums in (self._squares, self._variances))
        return ErrorBin(low, high, rows, rmse, std, float(self._inside[part].sum() / rows))


class ErrorsByStd(BinnedErrors):
    """Errors by predicted standard deviation, in bins of 2 % each, which are merged into groups of about equal size."""

    def __init__(self) -> None:
        super().__init__((LARGEST_EXPONENT - SMALLEST_EXPONENT) * BINS_PER_OCTAVE + 1)

    def update(self, rows: Forecast) -> None:
        """Add a batch."""
        self.add(np.floor((np.log2(rows.std) - SMALLEST_EXPONENT) * BINS_PER_OCTAVE).astype(np.intp), rows)

    def groups(self, number: int) -> list[ErrorBin]:
        """At most so many groups of bins, in order: fewer if many rows share a bin."""
        used = np.flatnonzero(self.rows)
        passed = np.cumsum(self.rows[used])
        # The group of a bin is that of the middle of its rows.
        middle = passed - self.rows[used] / 2
        group = np.minimum((middle * number / max(passed[-1], 1)).astype(int), number - 1) if len(used) else used
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        found = []
        for one, after in zip(starts, [*starts[1:], len(used)], strict=True):
            first, last = int(used[one]), int(used[after - 1]) + 1
            found.append(self.merged(first, last, _edge(first), _edge(last)))
        return found


class ErrorsByFamiliarity(BinnedErrors):
    """Errors by familiarity, in bins that are finer where rows are strange, and a histogram of twenty equal bins."""

    def __init__(self) -> None:
        super().__init__(len(FAMILIARITY_EDGES) + 1)
        self.histogram = np.zeros(20, dtype=np.int64)

    def update(self, rows: Forecast, familiarity: Floats) -> None:
        """Add a batch."""
        self.add(np.searchsorted(FAMILIARITY_EDGES, familiarity, side="right"), rows)
        places = np.minimum((familiarity * len(self.histogram)).astype(np.intp), len(self.histogram) - 1)
        self.histogram += np.bincount(places, minlength=len(self.histogram))

    @property
    def unfamiliar(self) -> int:
        """Number of strange rows."""
        return int(self.rows[0])

    def bins(self) -> list[ErrorBin]:
        """Bins that have a row, from the strangest."""
        edges = (0.0, *FAMILIARITY_EDGES, 1.0)
        return [self.merged(i, i + 1, edges[i], edges[i + 1]) for i in np.flatnonzero(self.rows).tolist()]

    def familiar(self) -> ErrorBin | None:
        """All rows that are not strange, as one bin; None if there is none."""
        return self.merged(1, len(self.rows), UNFAMILIAR, 1.0) if self.rows[1:].any() else None


def _edge(place: int) -> float:
    return float(np.exp2(place / BINS_PER_OCTAVE + SMALLEST_EXPONENT))
