"""Figures of the depth experiment: curves from its records, and its pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression._files import write_whole
from density_regression.experiments.depth.bench import EPSILONS
from density_regression.experiments.depth.methods import METHODS, OURS
from density_regression.experiments.records import Record
from density_regression.experiments.report.numbers import mean_and_sd
from density_regression.plots.depth import DepthRow, plot_depth_panel
from density_regression.plots.style import mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Drawing", "Runs", "curve_drawings", "mean_std", "panel_drawings"]

TIMED: Final = ("Gaussian", "Deep Ensembles", OURS)

DRAWN: Final = {
    "test": "NYU test",
    f"own {EPSILONS[-1]}": f"attacked by own loss, ε = {EPSILONS[-1]}",
    "outdoor": "outdoors",
}
COLOURS: Final = dict(zip(METHODS, ("#0b3c8c", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"), strict=True))
"""Okabe and Ito's colours, with the dark blue of other figures for ours."""

SHOWN: Final = 0
"""Which picture is shown at every epsilon, and beside others."""

ORACLE: Final = "thin: removed by error itself"
WIDTH: Final = 9.0
DPI: Final = 150

Runs = dict[str, list[Record]]
Arrays = dict[str, NDArray[Any]]


class Drawing(NamedTuple):
    """A figure: file name, what it shows, and how it is written to a path."""

    name: str
    alt: str
    write: Callable[[Path], None]


def mean_std(record: Record, name: str) -> float | None:
    """Mean predicted deviation over the images of a test set, in metres; None if the record lacks it."""
    test = record["tests"].get(name)
    return None if test is None else float(np.mean(test["image_std"]))


def panel_drawings(folder: Path) -> list[Drawing]:
    """Figures of the pictures that there are."""
    ours = _load(folder / f"{OURS}.npz")
    attacked = {"test": "ε = 0", **{f"own {epsilon}": f"ε = {epsilon}" for epsilon in EPSILONS}}
    corrupted = [row for name, label in attacked.items() for row in _panel(ours, name, label, SHOWN)]
    outdoors = _panel(ours, "outdoor", "outdoors")
    if outdoors:
        outdoors = [*_panel(ours, "test", "indoors", SHOWN), *outdoors]
    figures = {
        "panels-indoor": (_panel(ours, "test"), f"{OURS} on NYU test images."),
        "panels-corrupted": (corrupted, f"{OURS} on one test image, attacked through its own loss by ever more."),
        "panels-outdoor": (outdoors, f"{OURS} on a room of NYU, to compare, and outdoors, on KITTI."),
    }
    return [
        Drawing(f"{name}.png", f"{alt} Depth, error and standard deviation in metres.", _panel_writer(rows))
        for name, (rows, alt) in figures.items()
        if rows
    ]


def _panel_writer(rows: list[DepthRow]) -> Callable[[Path], None]:
    return lambda path: plot_depth_panel(rows, path)


def _load(path: Path) -> Arrays:
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        return dict(arrays)


def _panel(arrays: Arrays, name: str, label: str = "", index: int | None = None) -> list[DepthRow]:
    """Rows of a figure: all pictures of a test set, or one; none where it is missing."""
    parts = [arrays.get(f"{name}/{part}", ()) for part in ("image", "depth", "mean", "std")]
    rows = [DepthRow(image, depth, mean, std, label) for image, depth, mean, std in zip(*parts, strict=True)]
    return rows if index is None else rows[index : index + 1]


