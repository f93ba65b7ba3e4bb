"""Figures of the depth experiment: curves from its records, and panels of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.experiments.depth.bench import EPSILONS
from density_regression.experiments.depth.methods import METHODS
from density_regression.experiments.records import Record
from density_regression.experiments.report.names import OURS
from density_regression.experiments.report.rendering import new_figure
from density_regression.experiments.significance import mean_and_sd
from density_regression.io.files import write_whole
from density_regression.plots.depth import DepthRow, plot_depth_panel
from density_regression.plots.style import curve_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Drawing", "Runs", "curve_drawings", "mean_std", "panel_drawings"]

TIMED_METHODS: Final = ("Gaussian", "Deep Ensembles", OURS)

CURVE_SETS: Final = {
    "test": "NYU test",
    f"own {EPSILONS[-1]}": f"attacked by own loss, ε = {EPSILONS[-1]}",
    "outdoor": "outdoors",
}
"""Test sets with a panel of their own, and its title."""

COLOURS: Final = dict(zip(METHODS, ("#0b3c8c", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"), strict=True))
"""Okabe and Ito's colours, with the dark blue of other figures for ours."""

ORACLE: Final = "thin: removed by error itself"
DPI: Final = 150
PANEL_STYLE: Final = {"font.size": 10, "axes.titlesize": 11, "axes.linewidth": 0.7}

Runs = dict[str, list[Record]]
"""Records of each method."""


class Drawing(NamedTuple):
    """A figure: file name, description, and a function that writes it to a path."""

    name: str
    alt: str
    write: Callable[[Path], None]


def mean_std(record: Record, name: str) -> float | None:
    """Mean predicted standard deviation over the images of a test set, in metres; None if the record lacks it."""
    test = record["tests"].get(name)
    return None if test is None else float(np.mean(test["image_std"]))


def panel_drawings(folder: Path) -> list[Drawing]:
    """Figures of the images in a folder that `DepthBench` wrote; sets that are missing are left out."""
    arrays: dict[str, NDArray[Any]] = {}
    if (folder / f"{OURS}.npz").exists():
        with np.load(folder / f"{OURS}.npz") as file:
            arrays = dict(file)

    def rows(name: str, label: str = "", most: int | None = None) -> list[DepthRow]:
        parts = [arrays.get(f"{name}/{part}", ()) for part in ("image", "depth", "mean", "std")]
        return [DepthRow(*row)._replace(label=label) for row in zip(*parts, strict=True)][:most]

    attacked = {"test": "ε = 0", **{f"own {epsilon}": f"ε = {epsilon}" for epsilon in EPSILONS}}
    outdoors = rows("outdoor", "outdoors")
    figures = {
        "panels-indoor": (rows("test"), f"{OURS} on NYU test images."),
        "panels-corrupted": (
            [row for name, label in attacked.items() for row in rows(name, label, 1)],
            f"{OURS} on one test image, attacked through its own loss by ever more.",
        ),
        "panels-outdoor": (
            [*rows("test", "indoors", 1), *outdoors] if outdoors else [],
            f"{OURS} on a room of NYU, to compare, and outdoors, on KITTI.",
        ),
    }
    return [
        Drawing(f"{name}.png", f"{alt} Depth, error and standard deviation in metres.", partial(plot_depth_panel, own))
        for name, (own, alt) in figures.items()
        if own
    ]


def curve_drawings(runs: Runs) -> list[Drawing]:
    """Figures of the six methods, from their records; rivals trained with smoothness are only in the tables."""
    shown: Runs = {method: own for method, own in runs.items() if method in METHODS}
    timed: Runs = {method: runs[method] for method in TIMED_METHODS if method in runs}
    calibration = "Calibration: observed against expected fraction of pixels below each predicted quantile."
    sparsification = (
        "RMSE of the pixels left, when those with the largest standard deviation are removed; thin: when those with "
        "the largest error are."
    )
    epsilon = "Mean predicted standard deviation of the test images, attacked by ever more."
    figures = [
        ("calibration", calibration, 4.0, partial(_draw_calibration, runs=shown)),
        ("sparsification", sparsification, 3.8, partial(_draw_sparsification, runs=shown)),
        ("epsilon", epsilon, 3.9, partial(_draw_epsilons, runs=shown)),
    ]
    if timed:
        height = 0.6 + 0.5 * len(timed)
        figures.append(("training-time", "Seconds to train.", height, partial(_draw_times, runs=timed)))
    return [Drawing(f"{name}.png", alt, partial(_write, height, draw)) for name, alt, height, draw in figures]


