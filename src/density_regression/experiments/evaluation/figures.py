"""Figures of calibration and of intervals, each with the table that says the same."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.stats import binom

from density_regression.experiments.evaluation.cells import drawable, name_cell, share_cell, table
from density_regression.experiments.evaluation.chart import Chart, Scale, legend, limits
from density_regression.experiments.evaluation.evaluation import Evaluation
from density_regression.experiments.evaluation.words import number
from density_regression.experiments.report.document import Drawing, TableCell

__all__ = [
    "calibration_figure",
    "interval_figure",
    "pit_figure",
]

DRAWN_INTERVALS: Final = 60
RANGE: Final = 0.95


def calibration_figure(of: Evaluation) -> Drawing:
    """Observed against expected fraction of targets below each predicted quantile."""
    observed = np.asarray(of.curve)
    expected = np.linspace(0.0, 1.0, len(observed))
    chart = Chart(Scale(0, 1), Scale(0, 1), "predicted probability", "share of targets below", percent=(True, True))
    chart.band(expected, *_by_chance(of.rows, expected))
    chart.line([0, 1], [0, 1], "ideal")
    chart.line(expected, observed)
    shown = [round(level * (len(observed) - 1)) for level in np.linspace(0.1, 0.9, 9)]
    beside = table(
        "Calibration curve",
        ("Predicted probability", "Share of targets below"),
        [[share_cell(float(expected[i])), share_cell(float(observed[i]))] for i in shown],
    )
    keys = legend(("line main", "this model"), ("line ideal", "calibrated"), ("band", "95 % range by chance"))
    caption = (
        "Above the dashed line more targets lie below the predicted quantile than promised. An S that starts above it "
        "and ends below means laws that are too narrow; the reverse, too wide."
    )
    return Drawing("Calibration curve", chart.svg("Calibration curve, in the table below"), keys, caption, beside)


def pit_figure(of: Evaluation) -> Drawing:
    """Histogram of the predictive distribution function at the targets."""
    counts = np.asarray(of.pit)
    bins = len(counts)
    shares = counts / of.rows
    low, high = (float(end) for end in _by_chance(of.rows, np.array(1 / bins)))
    chart = Chart(
        Scale(0, 1),
        Scale(0, 1.08 * max(float(shares.max()), high)),
        "F(target)",
        "share of rows",
        percent=(False, True),
    )
    edges = np.linspace(0.0, 1.0, bins + 1)
    chart.bars(edges, shares)
    chart.band([0, 1], [low, low], [high, high])
    chart.line([0, 1], [1 / bins, 1 / bins], "ideal")
    rows = [[name_cell(f"{edges[i]:.2f} to {edges[i + 1]:.2f}"), share_cell(float(shares[i]))] for i in range(bins)]
    keys = legend(("bar", "rows"), ("line ideal", "calibrated"), ("band", "95 % range by chance"))
    caption = (
        "Where targets lie in their predicted distribution. Flat: calibrated. High at both ends: too narrow. High in "
        "the middle: too wide. Tilted: predictions are too high or too low."
    )
    beside = table("PIT histogram", ("F(target)", "Share of rows"), rows)
    return Drawing("Where targets lie (PIT)", chart.svg("PIT histogram, in the table below"), keys, caption, beside)


def interval_figure(of: Evaluation) -> Drawing | None:
    """Some rows at random in the order of their predictions: 90 % intervals and targets."""
    sample = drawable(of, DRAWN_INTERVALS)
    if not len(sample["y"]):
        return None
    order = np.argsort(sample["mean"], kind="stable")
    y, mean, low, high = (sample[name][order] for name in ("y", "mean", "low", "high"))
    inside = (low <= y) & (y <= high)
    # The widest intervals may leave the axes, which are for the targets.
    points = np.concatenate([y, mean])
    reach = float(np.ptp(points)) or float(np.max(high - low))
    bottom = min(float(points.min()), max(float(low.min()), float(points.min()) - reach / 2))
    top = max(float(points.max()), min(float(high.max()), float(points.max()) + reach / 2))
    place = np.arange(1, len(y) + 1)
    chart = Chart(
        Scale(0, len(y) + 1), Scale(*limits([bottom, top])), "rows, by predicted mean", of.model.target or "target"
    )
    chart.upright(place, low, high, ["faint" if one else "miss" for one in inside])
    chart.dots(place[inside], y[inside], "main", 2.2)
    chart.dots(place[~inside], y[~inside], "miss", 3)
    keys = legend(("upright faint", "90 % interval"), ("dot main", "target inside"), ("cross", "target outside"))
    rows = [
        [name_cell(str(i + 1)), *(TableCell(number(float(value), 4), float(value)) for value in line), name_cell(word)]
        for i, (line, word) in enumerate(
            zip(np.column_stack([low, mean, high, y]), np.where(inside, "inside", "outside"), strict=True)
        )
    ]
    caption = (
        f"{len(y)} rows at random, of which {np.count_nonzero(~inside)} lie outside: about {0.1 * len(y):.0f} should."
    )
    beside = table("Intervals", ("Row", "Low", "Mean", "High", "Target", "Target is"), rows)
    return Drawing("Intervals and targets", chart.svg("90 % intervals, in the table below"), keys, caption, beside)


def _by_chance(rows: int, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Range of the observed shares of so many independent rows, if the true ones are `shares`."""
    low, high = (binom.ppf(tail, rows, shares) / rows for tail in ((1 - RANGE) / 2, (1 + RANGE) / 2))
    return np.maximum(low, 0.0), high
