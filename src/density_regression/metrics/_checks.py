"""Checks of the arguments of metrics; each raises a ValueError that names the argument."""

__all__ = ["FloatArray", "check_array", "check_count", "check_positive", "check_unit", "residuals", "residuals_and_std"]

from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

LARGEST_FLOAT = np.finfo(np.float64).max


def check_array(name: str, values: ArrayLike) -> FloatArray:
    """Return the values as finite float64 of shape (n,) or (n, k)."""
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


def check_positive(name: str, values: ArrayLike) -> FloatArray:
    """As `check_array`, for values greater than 0."""
    array = check_array(name, values)
    if bad := int(np.count_nonzero(array <= 0)):
        raise ValueError(
            f"{name} must be positive, got {bad} values <= 0 (smallest {array.min():g}); "
            "pass standard deviations, not log-variances, and bound them away from 0."
        )
    return array


def residuals(y_true: ArrayLike, mean: ArrayLike) -> FloatArray:
    """Return y_true - mean, clipped to the finite range of float64."""
    y_true, mean = check_array("y_true", y_true), check_array("mean", mean)
    _check_same_shape("mean", mean, y_true)
    with np.errstate(over="ignore"):
        return np.clip(y_true - mean, -LARGEST_FLOAT, LARGEST_FLOAT)


def residuals_and_std(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return y_true - mean and std, both of the shape of y_true."""
    residual, std = residuals(y_true, mean), check_positive("std", std)
    _check_same_shape("std", std, residual)
    return residual, std


def _check_same_shape(name: str, array: FloatArray, y_true: FloatArray) -> None:
    if array.shape != y_true.shape:
        raise ValueError(
            f"{name} must have the shape of y_true, got {array.shape} and {y_true.shape}; "
            "nothing is broadcast, reshape one of them."
        )


def check_count(name: str, value: int) -> int:
    """Return an integer of at least 1."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
    return int(value)


def check_unit(unit: float) -> float:
    """Return a positive, finite unit of measurement."""
    if not (np.isfinite(unit) and unit > 0):
        raise ValueError(f"unit must be positive and finite, got {unit!r}; pass a standard deviation, or 1.")
    return float(unit)
