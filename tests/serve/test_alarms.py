"""The alarm inside the server: it is told all rows, rings, is kept over a restart, and never gets in the way."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from density_regression import DensityRegressor
from density_regression.serve.alarm import Alarm
from serve.helpers import Client, columns_of, look, raw_table, served

FAR = [[50.0, -50.0]]


def take(client: Client) -> None:
    """What the server does twice a second."""
    asyncio.run(client.app.state.alarm.look())


def usual(numbers: DensityRegressor, rows: int) -> list[Any]:
    """Rows as in training."""
    rng = np.random.default_rng(5)
    return np.column_stack([rng.uniform(-4, 4, rows), rng.normal(size=rows)]).tolist()


def metric(client: Client, name: str) -> float:
    lines = client("/metrics").body.decode().splitlines()
    (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(f"density_regression_{name}{{")]
    return float(value)


def test_rings_when_rows_are_strange(folder: Path, numbers: DensityRegressor, caplog: pytest.LogCaptureFixture) -> None:
    with served(folder / "numbers", false_alarms_per=1000) as client:
        client("/invocations", {"inputs": usual(numbers, 700)})
        take(client)
        assert metric(client, "alarm_ringing") == 0
        assert metric(client, "alarm_rows_total") == 700
        for _ in range(60):
            client("/invocations", {"inputs": FAR, "params": {"outputs": ["mean"]}})
        take(client)
        assert metric(client, "alarm_ringing") == 1
        assert metric(client, "alarm_rows_total") == 760
        alarm = client.app.state.alarm["numbers"]
    assert alarm.reports[0].row > 700
    (record, *_) = [record for record in caplog.records if record.message == "alarm"]
    assert record.levelname == "WARNING"
    assert record.model == "numbers"
    assert set(record.columns) <= {"0", "1"}


def test_as_an_alarm_that_is_told_the_same_rows(folder: Path, raw: DensityRegressor) -> None:
    """Of text, dates and gaps, request by request and in a large one, in order."""
    frames = [raw_table(3, seed=8)[0], raw_table(1200, seed=9)[0], raw_table(40, seed=10)[0].assign(town="Rome")]
    with served(folder / "raw", false_alarms_per=500) as client:
        for frame in frames:
            assert client("/invocations", {"inputs": columns_of(frame)}).status == 200
        take(client)
        found = client.app.state.alarm["raw"]
        levels = client.app.state.models.get("raw").scorer.bundle.levels
    assert raw.profile_ is not None
    alarm = Alarm(levels, false_alarms_per=500, profile=raw.profile_)
    for frame in frames:
        alarm.update_scores(raw.score_samples(frame), columns=frame)
    assert found.rows == alarm.rows == 1243
    rang, expected = (
        [(report.row, [move.column for move in report.columns]) for report in own.reports] for own in (found, alarm)
    )
    assert rang == expected
    assert rang[-1][0] > 1203
    assert "town" in rang[-1][1]


def test_kept_over_a_restart(folder: Path, numbers: DensityRegressor, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"alarm_folder": tmp_path, "false_alarms_per": 1000}
    for restart in (1, 2):
        with served(folder / "numbers", **settings) as client:
            client("/invocations", {"inputs": usual(numbers, 10)})
        assert json.loads((tmp_path / "numbers-0.json").read_bytes())["rows"]["inputs"] == 10 * restart
    # Other settings, or another file, are another alarm.
    with served(folder / "numbers", **settings | {"false_alarms_per": 5000}) as client:
        assert client.app.state.alarm["numbers"].rows == 0
    (tmp_path / "numbers-0.json").write_text("{")
    with served(folder / "numbers", **settings) as client:
        assert client.app.state.alarm["numbers"].rows == 0


def test_a_full_disk(
    folder: Path,
    numbers: DensityRegressor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The service goes on, and says so once."""

    def full(_self: Alarm, _path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with served(folder / "numbers", alarm_folder=tmp_path) as client:
        monkeypatch.setattr(Alarm, "save", full)
        for _ in range(3):
            client.app.state.alarm.save()
        assert client("/invocations", {"inputs": usual(numbers, 5)}).status == 200
        take(client)
        assert metric(client, "alarm_rows_total") == 5
        assert metric(client, "alarm_unsaved") == 1
        monkeypatch.undo()
        client.app.state.alarm.save()
        assert metric(client, "alarm_unsaved") == 0
    (record,) = [record for record in caplog.records if record.message == "alarm not saved"]
    assert record.reason == "No space left on device"


def test_a_new_model_has_a_new_alarm(model: Path, other: DensityRegressor, numbers: DensityRegressor) -> None:
    with served(model) as client:
        client("/invocations", {"inputs": usual(numbers, 5)})
        take(client)
        first = client.app.state.alarm["model"]
        other.save(model)
        look(client)
        client("/invocations", {"inputs": usual(numbers, 3)})
        take(client)
        second = client.app.state.alarm["model"]
    assert (first.rows, second.rows) == (5, 3)
    assert first.fingerprint != second.fingerprint


def test_errors_of_the_alarm_stop_nothing(
    folder: Path, numbers: DensityRegressor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served(folder / "numbers") as client:
        monkeypatch.setattr(Alarm, "update_scores", None)
        client("/invocations", {"inputs": usual(numbers, 5)})
        take(client)
        monkeypatch.undo()
        assert client("/invocations", {"inputs": usual(numbers, 2)}).status == 200
        take(client)
        assert metric(client, "alarm_rows_total") == 2
    assert [record.reason for record in caplog.records if record.message == "alarm failed"] == ["TypeError"]


def test_no_alarm_where_none_is_wanted(folder: Path, numbers: DensityRegressor) -> None:
    with served(folder / "numbers", false_alarms_per=0) as client:
        assert client("/invocations", {"inputs": FAR}).status == 200
        assert len(client.app.state.alarm) == 0
        assert "alarm_rows_total{" not in client("/metrics").body.decode()
