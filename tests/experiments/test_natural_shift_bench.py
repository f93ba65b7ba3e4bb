"""`bench shift`: same rows for every method, the protocols, what is run again, and the command itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from density_regression.cli import app
from density_regression.datasets import Rows, ShiftTable
from density_regression.estimators.base import DeepRegressor
from density_regression.experiments import bench, fitting
from density_regression.experiments.bench import Bench
from density_regression.experiments.suites import SUITES, NaturalShifts
from experiments.bench_helpers import QUICK, run

METHODS = ["Gaussian", "Deterministic"]


@pytest.fixture
def homes(tmp_path: Path) -> str:
    """A folder of two tables with text, dates and gaps."""
    for seed, name in enumerate(("homes", "flats")):
        rng = np.random.default_rng(seed)
        size = rng.normal(size=80).round(3)
        table = pd.DataFrame(
            {
                "year": 2010 + np.arange(80) % 8,
                "size": np.where(np.arange(80) % 9, size, np.nan),
                "town": rng.choice(["Ulm", "Bonn"], 80),
                "day": pd.Series(pd.date_range("2020-01-01", periods=80)).dt.strftime("%Y-%m-%d"),
                "price": size + rng.normal(size=80),
            }
        )
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    entry = {"train": "year < 2015", "test": "year >= 2016", "target": "price", "drop": ["year"]}
    (tmp_path / "shifts.json").write_text(json.dumps({"homes": entry, "flats": entry}))
    return str(tmp_path)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults that are fitted in a moment."""
    original = bench.Bench._settings

    def settings(self: Bench, key: object, done: object) -> object:
        return original(self, key, done) or QUICK  # type: ignore[arg-type]

    monkeypatch.setattr(bench.Bench, "_settings", settings)


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bench", "shift", "--methods", ",".join(METHODS), "--jobs", "1", *arguments])
    return result.exit_code, " ".join(result.output.replace("│", " ").split())


def test_defaults_are_what_a_user_gets(homes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, object]] = []

    def fit(regressors: list[DeepRegressor], *_: object) -> None:
        seen.extend(regressor.get_params() for regressor in regressors)
        raise ValueError("far enough")

    monkeypatch.setattr(fitting, "fit_together", fit)
    (record,) = run(Bench("shift", "default", ["Gaussian"], ["homes"], 1, data_dir=homes), tmp_path / "r.jsonl")
    assert record["settings"] == {}
    usual = fitting.estimators_by_method()["Gaussian"]().get_params()
    changed = {name for name, value in seen[0].items() if value != usual[name]}
    assert changed <= {"random_state", "n_threads", "verbose", "device"}


@pytest.mark.usefixtures("quick")
def test_every_method_gets_the_same_rows(homes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[tuple[bytes, ...]]] = {}
    original = DeepRegressor._prepare

    def spy(self: DeepRegressor, X: np.ndarray, y: np.ndarray, weight: None, held_out: Rows, **rest: bool) -> object:
        rows = tuple(part.tobytes() for part in (X, y, *held_out))
        seen.setdefault(type(self).__name__, set()).add(rows)
        return original(self, X, y, weight, held_out, **rest)

    monkeypatch.setattr(DeepRegressor, "_prepare", spy)
    run(Bench("shift", "default", [*METHODS, "EDL"], ["homes"], 2, data_dir=homes), tmp_path / "r.jsonl")
    assert len(seen) == 3
    assert all(rows == seen["GaussianRegressor"] and len(rows) == 2 for rows in seen.values())


