"""Figures of the report, drawn from the calibration curves and samples in the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from density_regression import plots
from density_regression.experiments.report import rendering
from density_regression.experiments.report.comparison import Ranks
from density_regression.experiments.report.document import Picture, slug
from density_regression.experiments.report.grouping import Group
from density_regression.experiments.report.names import in_order, metric
from density_regression.experiments.report.rendering import Panels, escape_dollars
from density_regression.experiments.significance import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["calibration_picture", "error_picture", "fan_picture", "rank_picture"]

PANELS_PER_ROW: Final = 4
HOURS: Final = 72
MAX_DRAWABLE: Final = 1e30
"""Larger values overflow when axes are squared."""


class Sample(NamedTuple):
    """Test rows kept in a record, each of shape (n,), in the target's units."""

    y: FloatArray
    mean: FloatArray
    std: FloatArray

    def is_drawable(self) -> bool:
        """Whether all values are of moderate size and standard deviations positive."""
        return bool(np.all(np.abs(np.concatenate(self)) < MAX_DRAWABLE) and np.all(self.std > 0))


def calibration_picture(group: Group, dataset: str) -> Picture | None:
    """Mean calibration curve over splits, one panel a method; grey is the random variation of one split."""
    entries = {
        method: [group.entry(record) for record in runs.values()] for method, runs in group.runs[dataset].items()
    }
    curves = {
        method: np.mean([entry["curve"] for entry in own], axis=0)
        for method, own in entries.items()
        if all("curve" in entry for entry in own)
    }
    if not curves:
        return None
    rows = round(np.mean([entry["rows"] for own in entries.values() for entry in own]))
    columns = min(PANELS_PER_ROW, len(curves))

    def draw(figure: Figure, panels: Panels) -> None:
        for ax, (method, curve) in zip(panels.flat, curves.items(), strict=False):
            levels = np.linspace(0, 1, len(curve))
            plots.calibration_from_curve(ax, levels, np.clip(curve, 0, 1), rows=rows)
            ax.set_title(escape_dollars(method))
        rendering.reduce_ticks(panels)
        rendering.tidy_panels(panels, len(curves))

    content = rendering.panels_png(-(-len(curves) // columns), columns, (2.2, 2.2), draw, share=True)
    alt = f"Calibration on {_place(group, dataset)}: observed against expected fraction, one panel a method."
    return Picture(f"{_stem(group, dataset)}-calibration.png", content, alt)


def error_picture(group: Group, dataset: str) -> Picture | None:
    """One row a method: parity, errors, standard deviations, and errors against standard deviations."""
    samples = _samples(group, dataset)
    if not samples:
        return None

    def draw(figure: Figure, panels: Panels) -> None:
        for row, (method, sample) in zip(panels, samples.items(), strict=True):
            if sample.is_drawable():
                plots.parity(row[0], *sample)
                row[0].set_aspect("auto")
                plots.error_histogram(row[1], sample.y, sample.mean)
                plots.sharpness_histogram(row[2], sample.std)
                plots.error_against_std(row[3], *sample)
            else:
                _mark_undrawable(*row)
            row[0].set_title(escape_dollars(method), loc="left", fontweight="bold")
            # Large targets have a factor above their axis, where the name of the method is.
            row[0].yaxis.set_offset_position("right")
        for ax, title in zip(panels[0, 1:], ("errors", "standard deviations", "error against std"), strict=True):
            ax.set_title(title)
        for ax in panels[:-1].flat:
            ax.set_xlabel("")
        for ax in panels[:, 1:3].flat:
            ax.set_ylabel("")
        rendering.reduce_ticks(panels)

    content = rendering.panels_png(len(samples), 4, (2.5, 1.9), draw)
    alt = (
        f"Errors on {_place(group, dataset)}, first split, one row a method: predicted against true values with "
        "95 % intervals, histogram of errors, histogram of standard deviations, errors against standard deviations."
    )
    return Picture(f"{_stem(group, dataset)}-errors.png", content, alt)


def fan_picture(groups: list[Group], dataset: str) -> Picture | None:
    """The first 72 hourly forecasts as fans: a row a method, a column a test set."""
    samples = [_samples(group, dataset) for group in groups]
    methods = in_order((method for own in samples for method in own), "method")
    if not methods:
        return None

    def draw(figure: Figure, panels: Panels) -> None:
        for column, group, own in zip(panels.T, groups, samples, strict=True):
            truth = np.concatenate([sample.y[:HOURS] for sample in own.values()] or [np.zeros(1)])
            margin = 0.3 * float(np.ptp(truth)) or 1.0
            for ax, method in zip(column, methods, strict=True):
                if method in own:
                    _draw_fan(ax, Sample(*(part[:HOURS] for part in own[method])))
                # One scale for all methods, whatever the width of their bands.
                ax.set_ylim(truth.min() - margin, truth.max() + margin)
                ax.set_title(escape_dollars(f"{method}: {group.test_set}"), loc="left")
                ax.set(xlabel="", ylabel="")
        rendering.reduce_ticks(panels)
        for ax in panels.flat:
            ax.set_xticks(range(0, HOURS + 1, 24))
            ax.tick_params(labelbottom=ax in panels[-1])
        for ax in panels[-1]:
            ax.set_xlabel("hourly forecasts, in order")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="upper center", ncols=len(labels), frameon=False, fontsize=8)

    content = rendering.panels_png(len(methods), len(groups), (9.0 / len(groups), 1.5), draw)
    alt = (
        f"The first 72 hourly forecasts on {', '.join(group.test_set for group in groups)} (three days, where no hour "
        "is missing), one row a method: mean, intervals of 50, 80 and 95 %, and the truth."
    )
    return Picture(f"{slug(groups[0].suite, groups[0].protocol, dataset)}-days.png", content, alt)


def rank_picture(group: Group, ranked: Ranks) -> Picture:
    """Critical-difference diagram of mean ranks."""

    def draw(ax: Axes) -> None:
        plots.critical_difference(ax, ranked.ranks, [escape_dollars(name) for name in ranked.methods], ranked.critical)

    label = metric(ranked.metric).label
    kind = ", all but ours rescaled" if ranked.rescaled else ""
    alt = (
        f"Critical-difference diagram by {label}{kind}: {len(ranked.datasets)} data sets; a bar joins methods that tie."
    )
    height = 1.4 + 0.16 * len(ranked.methods)
    stem = _stem(group, ranked.metric) + ("-rescaled" if ranked.rescaled else "")
    return Picture(f"{stem}-ranks.svg", rendering.panel_svg((7.0, height), draw), alt)


def _draw_fan(ax: Axes, sample: Sample) -> None:
    if not sample.is_drawable():
        _mark_undrawable(ax)
        return
    plots.fan(ax, np.arange(len(sample.y)), sample.mean, sample.std, y_true=sample.y)
    for line in ax.get_lines():
        # In small panels the dots of the truth would hide narrow intervals.
        line.set(markersize=1.5, linewidth=0.9)


def _mark_undrawable(*axes: Axes) -> None:
    for ax in axes:
        ax.text(0.5, 0.5, "too large\nto be drawn", transform=ax.transAxes, ha="center", va="center")
        ax.set(xticks=[], yticks=[])


def _samples(group: Group, dataset: str) -> dict[str, Sample]:
    """The first sample of each method."""
    found = {}
    for method, runs in group.runs.get(dataset, {}).items():
        entries = (group.entry(record) for record in runs.values())
        kept = next((entry["sample"] for entry in entries if "sample" in entry), None)
        if kept is not None:
            found[method] = Sample(*(np.asarray(kept[part], dtype=np.float64) for part in Sample._fields))
    return found


def _place(group: Group, dataset: str) -> str:
    parts = [part for part in (group.part, "" if group.test_set == "test" else group.test_set) if part]
    return f"{dataset} ({', '.join(parts)})" if parts else dataset


def _stem(group: Group, name: str) -> str:
    return slug(group.suite, group.protocol, group.part, group.test_set, name)
