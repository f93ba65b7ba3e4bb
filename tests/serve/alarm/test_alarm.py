"""The alarm as people use it: its promise, what it finds, and its state."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from density_regression import DensityRegressor
from density_regression.serve import alarm as package
from density_regression.serve.alarm import Alarm, AlarmStateError, standardised
from density_regression.serve.alarm import state as state_module


class Model:
    """A regressor that finds the first column familiar near zero, and predicts the second."""

    def __init__(self, seed: int = 0) -> None:
        self.held_out_levels_ = np.sort(self.score_samples(np.random.default_rng(seed).normal(size=(300, 2))))
        self.feature_names_in_ = np.array(["age", "size"], dtype=object)

    def score_samples(self, X) -> np.ndarray:
        return -(np.asarray(X)[:, 0] ** 2) / 2

    def predict(self, X, return_std: bool) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(X)[:, 1], np.full(len(X), 2.0)


def stream(n: int, moved: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows and targets, of which the last so many have moved."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    X[n - moved :, 0] += 4.0
    return X, X[:, 1] + 2.0 * rng.normal(size=n)


def test_false_alarms_are_as_rare_as_promised() -> None:
    """1,000 rows with c = 2,000: alarms are expected in at most half of the streams, and at most 0.5 on average."""
    rng = np.random.default_rng(0)
    alarms = []
    for seed in range(150):
        alarm = Alarm(rng.normal(size=50), false_alarms_per=2_000, seed=seed)
        alarm.update_scores(rng.normal(size=1_000))
        alarms.append(alarm.alarms)
    assert 0.15 < np.mean(alarms) < 0.5 + 3 * np.std(alarms) / np.sqrt(150)


def test_workers_keep_the_promise_together() -> None:
    rng = np.random.default_rng(0)
    alarms = []
    for seed in range(60):
        reference = rng.normal(size=100)
        workers = [Alarm(reference, false_alarms_per=2_000, seed=4 * seed + i) for i in range(4)]
        for worker in workers:
            worker.update_scores(rng.normal(size=250))
        alarms.append(sum(worker.alarms for worker in workers))
    assert np.mean(alarms) < 0.5 + 3 * np.std(alarms) / np.sqrt(60)


def test_it_rings_soon_and_says_since_when_and_which_columns() -> None:
    X, _ = stream(1_000, 200)
    alarm = Alarm.for_model(Model(), false_alarms_per=10_000)
    reports = [report for start in range(0, 1_000, 50) for report in alarm.update(X[start : start + 50])]
    (report,) = reports
    assert report.watched == "inputs"
    assert 800 < report.row < 840
    assert abs(report.since - 801) < 20
    assert report.evidence >= report.threshold == 10_000
    assert report.mean_rank < 0.2
    assert [move.column for move in report.columns] == ["age"]
    assert report.columns_known
    assert not report.neighbours_alike
    assert "inputs are less familiar than before" in str(report)
    assert "age: above" in str(report)
    assert alarm.alarms == 1
    assert alarm.ringing
    assert alarm.reports[0].until > report.row
    # After it rang it looks for a change anew.
    assert alarm._watches["inputs"].changes[0].since > alarm.reports[0].until
    alarm.acknowledge()
    assert not alarm.ringing


def test_the_direction_decides_whether_more_familiar_rows_ring() -> None:
    rng = np.random.default_rng(0)
    for direction, rings in (("unfamiliar", False), ("changed", True)):
        alarm = Alarm(rng.normal(size=300), false_alarms_per=10_000, direction=direction)
        assert bool(alarm.update_scores(rng.normal(3.0, size=200))) == rings
    assert "inputs are more familiar" in str(alarm.reports[0])


def test_two_changes_are_two_alarms() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=2_000)
    scores[500:560] -= 3
    scores[1_500:1_560] -= 3
    alarm = Alarm(rng.normal(size=500), false_alarms_per=10_000)
    rows = [report.row for report in alarm.update_scores(scores)]
    assert [row // 500 for row in rows] == [1, 3]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.sampled_from([{}, {"every": 3}, {"block": 3}]))
@settings(max_examples=25, deadline=None)
def test_batches_and_interruptions_change_nothing(sizes: list[int], setting: dict) -> None:
    X, y = stream(1_100, 300)
    y[::3] = np.nan
    make = {"false_alarms_per": 300.0, "targets": True, "warm_up": 40, **setting}
    whole = Alarm.for_model(Model(), **make)
    expected = whole.update(X, y)
    alarm = Alarm.for_model(Model(), **make)
    found, start = [], 0
    for size in [*sizes, 500, 1_100]:
        found += alarm.update(X[start : start + size], y[start : start + size]) if start < len(X) else []
        start += size
        alarm = Alarm.from_state(json.loads(json.dumps(alarm.state))).attach(Model())
    assert expected
    assert {(r.watched, r.row, r.since, r.evidence) for r in found} == {
        (r.watched, r.row, r.since, r.evidence) for r in expected
    }
    assert alarm.history() == whole.history()
    ours, theirs = (one._watches["inputs"].changes[0].counts.counts for one in (alarm, whole))
    assert all((one == other).all() for one, other in zip(ours, theirs, strict=True))


def test_an_interrupted_alarm_ends_in_the_same_state(tmp_path: Path) -> None:
    X, y = stream(900, 300)
    model = Model()
    whole = Alarm.for_model(model, false_alarms_per=1_000, targets=True)
    alarm = Alarm.for_model(model, false_alarms_per=1_000, targets=True)
    for start in range(0, 900, 90):
        part = slice(start, start + 90)
        whole.update(X[part], y[part])
        alarm.update(X[part], y[part])
        alarm.save(tmp_path / "state.json")
        alarm = Alarm.load(tmp_path / "state.json", model)
    assert alarm.state == whole.state
    assert alarm.promise in (tmp_path / "state.json").read_text()


def test_errors_and_bias_are_watched_where_targets_become_known() -> None:
    X, y = stream(1_500, 0)
    for name, changed in (("errors", X[:, 1] + 3 * (y - X[:, 1])), ("bias", y + 2.0)):
        alarm = Alarm.for_model(Model(), targets=True, false_alarms_per=10_000)
        late = np.where(np.arange(1_500) < 1_000, y, changed)
        reports = alarm.update(X, late)
        found = {report.watched: report for report in reports}
        assert abs(found[name].since - 1_001) < 100
        assert found[name].threshold == 30_000
        assert "inputs" not in found


def test_targets_may_come_later() -> None:
    X, y = stream(1_000, 0)
    alarm = Alarm.for_model(Model(), targets=True, warm_up=50)
    assert alarm.update(X) == []
    assert alarm.warming_up == ("errors", "bias")
    assert alarm.update_targets(X[:400], y[:400]) == []
    assert (alarm.rows, alarm.target_rows, alarm.warming_up) == (1_000, 400, ())
    (report, *_) = alarm.update_targets(X[400:], y[400:] + 20.0)
    assert 400 < report.row < 500


def test_conformal_scores_are_the_reference_of_errors() -> None:
    rng = np.random.default_rng(0)
    model = Model()
    model.conformal_ = SimpleNamespace(scores=np.sort(np.abs(rng.normal(size=(200, 1)))), weights=None)
    alarm = Alarm.for_model(model, targets=True, false_alarms_per=1_000)
    assert alarm.warming_up == ("bias",)
    X, y = stream(100, 0)
    assert alarm.update(X, y) == []
    reports = alarm.update(X, X[:, 1] + 4 * (y - X[:, 1]))
    assert [report.watched for report in reports] == ["errors"]
    # Weighted ones are of other rows than the stream's first.
    model.conformal_.weights = np.ones((200, 1))
    assert Alarm.for_model(model, targets=True).warming_up == ("errors", "bias")


def test_several_targets_have_one_error_and_one_bias() -> None:
    rng = np.random.default_rng(0)
    alarm = Alarm(rng.normal(size=100), targets=True, false_alarms_per=1_000, warm_up=50)
    errors = rng.normal(size=(400, 3))
    errors[300:] *= 4
    errors[0, 1] = np.nan
    (report,) = alarm.update_scores(rng.normal(size=400), errors=errors)
    assert report.watched == "errors"


def test_without_a_reference_the_first_rows_are_it() -> None:
    rng = np.random.default_rng(0)
    alarm = Alarm(false_alarms_per=1_000, warm_up=80)
    scores = np.concatenate([rng.normal(size=300), rng.normal(-3, size=50)])
    assert alarm.update_scores(scores[:79]) == []
    assert alarm.warming_up == ("inputs",)
    alarm.update_scores(scores[79:80])
    assert alarm.warming_up == ()
    assert 300 < alarm.update_scores(scores[80:])[0].row < 330


def test_blocks_have_a_reference_of_their_own() -> None:
    rng = np.random.default_rng(0)
    alarm = Alarm(rng.normal(size=100), block=5, warm_up=40, false_alarms_per=1_000)
    assert alarm.warming_up == ("inputs",)
    assert Alarm(rng.normal(size=100), every=5).warming_up == ()
    alarm.update_scores(rng.normal(size=1_000))
    (report, *_) = alarm.update_scores(rng.normal(-2, size=100))
    assert report.row % 5 == 0
    assert (report.since - 1) % 5 == 0


def test_rows_that_depend_on_their_neighbours_are_noticed() -> None:
    rng = np.random.default_rng(0)
    series = np.cumsum(rng.normal(size=3_000))
    series -= np.convolve(series, np.ones(100) / 100, "same")
    alarm = Alarm(series[::10], false_alarms_per=1_000)
    reports = alarm.update_scores(series)
    assert alarm.neighbours_alike
    assert any("neighbouring rows are alike" in str(report) for report in reports)


def test_a_bound_on_the_chance_of_ever_a_false_alarm() -> None:
    rng = np.random.default_rng(0)
    rang = 0
    for seed in range(100):
        alarm = Alarm(rng.normal(size=100), chance=0.2, seed=seed)
        alarm.update_scores(rng.normal(size=500))
        rang += alarm.ringing
    assert rang <= 20 + 12
    assert alarm.update_scores(rng.normal(-4, size=300))


def test_columns_are_learnt_from_the_first_rows_and_named_by_position() -> None:
    rng = np.random.default_rng(0)
    scores, X = rng.normal(size=600), rng.normal(size=(600, 3))
    scores[400:] -= 3
    X[400:, 2] += 3
    alarm = Alarm(rng.normal(size=300), false_alarms_per=1_000)
    for start in (0, 90, 180, 270):
        alarm.update_scores(scores[start : start + 90], columns=X[start : start + 90])
    (report,) = alarm.update_scores(scores[360:], columns=X[360:])
    assert [move.column for move in report.columns] == ["2"]
    early = Alarm(rng.normal(size=300), false_alarms_per=1_000).update_scores(scores[400:500], columns=X[400:500])
    assert not early[0].columns_known
    assert "not known" in str(early[0])


def test_gaps_text_and_columns_that_come_and_go() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"town": rng.choice(["Ulm", "Bonn"], 500), "x": rng.normal(size=500), "day": "2024-01-05"})
    frame.loc[:50, "x"] = None
    alarm = Alarm(rng.normal(size=300), false_alarms_per=1_000)
    scores = rng.normal(size=500)
    alarm.update_scores(scores[:100], columns=frame[:100])
    alarm = Alarm.from_state(json.loads(json.dumps(alarm.state)))
    alarm.update_scores(scores[100:300], columns=frame[100:300])
    changed = frame[300:].assign(town="Rome").drop(columns="x")
    (report,) = alarm.update_scores(scores[300:] - 4, columns=changed)
    assert {move.column: move.event for move in report.columns} == {
        "town": "another value than the frequent ones",
        "x": "missing",
    }


def test_a_damaged_state_is_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    alarm = Alarm(np.arange(50.0))
    alarm.save(path)
    content = path.read_text()
    body = json.loads(content)
    for wrong, message in (
        (content[:500], "truncated or not JSON"),
        (content.replace('"alarms":0', '"alarms":7'), "checksum differs"),
        ("[]", "no state of an alarm"),
        ('{"what": "something else"}', "no state of an alarm"),
        (json.dumps(body | {"format": [2, 0]}), "newer than the 1"),
        (json.dumps(body | {"format": "1"}), "no readable format"),
        (content.replace('"format":[1,0]', '"format":NaN'), "NaN is not JSON"),
    ):
        path.write_text(wrong)
        with pytest.raises(AlarmStateError, match=message) as caught:
            Alarm.load(path)
        assert str(path) in str(caught.value)
    del body["sha256"]
    for part in ("settings", "watches", "columns"):
        less = {key: value for key, value in body.items() if key != part}
        path.write_text(json.dumps(less | {"sha256": state_module.digest(less)}))
        with pytest.raises(AlarmStateError, match=f"KeyError: '{part}'"):
            Alarm.load(path)
    with pytest.raises(FileNotFoundError):
        Alarm.load(tmp_path / "none.json")


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    Alarm.for_model(Model()).save(tmp_path / "state.json")
    assert Alarm.load(tmp_path / "state.json", Model()).rows == 0
    with pytest.raises(AlarmStateError, match="for another model"):
        Alarm.load(tmp_path / "state.json", Model(1))


def test_a_full_disk_leaves_the_alarm_and_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    alarm = Alarm(np.arange(50.0))
    alarm.save(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    alarm.update_scores([1.0, 2.0])
    with monkeypatch.context() as patch:
        patch.setattr("density_regression.io.files.os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            alarm.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    alarm.update_scores([3.0])
    assert alarm.rows == 3


def test_what_is_wrong_is_refused_before_anything_changes() -> None:
    alarm = Alarm.for_model(Model())
    before = json.dumps(alarm.state)
    X = np.zeros((5, 2))
    for call, message in (
        (lambda: alarm.update(X, np.zeros(5)), "make it with targets=True"),
        (alarm.update_scores, "Neither scores nor errors"),
        (lambda: alarm.update_scores([0.0, np.nan]), "scores is NaN in row 1"),
        (lambda: alarm.update_scores([0.0], columns=X), "columns has 5 rows"),
        (lambda: Alarm([1.0]).update(X), "no model to score rows by"),
        (lambda: Alarm.for_model(SimpleNamespace()), "SimpleNamespace has no score_samples"),
        (lambda: Alarm([np.nan]), "reference is NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert alarm.update_scores([]) == []
    assert json.dumps(alarm.state) == before


def test_the_promise_is_told_and_kept_with_the_state() -> None:
    alarm = Alarm(np.arange(50.0), false_alarms_per=20_000)
    assert "at most one false alarm in 20,000 rows" in alarm.promise
    assert alarm.state["promise"] == alarm.promise
    assert alarm.evidence() == {"inputs": 0.0}


def test_neither_torch_nor_pandas_is_imported() -> None:
    code = (
        "import sys, numpy as np; from density_regression.serve.alarm import Alarm; "
        "from density_regression.serve.alarm.page import alarm_page; "
        "a = Alarm(np.arange(50.0)); a.update_scores([1.0], columns={'x': [2.0]}); alarm_page(a, 'x'); "
        "assert not {'torch', 'pandas', 'sklearn', 'pyarrow'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_are_exported() -> None:
    assert {"Alarm", "AlarmReport", "AlarmStateError", "ColumnMove", "standardised"} == set(package.__all__)
    assert standardised([1.0], [0.0], [2.0])[0] == 0.5


def test_columns_of_arrays_go_by_the_names_that_are_given() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    reg = DensityRegressor(epochs=2, hidden=(8,), random_state=0, verbose=False).fit(X, X[:, 0])
    alarm = Alarm.for_model(reg, names=["age", "height"], false_alarms_per=1_000)
    (report, *_) = alarm.update(np.column_stack([rng.normal(size=60), rng.normal(size=60) + 9]))
    assert [(column.column, column.event.split()[0]) for column in report.columns] == [("height", "above")]
