"""The predictive distribution: a curve with mean and interval, and the training targets behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from density_regression.serve.page.markup import Markup, join, tag
from density_regression.serve.page.svg.axes import Scale, arrow, bottom_axis, drawing, limited, text

__all__ = ["Law", "distribution"]

WIDTH, HEIGHT = 440.0, 232.0
LEFT, RIGHT, TOP, BASE = 10.0, 430.0, 60.0, 190.0
STEPS: Final = 160

REACH: Final = 2.6
"""Standard deviations (of the logarithm, for a log-normal law) on either side of the centre that are drawn."""

FARTHEST: Final = 3.0
"""The drawing ends so many training ranges beyond the training targets."""

FARTHEST_PLACE: Final = 40.0
"""Standard deviations from the centre at which nothing is left of a density."""

MOST_LOG: Final = 30.0
"""Largest standard deviation of a logarithm that is drawn as it is."""

Words = Callable[[float], str]

Histogram = tuple[Sequence[float], Sequence[int]]
"""Edges (b + 1,) and counts (b,)."""


@dataclass(frozen=True)
class Law:
    """A Normal law, or with `log` a log-normal one, by its mean and standard deviation."""

    mean: float
    std: float
    log: bool = False

    @cached_property
    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation of the Normal, that of the logarithm for a log-normal law."""
        if not self.log:
            return self.mean, self.std
        mean = max(self.mean, 1e-300)
        # log(1 + r^2) without the square of a huge r.
        variance = 2.0 * math.log(math.hypot(1.0, min(self.std / mean, 1e150)))
        return math.log(mean) - 0.5 * variance, math.sqrt(variance)

    def density(self, value: float) -> float:
        """Density at a value, but for a constant factor."""
        center, scale = self.moments
        if scale <= 0 or (self.log and value <= 0):
            return 0.0
        place = ((math.log(value) if self.log else value) - center) / scale
        if not abs(place) < FARTHEST_PLACE:
            return 0.0
        # Of a log-normal law d log y / dy = 1 / y.
        return math.exp(-0.5 * place**2 - (math.log(value) - center if self.log else 0.0))

    def at(self, deviations: float) -> float:
        """The value so many standard deviations of the Normal above its mean."""
        center, scale = self.moments
        place = center + deviations * min(scale, MOST_LOG if self.log else math.inf)
        return math.exp(min(place, 700.0)) if self.log else place


def distribution(
    law: Law, interval: tuple[float, float] | None, targets: Histogram | None, name: str, words: Words, label: str
) -> Markup:
    """The drawing; `name` is the target's, `words` says a number of it, `label` what is drawn."""
    x = _scale(law, interval, targets)
    values = [x.low + (x.high - x.low) * i / STEPS for i in range(STEPS + 1)]
    # A narrow curve would fall between the steps.
    near = [law.at(3.5 * (2.0 * i / STEPS - 1.0)) for i in range(STEPS + 1)]
    values = sorted({*values, *(value for value in near if x.holds(value))})
    highest = max(map(law.density, values), default=0.0) or 1.0
    y = Scale(0.0, highest, BASE, TOP)
    points = [(x(value), y(law.density(value))) for value in values]
    parts = [
        join(_bars(targets, x)) if targets else None,
        _under(points, x, interval) if interval else None,
        tag("polyline", points=_points(points), class_="curve"),
        bottom_axis(x, BASE, 6),
        text(name, RIGHT, HEIGHT - 5.0, "axis-name", "end"),
        _summary(law.mean, interval, x, words),
    ]
    return drawing(label, WIDTH, HEIGHT, parts)


