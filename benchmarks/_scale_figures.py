"""Figures of `scale.py`: minutes against machines, and what a step's time goes to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

SHOWN = 32
"""Machines of the second figure."""

PARTS = {
    "reading": "reading and shuffling",
    "network": "network",
    "slowest": "waiting for the slowest",
    "averaging": "averaging gradients",
    "storage": "waiting for storage",
}
MARKS = ("o", "s", "^", "D")


def draw(fits: list[dict[str, Any]], scores: list[dict[str, Any]], designs: Sequence[str], folder: Path) -> None:
    """Write `scale-hours.svg` and `scale-step.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update({"font.size": 10, "svg.hashsalt": "scale"})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for design, mark in zip(designs, MARKS, strict=True):
        own = [each for each in fits if each["design"] == design]
        left.loglog([each["machines"] for each in own], [60 * each["hours"] for each in own], mark + "-", label=design)
    left.set(title="Fitting to a billion rows", ylabel="minutes")
    left.set_yticks([20, 30, 60, 120, 240, 480], [20, 30, 60, 120, 240, 480])
    left.legend(frameon=False, fontsize=9)
    counts, minutes = [each["machines"] for each in scores], [60 * each["hours"] for each in scores]
    right.loglog(counts, minutes, "o-", label="simulated")
    right.loglog(counts, [minutes[0] / count for count in counts], "k:", label="one machine's time, divided")
    right.set(title="Scoring: a billion rows once", ylabel="minutes")
    right.set_yticks([0.25, 0.5, 1, 2, 5, 10, 20], [0.25, 0.5, 1, 2, 5, 10, 20])
    right.legend(frameon=False, fontsize=9)
    for axes in (left, right):
        axes.set_xlabel("machines of 8 cores")
        axes.set_xticks(counts, counts)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.savefig(folder / "scale-hours.svg", metadata={"Date": None})

    figure, axes = plt.subplots(figsize=(10, 3), layout="constrained")
    shown = [each for each in fits if each["machines"] == SHOWN][::-1]
    begin = [0.0] * len(shown)
    for part, name in PARTS.items():
        widths = [1e9 / 60 * each["step"][part] / each["rows a step"] for each in shown]
        axes.barh([each["design"] for each in shown], widths, left=begin, label=name, height=0.6)
        begin = [a + b for a, b in zip(begin, widths, strict=True)]
    for row, width in enumerate(begin):
        axes.text(width, row, f" {width:,.1f}", va="center")
    axes.set(xlabel=f"minutes of the pass over a billion rows, {SHOWN} machines")
    axes.legend(frameon=False, fontsize=9, ncols=5, loc="upper center", bbox_to_anchor=(0.3, 1.2))
    figure.savefig(folder / "scale-step.svg", metadata={"Date": None})
    plt.close("all")
