"""Checks of the arrays that figures draw: one column each, equally long."""

__all__ = ["FloatArray", "check_positive", "column", "columns", "evenly_spaced", "finite_columns", "forecast"]

from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def column(name: str, values: ArrayLike) -> FloatArray:
    """Values of shape (n,) or (n, 1) as floats of shape (n,)."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must have shape (n,) or (n, 1) with n > 0, got {array.shape}.")
    return array


def columns(**named: ArrayLike) -> list[FloatArray]:
    """Each of the named values as floats of shape (n,), with one n for all."""
    arrays = [column(name, values) for name, values in named.items()]
    if len({len(array) for array in arrays}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in zip(named, arrays, strict=True))
        raise ValueError(f"these must have equally many rows, got {lengths}.")
    return arrays


def finite_columns(**named: ArrayLike) -> list[FloatArray]:
    """As `columns`, and without NaN or infinite values."""
    arrays = columns(**named)
    for name, array in zip(named, arrays, strict=True):
        if bad := int(np.count_nonzero(~np.isfinite(array))):
            raise ValueError(f"{name} has {bad} NaN or infinite values out of {array.size}; drop those rows.")
    return arrays


def forecast(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Targets, means and positive standard deviations, each finite and of shape (n,)."""
    truth, centre, spread = finite_columns(y_true=y_true, mean=mean, std=std)
    check_positive("std", spread)
    return truth, centre, spread


def check_positive(name: str, array: FloatArray) -> None:
    """Refuse values of 0 or less."""
    if bad := int(np.count_nonzero(array <= 0)):
        smallest = np.nanmin(array)
        raise ValueError(f"{name} must be positive, got {bad} values <= 0 (smallest {smallest:g}); drop those rows.")


def evenly_spaced(rows: int, limit: int) -> NDArray[np.intp]:
    """At most ``limit`` of the indices 0 to ``rows`` - 1, evenly spaced, both ends included."""
    if not isinstance(limit, Integral) or limit < 1:
        raise ValueError(f"limit, the number of rows to draw, must be a whole number >= 1, got {limit!r}.")
    return np.linspace(0, rows - 1, min(rows, int(limit))).round().astype(np.intp)
