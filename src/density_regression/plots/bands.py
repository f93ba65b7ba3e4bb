"""Prediction over one feature: mean, bands, observations and the true function."""

from __future__ import annotations

__all__ = ["predictive_band"]

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from density_regression.plots.arrays import FloatArray, column, columns
from density_regression.plots.style import BAND_COLORS, MEAN_COLOR, TRUTH_COLOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def predictive_band(
    ax: Axes,
    x: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    x_train: ArrayLike | None = None,
    y_train: ArrayLike | None = None,
    x_true: ArrayLike | None = None,
    y_true: ArrayLike | None = None,
    k: float = 3.0,
) -> None:
    """Draw a prediction over one feature, as in the paper's Figure 1 (``fig:demo``).

    Grey dots are observations, two vertical dashed grey lines the ends of the training range, the red dashed line the
    true function, the blue line the mean, and blue areas one, two and ``k`` standard deviations around it. All parts
    are labelled for ``ax.legend()``. Use ``ax.set_ylim`` where a large standard deviation would flatten the rest.

    Parameters
    ----------
    ax : matplotlib Axes
    x : array-like of shape (n,) or (n, 1)
        Where the prediction was made, in any order.
    mean, std : array-like of shape (n,) or (n, 1)
        Predicted means and standard deviations, in the target's units.
    x_train, y_train : array-like of shape (m,) or (m, 1), optional
        Training rows. ``x_train`` alone marks the range and draws no dots.
    x_true, y_true : array-like of shape (t,) or (t, 1), optional
        Points of the true function. ``y_true`` alone is taken at ``x``.
    k : float, default=3
        Half-width of the outermost band, in standard deviations.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> predictive_band(ax, [0.0, 1.0, 2.0], [0.0, 1.0, 4.0], [0.1, 0.2, 0.9], x_train=[0.0, 1.0], y_train=[0.1, 0.9])
    """
    if not (np.isfinite(k) and k > 0):
        raise ValueError(f"k, the half-width of the band in standard deviations, must be > 0, got {k!r}.")
    grid, centre, spread = columns(x=x, mean=mean, std=std)
    order = np.argsort(grid)
    # Lines are added first because legends list artists in that order; zorder puts them on top.
    ax.plot(grid[order], centre[order], color=MEAN_COLOR, linewidth=1.8, zorder=4, label="predicted mean")
    _draw_truth(ax, x, x_true, y_true)
    _draw_training(ax, x_train, y_train)
    _draw_bands(ax, grid[order], centre[order], spread[order], k)


def _draw_bands(ax: Axes, x: FloatArray, mean: FloatArray, std: FloatArray, k: float) -> None:
    widths = [*(width for width in (1.0, 2.0) if width < k), k]
    # Opaque, the narrow above the wide: overlapping transparency would change the colours with k.
    for depth, (width, color) in enumerate(zip(widths, BAND_COLORS[-len(widths) :], strict=True)):
        low, high, label = mean - width * std, mean + width * std, f"± {width:g} std"
        ax.fill_between(x, low, high, color=color, linewidth=0, zorder=1 - depth / 10, label=label)


def _draw_training(ax: Axes, x_train: ArrayLike | None, y_train: ArrayLike | None) -> None:
    if x_train is None:
        if y_train is not None:
            raise ValueError("y_train was given without x_train; pass both, or neither.")
        return
    x = column("x_train", x_train)
    for edge, label in ((x.min(), "training range"), (x.max(), "_nolegend_")):
        ax.axvline(float(edge), color="0.45", linestyle="--", linewidth=1.0, zorder=2, label=label)
    if y_train is not None:
        x, y = columns(x_train=x_train, y_train=y_train)
        ax.scatter(x, y, s=7, color="0.35", alpha=0.4, linewidths=0, zorder=3, label="observations")


def _draw_truth(ax: Axes, x: ArrayLike, x_true: ArrayLike | None, y_true: ArrayLike | None) -> None:
    if y_true is None:
        if x_true is not None:
            raise ValueError("x_true was given without y_true; pass both, or neither.")
        return
    x, y = columns(x_true=x if x_true is None else x_true, y_true=y_true)
    order = np.argsort(x)
    ax.plot(x[order], y[order], color=TRUTH_COLOR, linestyle="--", linewidth=1.8, zorder=5, label="true function")
