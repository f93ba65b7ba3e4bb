"""Prediction intervals side by side, those that miss their target marked."""

from __future__ import annotations

__all__ = ["ordered_intervals"]

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from density_regression import metrics
from density_regression.plots.arrays import evenly, forecast
from density_regression.plots.frames import frame, is_skewed
from density_regression.plots.style import MEAN, note, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MISSED = "#a01010"


def ordered_intervals(
    ax: Axes,
    y_true: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    level: float = 0.95,
    limit: int = 200,
    unit: str = "",
) -> None:
    """Draw central intervals in order of the true value, and say how many of them hold it.

    A target inside its interval is a dot; one outside is a cross, and its interval is dark. The y axis is
    logarithmic when all values are positive and the largest is more than 100 times the median. Intervals
    that would widen it to more than twice the spread of the values are cut off.

    Parameters
    ----------
    ax : matplotlib Axes
    y_true, mean, std : array-like of shape (n,) or (n, 1)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
    level : float, default=0.95
        Probability that an interval is meant to hold, strictly between 0 and 1.
    limit : int, default=200
        Rows to draw at most, evenly chosen in that order. The coverage in the corner is that of all rows.
    unit : str, default=""
        The target's unit, for the labels.
    """
    truth, centre, spread = forecast(y_true, mean, std)
    coverage = metrics.coverage(truth, centre, spread, level)
    place = evenly(len(truth), limit)
    drawn = np.argsort(truth, kind="stable")[place]
    truth, centre, half = truth[drawn], centre[drawn], float(ndtri(0.5 + level / 2)) * spread[drawn]
    low, high = centre - half, centre + half
    inside = np.abs(truth - centre) <= half
    rank = place + 1
    for chosen, color, width, label in (
        (inside, "0.75", 1.0, f"{100 * level:g} % interval"),
        (~inside, MEAN, 1.6, "interval that misses"),
    ):
        ax.vlines(rank[chosen], low[chosen], high[chosen], color=color, linewidth=width, zorder=2, label=label)
    ax.plot(rank[inside], truth[inside], "o", color="0.35", markersize=2, zorder=3, label="true value inside")
    ax.plot(rank[~inside], truth[~inside], "x", color=_MISSED, markersize=7, mew=1.8, zorder=4, label="outside")
    points = np.concatenate([truth, centre])
    logarithmic = is_skewed(points)
    if logarithmic:
        ax.set_yscale("log")
    ax.set_ylim(frame(points, low, high, logarithmic=logarithmic))
    margin = max(1.0, 0.02 * rank[-1])
    ax.set_xlim(rank[0] - margin, rank[-1] + margin)
    ax.locator_params(axis="x", integer=True)
    ax.set(xlabel="rows in order of the true value", ylabel=with_unit("value", unit))
    text = f"coverage {100 * coverage:.1f} % (nominal {100 * level:g} %)"
    if len(drawn) < np.size(y_true):
        text += f"\n{len(drawn)} of {np.size(y_true)} rows drawn"
    note(ax, text)
