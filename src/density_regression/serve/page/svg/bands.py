"""Mean and interval along one column: a band for numbers and dates, a dot with whiskers for each category."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from density_regression.serve.page.fields import Value
from density_regression.serve.page.markup import Markup, join, tag
from density_regression.serve.page.outlook import Point, Sweep
from density_regression.serve.page.svg.axes import Scale, arrow, bottom_axis, drawing, limited, text, ticks_in_words
from density_regression.serve.page.values import in_words
from density_regression.serve.page.words import short

__all__ = ["along_a_line", "along_categories", "common_range"]

WIDTH, HEIGHT = 320.0, 170.0
LEFT, RIGHT, TOP, BASE = 40.0, 310.0, 10.0, 146.0
LETTER: Final = 7.0
"""Width of a digit, at most."""

ROW: Final = 20.0

NAMES: Final = 112.0
"""Pixels for the names of categories."""

MOST_BEYOND: Final = 0.75
"""Bands may make the drawings higher by so many times the range of training values, on either side."""


def along_a_line(sweep: Sweep, now: Point, value: Value, height: tuple[float, float], label: str) -> Markup:
    """The band along a column of numbers, dates or times, its training range, and the present value."""
    y = Scale(*height, BASE, TOP)
    numbers = ticks_in_words(y.low, y.high, 4)
    left = max(LEFT, 14.0 + LETTER * max((len(words) for _, words in numbers), default=0))
    x = Scale(float(sweep.values[0] or 0.0), float(sweep.values[-1] or 0.0), left, RIGHT)
    places = [x(float(each or 0.0)) for each in sweep.values]
    upper = [(a, y(point.high)) for a, point in zip(places, sweep.points, strict=True)]
    lower = [(a, y(point.low)) for a, point in zip(places, sweep.points, strict=True)]
    line = [(a, y(point.mean)) for a, point in zip(places, sweep.points, strict=True)]
    has_band = not math.isnan(now.low)
    parts = [
        _training(sweep, x),
        _left_axis(x, y, numbers),
        tag("polygon", points=_points([*upper, *lower[::-1]]), class_="band") if has_band else None,
        tag("polyline", points=_points(line), class_="curve"),
        _present(now, value, x, y) if isinstance(value, float) else None,
    ]
    return drawing(label, WIDTH, HEIGHT, parts)


def along_categories(sweep: Sweep, value: Value, width: tuple[float, float], label: str) -> Markup:
    """A row for each value: a dot at the mean and whiskers over the interval; that of the present value is a ring."""
    x = Scale(*width, NAMES + 8.0, RIGHT)
    base = TOP + ROW * len(sweep.values)
    rows = []
    for i, (each, point) in enumerate(zip(sweep.values, sweep.points, strict=True)):
        y, is_now = TOP + ROW * (i + 0.5), each == value
        rows.append(text(category(sweep, each), NAMES, y + 4.0, "strong" if is_now else "tick", "end"))
        if not math.isnan(point.low):
            rows.append(tag("line", x1=x(point.low), x2=x(point.high), y1=y, y2=y, class_="whisker"))
        rows.append(tag("circle", cx=x(point.mean), cy=y, r=6.0 if is_now else 3.5, class_="now" if is_now else "dot"))
    return drawing(label, WIDTH, base + 24.0, [*rows, bottom_axis(x, base, 4)])


def category(sweep: Sweep, value: Value) -> str:
    """The name of a category in a drawing."""
    if sweep.field.is_new(value):
        return "never seen"
    if value is None:
        return "missing"
    return short(value, 15) if isinstance(value, str) else in_words(sweep.field, value)


def common_range(sweeps: Sequence[Sweep], now: Point) -> tuple[float, float]:
    """One range of targets for all drawings: all among training values, and something of what is beyond them."""
    inside, beyond = [limited(now.mean)], [limited(now.mean)]
    for sweep in sweeps:
        for value, point in zip(sweep.values, sweep.points, strict=True):
            strange = sweep.field.is_beyond(value) or sweep.field.is_new(value) or value is None
            (beyond if strange else inside).extend(limited(end) for end in point if math.isfinite(end))
    low, high = min(inside), max(inside)
    more = MOST_BEYOND * (high - low)
    ends = max(min(beyond), low - more), min(max(beyond), high + more)
    low, high = min(low, ends[0]), max(high, ends[1])
    margin = 0.03 * (high - low) or 0.5 * abs(high) or 1.0
    return low - margin, high + margin


def _training(sweep: Sweep, x: Scale) -> Markup | None:
    """The training range, with its ends in numbers."""
    if sweep.field.ends is None:
        return None
    low, high = sweep.field.ends
    marks = [tag("rect", x=x(low), y=TOP, width=x(high) - x(low), height=BASE - TOP, class_="training")]
    for end in dict.fromkeys((low, high)):
        marks.append(tag("line", x1=x(end), x2=x(end), y1=TOP, y2=BASE + 4.0, class_="training-end"))
        anchor = "start" if x(end) < x.start + 30 else "end" if x(end) > RIGHT - 30 else "middle"
        marks.append(text(in_words(sweep.field, end), x(end), BASE + 17.0, "tick", anchor))
    return join(marks)


def _left_axis(x: Scale, y: Scale, numbers: Sequence[tuple[float, str]]) -> Markup:
    left = x.start
    marks = [tag("line", x1=left, x2=RIGHT, y1=BASE, y2=BASE, class_="axis")]
    for value, words in numbers:
        marks.append(tag("line", x1=left - 4.0, x2=left, y1=y(value), y2=y(value), class_="axis"))
        marks.append(text(words, left - 7.0, y(value) + 4.0, "tick", "end"))
    return join([*marks, tag("line", x1=left, x2=left, y1=TOP, y2=BASE, class_="axis")])


def _present(now: Point, value: float, x: Scale, y: Scale) -> Markup:
    """What is asked: a line at its value, and its mean and interval; an arrow where it is beyond the drawing."""
    if not x.holds(value):
        direction = 1 if value > x.high else -1
        return arrow(x(value) - 4.0 * direction, y(now.mean), direction, "arrow")
    place = x(value)
    parts = [tag("line", x1=place, x2=place, y1=TOP, y2=BASE, class_="here")]
    if not math.isnan(now.low):
        parts.append(tag("line", x1=place, x2=place, y1=y(now.low), y2=y(now.high), class_="whisker"))
    return join([*parts, tag("circle", cx=place, cy=y(now.mean), r=5.0, class_="now")])


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
