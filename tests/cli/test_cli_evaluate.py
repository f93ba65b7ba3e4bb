"""`evaluate`: from a table to numbers, words and a page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from typer.testing import CliRunner

from density_regression import DensityRegressor, metrics
from density_regression.cli import app

QUICK = {"hidden": (8,), "epochs": 3, "members": 0, "n_threads": 1, "random_state": 0, "verbose": False}


def make_frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    km = np.where(rng.random(rows) < 0.1, np.nan, rng.uniform(0, 100, rows))
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, rows), unit="D")
    frame = pd.DataFrame({"price": 5 + rng.normal(size=rows), "km": km, "town": rng.choice(["Ulm", "Bonn"], rows)})
    return frame.assign(day=pd.DatetimeIndex(day).strftime("%Y-%m-%d"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of text, dates and gaps."""
    folder = tmp_path_factory.mktemp("models") / "flats"
    frame = make_frame(150, 0)
    DensityRegressor(**QUICK).fit(frame.drop(columns="price"), frame["price"]).save(folder)
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)], env={"COLUMNS": "120", "TERM": "dumb"})


def test_numbers_words_and_page(model: Path, tmp_path: Path) -> None:
    frame = make_frame(80, 1).assign(extra="x")
    frame.loc[[3, 7], "price"] = np.nan
    frame.loc[:9, "town"] = "Rome"
    frame.to_csv(tmp_path / "new.csv", index=False)
    result = run(model, tmp_path / "new.csv", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "78 rows with price (2 more have no target)" in result.output
    for part in ("RMSE", "Held out in training", "90 %", "Accuracy.", "Calibration.", "Strange rows."):
        assert part in result.output
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    known = frame.dropna(subset="price")
    from density_regression import load

    regressor = load(model)
    mean = regressor.predict(known.drop(columns=["price", "extra"]))
    assert found["metrics"]["rmse"] == pytest.approx(metrics.rmse(known["price"], mean), rel=1e-6)
    assert found["rows"] == 78
    assert found["without_target"] == 2
    assert "<title>Evaluation of" in (tmp_path / "out" / "evaluation.html").read_text()


def test_the_same_from_parquet_parts_and_as_json(model: Path, tmp_path: Path) -> None:
    frame = make_frame(90, 2)
    frame.to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "parts").mkdir()
    for i in range(3):
        frame.iloc[30 * i : 30 * i + 30].to_parquet(tmp_path / "parts" / f"{i}.parquet", index=False)
    found = []
    for data in (tmp_path / "new.csv", tmp_path / "parts"):
        result = run(model, data, "--out", tmp_path / "out", "--json")
        assert result.exit_code == 0, result.output
        found.append(json.loads(result.stdout))
    assert found[0]["metrics"] == pytest.approx(found[1]["metrics"], rel=1e-5)
    assert found[0]["page"].endswith("evaluation.html")


def test_a_model_of_plain_numbers_and_another_name_of_the_target(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    for name, X in (("named", frame), ("unnamed", frame.to_numpy())):
        DensityRegressor(**QUICK).fit(X, frame["a"].to_numpy()).save(tmp_path / name)
        frame.assign(cost=frame["a"]).to_csv(tmp_path / "new.csv", sep=";", decimal=",", index=False)
        result = run(tmp_path / name, tmp_path / "new.csv", "--target", "cost", "--out", tmp_path / "out")
        assert result.exit_code == 0, result.output
        assert "60 rows with cost" in result.output
        assert "UserWarning" not in result.output
        missing = run(tmp_path / name, tmp_path / "new.csv", "--out", tmp_path / "out")
        assert missing.exit_code == 1
        assert "name the column with the targets, --target COLUMN, of a, b, cost" in missing.output
        assert len(missing.output.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"price": "dear"}, "price"),
        ({"price": np.inf}, "is infinite"),
        ({"price": None}, "no row with a target to evaluate on. 20 rows have none"),
        ({"day": "someday"}, "someday"),
    ],
)
def test_what_cannot_be_evaluated_is_said_in_a_line(
    model: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    make_frame(20, 3).assign(**change).to_csv(tmp_path / "new.csv", index=False)
    result = run(model, tmp_path / "new.csv", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_a_missing_column_file_or_model_is_named(model: Path, tmp_path: Path) -> None:
    make_frame(20, 3).drop(columns="town").to_csv(tmp_path / "new.csv", index=False)
    result = run(model, tmp_path / "new.csv", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "lacks the column 'town'" in result.output
    assert "no file" in run(model, tmp_path / "none.csv", "--out", tmp_path / "out").output
    assert "No model in" in run(tmp_path, tmp_path / "new.csv", "--out", tmp_path / "out").output
    used = run(model, tmp_path / "new.csv", "--target", "km", "--out", tmp_path / "out")
    assert "The model reads 'km', so it cannot be the target too" in used.output


KILLER = """
import os, signal
from density_regression.io import files

replace, calls = os.replace, []

def killed(*paths):
    calls.append(paths)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*paths)

files.os.replace = killed
"""


def test_killed_while_it_writes_it_leaves_no_half_page_and_a_rerun_completes(model: Path, tmp_path: Path) -> None:
    make_frame(50, 4).to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "killer.py").write_text(KILLER)
    command = [sys.executable, "-m", "density_regression", "evaluate", str(model), "new.csv"]
    killed = subprocess.run(
        [*command, "--plugin", "killer"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=120,
        check=False,
    )
    assert killed.returncode == -9
    folder = tmp_path / "evaluation"
    assert json.loads((folder / "evaluation.json").read_text())["rows"] == 50
    assert not (folder / "evaluation.html").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert run(model, "new.csv").exit_code == 0
        assert run(model, "new.csv", "--out", "undisturbed").exit_code == 0
    for name in ("evaluation.json", "evaluation.html"):
        assert (folder / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def test_help_names_the_options() -> None:
    text = run("--help").output
    for option in ("--target", "--out", "--json", "--plugin", "--separator", "--missing"):
        assert option in text
