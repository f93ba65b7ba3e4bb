"""`fit` of tables that would not fit into memory, as people type it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from flats import flats, message, run

from density_regression import load
from density_regression.io import memory

QUICK = ("--target", "price", "--epochs", "1", "--members", "0", "--threads", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two Parquet files."""
    frame = flats(400).drop(columns="id")
    frame["sold"] = pd.to_datetime(frame["sold"])
    (tmp_path / "flats").mkdir()
    frame[:300].to_parquet(tmp_path / "flats" / "0.parquet", row_group_size=100)
    frame[300:].to_parquet(tmp_path / "flats" / "1.parquet")
    return tmp_path / "flats"


def little_memory(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: number)


def test_a_table_larger_than_memory_is_trained_from_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    little_memory(monkeypatch, 10_000)
    out = folder.parent / "model"
    result = run("fit", folder, *QUICK, "--out", out, "--drop", "year", "--conformal", "0.1")
    assert result.exit_code == 0, result.output
    reg = load(out)
    said = result.stdout.splitlines()
    assert said[0] == (
        f"{folder} would take about 0.0 GB in memory, and 0.0 GB are free: training from disk (--no-stream to read it "
        "nevertheless)."
    )
    assert f"to {reg.profile_.rows:,} rows in" in result.stdout
    assert [column.name for column in reg.profile_.columns] == ["size", "town", "balcony", "sold"]
    assert reg.conformal_ is not None
    predicted = run("predict", out, folder, "--out", folder.parent / "predicted.csv")
    assert predicted.exit_code == 0, predicted.output
    assert len(pd.read_csv(folder.parent / "predicted.csv")) == 400


def test_the_option_decides_whatever_the_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(*options: str) -> dict[str, Any]:
        result = run("fit", folder, *QUICK, "--out", folder.parent / "model", "--json", *options)
        assert result.exit_code == 0, result.output
        record: dict[str, Any] = json.loads(result.stdout)
        return record

    little_memory(monkeypatch, 0)
    inside = rows("--no-stream")
    little_memory(monkeypatch, 10**12)
    assert rows()["rows"] == inside["rows"]
    streamed = rows("--stream")
    assert streamed["rows"] != inside["rows"]
    # What is held out depends on the rows alone.
    assert rows("--stream", "--seed", "1")["rows"] == streamed["rows"]
    assert streamed["rows_read"] == inside["rows_read"] == 400
    assert streamed["rows_without_target"] == inside["rows_without_target"]
    assert streamed["rows_without_target"]["count"] == 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--time", "sold"), "--time is for a table in memory"),
        (("--group", "town"), "--group is for a table in memory"),
        (("--weight", "size"), "--weight is for a table in memory"),
        (("--missing", "-1"), "--missing is for a table in memory"),
        (("--drop", "sise"), "did you mean 'size'?"),
        (("--law", "auto"), 'target="auto" tries two fits'),
    ],
)
def test_options_of_tables_in_memory_are_refused(folder: Path, options: tuple[str, ...], problem: str) -> None:
    result = run("fit", folder, *QUICK, "--out", folder.parent / "model", "--stream", *options)
    assert result.exit_code == 1
    assert problem in message(result)


def test_other_methods_are_refused(folder: Path) -> None:
    options = ("--target", "price", "--method", "Gaussian", "--stream", "--out", folder.parent / "model")
    result = run("fit", folder, *options)
    assert result.exit_code == 1
    assert "GaussianRegressor is not trained from disk" in result.output


def test_a_large_text_file_is_to_be_converted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder.parent / "flats.csv"
    flats().to_csv(path, index=False)
    little_memory(monkeypatch, 1000)
    for options in ((), ("--stream",)):
        result = run("fit", path, *QUICK, "--out", folder.parent / "model", *options)
        assert result.exit_code == 1
        assert "Parquet" in result.output
        assert "Larger than memory" in result.output
