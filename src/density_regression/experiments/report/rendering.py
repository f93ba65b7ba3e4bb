"""Figures as bytes: the same input gives the same bytes, whatever the user's matplotlib settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Panels", "escape_dollars", "new_figure", "panel_svg", "panels_png", "reduce_ticks", "tidy_panels"]

PALETTE_SIZE: Final = 48
STYLE: Final = {"font.size": 8, "axes.titlesize": 9, "axes.linewidth": 0.6, "svg.hashsalt": "density-regression"}

Panels = NDArray[Any]
Draw = Callable[["Figure", Panels], None]


@contextmanager
def new_figure(size: tuple[float, float], style: dict[str, Any], **options: Any) -> Iterator[Figure]:
    """Figure of a size in inches, with matplotlib's default style but for `style`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.style import context

    with context(["default", style]):
        figure = Figure(figsize=size, **options)
        FigureCanvasAgg(figure)
        yield figure


def panels_png(rows: int, columns: int, size: tuple[float, float], draw: Draw, *, share: bool = False) -> bytes:
    """PNG of rows x columns Axes, each of ``size`` inches with its margins, that ``draw(figure, axes)`` fills.

    The axes are an object array of shape (rows, columns); with `share` all have the same limits.
    """
    width, height = columns * size[0], rows * size[1] + 0.55
    with new_figure((width, height), STYLE, dpi=84) as figure:
        panels = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
        # Fixed margins, as a layout engine would draw every panel several times.
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
        canvas: Any = figure.canvas
        canvas.draw()
        return _png(np.asarray(canvas.buffer_rgba()))


def panel_svg(size: tuple[float, float], draw: Callable[[Axes], None]) -> bytes:
    """SVG of one Axes without margins, ``size`` in inches."""
    with new_figure(size, STYLE) as figure:
        draw(figure.add_axes((0.01, 0.01, 0.98, 0.98)))
        buffer = BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()


def reduce_ticks(panels: Panels) -> None:
    """Leave few ticks: small panels have no room for more, and drawing them takes most of the time."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    for ax in panels.flat:
        # A title at a fixed height need not be moved out of the way of ticks.
        ax.set_title("", y=1.0, loc="right")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(3) if axis.get_scale() == "linear" else LogLocator(numticks=4))
            axis.set_minor_locator(NullLocator())


def tidy_panels(panels: Panels, used: int) -> None:
    """Remove panels beyond the first `used`, and axis labels between panels."""
    columns = panels.shape[1]
    for index, ax in enumerate(panels.flat):
        # The lowest panel of a column may be in the last row but one.
        is_lowest = index + columns >= used
        ax.tick_params(labelbottom=is_lowest)
        ax.set(xlabel=ax.get_xlabel() if is_lowest else "", ylabel="" if index % columns else ax.get_ylabel())
    for ax in panels.flat[used:]:
        ax.remove()


def escape_dollars(text: str) -> str:
    """Text in which a dollar does not start mathematics."""
    return text.replace("$", r"\$")


def _png(pixels: Panels) -> bytes:
    """PNG with a small palette, which is enough for lines and tints."""
    from PIL import Image

    buffer = BytesIO()
    picture = Image.fromarray(pixels).convert("RGB").quantize(PALETTE_SIZE, dither=Image.Dither.NONE)
    picture.save(buffer, "png", optimize=True)
    return buffer.getvalue()
