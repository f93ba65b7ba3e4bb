"""How familiar a row is, as a place on a scale of three parts."""

from __future__ import annotations

import math
from typing import Final

from density_regression.serve.page.explain import UNFAMILIAR, UNUSUAL
from density_regression.serve.page.markup import Markup, tag
from density_regression.serve.page.svg.axes import drawing, text

__all__ = ["familiarity_scale", "place"]

WIDTH, HEIGHT = 440.0, 68.0
LEFT, RIGHT, TOP, BASE = 10.0, 430.0, 24.0, 42.0

PARTS: Final = (("unfamiliar", 0.0, 0.4), ("unusual", 0.4, 0.55), ("like the training rows", 0.55, 1.0))
"""Parts of the scale: name, and from where to where, as shares of its length."""

FAR: Final = 1000.0
"""Nats below the least familiar percent of training rows at which the scale ends."""


def familiarity_scale(familiarity: float, below: float, label: str) -> Markup:
    """The scale with a mark; `below` is by how many nats the log-density is below the least familiar percent."""
    parts = []
    for name, start, end in PARTS:
        x, width = _x(start), (end - start) * (RIGHT - LEFT)
        parts.append(tag("rect", x=x, y=TOP, width=width - 2.0, height=BASE - TOP, class_=f"part {name.split()[0]}"))
        parts.append(text(name, x + 0.5 * width, BASE + 18.0, "tick"))
    x = _x(place(familiarity, below))
    points = [(x - 8.0, TOP - 18.0), (x + 8.0, TOP - 18.0), (x, TOP - 2.0)]
    parts.append(tag("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in points), class_="mark"))
    parts.append(tag("line", x1=x, x2=x, y1=TOP - 3.0, y2=BASE, class_="mark-line"))
    return drawing(label, WIDTH, HEIGHT, parts)


def place(familiarity: float, below: float) -> float:
    """Place on the scale, as a share of its length: by familiarity, and of unfamiliar rows by how far they are away."""
    _, unusual, familiar = (start for _, start, _ in PARTS)
    if familiarity < UNFAMILIAR:
        return unusual * (1.0 - min(math.log1p(max(below, 0.0)) / math.log1p(FAR), 1.0))
    if familiarity < UNUSUAL:
        return unusual + (familiar - unusual) * (familiarity - UNFAMILIAR) / (UNUSUAL - UNFAMILIAR)
    return familiar + (1.0 - familiar) * (familiarity - UNUSUAL) / (1.0 - UNUSUAL)


def _x(share: float) -> float:
    return LEFT + share * (RIGHT - LEFT)