def _write(height: float, draw: Callable[[Figure], None], path: Path) -> None:
    with new_figure((9.0, height), PANEL_STYLE, dpi=DPI, layout="constrained") as figure:
        draw(figure)
        content = BytesIO()
        figure.savefig(content, format="png")
    write_whole(path, content.getvalue())


def _draw_calibration(figure: Figure, runs: Runs) -> None:
    panels = figure.subplots(1, len(CURVE_SETS), sharey=True)
    for ax, (name, title) in zip(panels, CURVE_SETS.items(), strict=True):
        ax.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=1.0, label="calibrated")
        for method, tests in _tests(runs, name).items():
            curve = np.mean([test["curve"] for test in tests], axis=0)
            _line(ax, method, np.linspace(0, 1, len(curve)), curve, 4)
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="expected fraction", title=title, aspect="equal")
        ax.set_xticks((0, 0.25, 0.5, 0.75, 1), ("0", "0.25", "0.5", "0.75", "1"))
    panels[0].set_ylabel("observed fraction")
    _legend(figure, [*runs, "calibrated"])


def _draw_sparsification(figure: Figure, runs: Runs) -> None:
    panels = figure.subplots(1, len(CURVE_SETS))
    for ax, (name, title) in zip(panels, CURVE_SETS.items(), strict=True):
        for method, tests in _tests(runs, name).items():
            shares, by_std, by_error = (
                np.mean([test["sparsification"][part] for test in tests], axis=0)
                for part in ("share", "by_std", "by_error")
            )
            _line(ax, method, shares, by_std, 4)
            ax.plot(shares, by_error, color=COLOURS[method], linewidth=0.8, label=ORACLE)
        ax.set(xlabel="share of pixels removed", title=title, xlim=(0, 1))
        ax.set_ylim(bottom=0)
    panels[0].set_ylabel("RMSE of the rest (m)")
    _legend(figure, [*runs, ORACLE])


def _draw_epsilons(figure: Figure, runs: Runs) -> None:
    attacks = {"own": "own loss", "common": "another network"}
    panels = figure.subplots(1, len(attacks), sharey=True)
    for ax, (attack, where) in zip(panels, attacks.items(), strict=True):
        sets = {0.0: "test", **{epsilon: f"{attack} {epsilon}" for epsilon in EPSILONS}}
        for method, own in runs.items():
            stds = {
                epsilon: [each for record in own if (each := mean_std(record, name)) is not None]
                for epsilon, name in sets.items()
            }
            there = [epsilon for epsilon, values in stds.items() if values]
            _line(ax, method, there, [np.mean(stds[epsilon]) for epsilon in there], 1)
        ax.set(xlabel="ε", xticks=list(sets), title=f"attack on {where}")
        ax.set_ylim(bottom=0)
    panels[0].set_ylabel("mean standard deviation (m)")
    _legend(figure, list(runs))


def _draw_times(figure: Figure, runs: Runs) -> None:
    ax = figure.subplots()
    for place, (method, own) in enumerate(runs.items()):
        seconds, sd = mean_and_sd([record["seconds"] for record in own])
        ax.barh(place, seconds, xerr=None if np.isnan(sd) else sd, color=COLOURS[method], height=0.65, capsize=3)
        end = seconds + (0 if np.isnan(sd) else sd)
        ax.annotate(f"{seconds:.0f} s", (end, place), (5, 0), va="center", textcoords="offset points")
    ax.set(yticks=range(len(runs)), yticklabels=list(runs), xlabel="seconds to train")
    ax.margins(x=0.12)
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)


def _tests(runs: Runs, name: str) -> dict[str, list[Record]]:
    """Results on a test set, by the methods that have it."""
    found = {method: [one["tests"][name] for one in own if name in one["tests"]] for method, own in runs.items()}
    return {method: tests for method, tests in found.items() if tests}


def _line(ax: Axes, method: str, x: Any, y: Any, markevery: int) -> None:
    look = curve_style(METHODS.index(method))._replace(color=COLOURS[method])._asdict()
    width, order = (2.4, 3) if method == OURS else (1.6, 2)
    ax.plot(x, y, **look, markersize=5, markevery=markevery, linewidth=width, zorder=order, clip_on=False, label=method)


def _legend(figure: Figure, names: Sequence[str]) -> None:
    """One legend for all panels, below them."""
    lines = {line.get_label(): line for ax in figure.axes for line in ax.get_lines()}
    shown = [name for name in names if name in lines]
    columns = len(shown) if len(shown) <= 6 else 4
    figure.legend([lines[name] for name in shown], shown, loc="outside lower center", ncols=columns, frameon=False)
