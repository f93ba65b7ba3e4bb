"""Losses over the epochs of a fit."""

from __future__ import annotations

__all__ = ["learning_curve"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from density_regression.plots.arrays import FloatArray
from density_regression.plots.style import MEAN, TRUTH, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOM: Final = 10.0
"""Spreads of the middle half of the losses that the axis reaches beyond it at most: spikes are cut off there."""


class Losses(Protocol):
    """Losses after each epoch, as the `report_` of a fitted regressor has them."""

    history: list[float]
    train_history: list[float]


def learning_curve(ax: Axes, report: Losses) -> None:
    """Draw training and held-out loss over the epochs of a fit, and mark the epoch whose weights were kept.

    Of an ensemble, each member is kept at an epoch of its own; what is marked is where their mean is lowest. Losses far
    above the others, as in a first epoch, are cut off, and an epoch whose loss is not finite leaves a gap. Every part
    is labelled: call ``ax.legend()`` for a legend.

    Parameters
    ----------
    ax : matplotlib Axes
    report : TrainingReport
        What the `report_` of a fitted regressor is, or what `fit_density_regression` and `fit_baseline` return.
    """
    held_out, train = _curve(report.history), _curve(report.train_history)
    if not np.isfinite(held_out).any():
        raise ValueError(
            "report has no epochs to draw: its history is empty, as after a fit that was resumed from a checkpoint "
            "or began with a trained encoder, or it has no finite loss."
        )
    # Without held-out rows, training rows decide, and the two are one.
    alone = np.array_equal(held_out, train, equal_nan=True)
    dot = "o" if len(held_out) == 1 else ""
    if len(train):
        epochs = np.arange(1, len(train) + 1)
        ax.plot(epochs, train, color="0.55", linestyle="--", linewidth=1.4, marker=dot, zorder=2, label="training loss")
    if not alone:
        epochs = np.arange(1, len(held_out) + 1)
        ax.plot(epochs, held_out, color=MEAN, linewidth=1.8, marker=dot, zorder=3, label="held-out loss")
    best = int(np.nanargmin(held_out))
    label = f"best epoch: {best + 1}, loss {number(held_out[best])}"
    ax.axvline(best + 1, color=TRUTH, linestyle=":", linewidth=1.2, zorder=1)
    ax.plot(best + 1, held_out[best], "o", color=TRUTH, markersize=6, zorder=4, label=label)
    ax.set_ylim(*_limits(np.concatenate([held_out, train])))
    margin = max(1.0, 0.02 * len(held_out))
    ax.set_xlim(1 - margin, len(held_out) + margin)
    ax.locator_params(axis="x", integer=True)
    ax.set(xlabel="epoch", ylabel="mean loss")


def _curve(losses: Sequence[float]) -> FloatArray:
    values = np.asarray(losses, dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _limits(losses: FloatArray) -> tuple[float, float]:
    """Limits that hold all losses but spikes."""
    low, high = np.nanmin(losses), np.nanmax(losses)
    lower, upper = np.nanquantile(losses, [0.25, 0.75])
    high = min(high, upper + ROOM * (upper - lower)) if upper > lower else high
    pad = 0.05 * (high - low) or 0.5
    return float(low - pad), float(high + pad)
