"""`compare`: all methods on one's own table."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

from density_regression import baselines
from density_regression.cli import app
from density_regression.experiments import bench
from density_regression.experiments.compare import fits
from density_regression.experiments.fitting import estimators_by_method

ALL = tuple(estimators_by_method())


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table with text, gaps and dates, and methods that hardly train."""
    classes = {"Gaussian": baselines.GaussianRegressor, "Deterministic": baselines.DeterministicRegressor}
    short = {name: partial(kind, hidden=(8,), epochs=2) for name, kind in classes.items()}
    monkeypatch.setattr(fits, "estimators_by_method", lambda: short)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"km": np.where(rng.random(60) < 0.1, np.nan, rng.uniform(0, 100, 60))})
    frame["town"] = rng.choice(["Ulm", "Bonn", "Rome", "Bern", "Oslo"], 60)
    frame["day"] = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")
    frame["price"] = np.exp(rng.normal(size=60))
    frame.loc[5, "price"] = np.nan
    frame.to_csv(tmp_path / "flats.csv.gz", index=False)
    return tmp_path / "flats.csv.gz"


def run(table: Path, *arguments: object) -> Result:
    given = ["compare", str(table), "--target", "price", "--methods", "Gaussian, Deterministic", "--jobs", "1"]
    folder = ["--out", str(table.parent / "out")]
    return CliRunner().invoke(app, [*given, *folder, *map(str, arguments)], env={"COLUMNS": "160", "TERM": "dumb"})


def records(table: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (table.parent / "out" / "flats.jsonl").read_text().splitlines()]


def test_table_verdict_report_and_nothing_twice(table: Path) -> None:
    result = run(table, "--folds", 2)
    assert result.exit_code == 0, result.output
    assert "60 rows; 1 of them without price, which are left out." in result.output
    assert "4 of 4 fits" in result.output
    for part in (
        "NLL",
        "CRPS",
        "RMSE",
        "In 90 % intervals",
        "Gaussian",
        "Deterministic",
        "has the lowest NLL",
        "Take ",
    ):
        assert part in result.stdout
    assert (table.parent / "out" / "comparison.html").exists()
    assert len(records(table)) == 4
    again = run(table, "--folds", 2)
    assert again.exit_code == 0
    assert again.stdout == result.stdout
    assert len(records(table)) == 4


def test_json_is_all_that_standard_output_has(table: Path) -> None:
    result = run(table, "--folds", 2, "--json", "--rows", 40, "--positive", "--drop", "town")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["rows"] == 40
    assert found["law"] == "log"
    assert found["folds"] == 2
    assert set(found["methods"]) == {"Gaussian", "Deterministic"}
    assert found["above_best"][0]["method"] != found["best"]
    assert "40 used, at random (--rows)" in result.stderr


def test_methods_may_have_the_names_that_fit_gives_them(table: Path) -> None:
    result = run(table, "--folds", 2, "--methods", "deterministic,GaussianRegressor,gaussian")
    assert result.exit_code == 0, result.output
    assert sorted({record["method"] for record in records(table)}) == ["Deterministic", "Gaussian"]


@pytest.mark.parametrize(("option", "column"), [("--group", "town"), ("--time", "day")])
def test_groups_and_time_divide_the_rows(table: Path, option: str, column: str) -> None:
    result = run(table, "--folds", 2, option, column)
    assert result.exit_code == 0, result.output
    (divided,) = {record["settings"]["divided"] for record in records(table)}
    assert divided == ("groups" if option == "--group" else "time")
    both = run(table, "--group", "town", "--time", "day")
    assert both.exit_code == 2
    assert "leave one of them out" in both.output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--target", "prize"], 1, "did you mean 'price'?"),
        (["--target", "town"], 1, "is no number"),
        (["--drop", "nothing"], 1, "no column 'nothing'"),
        (["--methods", "Gausian"], 2, "'Gausian' is not one of"),
        (["--folds", 30], 1, "59 rows are too few for 30 folds"),
        (["--jobs", 0], 2, "0 processes do nothing"),
        (["--device", "abacus"], 1, "abacus"),
        (["--plugin", "no_such_module"], 2, "no_such_module"),
    ],
)
def test_what_cannot_be_compared_is_said(table: Path, arguments: list[object], code: int, message: str) -> None:
    result = run(table, *arguments)
    assert result.exit_code == code
    assert message in " ".join(result.output.replace("│", " ").split())


def test_a_method_whose_module_is_missing_is_left_out_unless_asked_for(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "EXTRAS", {"DUE": ("a_module_that_is_missing", "gp")})
    asked = run(table, "--methods", "DUE")
    assert asked.exit_code == 1
    assert "density-regression[gp]" in asked.output
    fitted: list[str] = []

    def broken(name: str, **_: object) -> None:
        fitted.append(name)
        raise RuntimeError("not here")

    monkeypatch.setattr(fits, "estimators_by_method", lambda: {name: partial(broken, name) for name in ALL})
    result = run(table, "--folds", 2, "--methods", "")
    assert "DUE is left out: it needs density-regression[gp]." in result.output
    assert set(fitted) == set(ALL) - {"DUE"}


def test_failed_fits_are_told_and_tried_again(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fits.estimators_by_method()

    def broken(**_: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(fits, "estimators_by_method", lambda: {**whole, "Deterministic": broken})
    result = run(table, "--folds", 2)
    assert result.exit_code == 1
    assert "2 fits failed; the same command tries them again." in result.output
    assert "no memory" in result.output
    monkeypatch.setattr(fits, "estimators_by_method", lambda: whole)
    assert run(table, "--folds", 2).exit_code == 0
