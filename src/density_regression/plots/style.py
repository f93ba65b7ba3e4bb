"""Colours that also differ in lightness, for grey print, and texts that figures share."""

from __future__ import annotations

__all__ = ["BAND_COLORS", "MEAN_COLOR", "TRUTH_COLOR", "axis_label", "corner_text", "curve_style", "short_number"]

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# From the innermost band to the outermost.
BAND_COLORS: Final = ("#9ebfe0", "#c3d9ee", "#e3edf7")
MEAN_COLOR: Final = "#0b3c8c"
TRUTH_COLOR: Final = "#d62728"

# Of lengths 3, 4 and 12, so that twelve curves differ in line style or marker, not in colour alone.
_COLORS = ("#0b3c8c", "#c8551f", "#7fa8d1")
_LINESTYLES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h")


class CurveStyle(NamedTuple):
    """Colour, line style and marker of a curve."""

    color: str
    linestyle: str
    marker: str


def curve_style(index: int) -> CurveStyle:
    """Style of curve number ``index``; the first twelve differ."""
    return CurveStyle(_COLORS[index % 3], _LINESTYLES[index % 4], _MARKERS[index % 12])


def short_number(value: float) -> str:
    """Three significant digits, without an exponent where that stays short."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e5 else f"{value:.3g}"


def axis_label(label: str, unit: str) -> str:
    """An axis label, its unit in brackets if it has one."""
    return f"{label} ({unit})" if unit else label


def corner_text(ax: Axes, text: str, *, right: bool = False) -> None:
    """Write into the upper left or right corner, on a white background."""
    x, side = (0.97, "right") if right else (0.03, "left")
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    ax.text(x, 0.97, text, transform=ax.transAxes, ha=side, va="top", fontsize="small", bbox=box, zorder=6)
