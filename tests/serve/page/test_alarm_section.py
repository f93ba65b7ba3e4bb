from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from density_regression.serve.alarm import Alarm
from density_regression.serve.page.alarm import alarm_of, alarm_section
from density_regression.serve.page.svg.evidence import evidence_along_rows
from serve.helpers import Client, served

HISTORY = [(1, 0.0), (250, 2.0), (500, math.log(500.0)), (1000, math.log(2.5))]


class Report:
    row, watched = 500, "inputs"

    def __str__(self) -> str:
        return "Alarm at row 500: less familiar.\n  km: above 9 in 50 % of the rows\n  town: <b>"


def fake(reports: tuple[Report, ...] = (), rows: int = 1000) -> Any:
    return SimpleNamespace(
        promise="At most one false alarm in 400 rows.",
        rows=rows,
        reports=reports,
        settings=SimpleNamespace(threshold=400.0),
        evidence=lambda: {"inputs": math.log(2.5) / math.log(400.0)},
        history=lambda: {"inputs": HISTORY if rows else []},
    )


def text(section: str) -> str:
    return "".join(ElementTree.fromstring(section.replace("data-live", "data-live=''")).itertext())


def test_without_an_alarm_it_is_told_how_to_have_one(client: Client, folder: Path) -> None:
    assert "density-regression serve --help" in text(alarm_section(None))
    with served(folder / "raw", false_alarms_per=0) as alone:
        assert b"density-regression serve --help" in alone("/?model=raw").body
    # Usually there is one.
    assert b"It has not rung in" in client("/?model=raw").body


def test_a_quiet_alarm_says_so_and_what_it_promises() -> None:
    said = text(alarm_section(fake()))
    assert "It has not rung in 1,000 rows." in said
    assert "At most one false alarm in 400 rows." in said
    assert "now 2.5" in alarm_section(fake())
    assert "Highest in rows 376 to 500500" in said
    assert "It has not rung in 0 rows." in text(alarm_section(fake(rows=0)))


def test_the_alarm_of_this_package_fits() -> None:
    rng = np.random.default_rng(0)
    alarm = Alarm(rng.normal(size=300), false_alarms_per=1000)
    alarm.update_scores(rng.normal(size=200))
    assert "It has not rung in 200 rows." in text(alarm_section(alarm))
    alarm.update_scores(rng.normal(-3.0, size=50))
    said = text(alarm_section(alarm))
    assert f"the last time at row {alarm.reports[-1].row} of 250 rows" in said
    assert alarm.promise in said
    assert "rings at 1,000" in said


def test_an_alarm_that_rang_says_when_and_which_columns_moved() -> None:
    said = text(alarm_section(fake((Report(),))))
    assert "the last time at row 500 of 1,000" in said
    assert "km: above 9 in 50 % of the rows" in said
    assert "<b>" not in alarm_section(fake((Report(),)))


def test_each_model_has_its_own_alarm(client: Client) -> None:
    assert alarm_of(SimpleNamespace(), "raw") is None
    client.app.state.alarm = {"raw": fake((Report(),))}
    try:
        assert b"the last time at row 500" in client("/?model=raw").body
        assert b"the last time at row 500" not in client("/?model=numbers").body
    finally:
        client.app.state.alarm = {}


def test_evidence_is_drawn_on_a_logarithmic_scale() -> None:
    root = ElementTree.fromstring(evidence_along_rows(HISTORY, 1000, math.log(400.0), [500], "words"))
    by_class = {part.get("class"): part for part in root.iter()}
    points = [tuple(map(float, pair.split(","))) for pair in by_class["curve"].attrib["points"].split()]
    line = float(by_class["threshold"].attrib["y1"])
    base = points[0][1]
    for (_, value), (_, y) in zip(HISTORY, points, strict=True):
        assert (base - y) / (base - line) == pytest.approx(value / math.log(400.0), abs=0.01)
    assert float(by_class["rang"].attrib["points"].split(",")[0]) == pytest.approx(points[2][0], abs=0.1)
    assert "rings at 400" in [part.text for part in root.iter("text")]
