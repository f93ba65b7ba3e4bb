"""Small charts as SVG in the colours of the page, light or dark: axes, lines, bands, dots, bars and upright lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from density_regression.experiments.evaluation.words import number

__all__ = ["Chart", "Scale", "legend", "limits"]

WIDTH, HEIGHT = 420, 280
TOP, RIGHT, BOTTOM = 10, 20, 44
LETTER: Final = 6.6
"""Width of a digit in a label, about."""

Kind = Literal["main", "second", "ideal", "miss", "faint"]
"""Classes of the style sheet."""


@dataclass(frozen=True)
class Scale:
    """From values between `low` and `high` to a share of an axis, linear or logarithmic."""

    low: float
    high: float
    logarithmic: bool = False

    def place(self, values: ArrayLike) -> np.ndarray:
        """Shares (n,), between 0 and 1 for values between the ends, and kept near that."""
        low, high, given = self.low, self.high, np.asarray(values, dtype=np.float64)
        if self.logarithmic:
            low, high, given = math.log(low), math.log(high), np.log(np.maximum(given, np.finfo(np.float64).tiny))
        with np.errstate(over="ignore"):
            return np.clip((given - low) / (high - low), -2.0, 3.0)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values between the ends."""
        if self.logarithmic and self.high / self.low >= 10:
            found = [m * 10.0**e for e in self._decades() for m in (1, 2, 5)]
            found = found if len(self._within(found)) <= most else [10.0**e for e in self._decades()]
            within = self._within(found)
            return within[:: -(-len(within) // most)]
        size = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(size))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= size)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]

    def _decades(self) -> range:
        return range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)

    def _within(self, values: list[float]) -> list[float]:
        return [value for value in values if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]


