"""Arithmetic that several metrics share."""

__all__ = ["absolute_area", "central_quantile", "coverage_levels", "mean_over_ties", "root_mean_square"]

from numbers import Integral

import numpy as np
from scipy.special import ndtri

from density_regression.metrics._checks import FloatArray


def root_mean_square(values: FloatArray) -> float:
    """Root mean square of all entries, without overflow of the squares."""
    scale = float(np.max(np.abs(values)))
    if scale == 0:
        return 0.0
    with np.errstate(under="ignore"):
        return scale * float(np.sqrt(np.mean((values / scale) ** 2)))


def mean_over_ties(key: FloatArray, values: FloatArray) -> FloatArray:
    """Replace each value by the mean over all entries with the same key, so that their order does not matter."""
    _, group = np.unique(key, return_inverse=True)
    return (np.bincount(group, weights=values) / np.bincount(group))[group]


def coverage_levels(levels: int) -> FloatArray:
    """Probabilities (levels,), evenly spaced from 0 to 1, both ends included."""
    if not isinstance(levels, Integral) or levels < 2:
        raise ValueError(f"levels must be an integer of at least 2 (the levels 0 and 1), got {levels!r}.")
    return np.linspace(0.0, 1.0, int(levels))


def absolute_area(x: FloatArray, height: FloatArray) -> float:
    """Area between the x axis and the polyline (x, height), both sides counted as positive."""
    left, right = height[:-1], height[1:]
    total = np.abs(left) + np.abs(right)
    crossing = left * right < 0
    # A segment that crosses the axis forms two similar triangles.
    triangles = (left**2 + right**2) / np.where(crossing, total, 1.0)
    return float(np.sum(np.diff(x) / 2 * np.where(crossing, triangles, total)))


def central_quantile(level: float) -> float:
    """Standard normal quantile z for which mean ± z std is the central interval of probability ``level``."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}; for 95 % pass 0.95.")
    return float(ndtri(0.5 + level / 2))
