"""How far an axis reaches, where the values or their error bars are spread very unevenly."""

from __future__ import annotations

__all__ = ["frame", "is_skewed"]

import numpy as np

from density_regression.plots.arrays import FloatArray


def is_skewed(points: FloatArray) -> bool:
    """Whether most of the points would crowd at the foot of a linear axis; only positive ones can."""
    return bool(points.min() > 0 and points.max() > 100 * np.median(points))


def frame(points: FloatArray, low: FloatArray, high: FloatArray, *, logarithmic: bool) -> tuple[float, float]:
    """Limits that hold all points, and their error bars from ``low`` to ``high`` as far as these are not excessive.

    Bars widen the axis by at most half the spread of the points on either side.
    """
    bars = np.array([low.min(), high.max()])
    ends = np.array([points.min(), points.max()])
    if logarithmic:
        # A bar that reaches 0 has no lower end on this axis.
        bars, ends = np.log(np.maximum(bars, np.finfo(np.float64).tiny)), np.log(ends)
    room = 0.5 * (float(np.ptp(ends)) or float(np.ptp(bars)))
    start = min(ends[0], max(bars[0], ends[0] - room))
    stop = max(ends[1], min(bars[1], ends[1] + room))
    pad = 0.04 * (stop - start)
    limits = np.array([start - pad, stop + pad])
    first, last = np.exp(limits) if logarithmic else limits
    return float(first), float(last)