def curve_drawings(runs: Runs) -> list[Drawing]:
    """Figures of what the records say of the six methods; rivals made smooth are in the tables alone."""
    runs = {method: own for method, own in runs.items() if method in METHODS}
    timed: Runs = {method: runs[method] for method in TIMED if method in runs}
    drawings = [
        Drawing(
            "calibration.png",
            "Calibration: observed against expected fraction of pixels below each predicted quantile.",
            lambda path: _write(path, 4.0, lambda figure: _draw_calibration(figure, runs)),
        ),
        Drawing(
            "sparsification.png",
            "RMSE of the pixels left, when those with the largest standard deviation are removed; thin: when those "
            "with the largest error are.",
            lambda path: _write(path, 3.8, lambda figure: _draw_sparsification(figure, runs)),
        ),
        Drawing(
            "epsilon.png",
            "Mean predicted standard deviation of the test images, attacked by ever more.",
            lambda path: _write(path, 3.9, lambda figure: _draw_epsilons(figure, runs)),
        ),
        Drawing(
            "training-time.png",
            "Seconds to train.",
            lambda path: _write(path, 0.6 + 0.5 * len(timed), lambda figure: _draw_times(figure, timed)),
        ),
    ]
    return drawings if timed else drawings[:-1]


def _write(path: Path, height: float, draw: Callable[[Figure], None]) -> None:
    """A PNG, one width for all, whatever the user's own settings."""
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context(["default", {"font.size": 10, "axes.titlesize": 11, "axes.linewidth": 0.7}]):
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        content = BytesIO()
        figure.savefig(content, format="png")
    write_whole(path, content.getvalue())


def _draw_calibration(figure: Figure, runs: Runs) -> None:
    panels = figure.subplots(1, len(DRAWN), sharey=True)
    for ax, (name, title) in zip(panels, DRAWN.items(), strict=True):
        ax.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=1.0, label="calibrated")
        for method, test in _tests(runs, name).items():
            curve = np.mean([each["curve"] for each in test], axis=0)
            _line(ax, method, np.linspace(0, 1, len(curve)), curve, 4)
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="expected fraction", title=title, aspect="equal")
        ax.set_xticks((0, 0.25, 0.5, 0.75, 1), ("0", "0.25", "0.5", "0.75", "1"))
    panels[0].set_ylabel("observed fraction")
    _legend(figure, [*runs, "calibrated"])


def _draw_sparsification(figure: Figure, runs: Runs) -> None:
    panels = figure.subplots(1, len(DRAWN))
    for ax, (name, title) in zip(panels, DRAWN.items(), strict=True):
        for method, test in _tests(runs, name).items():
            shares, by_std, by_error = (
                np.mean([each["sparsification"][part] for each in test], axis=0)
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
        ax.annotate(
            f"{seconds:.0f} s",
            (seconds + (0 if np.isnan(sd) else sd), place),
            (5, 0),
            va="center",
            textcoords="offset points",
        )
    ax.set(yticks=range(len(runs)), yticklabels=list(runs), xlabel="seconds to train")
    ax.margins(x=0.12)
    ax.invert_yaxis()
    ax.spines[["top", "right"]].set_visible(False)


def _tests(runs: Runs, name: str) -> dict[str, list[Record]]:
    """What records say of a test set, by the methods that have it."""
    found = {method: [one["tests"][name] for one in own if name in one["tests"]] for method, own in runs.items()}
    return {method: tests for method, tests in found.items() if tests}


def _line(ax: Axes, method: str, x: Any, y: Any, every: int) -> None:
    look = mark(METHODS.index(method))
    ax.plot(
        x,
        y,
        color=COLOURS[method],
        linestyle=look.linestyle,
        marker=look.marker,
        markersize=5,
        markevery=every,
        linewidth=2.4 if method == OURS else 1.6,
        zorder=3 if method == OURS else 2,
        clip_on=False,
        label=method,
    )


def _legend(figure: Figure, names: Sequence[str]) -> None:
    """One legend for all panels, below them."""
    lines = {line.get_label(): line for ax in figure.axes for line in ax.get_lines()}
    shown = [name for name in names if name in lines]
    columns = len(shown) if len(shown) <= 6 else 4
    figure.legend([lines[name] for name in shown], shown, loc="outside lower center", ncols=columns, frameon=False)