@pytest.mark.usefixtures("quick")
def test_records_have_both_tests_and_are_not_made_twice(homes: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    work = Bench("shift", "default", ["Gaussian", "NatPN"], ["homes"], 2, data_dir=homes)
    records = run(work, path)
    assert len(records) == 4
    for record in records:
        inside, outside = record["tests"]["in distribution"], record["tests"]["shifted"]
        assert (inside["rows"], outside["rows"]) == (5, 20)
        assert record["rows"] == {"train": 35, "held_out": 10}
        assert record["columns"] == 5  # size and its gaps, two towns, day
        assert "auroc_std" not in inside["metrics"]
        assert {"auroc_std", "nll_rescaled", "std_factor"} <= set(outside["metrics"])
        assert ("auroc_score" in outside["metrics"]) == (record["method"] == "NatPN")
    assert run(work, path) == []
    # Another number of training rows, or a changed table, is another experiment.
    fewer = Bench("shift", "default", ["Gaussian"], ["homes"], 2, data_dir=homes, own_suite=NaturalShifts(max_rows=30))
    assert [record["rows"]["train"] for record in run(fewer, path)] == [23, 23]
    assert run(fewer, path) == []
    with (Path(homes) / "homes.csv").open("a") as file:
        file.write("2010,1,Ulm,2020-01-01,1\n")
    assert len(run(fewer, path)) == 2


def test_a_search_never_sees_the_shift(homes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "search_space", lambda method, dataset, budget: [QUICK, QUICK | {"epochs": 3}][:budget])
    work = Bench("shift", "tuned", ["Gaussian"], ["homes"], 1, data_dir=homes, budget=2)
    records = run(work, tmp_path / "r.jsonl")
    assert not [record["error"] for record in records if "error" in record]
    searches = [record for record in records if record.get("search")]
    assert len(searches) == 2 * 5
    assert {tuple(record["tests"]) for record in searches} == {("validation",)}


def test_the_default_protocol_serves_other_suites(folder: str, tmp_path: Path) -> None:
    work = Bench("uci", "default", ["Deterministic"], ["yacht"], 1, data_dir=folder)
    (record,) = run(work, tmp_path / "r.jsonl")
    assert record["settings"] == {}
    assert "tests" in record


def test_the_papers_settings_are_refused(homes: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'paper' does not apply to the suite 'shift', which is not in the paper"):
        Bench("shift", "paper", METHODS, data_dir=homes)
    code, output = invoke("--protocol", "paper", "--data-dir", homes, "--out", str(tmp_path / "out"))
    assert code == 2
    assert "use 'default' (each method's own settings) or 'tuned'" in output
    assert not (tmp_path / "out").exists()


def test_names_and_splits(homes: str) -> None:
    suite = SUITES["shift"]
    assert suite.select((), homes) == ("homes", "flats")
    assert suite.default_splits("homes") == 5
    with pytest.raises(ValueError, match="'huts' is not a data set of this suite, or not in the folder; it has homes"):
        suite.select(["huts"], homes)


@pytest.mark.usefixtures("quick")
def test_a_folder_by_the_command(homes: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["--data-dir", homes, "--splits", "2", "--rows", "40", "--out", str(out)]
    code, output = invoke(*command)
    assert code == 0, output
    assert "8 of 8 fits" in output
    path = out / "shift-default.jsonl"
    before = path.read_text()
    assert {json.loads(line)["rows"]["train"] for line in before.splitlines()} == {30}
    assert invoke(*command)[0] == 0
    assert path.read_text() == before
    report = CliRunner().invoke(app, ["report", str(out)])
    assert report.exit_code == 0, report.output
    text = (out / "report.md").read_text()
    for part in ("## Natural shifts (protocol: default)", "### In distribution", "### Shifted", "factor**"):
        assert part in text
    assert "Over data sets" not in text


@pytest.mark.usefixtures("quick")
def test_a_file_by_the_command(homes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DENSITY_REGRESSION_DATA", raising=False)
    monkeypatch.chdir(homes)
    queries = ["--train", "year < 2015", "--test", "year >= 2016"]
    rest = ["--target", "price", *queries, "--drop", "year", "--drop", "day", "--splits", "1", "--out", "out"]
    code, output = invoke("--datasets", "homes.csv", *rest)
    assert code == 0, output
    records = [json.loads(line) for line in Path("out/shift-default.jsonl").read_text().splitlines()]
    assert {(record["dataset"], record["columns"]) for record in records} == {("homes", 4)}
    # The same rows as those of a folder's table.
    table = ShiftTable("homes", "homes.csv", "year < 2015", "year >= 2016", "price", ("year",))
    own, listed = (suite.load("homes", "1", homes) for suite in (NaturalShifts(table), SUITES["shift"]))
    np.testing.assert_array_equal(own.train.X, listed.train.X)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--datasets", "homes.csv"], 2, "--target, --train, --test is missing"),
        (["--train", "year < 2015"], 2, "--datasets, --target, --test is missing"),
        (["--rows", "10"], 2, "20"),
        (
            ["--datasets", "huts.csv", "--target", "price", "--train", "a", "--test", "b"],
            1,
            "There is no file huts.csv",
        ),
        (
            ["--datasets", "homes.csv", "--target", "price", "--train", "yr < 1", "--test", "b"],
            1,
            "train 'yr < 1' is no",
        ),
        (["--data-dir", "nowhere"], 1, "There is no file nowhere/shifts.json"),
    ],
)
def test_bad_arguments(
    homes: str, arguments: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DENSITY_REGRESSION_DATA", raising=False)
    monkeypatch.chdir(homes)
    found, output = invoke(*arguments, "--out", "out")
    assert found == code
    assert message in output
    assert not Path("out").exists()


def test_other_suites_have_no_such_options(tmp_path: Path) -> None:
    command = ["bench", "cubic", "--rows", "30", "--target", "y", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "cubic has no --target, --rows; the suite shift has" in " ".join(result.output.replace("│", " ").split())
