"""Predictions and targets by row: against each other, as intervals, and errors against standard deviations."""

from __future__ import annotations

__all__ = ["error_against_std", "ordered_intervals", "parity"]

from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from density_regression import metrics
from density_regression.plots.arrays import FloatArray, evenly_spaced, forecast
from density_regression.plots.style import MEAN_COLOR, axis_label, corner_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def parity(
    ax: Axes, y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, k: float = 1.96, limit: int = 200, unit: str = ""
) -> None:
    """Draw predicted against true values, with error bars and the diagonal of equality.

    Both axes are logarithmic when all values are positive and the largest is more than 100 times the median. Error
    bars widen the axes by at most half the range of the points on either side.

    Parameters
    ----------
    ax : matplotlib Axes
    y_true, mean, std : array-like of shape (n,) or (n, 1)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    k : float, default=1.96
        Half the length of an error bar, in standard deviations.
    limit : int, default=200
        Largest number of rows to draw, evenly spaced in order of the true value.
    unit : str, default=""
        The target's unit, for the labels.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> parity(ax, [1.0, 2.0, 4.0], [1.0, 2.5, 3.0], [0.5, 0.5, 1.0], unit="m")
    """
    if not (np.isfinite(k) and k > 0):
        raise ValueError(f"k, half the length of an error bar in standard deviations, must be > 0, got {k!r}.")
    truth, centre, spread = forecast(y_true, mean, std)
    drawn = np.argsort(truth, kind="stable")[evenly_spaced(len(truth), limit)]
    truth, centre, bar = truth[drawn], centre[drawn], k * spread[drawn]
    label = f"mean ± {k:g} std"
    ax.errorbar(truth, centre, bar, fmt="o", markersize=3, color=MEAN_COLOR, ecolor="0.72", elinewidth=0.9, label=label)
    points = np.concatenate([truth, centre])
    logarithmic = _needs_log_axis(points)
    ends = _axis_limits(points, centre - bar, centre + bar, logarithmic=logarithmic)
    ax.plot(ends, ends, color="0.25", linestyle="--", linewidth=1.2, zorder=3, label="equal")
    if logarithmic:
        ax.set(xscale="log", yscale="log")
    ax.set(xlim=ends, ylim=ends, aspect="equal")
    ax.set(xlabel=axis_label("true value", unit), ylabel=axis_label("predicted value", unit))
    if len(drawn) < np.size(y_true):
        corner_text(ax, f"{len(drawn)} of {np.size(y_true)} rows")


def ordered_intervals(
    ax: Axes, y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float = 0.95, limit: int = 200, unit: str = ""
) -> None:
    """Draw central intervals in order of the true value, and write their coverage.

    Targets inside their interval are dots; those outside are crosses, with a dark interval. The y axis is logarithmic
    and limited as in `parity`.

    Parameters
    ----------
    ax : matplotlib Axes
    y_true, mean, std : array-like of shape (n,) or (n, 1)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    level : float, default=0.95
        Nominal coverage, strictly between 0 and 1.
    limit : int, default=200
        Largest number of rows to draw, evenly spaced in that order. The coverage in the corner is that of all rows.
    unit : str, default=""
        The target's unit, for the labels.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> ordered_intervals(ax, [1.0, 2.0, 4.0], [1.0, 2.5, 3.0], [0.5, 0.5, 1.0], level=0.9)
    """
    truth, centre, spread = forecast(y_true, mean, std)
    coverage = metrics.coverage(truth, centre, spread, level)
    place = evenly_spaced(len(truth), limit)
    drawn = np.argsort(truth, kind="stable")[place]
    truth, centre, half = truth[drawn], centre[drawn], float(ndtri(0.5 + level / 2)) * spread[drawn]
    low, high = centre - half, centre + half
    inside = np.abs(truth - centre) <= half
    rank = place + 1
    for chosen, color, width, label in (
        (inside, "0.75", 1.0, f"{100 * level:g} % interval"),
        (~inside, MEAN_COLOR, 1.6, "interval that misses"),
    ):
        ax.vlines(rank[chosen], low[chosen], high[chosen], color=color, linewidth=width, zorder=2, label=label)
    ax.plot(rank[inside], truth[inside], "o", color="0.35", markersize=2, zorder=3, label="true value inside")
    ax.plot(rank[~inside], truth[~inside], "x", color="#a01010", markersize=7, mew=1.8, zorder=4, label="outside")
    points = np.concatenate([truth, centre])
    logarithmic = _needs_log_axis(points)
    if logarithmic:
        ax.set_yscale("log")
    ax.set_ylim(_axis_limits(points, low, high, logarithmic=logarithmic))
    margin = max(1.0, 0.02 * rank[-1])
    ax.set_xlim(rank[0] - margin, rank[-1] + margin)
    ax.locator_params(axis="x", integer=True)
    ax.set(xlabel="rows in order of the true value", ylabel=axis_label("value", unit))
    text = f"coverage {100 * coverage:.1f} % (nominal {100 * level:g} %)"
    if len(drawn) < np.size(y_true):
        text += f"\n{len(drawn)} of {np.size(y_true)} rows drawn"
    corner_text(ax, text)


