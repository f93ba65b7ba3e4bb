"""What the figures of "How it works" share: size, type, colours, and a white card for light and dark pages."""

from __future__ import annotations

import os
import re
from io import StringIO
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

IMAGES: Final = Path(__file__).parents[1] / "images" / "how"

DARK, MIDDLE, LIGHT = "#0b3c8c", "#7fa8d1", "#dbe7f4"
ORANGE, RED, GREY = "#c8551f", "#d62728", "#8a8f98"

# A page on a phone is about 330 px wide, two thirds of this figure: type of 12 points is then 11 px high.
WIDTH: Final = 5.0

STYLE: Final = {
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 2.2,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    # The same file from the same numbers.
    "svg.hashsalt": "how it works",
}


def new_figure(height: float, *, layout: str = "constrained") -> Figure:
    """A figure on a white card with round corners, transparent around it; sizes in inches."""
    mpl.rcParams.update(STYLE)
    figure = Figure(figsize=(WIDTH, height), layout=layout, facecolor="none")
    if layout == "constrained":
        figure.get_layout_engine().set(w_pad=0.13, h_pad=0.13)
    card = FancyBboxPatch(
        (0.1, 0.1),
        WIDTH - 0.2,
        height - 0.2,
        boxstyle="round,pad=0.08,rounding_size=0.12",
        facecolor="white",
        edgecolor="#d5dae1",
        transform=figure.dpi_scale_trans,
        zorder=-10,
    )
    figure.add_artist(card)
    return figure


def save(figure: Figure, name: str) -> None:
    """Write docs/images/how/NAME.svg, or into the folder that FIGURES names, and print its size."""
    path = Path(os.environ.get("FIGURES", IMAGES)) / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = StringIO()
    figure.savefig(drawn, format="svg", dpi=150, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    # Hundredths of a point are enough for curves, and half the file.
    short = re.sub(r' d="[^"]*"', lambda curve: re.sub(r"(\.\d\d)\d+", r"\1", curve[0]), drawn.getvalue())
    path.write_text(short, encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