def _scale(law: Law, interval: tuple[float, float] | None, targets: Histogram | None) -> Scale:
    """From where to where values are drawn: the curve and most training targets, but nothing too far away."""
    ends = [law.at(-REACH), law.at(REACH), law.mean, *(interval or ())]
    if targets:
        # The outermost bins have the last percent.
        first, last = targets[0][0], targets[0][-1]
        inner = targets[0][1:-1] if len(targets[0]) > 3 else targets[0]
        size = max(last - first, 1e-12 * max(abs(first), abs(last)), 1e-300)
        ends = [min(max(end, first - FARTHEST * size), last + FARTHEST * size) for end in ends]
        ends += [inner[0], inner[-1]]
    low, high = limited(min(ends)), limited(max(ends))
    margin = 0.02 * (high - low) or abs(high) * 0.01 or 1.0
    # A log-normal law has nothing below zero.
    low = max(low - margin, 0.0) if law.log and low >= 0 else low - margin
    return Scale(low, high + margin, LEFT, RIGHT)


def _bars(targets: Histogram, x: Scale) -> list[Markup]:
    """The histogram as densities, to a height of its own."""
    edges, counts = targets
    widths = [after - before for before, after in pairwise(edges)]
    heights = [count / width if width > 0 else 0.0 for count, width in zip(counts, widths, strict=True)]
    y = Scale(0.0, max(heights) or 1.0, BASE, TOP + 0.35 * (BASE - TOP))
    return [
        tag("rect", x=x(before), y=y(height), width=x(after) - x(before), height=BASE - y(height), class_="target")
        for (before, after), height in zip(pairwise(edges), heights, strict=True)
        if x(after) > x(before) and height > 0
    ]


def _under(points: Sequence[tuple[float, float]], x: Scale, interval: tuple[float, float]) -> Markup:
    """The area below the curve, within the interval."""
    start, end = x(interval[0]), x(interval[1])
    inside = [(a, b) for a, b in points if start <= a <= end]
    if not inside:
        return tag("line", x1=start, x2=start, y1=TOP, y2=BASE, class_="curve")
    area = [(inside[0][0], BASE), *inside, (inside[-1][0], BASE)]
    return tag("polygon", points=_points(area), class_="area")


def _summary(mean: float, interval: tuple[float, float] | None, x: Scale, words: Words) -> Markup:
    """Mean and interval above the curve, with their numbers."""
    y = 34.0
    place = x(mean)
    parts = [tag("line", x1=place, x2=place, y1=y, y2=BASE, class_="mean")]
    if interval is not None:
        start, end = x(interval[0]), x(interval[1])
        parts.append(tag("line", x1=start, x2=end, y1=y, y2=y, class_="interval"))
        for value, direction in zip(interval, (-1, 1), strict=True):
            parts.append(_end(value, direction, x, y))
        parts += _interval_numbers(interval, start, end, y, words)
    if x.holds(mean):
        parts.append(tag("circle", cx=place, cy=y, r=5.0, class_="dot"))
    anchor = "start" if place < LEFT + 60 else "end" if place > RIGHT - 60 else "middle"
    parts.append(text(f"mean {words(mean)}", place, 16.0, "strong", anchor))
    return join(parts)


def _end(value: float, direction: int, x: Scale, y: float) -> Markup:
    """An end of the interval: a bar, or an arrow where it lies beyond the drawing."""
    place = x(value)
    if not x.holds(value):
        return arrow(place, y, direction, "arrow")
    return tag("line", x1=place, x2=place, y1=y - 6.0, y2=y + 6.0, class_="interval")


def _interval_numbers(interval: tuple[float, float], start: float, end: float, y: float, words: Words) -> list[Markup]:
    """The ends in numbers: outside of the interval where there is room, else below."""
    low, high = (words(value) for value in interval)
    room = 9.0 * max(len(low), len(high))
    if start - LEFT > room and RIGHT - end > room:
        return [text(low, start - 8.0, y + 4.0, "end", "end"), text(high, end + 8.0, y + 4.0, "end", "start")]
    if end - start > 2.2 * room:
        return [text(low, start + 3.0, y + 18.0, "end", "start"), text(high, end - 3.0, y + 18.0, "end", "end")]
    if start - LEFT > RIGHT - end:
        return [text(f"{low} to {high}", start - 8.0, y + 4.0, "end", "end")]
    return [text(f"{low} to {high}", end + 8.0, y + 4.0, "end", "start")]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
