"""`predict` for tables, as people type it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from density_regression import DensityRegressor, load
from density_regression.baselines import GaussianRegressor
from density_regression.cli import app
from density_regression.cli.predict import predict

SMALL = {"hidden": (8,), "epochs": 2, "random_state": 0, "verbose": False}
ADDED = ["mean", "std", "low", "high", "familiarity", "unfamiliar"]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120", "TERM": "dumb"})


def flats(rows: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {
            "id": [f"{i:05d}" for i in range(rows)],
            "size": rng.normal(50, 9, rows).round(2),
            "town": rng.choice(["Ulm", "Bonn; Süd", "Rome, I"], rows),
            "day": (pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, rows), unit="D")).strftime(
                "%Y-%m-%d"
            ),
        }
    )
    data.loc[rng.random(rows) < 0.1, ["size", "town"]] = None
    return data.assign(price=rng.normal(300, 50, rows).round(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and the table it was fitted to."""
    folder = tmp_path_factory.mktemp("flats")
    data = flats()
    data.to_csv(folder / "flats.csv", index=False)
    with warnings.catch_warnings(action="ignore"):
        DensityRegressor(**SMALL).fit(data.drop(columns="price"), data["price"]).save(folder / "model")
    return folder


def predicted(folder: Path, data: pd.DataFrame, coverage: float = 0.9) -> pd.DataFrame:
    """What the command must add, by the methods of the model."""
    reg = load(folder / "model")
    with warnings.catch_warnings(action="ignore"):
        mean, std = reg.predict(data, return_std=True)
        low, high = reg.predict_interval(data, coverage)
        familiarity = reg.familiarity(data)
    return pd.DataFrame(dict(zip(ADDED, (mean, std, low, high, familiarity, familiarity < 0.01), strict=True)))


