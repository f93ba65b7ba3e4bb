"""Figures of many panels, and their bytes, the same for the same input."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Panels", "few_ticks", "grid", "plain", "svg"]

DPI: Final = 84
COLOURS: Final = 48
# On top of the defaults, so that nobody's own settings change a report.
STYLE: Final[list[str | dict[str, Any]]] = [
    "default",
    {"font.size": 8, "axes.titlesize": 9, "axes.linewidth": 0.6, "svg.hashsalt": "density-regression"},
]

Panels = NDArray[Any]
Draw = Callable[["Figure", Panels], None]


def grid(rows: int, columns: int, size: tuple[float, float], draw: Draw, *, share: bool = False) -> bytes:
    """PNG of rows x columns panels, each of ``size`` inches, that ``draw(figure, panels)`` fills.

    Parameters
    ----------
    rows, columns : int
    size : (width, height)
        Of one panel with what surrounds it, in inches.
    draw : callable
        Gets the figure and an object array of Axes, of shape (rows, columns).
    share : bool
        Whether all panels share their axes.
    """
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context(STYLE):
        width, height = columns * size[0], rows * size[1] + 0.55
        figure = Figure(figsize=(width, height), dpi=DPI)
        canvas: Any = FigureCanvasAgg(figure)
        panels = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
        # Fixed margins in inches: to solve for them would draw every panel several times.
        figure.subplots_adjust(
            left=0.55 / width,
            right=1 - 0.12 / width,
            bottom=0.45 / height,
            top=1 - 0.45 / height,
            wspace=0.3,
            hspace=0.34,
        )
        draw(figure, panels)
        # savefig would lay everything out twice.
        canvas.draw()
        return _png(np.asarray(canvas.buffer_rgba()))


def svg(size: tuple[float, float], draw: Callable[[Axes], None]) -> bytes:
    """SVG of one panel without margins, ``size`` in inches."""
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context(STYLE):
        figure = Figure(figsize=size)
        FigureCanvasAgg(figure)
        draw(figure.add_axes((0.01, 0.01, 0.98, 0.98)))
        buffer = BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()


def few_ticks(panels: Panels) -> None:
    """Leave few ticks: small panels have no room for more, and most of the time of a drawing goes into them."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    for ax in panels.flat:
        # A title at a fixed height need not be moved out of the way of ticks.
        ax.set_title("", y=1.0, loc="right")
        for axis in (ax.xaxis, ax.yaxis):
            linear = axis.get_scale() == "linear"
            axis.set_major_locator(MaxNLocator(3) if linear else LogLocator(numticks=4))
            axis.set_minor_locator(NullLocator())


def plain(text: str) -> str:
    """Text in which a dollar is a dollar, not the start of mathematics."""
    return text.replace("$", r"\$")


def _png(pixels: Panels) -> bytes:
    """A small PNG: few colours are enough for lines and tints."""
    from PIL import Image

    buffer = BytesIO()
    picture = Image.fromarray(pixels).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(buffer, "png", optimize=True)
    return buffer.getvalue()
