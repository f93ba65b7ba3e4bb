"""Colours whose lightness tells them apart, and the texts that figures share."""

from __future__ import annotations

__all__ = [
    "BANDS",
    "DOTS",
    "EDGES",
    "FAINT",
    "MEAN",
    "TRUTH",
    "in_unit",
    "mark",
    "note",
    "number",
    "tints",
    "with_unit",
]

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Lightness falls steadily from the outer band to the mean line, so that grey print keeps their order.
BANDS: Final = ("#9ebfe0", "#c3d9ee", "#e3edf7")
MEAN: Final = "#0b3c8c"
TRUTH: Final = "#d62728"
DOTS: Final = "0.35"
EDGES: Final = "0.45"
FAINT: Final = "0.88"

_INNERMOST = (0.56, 0.71, 0.87)
_OUTERMOST = (0.89, 0.93, 0.97)

# Three, four and twelve: no two of twelve curves share all three, nor both of the first two.
_COLORS = ("#0b3c8c", "#c8551f", "#7fa8d1")
_STYLES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h")


class Mark(NamedTuple):
    """How one curve of several looks."""

    color: str
    linestyle: str
    marker: str


def mark(index: int) -> Mark:
    """Look of curve number ``index``; the first twelve differ in line style and marker, not in colour alone."""
    return Mark(_COLORS[index % 3], _STYLES[index % 4], _MARKERS[index % 12])


def tints(count: int) -> list[tuple[float, float, float]]:
    """``count`` colours from the outermost band to the innermost, ever darker."""
    mixed = np.linspace(_OUTERMOST, _INNERMOST, count) if count > 1 else np.array([_INNERMOST])
    return [(float(red), float(green), float(blue)) for red, green, blue in mixed]


def number(value: float) -> str:
    """Three significant digits, without an exponent where that stays short."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e5 else f"{value:.3g}"


def in_unit(value: float, unit: str) -> str:
    """A number and its unit, if it has one."""
    return f"{number(value)} {unit}".rstrip()


def with_unit(label: str, unit: str) -> str:
    """An axis label, its unit in brackets if it has one."""
    return f"{label} ({unit})" if unit else label


def note(ax: Axes, text: str, *, right: bool = False) -> None:
    """Write into an upper corner, on white so that what lies beneath does not disturb."""
    x, side = (0.97, "right") if right else (0.03, "left")
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    ax.text(x, 0.97, text, transform=ax.transAxes, ha=side, va="top", fontsize="small", bbox=box, zorder=6)
