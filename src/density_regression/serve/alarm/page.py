"""An alarm as one HTML page, which loads nothing from elsewhere and needs no scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Final

from density_regression.serve.alarm.alarm import Alarm
from density_regression.serve.alarm.drawing import draw_evidence
from density_regression.serve.alarm.moves import ColumnMove
from density_regression.serve.alarm.report import AlarmReport, Watched

__all__ = ["alarm_page"]

TITLES: Final[dict[Watched, str]] = {
    "inputs": "Familiarity of the inputs",
    "errors": "Size of the errors",
    "bias": "Bias of the predictions",
}

ROWS: Final = 12
"""Rows of the table beside a drawing."""


def alarm_page(alarm: Alarm, title: str) -> str:
    """The state and the alarms of an alarm as a page: drawings of the evidence with tables beside them, and columns."""
    reports = alarm.reports
    parts = [_watch(alarm, name, points) for name, points in alarm.history().items()]
    parts += ["<h2>Alarms</h2>", *map(_report, reversed(reports))] if reports else []
    return Template(_asset("page.html")).substitute(
        title=escape(title),
        style=_asset("page.css"),
        state=f'<p class="state{" rang" if reports else ""}">{escape(_state(alarm))}</p>',
        promise=escape(alarm.promise),
        body="\n".join(parts),
    )


def _state(alarm: Alarm) -> str:
    rows = f"{alarm.rows:,} rows"
    if not alarm.alarms:
        return f"No alarm in {rows}."
    last = alarm.reports[-1]
    count = f"{alarm.alarms:,} alarm{'s' * (alarm.alarms > 1)} in {rows}"
    return f"{count}, the last at row {last.row:,}."


def _watch(alarm: Alarm, name: Watched, points: Sequence[tuple[int, float]]) -> str:
    reports = [report for report in alarm.reports if report.watched == name]
    rows = alarm.rows if name == "inputs" else alarm.target_rows
    title, log_threshold = TITLES[name], math.log(alarm.settings.threshold)
    drawing = draw_evidence(points, rows, log_threshold, reports, f"{title}: evidence along {rows:,} rows")
    note = ""
    if name in alarm.warming_up:
        note = f"<p>Not watched yet: the first {alarm.settings.warm_up:,} scores are collected to compare with.</p>"
    elif alarm.neighbours_alike and name == "inputs":
        note = (
            "<p>Neighbouring rows are alike, so the stated rate of false alarms does not hold: "
            "take one score for each block of rows.</p>"
        )
    return (
        f"<section>\n<h2>{title}</h2>\n{note}\n"
        f'<div class="beside">\n<figure>{drawing}</figure>\n{_evidence_table(points, rows)}\n</div>\n</section>'
    )


def _evidence_table(points: Sequence[tuple[int, float]], rows: int) -> str:
    """The highest evidence in a dozen parts of the stream."""
    size = max(1, math.ceil(rows / ROWS))
    highest: dict[int, float] = {}
    for row, value in points:
        part = min((row - 1) // size, ROWS - 1)
        highest[part] = max(highest.get(part, -math.inf), value)
    lines = [
        f'<tr><th scope="row">{part * size + 1:,} to {min((part + 1) * size, rows):,}</th>'
        f"<td>{_number(math.exp(min(value, 700.0)))}</td></tr>"
        for part, value in sorted(highest.items())
    ]
    return _table("Highest evidence", ("Rows", "Evidence"), lines)


def _report(report: AlarmReport) -> str:
    first, *others = str(report).splitlines()
    notes = [line for line in others if not line.startswith("  ")]
    goes_on = [f"It rang last at row {report.until:,}."] if report.until > report.row else []
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in [first, *goes_on, *notes])
    if report.columns:
        heads = ("Column", "What has become more or less frequent", "Before", "Since", "Median before", "Median since")
        columns = _table("Columns that have moved, the clearest first", heads, [_move(move) for move in report.columns])
    elif report.columns_known:
        columns = "<p>No column has moved by itself: it is how they go together.</p>"
    else:
        columns = (
            "<p>What was usual in the columns is not known: the model has no profile, and there were few rows.</p>"
        )
    return f'<section class="alarm">\n<h3>Row {report.row:,}</h3>\n{paragraphs}\n{columns}\n</section>'


def _move(move: ColumnMove) -> str:
    cells = [f"{100 * move.before:.3g} %", f"{100 * move.since:.3g} %", move.median_before, move.median_since]
    numbers = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(move.column)}</th><td class="words">{escape(move.event)}</td>{numbers}</tr>'


def _table(caption: str, heads: Sequence[str], lines: Sequence[str]) -> str:
    # tabindex: only elements that can have the focus can be scrolled by keys.
    row = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{caption}"><table>\n<caption>{caption}</caption>\n'
        f"<thead><tr>{row}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>\n</table></div>"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if 10 <= value < 1e9 else f"{value:.3g}"


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
