"""Figures of errors by standard deviation and by familiarity, each with the table that says the same."""

from __future__ import annotations

from typing import Final

import numpy as np

from density_regression.experiments.evaluation.bins import FAMILIARITY_EDGES, ErrorBin
from density_regression.experiments.evaluation.cells import LARGEST, drawable, name_cell, share_cell, table
from density_regression.experiments.evaluation.chart import Chart, Scale, legend
from density_regression.experiments.evaluation.evaluation import Evaluation, FamiliarityQuality
from density_regression.experiments.evaluation.words import number, percent
from density_regression.experiments.report.document import Drawing, ResultTable, TableCell
from density_regression.tabular.table import Floats

__all__ = ["familiarity_error_figure", "familiarity_figure", "std_figure"]

DRAWN_DOTS: Final = 400


def std_figure(of: Evaluation) -> Drawing | None:
    """Root mean squared error against predicted standard deviation, by groups; and single errors."""
    groups = [one for one in of.by_std if 0 < one.std < LARGEST and one.rmse < LARGEST]
    if not groups:
        return None
    sample = drawable(of, DRAWN_DOTS)
    error, spread = np.abs(sample["y"] - sample["mean"]), sample["std"]
    stds, errors = np.array([one.std for one in groups]), np.array([one.rmse for one in groups])
    x, y = _std_scales(stds, errors, spread, error)
    chart = Chart(x, y, "predicted standard deviation", "error")
    chart.dots(spread, error, "faint", 1.6)
    line = np.geomspace(x.low, x.high, 50) if x.logarithmic else np.array([0.0, x.high])
    chart.line(line, line, "ideal")
    chart.line(stds, errors)
    chart.dots(stds, errors, "main", 3.5)
    keys = legend(
        ("dot main", "RMSE of a group of rows"), ("line ideal", "as predicted"), ("dot faint", "error of a single row")
    )
    caption = (
        "Rows in groups by their standard deviation. On the dashed line errors are as large as predicted, above it "
        "larger; a line that rises means that standard deviations tell good predictions from bad ones."
    )
    title = "Error by standard deviation"
    beside = _bins_table(title, "Standard deviation", groups, [_span(one) for one in groups])
    return Drawing("Error against std", chart.svg(f"{title}, in the table below"), keys, caption, beside)


def _std_scales(stds: Floats, errors: Floats, spread: Floats, error: Floats) -> tuple[Scale, Scale]:
    """Axes that hold all groups and nearly all single rows; logarithmic if standard deviations differ by far."""
    ends = [*stds, *np.quantile(spread, [0.005, 0.995])] if len(spread) else list(stds)
    low, high = min(ends), max(ends)
    if high > 20 * low:
        floor = max(float(errors.min()), high / 1e6) / 4
        return Scale(low / 1.5, 1.5 * high, True), Scale(floor, 2 * max(high, float(errors.max())), True)
    top = max(float(errors.max()), float(np.quantile(error, 0.98)) if len(error) else 0.0, low)
    return Scale(0.0, 1.05 * high), Scale(0.0, 1.05 * top)


def familiarity_figure(of: Evaluation, found: FamiliarityQuality) -> Drawing:
    """Histogram of familiarity."""
    counts = np.asarray(found.histogram)
    bins = len(counts)
    shares = counts / of.rows
    edges = np.linspace(0.0, 1.0, bins + 1)
    top = 1.08 * max(float(shares.max()), 1.5 / bins)
    chart = Chart(Scale(0, 1), Scale(0, top), "familiarity", "share of rows", percent=(False, True))
    chart.bars(edges, shares)
    chart.line([0, 1], [1 / bins, 1 / bins], "ideal")
    rows = [[name_cell(f"{edges[i]:.2f} to {edges[i + 1]:.2f}"), share_cell(float(shares[i]))] for i in range(bins)]
    keys = legend(("bar", "rows"), ("line ideal", "rows like those of training"))
    caption = (
        "Share of held-out training rows that are no more familiar than a row. "
        f"{percent(found.unfamiliar / of.rows)} of the rows are below 0.01 (strange); of rows like those of training "
        "1 % would be."
    )
    beside = table("Familiarity", ("Familiarity", "Share of rows"), rows)
    return Drawing("Familiarity", chart.svg("Histogram of familiarity, in the table below"), keys, caption, beside)


def familiarity_error_figure(found: FamiliarityQuality) -> Drawing | None:
    """Error and predicted standard deviation by familiarity."""
    bins = [one for one in found.bins if one.rmse < LARGEST and one.std < LARGEST]
    if not bins:
        return None
    errors, stds = np.array([one.rmse for one in bins]), np.array([one.std for one in bins])
    edges = [0.0, *FAMILIARITY_EDGES, 1.0]
    place = np.array([edges.index(one.low) for one in bins]) + 0.5
    both = np.concatenate([errors, stds])
    low, high = float(both.min()), float(both.max()) or 1.0
    scale = Scale(low / 1.5, high * 1.5, True) if 0 < 30 * low < high else Scale(0.0, 1.08 * high)
    chart = Chart(Scale(0, len(edges) - 1), scale, "familiarity", "error", x_names=[f"{edge:g}" for edge in edges])
    chart.line(place, stds, "ideal")
    chart.dots(place, stds, "second", 3.5)
    chart.line(place, errors)
    chart.dots(place, errors, "main", 3.5)
    keys = legend(("dot main", "RMSE"), ("dot second", "predicted: root mean variance"))
    caption = (
        "From the strangest rows on the left to the most familiar. The two lines are close where the model knows how "
        "large its errors are."
    )
    title = "Error by familiarity"
    beside = _bins_table(title, "Familiarity", bins, [_familiarity(one) for one in bins])
    return Drawing("Familiarity against error", chart.svg(f"{title}, in the table below"), keys, caption, beside)


def _bins_table(title: str, what: str, bins: list[ErrorBin], names: list[str]) -> ResultTable:
    rows = [
        [
            name_cell(name),
            TableCell(f"{one.rows:,}", one.rows),
            TableCell(number(one.rmse, 4), one.rmse),
            TableCell(number(one.std, 4), one.std),
            share_cell(one.inside),
        ]
        for one, name in zip(bins, names, strict=True)
    ]
    return table(title, (what, "Rows", "RMSE", "Predicted", "In 90 % intervals"), rows)


def _span(one: ErrorBin) -> str:
    return f"{number(one.low, 3)} to {number(one.high, 3)}"


def _familiarity(one: ErrorBin) -> str:
    return "< 0.01" if one.low == 0 else f"{one.low:g}–{one.high:g}"
