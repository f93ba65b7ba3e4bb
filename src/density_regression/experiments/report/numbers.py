"""Numbers as short as a narrow column needs them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["compact", "mean_and_sd", "plus_minus"]


def mean_and_sd(values: ArrayLike) -> tuple[float, float]:
    """Mean and standard deviation (n - 1; NaN of one value), also of values whose squares are no floats."""
    array: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    scale = float(np.abs(array).max()) or 1.0
    scaled = array / scale
    sd = scale * float(scaled.std(ddof=1)) if len(array) > 1 else math.nan
    return scale * float(scaled.mean()), sd


def compact(value: float) -> str:
    """Three significant digits; 1.2e+05 where that would be long."""
    return f"{value:.{_decimals(value)}f}" if _is_plain(value) else f"{value:.1e}"


def plus_minus(mean: float, sd: float) -> str:
    """A mean and a standard deviation with equally many decimals; the mean alone if sd is NaN."""
    if math.isnan(sd):
        return compact(mean)
    if not (_is_plain(mean) and _is_plain(sd)):
        return f"{compact(mean)} ± {compact(sd)}"
    decimals = _decimals(max(abs(mean), sd))
    return f"{mean:.{decimals}f} ± {sd:.{decimals}f}"


def _is_plain(value: float) -> bool:
    return value == 0 or 1e-3 <= abs(value) < 9_999.5


def _decimals(value: float) -> int:
    if value == 0:
        return 0
    return max(0, 2 - math.floor(math.log10(abs(value))))
