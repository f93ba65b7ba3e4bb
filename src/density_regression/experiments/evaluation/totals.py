"""Metrics of all rows, accumulated over batches in any division: sums, root mean squares, and counts in fixed bins."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from scipy.special import ndtri

from density_regression import metrics
from density_regression.experiments.evaluation.forecast import Ends, Forecast
from density_regression.tabular.table import Floats

__all__ = ["CURVE_LEVELS", "PIT_BINS", "IntervalQuality", "Totals"]

CURVE_LEVELS: Final = 100
"""Levels of the calibration curve and of the calibration error, as in `metrics.calibration_error`."""

PIT_BINS: Final = 20


class IntervalQuality(NamedTuple):
    """Nominal coverage of an interval, share of targets inside, and mean width in the target's units."""

    level: float
    coverage: float
    width: float


class Totals:
    """Metrics of rows given batch by batch, equal to those of all rows at once but for rounding.

    Memory does not grow with the rows. Root mean squares are merged by `hypot`, so that squares do not overflow.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._sums: dict[str, float] = dict.fromkeys(("nll", "crps", "mae", "bias"), 0.0)
        self._rms: dict[str, float] = dict.fromkeys(("rmse", "sharpness", "std_factor"), 0.0)
        self._mean, self._deviation = 0.0, 0.0
        self._inside: dict[tuple[bool, float], float] = {}
        self._width: dict[tuple[bool, float], float] = {}
        self._below = np.zeros(CURVE_LEVELS)
        self.pit = np.zeros(PIT_BINS, dtype=np.int64)

    def update(self, rows: Forecast) -> None:
        """Add a batch of at least one row."""
        n, m = len(rows.y), self.rows
        self.rows += n
        zero, one = np.zeros(n), np.ones(n)
        with np.errstate(over="ignore"):
            bias = float(np.mean(rows.y - rows.mean))
        means = {"nll": rows.nll, "crps": rows.crps, "mae": metrics.mae(rows.y, rows.mean), "bias": bias}
        for name, value in means.items():
            self._sums[name] += n * value
        squares = {
            "rmse": metrics.rmse(rows.y, rows.mean),
            "sharpness": metrics.sharpness(rows.std),
            "std_factor": metrics.rmse(rows.z, zero),
        }
        for name, value in squares.items():
            self._rms[name] = _merged(self._rms[name], value, m, n)
        self._add_targets(rows.y, m)
        for is_conformal, ends in ((False, rows.ends), (True, rows.conformal)):
            self._add_intervals(is_conformal, ends, rows.y)
        self._below += n * metrics.calibration_curve(rows.z, zero, one, CURVE_LEVELS)[1]
        edges = ndtri(np.arange(1, PIT_BINS) / PIT_BINS)
        self.pit += np.bincount(np.searchsorted(edges, rows.z), minlength=PIT_BINS)

    def metrics(self) -> dict[str, float]:
        """Metrics by name, as `density_regression.metrics` has them, of at least one row.

        `nll` is that of the method's own law, `bias` the mean of target less prediction, `sharpness` the root mean
        predicted variance, and `std_factor` the root mean square of the errors in standard deviations (of the logarithm
        with a log-normal law).
        """
        expected, observed = self.curve()
        result = {name: total / self.rows for name, total in self._sums.items()} | self._rms | {"r2": self._r2()}
        return result | {"calibration_error": float(np.sum((expected - observed) ** 2))}

    def curve(self) -> tuple[Floats, Floats]:
        """Expected and observed fractions (CURVE_LEVELS,) of targets below predicted quantiles."""
        return np.linspace(0.0, 1.0, CURVE_LEVELS), self._below / self.rows

    def intervals(self, *, conformal: bool = False) -> list[IntervalQuality]:
        """Coverage and mean width at each level of the law's intervals, or of the conformal ones."""
        return [
            IntervalQuality(level, inside / self.rows, self._width[kind, level] / self.rows)
            for (kind, level), inside in self._inside.items()
            if kind is conformal
        ]

    def _add_targets(self, y: Floats, before: int) -> None:
        """Merge mean and standard deviation of targets (Chan, Golub & LeVeque, 1979)."""
        n = len(y)
        # Relative to the first target, so that rounding leaves no variance in a constant one.
        moved = y - y[0]
        mean, deviation = float(y[0] + moved.mean()), metrics.rmse(moved, np.full(n, moved.mean()))
        if not before:
            self._mean, self._deviation = mean, deviation
            return
        step, total = mean - self._mean, before + n
        between = math.sqrt(before / total * n / total) * abs(step)
        self._deviation = math.hypot(_merged(self._deviation, deviation, before, n), between)
        self._mean += n / total * step

    def _add_intervals(self, is_conformal: bool, ends: Ends, y: Floats) -> None:
        for level, (low, high) in ends.items():
            key = is_conformal, level
            self._inside[key] = self._inside.get(key, 0.0) + np.count_nonzero((low <= y) & (y <= high))
            with np.errstate(over="ignore"):
                self._width[key] = self._width.get(key, 0.0) + float(np.sum(high - low))

    def _r2(self) -> float:
        if self._deviation == 0:
            return float(self._rms["rmse"] == 0)
        with np.errstate(over="ignore"):
            return float(1.0 - np.square(np.float64(self._rms["rmse"]) / self._deviation))


def _merged(one: float, other: float, rows: int, more: int) -> float:
    """Root mean square over two parts, from those of each."""
    total = rows + more
    return math.hypot(math.sqrt(rows / total) * one, math.sqrt(more / total) * other)
