"""Forecasts of a time series."""

from __future__ import annotations

__all__ = ["fan"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from density_regression.plots.arrays import FloatArray, check_positive, columns, finite_columns
from density_regression.plots.style import MEAN_COLOR, axis_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def fan(
    ax: Axes,
    time: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    y_true: ArrayLike | None = None,
    levels: Sequence[float] = (0.5, 0.8, 0.95),
    unit: str = "",
) -> None:
    """Draw a forecast over time: the mean, nested central intervals, and the truth.

    All parts are labelled for ``ax.legend()``. NaN leaves a gap.

    Parameters
    ----------
    ax : matplotlib Axes
    time : array-like of shape (n,) or (n, 1)
        Numbers or datetime64, in any order.
    mean, std : array-like of shape (n,) or (n, 1)
        Predicted means and standard deviations, in the target's units.
    y_true : array-like of shape (n,) or (n, 1), optional
        Observed values, in the target's units.
    levels : sequence of float, default=(0.5, 0.8, 0.95)
        Nominal coverages of the intervals, strictly between 0 and 1, in any order.
    unit : str, default=""
        The target's unit, for the labels.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> fan(ax, time=[0, 1, 2], mean=[1.0, 2.5, 3.0], std=[0.5, 0.5, 1.0], y_true=[1.0, 2.0, 4.0])
    """
    if len(levels) == 0 or not all(0 < level < 1 for level in levels):
        raise ValueError(f"levels must lie strictly between 0 and 1, got {levels!r}; for 95 % pass 0.95.")
    when = _check_time(time)
    centre, spread, _ = columns(mean=mean, std=std, time=np.zeros(len(when)))
    check_positive("std", spread)
    order = np.argsort(when, kind="stable")
    when, centre, spread = when[order], centre[order], spread[order]
    marker = "_" if len(when) == 1 else ""
    ax.plot(when, centre, color=MEAN_COLOR, linewidth=1.8, marker=marker, zorder=4, label="predicted mean")
    if y_true is not None:
        truth, _ = columns(y_true=y_true, time=np.zeros(len(when)))
        size = 3.5 if len(when) <= 80 else 2
        ax.plot(when, truth[order], "o-", color="black", linewidth=0.6, markersize=size, zorder=5, label="true value")
    _draw_intervals(ax, when, centre, spread, levels)
    if when.dtype.kind == "M":
        _label_dates(ax, when)
    ax.set(xlabel="time", ylabel=axis_label("value", unit))


def _draw_intervals(ax: Axes, when: NDArray[Any], mean: FloatArray, std: FloatArray, levels: Sequence[float]) -> None:
    outermost, innermost = (0.89, 0.93, 0.97), (0.56, 0.71, 0.87)
    tints = np.linspace(outermost, innermost, len(levels)) if len(levels) > 1 else np.array([innermost])
    nested = list(enumerate(zip(sorted(levels, reverse=True), tints.tolist(), strict=True)))
    # The narrowest is added first because legends list artists in that order; zorder puts it on top.
    for depth, (level, tint) in reversed(nested):
        half = float(ndtri(0.5 + level / 2)) * std
        low, high, zorder, label = mean - half, mean + half, 1 + depth / 100, f"{100 * level:g} % interval"
        if len(when) == 1:
            ax.vlines(when, low, high, color=tint, linewidth=8, zorder=zorder, label=label)
        else:
            ax.fill_between(when, low, high, color=tint, linewidth=0, zorder=zorder, label=label)


def _label_dates(ax: Axes, when: NDArray[Any]) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if len(when) == 1:
        ax.set_xticks(when, [str(when[0])])
        return
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _check_time(time: ArrayLike) -> NDArray[Any]:
    """Return numbers or datetime64 of shape (n,)."""
    array = np.asarray(time)
    if array.dtype.kind in "iuf":
        return finite_columns(time=array)[0]
    if array.dtype.kind != "M":
        raise ValueError(
            f"time must hold numbers or datetime64, got {array.dtype}; convert it with numpy.asarray(time, "
            "dtype='datetime64[s]'), times of a zone to UTC first."
        )
    if missing := int(np.count_nonzero(np.isnat(array))):
        raise ValueError(f"time has {missing} NaT values out of {array.size}; drop those rows.")
    if array.ndim not in (1, 2) or array.size == 0 or array.size != len(array):
        raise ValueError(f"time must have shape (n,) or (n, 1) with n > 0, got {array.shape}.")
    return array.reshape(-1)
