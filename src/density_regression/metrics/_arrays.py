"""Checks of the arguments, and the arithmetic that several scores share."""

__all__ = [
    "FloatArray",
    "area_to_zero",
    "count_of",
    "deviations_at",
    "floats",
    "fraction_at_most",
    "levels_of",
    "mean_over_ties",
    "positive",
    "residual_and_std",
    "residual_of",
    "root_mean_square",
    "standardised",
    "unit_of",
    "weighted_mean",
]

from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

FloatArray = NDArray[np.float64]


def floats(name: str, values: ArrayLike) -> FloatArray:
    """Finite float64 values of shape (n,) or (n, k), or a ValueError that names them."""
    try:
        if (dtype := np.asarray(values).dtype).kind in "cmM":
            raise TypeError(f"they are of type {dtype}.")
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            raise TypeError("some are masked; drop those rows.")
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, in rows of equal length: {error}") from error
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have shape (n,) or (n, k), got shape {array.shape}; reshape it first.")
    if array.size == 0:
        raise ValueError(f"{name} is empty (shape {array.shape}); a score needs at least one value.")
    if bad := int(np.count_nonzero(~np.isfinite(array))):
        raise ValueError(f"{name} has {bad} NaN or infinite values out of {array.size}; drop or replace those rows.")
    return array


def positive(name: str, values: ArrayLike) -> FloatArray:
    """Finite and positive values, or a ValueError that names them."""
    array = floats(name, values)
    if bad := int(np.count_nonzero(array <= 0)):
        raise ValueError(
            f"{name} must be positive, got {bad} values <= 0 (smallest {array.min():g}); "
            "pass standard deviations, not log-variances, and bound them away from 0."
        )
    return array


def _check_same_shape(name: str, array: FloatArray, y_true: FloatArray) -> None:
    """Refuse an array that does not have the shape of y_true."""
    if array.shape != y_true.shape:
        raise ValueError(
            f"{name} must have the shape of y_true, got {array.shape} and {y_true.shape}; "
            "nothing is broadcast, reshape one of them."
        )


def residual_of(y_true: ArrayLike, mean: ArrayLike) -> FloatArray:
    """y_true - mean, both checked; finite, also where the difference leaves float64's range."""
    y_true, mean = floats("y_true", y_true), floats("mean", mean)
    _check_same_shape("mean", mean, y_true)
    largest = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        return np.clip(y_true - mean, -largest, largest)


def residual_and_std(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """y_true - mean and std, all checked and of one shape."""
    residual, std = residual_of(y_true, mean), positive("std", std)
    _check_same_shape("std", std, residual)
    return residual, std


def standardised(residual: FloatArray, std: FloatArray) -> FloatArray:
    """Residuals in standard deviations, finite, so that none ties with the quantiles of 0 and 1."""
    largest = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        return np.clip(residual / std, -largest, largest)


def root_mean_square(values: FloatArray) -> float:
    """Root of the mean square over all entries, also where the squares leave float64's range."""
    scale = float(np.max(np.abs(values)))
    if scale == 0:
        return 0.0
    # Divided by the largest first: squares leave float64's range long before the values do.
    with np.errstate(under="ignore"):
        return scale * float(np.sqrt(np.mean((values / scale) ** 2)))


def weighted_mean(values: FloatArray, sample_weight: ArrayLike | None) -> float:
    """Mean over all entries of values (n,) or (n, k), by the weights (n,) of rows if there are any."""
    if sample_weight is None:
        return float(np.mean(values))
    weight = floats("sample_weight", sample_weight)
    if weight.shape != values.shape[:1]:
        raise ValueError(f"sample_weight must have shape ({len(values)},), one for each row, got {weight.shape}.")
    if weight.min() < 0 or weight.max() == 0:
        raise ValueError(
            f"sample_weight must not be negative, and not 0 everywhere, got {weight.min():g} to {weight.max():g}."
        )
    # Rows without weight are left out, as theirs may be infinite; by the largest first, as a sum of weights may be.
    counted = weight > 0
    rows = values.reshape(len(values), -1).mean(1)[counted]
    return float(np.average(rows, weights=weight[counted] / weight.max()))


def mean_over_ties(key: FloatArray, values: FloatArray) -> FloatArray:
    """Replace each value by the mean over the entries of equal key, so that their order cannot matter."""
    _, group = np.unique(key, return_inverse=True)
    return (np.bincount(group, weights=values) / np.bincount(group))[group]


def count_of(name: str, value: int) -> int:
    """An integer of at least 1, or a ValueError that names it."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
    return int(value)


def levels_of(levels: int) -> FloatArray:
    """Probabilities evenly spaced from 0 to 1, both ends included."""
    if not isinstance(levels, Integral) or levels < 2:
        raise ValueError(f"levels must be an integer of at least 2 (the levels 0 and 1), got {levels!r}.")
    return np.linspace(0.0, 1.0, int(levels))


def fraction_at_most(values: FloatArray, thresholds: FloatArray) -> FloatArray:
    """Fraction of all values that are at most each threshold."""
    return np.searchsorted(np.sort(values, axis=None), thresholds, side="right") / values.size


def area_to_zero(x: FloatArray, height: FloatArray) -> float:
    """Area between the x axis and the polyline (x, height), counting both sides as positive."""
    left, right = height[:-1], height[1:]
    total = np.abs(left) + np.abs(right)
    crossing = left * right < 0
    # A piece that crosses the axis is two triangles, whose bases stand in the ratio of their heights.
    triangles = (left**2 + right**2) / np.where(crossing, total, 1.0)
    return float(np.sum(np.diff(x) / 2 * np.where(crossing, triangles, total)))


def deviations_at(level: float) -> float:
    """Standard deviations from the mean to either end of the central interval of probability `level`."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}; for 95 % pass 0.95.")
    return float(ndtri(0.5 + level / 2))


def unit_of(unit: float) -> float:
    """A positive and finite number, or a ValueError that names it."""
    if not (np.isfinite(unit) and unit > 0):
        raise ValueError(f"unit must be positive and finite, got {unit!r}; pass a standard deviation, or 1.")
    return float(unit)
