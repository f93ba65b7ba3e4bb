"""The evidence of an alarm along the rows, on a logarithmic scale, with its threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence

from density_regression.serve.page.markup import Markup, tag
from density_regression.serve.page.svg.axes import Scale, bottom_axis, drawing, text

__all__ = ["evidence_along_rows"]

WIDTH, HEIGHT = 560.0, 200.0
LEFT, RIGHT, TOP, BASE = 58.0, 550.0, 16.0, 160.0
TEN = math.log(10.0)


def evidence_along_rows(
    history: Sequence[tuple[int, float]], rows: int, log_threshold: float, rang: Sequence[int], label: str
) -> Markup:
    """Natural logarithms of the evidence at some of so many rows, and the rows at which the alarm rang."""
    x = Scale(1.0, float(max(rows, 2)), LEFT, RIGHT)
    top = max([log_threshold, *(value for _, value in history)]) / TEN
    y = Scale(0.0, 1.08 * top, BASE, TOP)
    line = y(log_threshold / TEN)
    parts = [_power(power, y(power)) for power in range(0, math.floor(y.high) + 1, max(1, math.ceil(y.high / 5)))]
    parts += [
        bottom_axis(x, BASE, 5),
        text("row", RIGHT, HEIGHT - 6.0, "axis-name", "end"),
        tag("line", x1=LEFT, x2=RIGHT, y1=line, y2=line, class_="threshold"),
        text(f"rings at {math.exp(log_threshold):,.0f}", LEFT + 6.0, line - 5.0, "warning", "start"),
    ]
    if history:
        path = " ".join(f"{x(row):.1f},{y(value / TEN):.1f}" for row, value in history)
        parts.append(tag("polyline", points=path, class_="curve"))
    parts += [_mark(x(row), line) for row in rang]
    return drawing(label, WIDTH, HEIGHT, parts)


def _power(power: int, y: float) -> Markup:
    words = f"{10**power:,}" if power < 6 else f"1e{power}"
    grid = tag("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")
    return Markup(grid + text(words, LEFT - 6.0, y + 4.0, "tick", "end"))


def _mark(x: float, y: float) -> Markup:
    """A triangle that points to the threshold."""
    corners = [(x, y), (x - 6.0, y - 11.0), (x + 6.0, y - 11.0)]
    return tag("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in corners), class_="rang")
