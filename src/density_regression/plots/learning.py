"""Losses over the epochs of a fit."""

from __future__ import annotations

__all__ = ["learning_curve"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from density_regression.plots.arrays import FloatArray
from density_regression.plots.style import MEAN_COLOR, TRUTH_COLOR, short_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class LossHistory(Protocol):
    """Held-out and training loss after each epoch, as the `report_` of a fitted regressor has them."""

    history: list[float]
    train_history: list[float]


def learning_curve(ax: Axes, report: LossHistory) -> None:
    """Draw training and held-out loss over the epochs of a fit, and mark the epoch whose weights were kept.

    For an ensemble, whose members are kept at different epochs, the epoch of lowest mean loss is marked. Losses far
    above the others, as in a first epoch, are cut off; losses that are not finite leave a gap. All parts are labelled
    for ``ax.legend()``.

    Parameters
    ----------
    ax : matplotlib Axes
    report : TrainingReport
        The `report_` of a fitted regressor, or what `fit_density_regression` and `fit_baseline` return.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from density_regression import DensityRegressor
    >>> from density_regression.datasets import make_cubic
    >>> reg = DensityRegressor(epochs=3, members=0, random_state=0).fit(*make_cubic(60, random_state=0))
    >>> figure, ax = plt.subplots()
    >>> learning_curve(ax, reg.report_)
    """
    held_out, train = _finite_or_nan(report.history), _finite_or_nan(report.train_history)
    if not np.isfinite(held_out).any():
        raise ValueError(
            "report has no epochs to draw: its history is empty, as after a fit that was resumed from a checkpoint "
            "or began with a trained encoder, or it has no finite loss."
        )
    marker = "o" if len(held_out) == 1 else ""
    if len(train):
        epochs, label = np.arange(1, len(train) + 1), "training loss"
        ax.plot(epochs, train, color="0.55", linestyle="--", linewidth=1.4, marker=marker, zorder=2, label=label)
    # Without held-out rows both losses are that of the training rows.
    if not np.array_equal(held_out, train, equal_nan=True):
        epochs = np.arange(1, len(held_out) + 1)
        ax.plot(epochs, held_out, color=MEAN_COLOR, linewidth=1.8, marker=marker, zorder=3, label="held-out loss")
    best = int(np.nanargmin(held_out))
    label = f"best epoch: {best + 1}, loss {short_number(held_out[best])}"
    ax.axvline(best + 1, color=TRUTH_COLOR, linestyle=":", linewidth=1.2, zorder=1)
    ax.plot(best + 1, held_out[best], "o", color=TRUTH_COLOR, markersize=6, zorder=4, label=label)
    ax.set_ylim(*_limits_without_spikes(np.concatenate([held_out, train])))
    margin = max(1.0, 0.02 * len(held_out))
    ax.set_xlim(1 - margin, len(held_out) + margin)
    ax.locator_params(axis="x", integer=True)
    ax.set(xlabel="epoch", ylabel="mean loss")


def _finite_or_nan(losses: Sequence[float]) -> FloatArray:
    values = np.asarray(losses, dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _limits_without_spikes(losses: FloatArray) -> tuple[float, float]:
    """Axis limits that reach at most ten interquartile ranges above the upper quartile."""
    low, high = np.nanmin(losses), np.nanmax(losses)
    lower, upper = np.nanquantile(losses, [0.25, 0.75])
    high = min(high, upper + 10 * (upper - lower)) if upper > lower else high
    pad = 0.05 * (high - low) or 0.5
    return float(low - pad), float(high + pad)
