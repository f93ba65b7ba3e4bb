"""Scales from values to pixels, and axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from density_regression.serve.page.markup import Markup, join, tag
from density_regression.serve.page.words import number

__all__ = ["Scale", "anchor_at", "arrow", "bottom_axis", "drawing", "limited", "text", "ticks", "ticks_in_words"]


LARGEST: Final = 1e300
"""Larger values are drawn here, so that differences do not overflow."""


@dataclass(frozen=True)
class Scale:
    """A line from `low` to `high`, drawn from `start` to `end`; values beyond its ends are drawn there."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Place of a value, in pixels."""
        share = 0.0 if self.high <= self.low else (min(max(value, self.low), self.high) - self.low) / self._size
        return self.start + share * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether a value lies between the ends."""
        return self.low <= value <= self.high

    @property
    def _size(self) -> float:
        return self.high - self.low


def limited(value: float) -> float:
    """A value that can be drawn."""
    return min(max(value, -LARGEST), LARGEST)


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round numbers from `low` to `high`: multiples of 1, 2 or 5 times a power of ten."""
    size = high - low
    if not (math.isfinite(size) and size > 0):
        return []
    power = 10.0 ** math.floor(math.log10(size / most))
    for factor in (1.0, 2.0, 5.0, 10.0, 20.0):
        step = factor * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [i * step for i in range(first, last + 1)]
    return []


def ticks_in_words(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """The same with their words, in as many digits as tell them apart."""
    values = ticks(low, high, most)
    step = values[1] - values[0] if len(values) > 1 else None
    return [(value, number(value, step)) for value in values]


def bottom_axis(scale: Scale, y: float, most: int) -> Markup:
    """A line along the bottom with numbers below it."""
    marks = [tag("line", x1=scale.start, x2=scale.end, y1=y, y2=y, class_="axis")]
    for value, words in ticks_in_words(scale.low, scale.high, most):
        marks.append(tag("line", x1=scale(value), x2=scale(value), y1=y, y2=y + 4.0, class_="axis"))
        marks.append(text(words, scale(value), y + 17.0, "tick", anchor_at(scale, value)))
    return join(marks)


def text(words: str, x: float, y: float, class_: str = "", anchor: str = "middle") -> Markup:
    """Words at a place."""
    return tag("text", words, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def arrow(x: float, y: float, direction: int, class_: str) -> Markup:
    """A head of an arrow to the left (-1) or right (1), where something goes on beyond the drawing."""
    points = [(x, y - 5.0), (x + 7.0 * direction, y), (x, y + 5.0)]
    return tag("polygon", points=" ".join(f"{a:.1f},{b:.1f}" for a, b in points), class_=class_)


def drawing(name: str, width: float, height: float, parts: Sequence[Markup | None]) -> Markup:
    """A drawing with a name that says what can be seen, for those who cannot see it."""
    return tag("svg", *parts, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=name)


def anchor_at(scale: Scale, value: float) -> str:
    """Where a number at the end of an axis must begin or end, to stay inside the drawing."""
    share = abs(scale(value) - scale.start) / max(abs(scale.end - scale.start), 1e-9)
    return "start" if share < 0.04 else "end" if share > 0.96 else "middle"