def check(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found[list(expected.columns)], expected, check_exact=True, check_dtype=False)


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.tsv", "out.parquet"])
def test_to_a_file(name: str, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / name
    result = run("predict", folder / "model", folder / "flats.csv", "--out", out)
    assert result.exit_code == 0, result.output
    expected = predicted(folder, flats())
    unfamiliar = int(expected["unfamiliar"].sum())
    assert (
        result.stdout.replace("\n", "")
        == f"150 rows, {unfamiliar} of them unfamiliar ({unfamiliar / 1.5:.1f} %): {out}"
    )
    if name == "out.parquet":
        read = pd.read_parquet(out)
        assert read["size"].dtype == np.float64
    else:
        read = pd.read_csv(out, sep="\t" if "tsv" in name else ",", dtype={"id": str})
    assert list(read.columns) == ["id", "size", "town", "day", "price", *ADDED]
    check(read, expected)
    pd.testing.assert_frame_equal(read[["id", "size", "town", "day"]], flats().drop(columns="price"), check_dtype=False)


def test_to_standard_output_with_all_columns_as_they_were(folder: Path, tmp_path: Path) -> None:
    # Numbers as nobody's program writes them, an order of its own, and no target.
    text = 'day,size,note,town,id\r\n2024-02-01,050.50,"a ""b""",Ulm,007\r\n2099-01-01,NA,,Oslo,8\r\n'
    (tmp_path / "rows.csv").write_bytes(text.encode())
    result = run("predict", folder / "model", tmp_path / "rows.csv", "--coverage", "0.5")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "day,size,note,town,id," + ",".join(ADDED)
    assert lines[1].startswith('2024-02-01,050.50,"a ""b""",Ulm,007,')
    assert lines[2].startswith("2099-01-01,NA,,Oslo,8,")
    data = pd.DataFrame({"size": [50.5, None], "town": ["Ulm", "Oslo"], "day": ["2024-02-01", "2099-01-01"], "id": ""})
    expected = predicted(folder, data, 0.5)
    for line, row in zip(lines[1:], expected.to_numpy(), strict=True):
        assert [float(value) for value in line.split(",")[-6:-1]] == row[:-1].tolist()
        assert line.endswith(str(row[-1]).lower())
    assert expected["unfamiliar"].tolist() == [False, True]
    assert "2 rows, 1 of them unfamiliar (50.0 %)" in result.stderr
    assert "not like those the model was fitted to" in result.stderr


def test_the_files_own_notation(folder: Path, tmp_path: Path) -> None:
    flats().to_csv(tmp_path / "rows.csv", sep=";", decimal=",", index=False, encoding="cp1252")
    result = run("predict", folder / "model", tmp_path / "rows.csv", "--out", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    read = pd.read_csv(tmp_path / "out.csv", sep=";", decimal=",")
    np.testing.assert_allclose(read[ADDED[:5]], predicted(folder, flats())[ADDED[:5]], rtol=1e-15)
    assert read["town"].dropna().isin(flats()["town"]).all()


def test_options_of_reading(folder: Path, tmp_path: Path) -> None:
    text = "size:town:day\n1,5:Ulm:2024-01-01\n?:-:2024-01-02\n"
    (tmp_path / "rows.txt").write_bytes(text.encode("utf-16-le"))
    options = ["--separator", ":", "--decimal", ",", "--encoding", "utf-16-le", "--missing", "?", "--missing", "-"]
    result = run("predict", folder / "model", tmp_path / "rows.txt", *options, "--out", tmp_path / "out.parquet")
    assert result.exit_code == 0, result.output
    data = pd.DataFrame({"size": [1.5, None], "town": ["Ulm", None], "day": ["2024-01-01", "2024-01-02"], "id": ""})
    check(pd.read_parquet(tmp_path / "out.parquet"), predicted(folder, data))


def test_json(folder: Path, tmp_path: Path) -> None:
    command = ["predict", folder / "model", folder / "flats.csv", "--json"]
    unfamiliar = int(predicted(folder, flats())["unfamiliar"].sum())
    result = run(*command, "--out", tmp_path / "out.csv")
    assert json.loads(result.stdout) == {"rows": 150, "unfamiliar": unfamiliar, "out": str(tmp_path / "out.csv")}
    result = run(*command)
    assert json.loads(result.stderr) == {"rows": 150, "unfamiliar": unfamiliar, "out": None}
    assert result.stdout.count("\n") == 151


def test_taken_names_several_targets_and_no_density(tmp_path: Path) -> None:
    data = pd.DataFrame({"mean": np.arange(30.0), "std": np.ones(30), "std_predicted": 1.0})
    data.to_csv(tmp_path / "rows.csv", index=False)
    reg = GaussianRegressor(**SMALL).fit(data[["mean"]], data["mean"])
    reg.save(tmp_path / "one")
    lines = run("predict", tmp_path / "one", tmp_path / "rows.csv")
    assert lines.stdout.splitlines()[0] == ("mean,std,std_predicted,mean_predicted,std_predicted_predicted,low,high")
    assert lines.stderr == "30 rows\n"
    reg = DensityRegressor(**SMALL).fit(data[["mean"]], np.stack([data["mean"], -data["mean"]], 1))
    reg.save(tmp_path / "two")
    result = run("predict", tmp_path / "two", tmp_path / "rows.csv", "--out", tmp_path / "two.csv")
    assert result.exit_code == 0, result.output
    read = pd.read_csv(tmp_path / "two.csv")
    names = [f"{name}_{i}" for name in ("mean", "std", "low", "high") for i in (0, 1)]
    assert list(read.columns)[3:] == [*names, "familiarity", "unfamiliar"]
    low, high = reg.predict_interval(data[["mean"]], 0.9)
    np.testing.assert_array_equal(read[["low_0", "low_1", "high_0", "high_1"]], np.hstack([low, high]))


def test_conformal_intervals(folder: Path, tmp_path: Path) -> None:
    data = flats()
    reg = load(folder / "model")
    with warnings.catch_warnings(action="ignore"):
        reg.conformalize(data, data["price"]).save(tmp_path / "model")
    command = ["predict", tmp_path / "model", folder / "flats.csv", "--out", tmp_path / "out.csv"]
    assert run(*command).exit_code == 0
    read = pd.read_csv(tmp_path / "out.csv")
    check(read, predicted(tmp_path, data))
    assert ((read["low"] <= data["price"]) & (data["price"] <= read["high"])).mean() == pytest.approx(0.9, abs=0.02)
    result = run(*command, "--coverage", "0.999")
    assert result.exit_code == 1
    assert "coverage=0.999 needs at least 999 rows" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size,day\n1,2024-01-01\n", "rows.csv lacks the column 'town'"),
        ("size,town,day\n1,Ulm,2024-01-01\nbig,Ulm,2024-01-01\n", "column 'size', row 2 (line 3), has 'big'"),
        ("size,town,day\n1,Ulm,1.1.2024\n", "column 'day', row 1 (line 2), has '1.1.2024', but dates in training"),
        ("size,town,day\n1,Ulm\n", "row 1 (line 2) has 2 fields"),
        ("size,town,day\n", "no rows"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(text: str, message: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    result = run("predict", folder / "model", tmp_path / "rows.csv", "--out", tmp_path / "out.csv")
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_what_is_no_table_or_model(folder: Path, tmp_path: Path) -> None:
    table = folder / "flats.csv"
    for command, message in (
        ([folder / "model", tmp_path / "none.csv"], "There is no file"),
        ([tmp_path, table], "No model in"),
        ([folder / "model", table, "--out", tmp_path / "out.xlsx"], "does not say in what format"),
        ([folder / "model", table, "--plugin", "no_such_module"], "no_such_module"),
    ):
        result = run("predict", *command)
        assert result.exit_code == 1
        assert message in result.stderr
        assert "Traceback" not in result.output
    for arguments, message in (
        ([table, table], "Give one table"),
        ([table, "--out", table], "name another place"),
        ([folder, "--out", folder / "out.csv"], "name another place"),
        ([table, "--coverage", "1.5"], "--coverage"),
    ):
        result = run("predict", folder / "model", *arguments)
        assert result.exit_code == 2
        assert message in " ".join(result.output.replace("│", " ").split())


def test_without_the_extra(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run("predict", folder / "model", folder / "flats.csv", "--out", tmp_path / "out.csv")
    assert result.exit_code == 1
    assert "needs pyarrow, which is not installed: pip install density-regression[data]" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_interrupted(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("density_regression.tabular.files.TableWriter.write", interrupt)
    result = run("predict", folder / "model", folder / "flats.csv", "--out", tmp_path / "out.csv")
    assert result.exit_code == 130
    assert result.stderr == "Interrupted: nothing was written.\n"
    assert list(tmp_path.iterdir()) == []


def test_killed_and_run_again(folder: Path, tmp_path: Path) -> None:
    """In a process of its own, that is killed while it writes."""
    pd.concat([flats(1000)] * 100).to_csv(tmp_path / "rows.csv", index=False)
    command = ["predict", folder / "model", tmp_path / "rows.csv", "--out", tmp_path / "out" / "out.csv"]
    started = subprocess.Popen([sys.executable, "-m", "density_regression", *map(str, command)], start_new_session=True)
    begun = time.monotonic()
    while not _bytes_in(tmp_path / "out") and started.poll() is None and time.monotonic() - begun < 60:
        time.sleep(0.005)
    started.send_signal(signal.SIGKILL)
    assert started.wait() == -signal.SIGKILL, "it was done before it could be killed"
    assert not (tmp_path / "out" / "out.csv").exists()
    # What is left is hidden, and nobody takes it for a table.
    assert all(path.name.startswith(".") for path in (tmp_path / "out").iterdir())
    assert run(*command).exit_code == 0
    undisturbed = tmp_path / "other.csv"
    assert run(*command[:3], "--out", undisturbed).exit_code == 0
    assert (tmp_path / "out" / "out.csv").read_bytes() == undisturbed.read_bytes()
    assert undisturbed.read_bytes().count(b"\n") == 100_001


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.exists() else 0


def test_whoever_reads_may_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        with pytest.raises(typer.Exit) as left:
            predict(folder / "model", [folder / "flats.csv"])
        # What had not been written yet goes nowhere, without an error.
        gone.flush()
    assert left.value.exit_code == 128 + signal.SIGPIPE
