"""A prediction over one feature: mean, bands, observations and the true function."""

from __future__ import annotations

__all__ = ["predictive_band"]

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from density_regression.plots.arrays import FloatArray, column, columns
from density_regression.plots.style import BANDS, DOTS, EDGES, MEAN, TRUTH

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
    """Draw a prediction over one feature in the manner of the paper's Figure 1 (``fig:demo``).

    Grey dots are observations, two vertical dashed grey lines the ends of the training range, the red
    dashed line the true function, the blue line the mean, and blue areas, darkest inside, one, two and
    ``k`` standard deviations around it. Every part is labelled: call ``ax.legend()`` for a legend, and
    ``ax.set_ylim`` where a far-off standard deviation would flatten the rest.

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
    """
    if not (np.isfinite(k) and k > 0):
        raise ValueError(f"k, the half-width of the band in standard deviations, must be > 0, got {k!r}.")
    grid, centre, spread = columns(x=x, mean=mean, std=std)
    order = np.argsort(grid)
    # Legends list artists as they were added, so the lines come first; zorder decides what lies on top.
    ax.plot(grid[order], centre[order], color=MEAN, linewidth=1.8, zorder=4, label="predicted mean")
    _draw_truth(ax, x, x_true, y_true)
    _draw_training(ax, x_train, y_train)
    _draw_bands(ax, grid[order], centre[order], spread[order], k)


def _draw_bands(ax: Axes, x: FloatArray, mean: FloatArray, std: FloatArray, k: float) -> None:
    widths = [*(width for width in (1.0, 2.0) if width < k), k]
    # Opaque, the narrow above the wide: overlapping transparency would shift each tint with k.
    for depth, (width, tint) in enumerate(zip(widths, BANDS[-len(widths) :], strict=True)):
        ax.fill_between(
            x,
            mean - width * std,
            mean + width * std,
            color=tint,
            linewidth=0,
            zorder=1 - depth / 10,
            label=f"± {width:g} std",
        )


def _draw_training(ax: Axes, x_train: ArrayLike | None, y_train: ArrayLike | None) -> None:
    if x_train is None:
        if y_train is not None:
            raise ValueError("y_train was given without x_train; pass both, or neither.")
        return
    x = column("x_train", x_train)
    for edge, label in ((x.min(), "training range"), (x.max(), "_nolegend_")):
        ax.axvline(float(edge), color=EDGES, linestyle="--", linewidth=1.0, zorder=2, label=label)
    if y_train is None:
        return
    x, y = columns(x_train=x_train, y_train=y_train)
    ax.scatter(x, y, s=7, color=DOTS, alpha=0.4, linewidths=0, zorder=3, label="observations")


def _draw_truth(ax: Axes, x: ArrayLike, x_true: ArrayLike | None, y_true: ArrayLike | None) -> None:
    if y_true is None:
        if x_true is not None:
            raise ValueError("x_true was given without y_true; pass both, or neither.")
        return
    x, y = columns(x_true=x if x_true is None else x_true, y_true=y_true)
    order = np.argsort(x)
    ax.plot(x[order], y[order], color=TRUTH, linestyle="--", linewidth=1.8, zorder=5, label="true function")
