"""Calibration curves: observed against expected fraction of targets below predicted quantiles."""

from __future__ import annotations

__all__ = ["calibration_curve", "calibration_from_curve"]

from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from density_regression import metrics
from density_regression.plots.arrays import FloatArray, finite_columns
from density_regression.plots.style import curve_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def calibration_curve(
    ax: Axes,
    y_true: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    levels: int = 100,
    label: str | None = None,
    band: float | None = None,
) -> None:
    """Draw the observed against the expected fraction of targets below each predicted quantile.

    A curve on the diagonal is calibrated. Call it again on the same Axes to compare forecasts; the diagonal and the
    grey range are drawn once, the range for the first forecast with a ``band``.

    Parameters
    ----------
    ax : matplotlib Axes
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    levels : int, default=100
        Number of quantile levels from 0 to 1, as in `density_regression.metrics.calibration_error`.
    label : str, optional
        The curve's name in the legend.
    band : float, optional
        Probability, for example 0.95, with which a calibrated forecast of as many independent entries lies in the grey
        range, at each level. None draws no range.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> calibration_curve(ax, [1.0, 2.0, 4.0], [1.0, 2.5, 3.0], [0.5, 0.5, 1.0], label="forecast", band=0.95)
    """
    expected, observed = metrics.calibration_curve(y_true, mean, std, levels)
    if band is None:
        calibration_from_curve(ax, expected, observed, label=label)
    else:
        calibration_from_curve(ax, expected, observed, rows=np.asarray(y_true).size, label=label, band=band)


def calibration_from_curve(
    ax: Axes,
    expected: ArrayLike,
    observed: ArrayLike,
    rows: int | None = None,
    label: str | None = None,
    band: float = 0.95,
) -> None:
    """Draw a calibration curve that was computed before, as `calibration_curve` does.

    Parameters
    ----------
    ax : matplotlib Axes
    expected, observed : array-like of shape (levels,)
        Fractions from 0 to 1 that `density_regression.metrics.calibration_curve` returned.
    rows : int, optional
        Number of independent targets behind the curve. With it, a grey range is drawn, once for all curves.
    label : str, optional
        The curve's name in the legend.
    band : float, default=0.95
        Probability with which a calibrated forecast lies in that range, at each level.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> figure, ax = plt.subplots()
    >>> calibration_from_curve(ax, [0.0, 0.5, 1.0], [0.0, 0.4, 1.0], rows=100)
    """
    across, up = finite_columns(expected=expected, observed=observed)
    for name, values in (("expected", across), ("observed", up)):
        if values.min() < 0 or values.max() > 1:
            raise ValueError(
                f"{name} must hold fractions from 0 to 1, got {values.min():g} to {values.max():g}; "
                "divide percentages by 100."
            )
    if not any(line.get_gid() == "ideal" for line in ax.get_lines()):
        ax.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=1.0, gid="ideal", label="calibrated")
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="expected fraction", ylabel="observed fraction", aspect="equal")
    if rows is not None and not any(area.get_gid() == "range" for area in ax.collections):
        _draw_range(ax, rows, band)
    _draw_curve(ax, across, up, label)


def _draw_curve(ax: Axes, expected: FloatArray, observed: FloatArray, label: str | None) -> None:
    index = sum(line.get_gid() == "curve" for line in ax.get_lines())
    step = max(1, len(expected) // 8)
    ax.plot(
        expected,
        observed,
        **curve_style(index)._asdict(),
        linewidth=1.8,
        markersize=4.5,
        # Staggered, so that markers of coinciding curves remain visible.
        markevery=(index * step // 3 % step, step),
        # Clipping would halve curves that run along the frame.
        clip_on=False,
        gid="curve",
        label=label,
    )


def _draw_range(ax: Axes, rows: int, band: float) -> None:
    if not isinstance(rows, Integral) or rows < 1:
        raise ValueError(f"rows, the number of targets behind the curve, must be a whole number >= 1, got {rows!r}.")
    if not 0 < band < 1:
        raise ValueError(f"band must lie strictly between 0 and 1, got {band!r}; for 95 % pass 0.95.")
    level = np.linspace(0, 1, 201)
    low, high = (binom.ppf(tail, rows, level) / rows for tail in ((1 - band) / 2, (1 + band) / 2))
    label = f"{100 * band:g} % range if calibrated"
    ax.fill_between(level, low, high, color="0.88", linewidth=0, zorder=0.5, gid="range", label=label)
