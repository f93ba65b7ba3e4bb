"""Histograms of predicted standard deviations and of errors."""

from __future__ import annotations

__all__ = ["error_histogram", "sharpness_histogram"]

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from density_regression import metrics
from density_regression.plots.arrays import FloatArray, check_positive, finite_columns
from density_regression.plots.style import BAND_COLORS, MEAN_COLOR, axis_label, corner_text, short_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def sharpness_histogram(ax: Axes, std: ArrayLike, unit: str = "") -> None:
    """Draw the distribution of predicted standard deviations, and their root mean square.

    The x axis is logarithmic when the largest is more than 100 times the smallest.

    Parameters
    ----------
    ax : matplotlib Axes
    std : array-like of shape (n,) or (n, 1)
        Predicted standard deviations (> 0), in the target's units.
    unit : str, default=""
        The target's unit, for the labels.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> sharpness_histogram(ax, [0.5, 0.6, 1.0], unit="m")
    """
    (spread,) = finite_columns(std=std)
    check_positive("std", spread)
    sharpness = metrics.sharpness(spread)
    if spread.max() > 100 * spread.min():
        ax.set_xscale("log")
        edges = np.geomspace(spread.min(), spread.max(), _bin_count(len(spread)) + 1)
    else:
        edges = _bin_edges(spread)
        ax.locator_params(axis="x", nbins=6)
    _draw_bars(ax, spread, edges)
    ax.axvline(sharpness, color=MEAN_COLOR, linestyle="--", linewidth=1.8, label="sharpness")
    ax.set_xlabel(axis_label("predicted standard deviation", unit))
    corner_text(ax, f"sharpness {_with_unit(sharpness, unit)} (dashed)", right=True)


def error_histogram(ax: Axes, y_true: ArrayLike, mean: ArrayLike, unit: str = "") -> None:
    """Draw the distribution of errors, and write their root mean square.

    Errors larger than four times the 90 % quantile of absolute errors are counted in the text, not drawn.

    Parameters
    ----------
    ax : matplotlib Axes
    y_true, mean : array-like of shape (n,) or (n, 1)
        Targets and predicted means, in the target's units.
    unit : str, default=""
        The target's unit, for the labels.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> error_histogram(ax, [1.0, 2.0, 4.0], [1.0, 2.5, 3.0], unit="m")
    """
    truth, centre = finite_columns(y_true=y_true, mean=mean)
    residual = truth - centre
    size = np.abs(residual)
    # The quantile is 0 where most predictions are exact.
    largest = 4 * float(np.quantile(size, 0.9)) or float(size.max())
    shown = residual[size <= largest]
    _draw_bars(ax, shown, _bin_edges(shown))
    ax.axvline(0.0, color=MEAN_COLOR, linestyle="--", linewidth=1.8, label="no error")
    ax.set_xlabel(axis_label("true value − predicted mean", unit))
    text = f"RMSE {_with_unit(metrics.rmse(truth, centre), unit)}"
    if beyond := len(residual) - len(shown):
        text += f"\n{beyond} of {len(residual)} beyond ±{_with_unit(largest, unit)}"
    corner_text(ax, text, right=True)


def _with_unit(value: float, unit: str) -> str:
    return f"{short_number(value)} {unit}".rstrip()


def _bin_count(rows: int) -> int:
    return int(min(40, np.ceil(2 * np.cbrt(rows))))


def _bin_edges(values: FloatArray) -> FloatArray:
    low, high = float(values.min()), float(values.max())
    # Equal values get one bar of some width.
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        width = 0.1 * abs(high) or 1.0
        return np.array([low - width / 2, high + width / 2])
    return np.linspace(low, high, _bin_count(len(values)) + 1)


def _draw_bars(ax: Axes, values: FloatArray, edges: FloatArray) -> None:
    ax.hist(values, bins=edges.tolist(), color=BAND_COLORS[0], edgecolor="white", linewidth=0.5)
    ax.set_ylabel("rows")
    ax.locator_params(axis="y", integer=True)
    # Margins for the text above the highest bar, and beside a single one.
    ax.margins(x=0.5 if len(edges) == 2 else 0.05, y=0.3)
