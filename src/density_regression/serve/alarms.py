"""The alarms of a server: one for each model, told the rows that were scored, in their order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.serve.alarm import Alarm, AlarmReport, AlarmStateError
from density_regression.serve.columns import Feeds
from density_regression.serve.counts import Family, Sample
from density_regression.serve.models import Models, Served
from density_regression.serve.scorer import LOG_DENSITY, Results
from density_regression.serve.settings import Settings
from density_regression.tabular.profile import Profile

__all__ = ["Alarms"]

log = logging.getLogger(__name__)

EVERY: Final = 0.5
"""Seconds between two looks at what was scored meanwhile: many rows at once cost a fraction of as many by one."""

SLICE: Final = 500
"""Rows that are taken at once, between which requests are answered: two milliseconds."""

SAVED_EVERY: Final = 10.0
"""Seconds between two writings of the state."""


class _Rows(NamedTuple):
    """Rows that were scored by one model."""

    served: Served
    scores: NDArray[np.float32]
    columns: dict[str, NDArray[Any]]


class Alarms(Mapping[str, Alarm]):
    """Alarms by the names of models, of those that know how familiar a row is.

    Rows are only noted while a request is answered, and looked at twice a second. A new model in place of an old one
    has a new alarm. With `Settings.alarm_folder` the states are kept in files, one for each model and process, and
    taken up by the next start.
    """

    def __init__(self, settings: Settings, models: Models) -> None:
        self._settings = settings
        self._noted: deque[_Rows] = deque()
        self._alarms: dict[str, Alarm] = {}
        self._versions: dict[str, str] = {}
        self._unsaved: dict[str, bool] = {}
        for served in models.all:
            self._begin(served)

    def __getitem__(self, name: str) -> Alarm:
        return self._alarms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._alarms)

    def __len__(self) -> int:
        return len(self._alarms)

    def note(self, served: Served, feeds: Feeds, results: Results) -> None:
        """Note rows that were scored; called by any thread."""
        if LOG_DENSITY in results:
            self._noted.append(_Rows(served, results[LOG_DENSITY], _columns(served, feeds)))

    async def watch(self) -> None:
        """Look at what was noted, and save the states, again and again, for ever; what is left at the end, too."""
        loop = asyncio.get_running_loop()
        due = loop.time() + SAVED_EVERY
        try:
            while True:
                await asyncio.sleep(EVERY)
                await self.look()
                if loop.time() >= due:
                    self.save()
                    due = loop.time() + SAVED_EVERY
        finally:
            await self.look()
            self.save()

    async def look(self) -> None:
        """Take all rows that were noted."""
        while self._noted:
            for rows in _together(self._noted):
                for start in range(0, len(rows.scores), SLICE):
                    self._take(rows, slice(start, start + SLICE))
                    await asyncio.sleep(0)

    def save(self) -> None:
        """Write the states; an error, as of a full disk, is said once, and the alarms go on."""
        if self._settings.alarm_folder is None:
            return
        for name, alarm in self._alarms.items():
            try:
                alarm.save(self._path(name))
            except OSError as error:
                if not self._unsaved[name]:
                    log.error("alarm not saved", extra={"model": name, "reason": error.strerror})
                self._unsaved[name] = True
            else:
                self._unsaved[name] = False

    def families(self) -> list[Family]:
        """What Prometheus is told."""
        alarms = self._alarms.items()
        evidence = [
            Sample(value, {"model": name, "watched": part})
            for name, alarm in alarms
            for part, value in alarm.evidence().items()
        ]
        about = "Evidence as a share of what rings, on a logarithmic scale."
        return [
            Family("alarm_ringing", "gauge", "Whether there was an alarm.", _each(alarms, lambda own: own.ringing)),
            Family("alarms_total", "counter", "Alarms.", _each(alarms, lambda own: own.alarms)),
            Family("alarm_rows_total", "counter", "Rows looked at.", _each(alarms, lambda own: own.rows)),
            Family("alarm_evidence", "gauge", about, evidence),
            Family(
                "alarm_unsaved", "gauge", "Whether the state could not be saved.", _each(self._unsaved.items(), float)
            ),
        ]

    def _begin(self, served: Served) -> None:
        """A new alarm for a model, or the one whose state was kept."""
        bundle = served.scorer.bundle
        if bundle.levels is None or not self._settings.false_alarms_per:
            return
        profile = None if bundle.profile is None else Profile.from_json(bundle.profile)
        names = [part.name for part in bundle.inputs]
        per = self._settings.false_alarms_per
        alarm = Alarm(bundle.levels, false_alarms_per=per, profile=profile, names=names)
        self._versions[served.name], self._unsaved[served.name] = served.version, False
        self._alarms[served.name] = self._kept(served, alarm) or alarm

    def _kept(self, served: Served, alarm: Alarm) -> Alarm | None:
        if self._settings.alarm_folder is None or not (path := self._path(served.name)).exists():
            return None
        try:
            kept = Alarm.load(path)
        except (AlarmStateError, OSError) as error:
            log.error("state of the alarm not read", extra={"model": served.name, "reason": str(error)})
            return None
        return kept if (kept.fingerprint, kept.settings) == (alarm.fingerprint, alarm.settings) else None

    def _path(self, name: str) -> Path:
        assert self._settings.alarm_folder is not None
        return self._settings.alarm_folder / f"{name}-{self._settings.worker}.json"

    def _take(self, rows: _Rows, part: slice) -> None:
        name = rows.served.name
        if self._versions.get(name) != rows.served.version:
            self._begin(rows.served)
        if (alarm := self._alarms.get(name)) is None:
            return
        columns = {column: values[part] for column, values in rows.columns.items()}
        try:
            reports = alarm.update_scores(rows.scores[part], columns=columns)
        # It must not end what it watches, nor itself.
        except Exception as error:
            log.error("alarm failed", extra={"model": name, "reason": type(error).__name__})
            return
        for report in reports:
            log.warning("alarm", extra={"model": name, **_about(report)})


def _about(report: AlarmReport) -> dict[str, Any]:
    """An alarm in the log: names of columns that have moved, but no values."""
    moved = [move.column for move in report.columns]
    return {"watched": report.watched, "row": report.row, "since": report.since, "columns": moved}


def _each(items: Any, value: Any) -> list[Sample]:
    return [Sample(float(value(own)), {"model": name}) for name, own in items]


def _columns(served: Served, feeds: Feeds) -> dict[str, NDArray[Any]]:
    """Columns by their names, from the inputs of the graph."""
    inputs = served.scorer.bundle.inputs
    if served.scorer.bundle.as_one:
        return {part.name: feeds[part.feed][:, i] for i, part in enumerate(inputs)}
    return {part.name: feeds[part.feed] for part in inputs}


def _together(noted: deque[_Rows]) -> Iterator[_Rows]:
    """All rows noted so far, those of one model in a row as one."""
    group: list[_Rows] = []
    for _ in range(len(noted)):
        rows = noted.popleft()
        if group and group[0].served is not rows.served:
            yield _joined(group)
            group = []
        group.append(rows)
    if group:
        yield _joined(group)


def _joined(group: list[_Rows]) -> _Rows:
    if len(group) == 1:
        return group[0]
    first = group[0]
    columns = {name: np.concatenate([rows.columns[name] for rows in group]) for name in first.columns}
    return _Rows(first.served, np.concatenate([rows.scores for rows in group]), columns)
