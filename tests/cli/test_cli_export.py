"""`export` for machines, of conformal models, and on rows from any file that `fit` reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from flats import flats, run

from density_regression.baselines import GaussianRegressor

FLATS = flats().dropna(subset=["price"])
QUICK = {"hidden": (6,), "epochs": 1, "random_state": 0, "n_threads": 1}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of numbers and truth values, with conformal intervals."""
    reg = GaussianRegressor(**QUICK).fit(FLATS[["size", "balcony"]], FLATS["price"], conformal=0.4)
    reg.save(tmp_path / "model")
    return tmp_path / "model"


def test_json(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.onnx"
    result = run("export", model, "--out", out, "--json")
    said = json.loads(result.stdout)
    assert (said["out"], said["bytes"], said["moved"]) == (str(out), out.stat().st_size, None)
    assert 0 <= said["difference"] < 1e-3
    FLATS.to_csv(tmp_path / "rows.csv", index=False)
    moved = json.loads(run("export", model, "--out", out, "--json", "--rows", tmp_path / "rows.csv").stdout)["moved"]
    assert moved.keys() == {"mean", "typical", "std"}


def test_coverage(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.onnx"
    for options, coverage in ((["--coverage", "0.8"], "0.8"), ([], "0.95")):
        result = run("export", model, "--out", out, *options)
        assert result.exit_code == 0, result.output
        session = onnxruntime.InferenceSession(str(out))
        assert session.get_modelmeta().custom_metadata_map["coverage"] == coverage
        assert {"low", "high"} <= {part.name for part in session.get_outputs()}
    result = run("export", model, "--out", out, "--coverage", "0.999")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert "needs at least 999 rows" in result.stderr


def test_intervals_need_rows_kept_aside(tmp_path: Path) -> None:
    GaussianRegressor(**QUICK).fit(FLATS[["size"]], FLATS["price"]).save(tmp_path / "model")
    result = run("export", tmp_path / "model", "--out", tmp_path / "m.onnx", "--coverage", "0.9")
    assert result.exit_code == 1
    assert "after conformalize only" in result.stderr
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv.gz", "rows.parquet"])
def test_rows_of_any_file(model: Path, tmp_path: Path, name: str) -> None:
    rows = tmp_path / name
    if name == "rows.parquet":
        FLATS.to_parquet(rows)
    else:
        FLATS.to_csv(rows, index=False, sep="\t" if "tsv" in name else ";", decimal="," if name == "rows.csv" else ".")
    result = run("export", model, "--out", tmp_path / "m.onnx", "--rows", rows)
    assert result.exit_code == 0, result.output
    assert f"On {rows} a mean moves by" in result.stdout


def test_rows_by_place_where_the_model_knows_no_names(tmp_path: Path) -> None:
    X = FLATS[["size", "balcony"]].to_numpy(float)
    GaussianRegressor(**QUICK).fit(X, FLATS["price"]).save(tmp_path / "model")
    FLATS[["size", "balcony", "price"]].to_csv(tmp_path / "rows.csv", index=False)
    result = run("export", tmp_path / "model", "--out", tmp_path / "m.onnx", "--rows", tmp_path / "rows.csv")
    assert result.exit_code == 0, result.output
    gap = np.where(np.arange(len(X)) == 3, np.nan, X[:, 0])
    GaussianRegressor(**QUICK).fit(np.column_stack([gap, X]), FLATS["price"]).save(tmp_path / "model")
    result = run("export", tmp_path / "model", "--out", tmp_path / "m.onnx", "--rows", tmp_path / "rows.csv")
    assert result.exit_code == 0, result.output


def test_a_bad_value_is_named(model: Path, tmp_path: Path) -> None:
    FLATS.assign(size="large").to_csv(tmp_path / "rows.csv", index=False)
    result = run("export", model, "--out", tmp_path / "m.onnx", "--rows", tmp_path / "rows.csv")
    assert result.exit_code == 1
    assert "column 'size', row 1 (line 2), has 'large', which is no number" in result.stderr
    assert not (tmp_path / "m.onnx").exists()
