"""`watch`: an alarm over tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

from density_regression import DensityRegressor
from density_regression.cli import app
from density_regression.serve.alarm import Alarm


def table(n: int, seed: int, moved: int = 0) -> pd.DataFrame:
    """Rows of a number and a town, of which the last so many have moved."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.normal(size=n), "town": rng.choice(["Ulm", "Bonn"], n)})
    frame["price"] = frame["size"] + 0.5 * rng.normal(size=n)
    frame.loc[n - moved :, "size"] += 30.0
    frame.loc[3::5, "town"] = None
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a table, and of an array; tables to watch."""
    path = tmp_path_factory.mktemp("watch")
    train = table(300, 0)
    quick = {"hidden": (8,), "epochs": 2, "members": 0, "n_threads": 1, "random_state": 0, "verbose": False}
    DensityRegressor(**quick).fit(train[["size", "town"]], train["price"]).save(path / "model")
    DensityRegressor(**quick).fit(train[["size"]].to_numpy(), train["price"].to_numpy()).save(path / "plain")
    table(300, 1).to_csv(path / "calm.csv", index=False)
    table(300, 2).to_parquet(path / "calm.parquet")
    table(300, 3, moved=60).to_csv(path / "moved.csv", index=False)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["watch", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


def test_calm_tables_end_with_status_0(folder: Path) -> None:
    result = run(folder / "model", folder / "calm.csv", folder / "calm.parquet")
    assert result.exit_code == 0, result.output
    assert "at most one false alarm in 100,000 rows" in result.output
    assert "No alarms in these tables; 600 rows so far." in result.output


def test_an_alarm_ends_with_status_3_and_says_which_column(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "pages" / "alarm.html"
    result = run(folder / "model", folder / "calm.csv", folder / "moved.csv", "--page", page)
    assert result.exit_code == 3, result.output
    assert "Alarm at row 56" in result.output
    assert "size: above" in result.output
    assert "1 alarm in these tables; 600 rows so far." in result.output
    assert "rang again and again until row 5" in result.output
    assert "Alarm of model" in page.read_text()


def test_columns_are_known_from_the_first_row_by_the_profile(folder: Path) -> None:
    moved = pd.read_csv(folder / "moved.csv")[-60:]
    moved.assign(town="Rome").to_csv(folder / "strange.csv", index=False)
    (alarm, _) = run(folder / "model", folder / "strange.csv", "--json").stdout.splitlines()
    moves = {move["column"]: move for move in json.loads(alarm)["alarm"]["columns"]}
    assert moves["town"]["event"] == "another value than the frequent ones"
    assert moves["size"]["since"] == 1.0
    assert moves["size"]["before"] == 0.0


def test_json_is_one_object_a_line(folder: Path) -> None:
    result = run(folder / "model", folder / "moved.csv", "--json", "--false-alarms-per", "5000", "--target", "price")
    assert result.exit_code == 3
    *alarms, end = [json.loads(line) for line in result.stdout.splitlines()]
    assert alarms[0]["alarm"]["threshold"] == 15_000
    assert end["alarms"] == len(alarms)
    assert (end["rows"], end["warming_up"]) == (300, [])
    assert "5,000 rows" in end["promise"]


def test_the_state_goes_on_and_tables_are_read_once(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "alarm.json"
    together = run(folder / "model", folder / "calm.csv", folder / "moved.csv", "--state", tmp_path / "other.json")
    first = run(folder / "model", folder / "calm.csv", "--state", state)
    second = run(folder / "model", folder / "calm.csv", folder / "moved.csv", "--state", state)
    assert (together.exit_code, first.exit_code, second.exit_code) == (3, 0, 3)
    assert "was watched before: passed over" in second.stderr
    assert Alarm.load(state).state == Alarm.load(tmp_path / "other.json").state
    third = run(folder / "model", folder / "moved.csv", "--state", state)
    assert third.exit_code == 0
    assert Alarm.load(state).rows == 600


def test_tables_and_options_that_have_changed_are_refused(folder: Path, tmp_path: Path) -> None:
    state, data = tmp_path / "alarm.json", tmp_path / "rows.csv"
    table(50, 5).to_csv(data, index=False)
    assert run(folder / "model", data, "--state", state).exit_code == 0
    other = run(folder / "model", data, "--state", state, "--false-alarms-per", 5000)
    assert other.exit_code == 1
    assert "was begun with false_alarms_per=100000.0, now it is 5000.0" in other.output
    table(60, 5).to_csv(data, index=False)
    changed = run(folder / "model", data, "--state", state)
    assert changed.exit_code == 1
    assert "put new rows in a new file" in changed.output
    model = run(folder / "plain", folder / "calm.csv", "--state", state)
    assert "is the state of an alarm for another model" in model.output


def test_a_state_that_cannot_be_written_is_told_at_the_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Alarm, "save", full)
    state = tmp_path / "alarm.json"
    calm = run(folder / "model", folder / "calm.csv", folder / "calm.parquet", "--state", state)
    assert calm.exit_code == 1
    assert "600 rows so far" in calm.output
    assert "The state was not saved" in calm.stderr
    assert run(folder / "model", folder / "moved.csv", "--state", state).exit_code == 3


def test_a_model_of_an_array_reads_the_first_columns(folder: Path) -> None:
    result = run(folder / "plain", folder / "moved.csv")
    assert result.exit_code == 3, result.output
    assert "0: above" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model", "none.csv"], "none.csv"),
        (["none", "calm.csv"], "No model in"),
        (["model", "calm.csv", "--target", "none"], "lacks the column"),
        (["model", "calm.csv", "--every", "2", "--block", "2"], "give one"),
        (["model", "calm.csv", "--false-alarms-per", "1"], "at least 10"),
    ],
)
def test_errors_are_one_line(folder: Path, arguments: list[str], message: str) -> None:
    paths = [
        str(folder / part) if part in ("model", "none", "calm.csv", "none.csv") else part for part in arguments[:2]
    ]
    result = run(*paths, *arguments[2:])
    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output
