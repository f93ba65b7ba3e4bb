"""Histograms of predicted standard deviations and of errors."""

from __future__ import annotations

__all__ = ["error_histogram", "sharpness_histogram"]

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike

from density_regression import metrics
from density_regression.plots.arrays import FloatArray, check_positive, finite_columns
from density_regression.plots.style import BANDS, MEAN, in_unit, note, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE: Final = 100.0
"""Ratio of the largest to the smallest standard deviation above which the axis is logarithmic."""


def sharpness_histogram(ax: Axes, std: ArrayLike, unit: str = "") -> None:
    """Draw how predicted standard deviations are distributed, and the root of their mean square.

    The x axis is logarithmic when the largest is more than 100 times the smallest.

    Parameters
    ----------
    ax : matplotlib Axes
    std : array-like of shape (n,) or (n, 1)
        Predicted standard deviations, positive, in the target's units.
    unit : str, default=""
        The target's unit, for the labels.
    """
    (spread,) = finite_columns(std=std)
    check_positive("std", spread)
    sharpness = metrics.sharpness(spread)
    if spread.max() > WIDE * spread.min():
        ax.set_xscale("log")
        edges = np.geomspace(spread.min(), spread.max(), _bins(len(spread)) + 1)
    else:
        edges = _edges(spread)
        ax.locator_params(axis="x", nbins=6)
    _draw_bars(ax, spread, edges)
    ax.axvline(sharpness, color=MEAN, linestyle="--", linewidth=1.8, label="sharpness")
    ax.set_xlabel(with_unit("predicted standard deviation", unit))
    note(ax, f"sharpness {in_unit(sharpness, unit)} (dashed)", right=True)


def error_histogram(ax: Axes, y_true: ArrayLike, mean: ArrayLike, unit: str = "") -> None:
    """Draw how errors are distributed about zero, and say their root mean square.

    Errors beyond four times the 90 % quantile of their size are counted in the text, not drawn: a few of
    them would squeeze the rest into a single bar.

    Parameters
    ----------
    ax : matplotlib Axes
    y_true, mean : array-like of shape (n,) or (n, 1)
        Observed targets and predicted means, in the target's units.
    unit : str, default=""
        The target's unit, for the labels.
    """
    truth, centre = finite_columns(y_true=y_true, mean=mean)
    residual = truth - centre
    size = np.abs(residual)
    # The quantile is 0 where most predictions are exact.
    reach = 4 * float(np.quantile(size, 0.9)) or float(size.max())
    shown = residual[size <= reach]
    _draw_bars(ax, shown, _edges(shown))
    ax.axvline(0.0, color=MEAN, linestyle="--", linewidth=1.8, label="no error")
    ax.set_xlabel(with_unit("true value − predicted mean", unit))
    text = f"RMSE {in_unit(metrics.rmse(truth, centre), unit)}"
    if beyond := len(residual) - len(shown):
        text += f"\n{beyond} of {len(residual)} beyond ±{in_unit(reach, unit)}"
    note(ax, text, right=True)


def _bins(rows: int) -> int:
    return int(min(40, np.ceil(2 * np.cbrt(rows))))


def _edges(values: FloatArray) -> FloatArray:
    low, high = float(values.min()), float(values.max())
    # Equal values, as of a method with one standard deviation for all rows, still make a bar of some width.
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        width = 0.1 * abs(high) or 1.0
        return np.array([low - width / 2, high + width / 2])
    return np.linspace(low, high, _bins(len(values)) + 1)


def _draw_bars(ax: Axes, values: FloatArray, edges: FloatArray) -> None:
    ax.hist(values, bins=edges.tolist(), color=BANDS[0], edgecolor="white", linewidth=0.5)
    ax.set_ylabel("rows")
    ax.locator_params(axis="y", integer=True)
    # Room for the text above the highest bar, and beside a single one.
    ax.margins(x=0.5 if len(edges) == 2 else 0.05, y=0.3)