def error_against_std(
    ax: Axes, y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, bins: int = 10, unit: str = ""
) -> None:
    """Draw absolute errors against predicted standard deviations, by row and in bins.

    A bin holds rows of similar standard deviation, equally many in each; its root mean squared error is drawn against
    its root mean variance. Bins on the diagonal have the errors that were predicted. Both axes are logarithmic when
    the largest standard deviation is more than 10 times the smallest; errors below a hundredth of the smallest are
    then drawn at the lower edge.

    Parameters
    ----------
    ax : matplotlib Axes
    y_true, mean, std : array-like of shape (n,) or (n, 1)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    bins : int, default=10
        Number of bins, at most one per row.
    unit : str, default=""
        The target's unit, for the labels.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> error_against_std(ax, [1.0, 2.0, 4.0], [1.0, 2.5, 3.0], [0.5, 0.6, 1.0], bins=3, unit="m")
    """
    if not isinstance(bins, Integral) or bins < 1:
        raise ValueError(f"bins must be a whole number >= 1, got {bins!r}.")
    truth, centre, spread = forecast(y_true, mean, std)
    logarithmic = spread.max() > 10 * spread.min()
    floor = spread.min() / 100 if logarithmic else 0.0
    if logarithmic:
        ax.set(xscale="log", yscale="log")
    else:
        ax.locator_params(axis="x", nbins=6)
    error = np.maximum(np.abs(truth - centre), floor)
    alpha = float(np.clip(1000 / len(error), 0.15, 0.8))
    ax.scatter(spread, error, s=7, color="0.5", alpha=alpha, linewidths=0, rasterized=True, label="rows")
    _draw_bins(ax, truth, centre, spread, int(bins))
    # Longer than the data, so that it is visible if all standard deviations are equal.
    ends = 0.9 * spread.min(), 1.1 * spread.max()
    ax.plot(ends, ends, color="0.1", linestyle="--", linewidth=1.2, zorder=3, label="as predicted")
    ax.set_ylim(bottom=floor)
    ax.set(xlabel=axis_label("predicted standard deviation", unit), ylabel=axis_label("absolute error", unit))


def _draw_bins(ax: Axes, truth: FloatArray, centre: FloatArray, spread: FloatArray, bins: int) -> None:
    parts = np.array_split(np.argsort(spread, kind="stable"), min(bins, len(spread)))
    predicted = [metrics.sharpness(spread[part]) for part in parts]
    observed = [metrics.rmse(truth[part], centre[part]) for part in parts]
    label = "bins, RMSE against RMV"
    ax.plot(predicted, observed, color=MEAN_COLOR, marker="s", markersize=5, linewidth=1.5, zorder=4, label=label)


def _needs_log_axis(points: FloatArray) -> bool:
    """Whether all points are positive and the largest is more than 100 times the median."""
    return bool(points.min() > 0 and points.max() > 100 * np.median(points))


def _axis_limits(points: FloatArray, low: FloatArray, high: FloatArray, *, logarithmic: bool) -> tuple[float, float]:
    """Limits that hold all points and their error bars from ``low`` to ``high``.

    Error bars widen the axis by at most half the range of the points on either side.
    """
    bars = np.array([low.min(), high.max()])
    ends = np.array([points.min(), points.max()])
    if logarithmic:
        bars, ends = np.log(np.maximum(bars, np.finfo(np.float64).tiny)), np.log(ends)
    room = 0.5 * (float(np.ptp(ends)) or float(np.ptp(bars)))
    start = min(ends[0], max(bars[0], ends[0] - room))
    stop = max(ends[1], min(bars[1], ends[1] + room))
    pad = 0.04 * (stop - start)
    limits = np.array([start - pad, stop + pad])
    first, last = np.exp(limits) if logarithmic else limits
    return float(first), float(last)