class Chart:
    """One pair of axes, and what is drawn between them, in the order of the calls.

    `x_names` are evenly spaced from the left end to the right one, instead of numbers; `percent` says which axes, x and
    y, are of shares.
    """

    def __init__(
        self,
        x: Scale,
        y: Scale,
        x_label: str,
        y_label: str,
        *,
        x_names: Sequence[str] = (),
        percent: tuple[bool, bool] = (False, False),
    ) -> None:
        self._x, self._y = x, y
        self._labels = x_label, y_label
        self._names = x_names
        ticks = y.ticks()
        self._y_ticks = dict(zip(ticks, _texts(ticks, percent[1]), strict=True))
        self._x_percent = percent[0]
        self._left = 26 + LETTER * max(map(len, self._y_ticks.values()), default=1)
        self._width, self._height = WIDTH - self._left - RIGHT, HEIGHT - TOP - BOTTOM
        self._inside: list[str] = []

    def line(self, x: ArrayLike, y: ArrayLike, kind: Kind = "main") -> None:
        """A line through points (n,)."""
        self._inside.append(f'<polyline class="line {kind}" points="{self._points(x, y)}"/>')

    def band(self, x: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
        """The area between two lines over x (n,)."""
        there, back = self._points(x, low), self._points(np.asarray(x)[::-1], np.asarray(high)[::-1])
        self._inside.append(f'<polygon class="band" points="{there} {back}"/>')

    def dots(self, x: ArrayLike, y: ArrayLike, kind: Kind = "main", radius: float = 3) -> None:
        """Dots at points (n,); those of the kind "miss" are crosses."""
        r = radius
        for across, up in self._pairs(x, y):
            if kind == "miss":
                path = f"M{across - r:.1f} {up - r:.1f}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}"
                self._inside.append(f'<path class="cross" d="{path}"/>')
            else:
                self._inside.append(f'<circle class="dot {kind}" cx="{across:.1f}" cy="{up:.1f}" r="{r}"/>')

    def bars(self, edges: ArrayLike, heights: ArrayLike) -> None:
        """Bars of heights (n,) between edges (n + 1,)."""
        places = self._x.place(edges) * self._width
        tops = (1.0 - self._y.place(heights)) * self._height
        for left, right, top in zip(places[:-1] + 0.75, places[1:] - 0.75, tops, strict=True):
            box = f'x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.5):.1f}" height="{self._height - top:.1f}"'
            self._inside.append(f'<rect class="bar" {box}/>')

    def upright(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, kinds: Sequence[Kind]) -> None:
        """Upright lines over x (n,), each of a kind."""
        pairs = zip(self._pairs(x, low), self._pairs(x, high), kinds, strict=True)
        for (across, start), (_, stop), kind in pairs:
            path = f"M{across:.1f} {start:.1f}V{stop:.1f}"
            self._inside.append(f'<path class="upright {kind}" d="{path}"/>')

    def svg(self, title: str) -> str:
        """The chart; `title` is what a screen reader says."""
        left, bottom = self._left, TOP + self._height
        parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
        for value, text in self._y_ticks.items():
            up = TOP + (1.0 - float(self._y.place(value))) * self._height
            parts.append(f'<path class="grid" d="M{left:.1f} {up:.1f}h{self._width:.1f}"/>')
            parts.append(f'<text class="tick end" x="{left - 6:.1f}" y="{up + 4:.1f}">{escape(text)}</text>')
        parts.append(
            f'<svg x="{left:.1f}" y="{TOP}" width="{self._width:.1f}" height="{self._height}">{"".join(self._inside)}'
            "</svg>"
        )
        parts.append(f'<path class="axis" d="M{left:.1f} {bottom}h{self._width:.1f}"/>')
        for share, text in self._x_labels():
            across = left + share * self._width
            parts.append(f'<text class="tick middle" x="{across:.1f}" y="{bottom + 16}">{escape(text)}</text>')
        x_label, y_label = map(escape, self._labels)
        middle = left + self._width / 2, TOP + self._height / 2
        parts.append(f'<text class="label middle" x="{middle[0]:.1f}" y="{HEIGHT - 8}">{x_label}</text>')
        turn = f'transform="translate(11 {middle[1]:.1f}) rotate(-90)"'
        parts.append(f'<text class="label middle" {turn}>{y_label}</text></svg>')
        return "".join(parts)

    def _x_labels(self) -> list[tuple[float, str]]:
        if self._names:
            return [(i / (len(self._names) - 1), name) for i, name in enumerate(self._names)]
        ticks = self._x.ticks()
        return [(float(self._x.place(v)), text) for v, text in zip(ticks, _texts(ticks, self._x_percent), strict=True)]

    def _pairs(self, x: ArrayLike, y: ArrayLike) -> list[tuple[float, float]]:
        across, up = self._x.place(x) * self._width, (1.0 - self._y.place(y)) * self._height
        return list(zip(across.tolist(), up.tolist(), strict=True))

    def _points(self, x: ArrayLike, y: ArrayLike) -> str:
        return " ".join(f"{across:.1f},{up:.1f}" for across, up in self._pairs(x, y))


def legend(*entries: tuple[str, str]) -> str:
    """HTML of a legend: pairs of the class of a mark, such as "dot main" or "line ideal", and its text."""
    shapes = {
        "line": '<path class="{}" d="M0 5h18"/>',
        "band": '<rect class="{}" y="1" width="18" height="8"/>',
        "bar": '<rect class="{}" y="1" width="18" height="8"/>',
        "dot": '<circle class="{}" cx="9" cy="5" r="3"/>',
        "upright": '<path class="{}" d="M9 0V10"/>',
        "cross": '<path class="{}" d="M6 2l6 6m0 -6l-6 6"/>',
    }
    items = [
        f'<span><svg class="key" viewBox="0 0 18 10" aria-hidden="true">{shapes[kind.split()[0]].format(kind)}</svg>'
        f" {escape(text)}</span>"
        for kind, text in entries
    ]
    return f'<p class="legend">{" ".join(items)}</p>'


def limits(*values: ArrayLike, room: float = 0.05) -> tuple[float, float]:
    """Ends of an axis that holds all values, with room on either side; apart even if they are all equal."""
    low, high = min(float(np.min(v)) for v in values), max(float(np.max(v)) for v in values)
    if not high > low:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    pad = room * (high - low)
    return low - pad, high + pad


def _texts(ticks: list[float], percent: bool) -> list[str]:
    if percent:
        return [f"{100 * tick:.3g} %" for tick in ticks]
    return [number(0.0 if abs(tick) < 1e-12 * max(map(abs, ticks)) else tick, 4) for tick in ticks]
