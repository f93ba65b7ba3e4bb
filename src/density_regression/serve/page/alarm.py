"""What the alarm says: whether it rang, its evidence along the rows, and what it promises."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from density_regression.serve.page.markup import Markup, tag
from density_regression.serve.page.sections import table
from density_regression.serve.page.svg.evidence import evidence_along_rows
from density_regression.serve.page.words import number

__all__ = ["Alarm", "alarm_of", "alarm_section"]

WATCHED: Final = "inputs"
"""Which of an alarm's histories is shown: that of the log-densities."""

MOST_REPORTS: Final = 3
"""Most alarms that are told, the latest."""

PARTS: Final = 8
"""Rows of the table beside the drawing."""


class Alarm(Protocol):
    """What the page asks of an alarm; `density_regression.serve.alarm.Alarm` has it."""

    @property
    def promise(self) -> str:
        """What holds as long as nothing changes."""

    @property
    def rows(self) -> int:
        """Number of rows that were watched."""

    @property
    def reports(self) -> Sequence[Any]:
        """Its latest alarms, each with `row` and `watched`, and as text with its columns in further lines."""

    @property
    def settings(self) -> Any:
        """Settings, of which `threshold` is used."""

    def evidence(self) -> Mapping[Any, float]:
        """Logarithm of the evidence as a share of that of the threshold, by what is watched."""

    def history(self) -> Mapping[Any, Sequence[tuple[int, float]]]:
        """Natural logarithms of the evidence along the rows, by what is watched."""


def alarm_of(state: Any, model: str) -> Alarm | None:
    """The alarm of a model: `state.alarm` is a mapping from names of models, if there are alarms at all."""
    alarms: Mapping[str, Alarm] = getattr(state, "alarm", None) or {}
    return alarms.get(model)


def alarm_section(alarm: Alarm | None) -> Markup:
    """The section of the alarm; without one a line that says how to have one."""
    heading = tag("h2", "Alarm", id="alarm-heading")
    if alarm is None:
        how = tag("code", "density-regression serve --help")
        parts = [tag("p", "Nobody watches whether the rows that this model gets have changed. ", how, " tells how to.")]
    else:
        parts = [
            _state(alarm),
            _drawing(alarm),
            tag("p", alarm.promise, class_="note"),
            *_reports(alarm),
            _numbers(alarm),
        ]
    return tag("section", heading, *parts, id="alarm", aria_labelledby="alarm-heading", data_live=True)


def _state(alarm: Alarm) -> Markup:
    rows = f"{alarm.rows:,} rows"
    if not alarm.reports:
        return tag("p", f"● It has not rung in {rows}.", class_="verdict familiar")
    last = max(report.row for report in alarm.reports)
    return tag("p", f"▲ It has rung, the last time at row {last:,} of {rows}.", class_="verdict unfamiliar")


def _drawing(alarm: Alarm) -> Markup:
    log_threshold = math.log(alarm.settings.threshold)
    rang = [report.row for report in alarm.reports if report.watched == WATCHED]
    label = f"Evidence that the rows have changed, along {alarm.rows:,} rows; now {_now(alarm)}"
    drawn = evidence_along_rows(alarm.history()[WATCHED], alarm.rows, log_threshold, rang, label)
    return tag(
        "figure", drawn, tag("figcaption", "Evidence that the rows have changed", class_="note"), class_="drawing"
    )


def _now(alarm: Alarm) -> str:
    """The present evidence."""
    return _amount(alarm.evidence()[WATCHED] * math.log(alarm.settings.threshold))


def _amount(log_evidence: float) -> str:
    return number(math.exp(min(log_evidence, 700.0)))


def _reports(alarm: Alarm) -> list[Markup]:
    """The latest alarms, and the columns that moved."""
    told = []
    for report in sorted(alarm.reports, key=lambda report: -report.row)[:MOST_REPORTS]:
        first, *others = str(report).splitlines()
        items = [tag("li", line.strip()) for line in others]
        told.append(tag("div", tag("p", first), tag("ul", *items) if items else None))
    return told


def _numbers(alarm: Alarm) -> Markup:
    """Evidence now and in parts of the stream."""
    size = max(1, math.ceil(alarm.rows / PARTS))
    highest: dict[int, float] = {}
    for row, value in alarm.history()[WATCHED]:
        part = min((row - 1) // size, PARTS - 1)
        highest[part] = max(highest.get(part, value), value)
    rows = [("Now", _now(alarm)), ("Rings at", number(alarm.settings.threshold))]
    for part, value in sorted(highest.items()):
        first, last = part * size + 1, min((part + 1) * size, alarm.rows)
        rows.append((f"Highest in rows {first:,} to {last:,}", _amount(value)))
    return tag("details", tag("summary", "Numbers"), table("Evidence", ("", "Evidence"), rows), id="alarm-numbers")
