"""The evidence of an alarm along the rows, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from density_regression.serve.alarm.report import AlarmReport

__all__ = ["draw_evidence"]

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 80, 40, 24, 46


def draw_evidence(
    points: Sequence[tuple[int, float]], rows: int, log_threshold: float, reports: Sequence[AlarmReport], title: str
) -> str:
    """Log-evidence at some rows of so many, its threshold, and alarms with the stretch of rows that each is about."""
    top = max([log_threshold, *(value for _, value in points)]) / math.log(10.0) * 1.06
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(row: float) -> float:
        return LEFT + width * min(max((row - 1) / max(rows - 1, 1), 0.0), 1.0)

    def y(log_value: float) -> float:
        return TOP + height * (1.0 - max(log_value / math.log(10.0), 0.0) / top)

    base, line = y(0.0), y(log_threshold)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        *(_stretch(report, x(report.since), x(report.until), base) for report in reports),
        *(_power(power, y(power * math.log(10.0))) for power in _powers(top)),
        *(_row(row, x(row), base) for row in _round_rows(rows)),
        f'<text class="axis" x="{LEFT + width / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">row</text>',
        f'<text class="axis" x="2" y="{TOP - 8}">evidence</text>',
        f'<line class="threshold" x1="{LEFT}" x2="{LEFT + width}" y1="{line:.1f}" y2="{line:.1f}"/>',
        f'<text class="limit" x="{LEFT + 6}" y="{line - 5:.1f}">rings at {math.exp(log_threshold):,.0f}</text>',
    ]
    if points:
        path = " ".join(f"{x(row):.1f},{y(value):.1f}" for row, value in points)
        parts.append(f'<polyline class="evidence" points="{path}"/>')
    parts += [_mark(report, x(report.row), line) for report in reports]
    return "\n".join([*parts, "</svg>"])


def _stretch(report: AlarmReport, left: float, right: float, base: float) -> str:
    words = (
        f"Alarm at row {report.row:,}; changed from about row {report.since:,} on, rang last at row {report.until:,}"
    )
    return (
        f'<rect class="stretch" x="{left:.1f}" y="{TOP}" width="{max(right - left, 2.0):.1f}" '
        f'height="{base - TOP:.1f}"><title>{words}</title></rect>'
    )


def _mark(report: AlarmReport, place: float, line: float) -> str:
    points = f"{place:.1f},{line - 3:.1f} {place - 6:.1f},{line - 14:.1f} {place + 6:.1f},{line - 14:.1f}"
    return f'<polygon class="mark" points="{points}"><title>Alarm at row {report.row:,}</title></polygon>'


def _power(power: int, place: float) -> str:
    text = "1" if power == 0 else f'10<tspan dy="-5" font-size="70%">{power}</tspan>'
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{text}</text>'
    )


def _row(row: int, place: float, base: float) -> str:
    return f'<text class="tick" x="{place:.1f}" y="{base + 18:.1f}" text-anchor="middle">{row:,}</text>'


def _powers(top: float) -> range:
    return range(0, int(top) + 1, max(1, math.ceil(top / 6)))


def _round_rows(rows: int) -> list[int]:
    """At most six round numbers of rows."""
    step = next(size * 10**power for power in range(15) for size in (1, 2, 5) if rows / (size * 10**power) <= 5.5)
    return [1, *range(step, rows + 1, step)] if step > 1 else list(range(1, rows + 1))
