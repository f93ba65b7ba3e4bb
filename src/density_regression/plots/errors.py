"""Errors row by row: predictions against targets, and the size of errors against what was predicted of it."""

from __future__ import annotations

__all__ = ["error_against_std", "parity"]

from numbers import Integral
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike

from density_regression import metrics
from density_regression.plots.arrays import FloatArray, evenly, forecast
from density_regression.plots.frames import frame, is_skewed
from density_regression.plots.style import MEAN, note, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE: Final = 10.0
"""Ratio of the largest to the smallest standard deviation above which the axes are logarithmic."""


def parity(
    ax: Axes, y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, k: float = 1.96, limit: int = 200, unit: str = ""
) -> None:
    """Draw predicted against true values, with error bars and the diagonal on which they would be equal.

    Both axes are logarithmic when all values are positive and the largest is more than 100 times the
    median. Error bars that would widen the axes to more than twice the spread of the points are cut off.

    Parameters
    ----------
    ax : matplotlib Axes
    y_true, mean, std : array-like of shape (n,) or (n, 1)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
    k : float, default=1.96
        Half the length of an error bar, in standard deviations.
    limit : int, default=200
        Rows to draw at most, evenly chosen in order of the true value.
    unit : str, default=""
        The target's unit, for the labels.
    """
    if not (np.isfinite(k) and k > 0):
        raise ValueError(f"k, half the length of an error bar in standard deviations, must be > 0, got {k!r}.")
    truth, centre, spread = forecast(y_true, mean, std)
    drawn = np.argsort(truth, kind="stable")[evenly(len(truth), limit)]
    truth, centre, bar = truth[drawn], centre[drawn], k * spread[drawn]
    ax.errorbar(
        truth,
        centre,
        yerr=bar,
        fmt="o",
        markersize=3,
        color=MEAN,
        ecolor="0.72",
        elinewidth=0.9,
        label=f"mean ± {k:g} std",
    )
    points = np.concatenate([truth, centre])
    logarithmic = is_skewed(points)
    low, high = frame(points, centre - bar, centre + bar, logarithmic=logarithmic)
    ax.plot([low, high], [low, high], color="0.25", linestyle="--", linewidth=1.2, zorder=3, label="equal")
    if logarithmic:
        ax.set(xscale="log", yscale="log")
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    ax.set(xlabel=with_unit("true value", unit), ylabel=with_unit("predicted value", unit))
    if len(drawn) < np.size(y_true):
        note(ax, f"{len(drawn)} of {np.size(y_true)} rows")


def error_against_std(
    ax: Axes, y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, bins: int = 10, unit: str = ""
) -> None:
    """Draw the size of errors against the predicted standard deviation, row by row and in bins.

    A bin holds rows of similar standard deviation, equally many in each; its root mean squared error is
    drawn against the root of its mean variance. Bins on the diagonal have the errors that were predicted.
    Both axes are logarithmic when the largest standard deviation is more than 10 times the smallest;
    errors under a hundredth of the smallest are then drawn at the lower edge.

    Parameters
    ----------
    ax : matplotlib Axes
    y_true, mean, std : array-like of shape (n,) or (n, 1)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
    bins : int, default=10
        Number of bins; one a row where there are fewer rows.
    unit : str, default=""
        The target's unit, for the labels.
    """
    if not isinstance(bins, Integral) or bins < 1:
        raise ValueError(f"bins must be a whole number >= 1, got {bins!r}.")
    truth, centre, spread = forecast(y_true, mean, std)
    error = np.abs(truth - centre)
    logarithmic = bool(spread.max() > WIDE * spread.min())
    floor = spread.min() / 100 if logarithmic else 0.0
    if logarithmic:
        ax.set(xscale="log", yscale="log")
    else:
        ax.locator_params(axis="x", nbins=6)
    shade = float(np.clip(1000 / len(error), 0.15, 0.8))
    ax.scatter(
        spread, np.maximum(error, floor), s=7, color="0.5", alpha=shade, linewidths=0, rasterized=True, label="rows"
    )
    _draw_bins(ax, truth, centre, spread, int(bins))
    # Longer than the data, so that it is seen where all standard deviations are equal.
    ends = 0.9 * spread.min(), 1.1 * spread.max()
    ax.plot(ends, ends, color="0.1", linestyle="--", linewidth=1.2, zorder=3, label="as predicted")
    ax.set_ylim(bottom=floor)
    ax.set_xlabel(with_unit("predicted standard deviation", unit))
    ax.set_ylabel(with_unit("absolute error", unit))


def _draw_bins(ax: Axes, truth: FloatArray, centre: FloatArray, spread: FloatArray, bins: int) -> None:
    parts = np.array_split(np.argsort(spread, kind="stable"), min(bins, len(spread)))
    predicted = [metrics.sharpness(spread[part]) for part in parts]
    observed = [metrics.rmse(truth[part], centre[part]) for part in parts]
    ax.plot(
        predicted,
        observed,
        color=MEAN,
        marker="s",
        markersize=5,
        linewidth=1.5,
        zorder=4,
        label="bins, RMSE against RMV",
    )
