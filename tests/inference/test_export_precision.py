"""Files in float32 and int8: what they lose is told, and what they cannot hold is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from density_regression import DensityRegressor
from density_regression.baselines import DeepEnsembleRegressor, GaussianRegressor
from density_regression.cli import app
from density_regression.estimators.base import DeepRegressor
from density_regression.inference.onnx import ExportError
from density_regression.tabular.table import Floats
from inference.helpers import QUICK, run


@pytest.mark.parametrize(
    "settings",
    [{"hidden": (100, 100)}, {"encoder": lambda columns: torch.nn.Sequential(torch.nn.Linear(columns, 200))}],
    ids=["written by hand", "by torch's exporter"],
)
def test_int8(settings: dict[str, Any], rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows
    model = DensityRegressor(**{**QUICK, **settings}).fit(x, y)
    model.to_onnx(tmp_path / "float.onnx")
    difference = model.to_onnx(tmp_path / "int8.onnx", int8=True)
    # It is said how much is lost: something, and not much.
    assert 1e-5 < difference < 1.0
    mean, std = (part.reshape(-1, 1) for part in model.predict(x, return_std=True))
    found = run(tmp_path / "int8.onnx", x)
    assert (np.abs(found["mean"] - mean) < 0.1 * std).all()
    np.testing.assert_allclose(found["std"], std, rtol=0.1)
    saved = (tmp_path / "float.onnx").stat().st_size - (tmp_path / "int8.onnx").stat().st_size
    encoder = model.model_.encoder
    assert saved > 2 * sum(weight.numel() for weight in encoder.parameters() if weight.ndim == 2) - 2000


def test_int8_of_an_encoder_without_matrices(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    model = DensityRegressor(**QUICK, encoder=torch.nn.Tanh()).fit(*rows)
    with pytest.raises(ExportError, match="no matrix"):
        model.to_onnx(tmp_path / "model.onnx", int8=True)
    assert not (tmp_path / "model.onnx").exists()


def test_float32(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows[0][:, :3], rows[1]
    model = DensityRegressor(**QUICK).fit(x, y)
    model.to_onnx(tmp_path / "model.onnx", dtype="float32")
    mean, std = model.predict(x, return_std=True)
    found = run(tmp_path / "model.onnx", x.astype(np.float32))
    assert found["mean"].dtype == np.float32
    np.testing.assert_allclose(found["mean"][:, 0], mean, rtol=1e-4)
    np.testing.assert_allclose(found["std"][:, 0], std, rtol=1e-3)
    with pytest.raises(ValueError, match="dtype"):
        model.to_onnx(tmp_path / "other.onnx", dtype="float16")  # type: ignore[arg-type]


def test_what_float32_loses_is_told(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    """A column of 1e4 that varies by 1: of its digits float32 keeps three, and `predict` knows them all."""
    model = DensityRegressor(**QUICK).fit(rows[0] - [0, 0, 0, 1e7 - 1e4, 0], rows[1])
    assert model.to_onnx(tmp_path / "double.onnx") < 1e-3
    center, scale = model.x_scaling_
    x = center + scale * np.random.default_rng(1).normal(size=(200, 5))
    difference = model.to_onnx(tmp_path / "single.onnx", dtype="float32")
    found, (mean, std) = run(tmp_path / "single.onnx", x.astype(np.float32)), model.predict(x, return_std=True)
    worst = (np.abs(found["mean"][:, 0] - mean) / np.maximum(std, np.abs(mean))).max()
    assert difference > 0.3 * worst > 0


@pytest.mark.parametrize("method", [DensityRegressor, DeepEnsembleRegressor])
def test_an_offset_in_float32(method: type[DeepRegressor], tmp_path: Path) -> None:
    """Of rows that float32 holds the results are those of `predict`: the difference from the centre is exact."""
    rng, path, differences = np.random.default_rng(0), tmp_path / "model.onnx", []
    z = rng.normal(size=(200, 2))
    y = 3 * z[:, 0] + rng.normal(size=200)
    for offset in (0, 1e3, 1.6e4):
        x = (z + np.array([offset + 1 / 3, 0])).astype(np.float32)
        model = method(**QUICK).fit(x, y)
        model.to_onnx(path, dtype="float32")
        mean, std = model.predict(x, return_std=True)
        found = run(path, x)
        for parts in ((found["mean"], found["std"]), model._graph("float32")(torch.from_numpy(x))):
            assert (np.abs(np.asarray(parts[0])[:, 0] - mean) <= 3e-5 * std).all()
            np.testing.assert_allclose(np.asarray(parts[1])[:, 0], std, rtol=3e-5)
        differences.append([node.op_type for node in onnx.load(path).graph.node].count("Sub"))
    # What needs no second difference has none.
    assert differences[0] < differences[1] == differences[2]


@pytest.mark.parametrize("method", [DensityRegressor, GaussianRegressor])
def test_a_column_that_float32_cannot_hold_is_refused(method: type[DeepRegressor], tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "model.onnx"
    frame = pd.DataFrame({"a": rng.normal(size=200), "time": 1.6e9 + rng.uniform(0, 1000, size=200)})
    model = method(**QUICK).fit(frame, frame["a"])
    told = r"float32 has too few digits for column 'time' \(around 1\.6e\+09, standard deviation 2\d\d\): .*float64"
    with pytest.raises(ExportError, match=told):
        model.to_onnx(path, dtype="float32")
    with pytest.raises(ExportError, match=told):
        model.to_program(dtype="float32")
    with pytest.raises(ExportError, match=r"column 0 .*column 1 .*column 2 .*and 2 more"):
        method(**QUICK).fit(1e6 + rng.normal(size=(50, 5)), np.arange(50)).to_onnx(path, dtype="float32")
    with pytest.raises(ExportError, match=r"target 0 \(around 1\.6e\+09"):
        method(**QUICK).fit(frame[["a"]], frame["time"]).to_onnx(path, dtype="float32")
    model.save(tmp_path / "model")
    result = CliRunner().invoke(app, ["export", str(tmp_path / "model"), "--dtype", "float32", "--out", str(path)])
    assert (result.exit_code, len(result.output.splitlines())) == (1, 1)
    assert "column 'time'" in result.output
    assert not path.exists()


def test_a_large_constant_column_in_float32(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "model.onnx"
    x = np.column_stack([rng.normal(size=200), np.full(200, 1.6e9 + 50.3)])
    model = DensityRegressor(**QUICK).fit(x, x[:, 0])
    model.to_onnx(path, dtype="float32")
    found, (mean, std) = run(path, x.astype(np.float32)), model.predict(x, return_std=True)
    assert (np.abs(found["mean"][:, 0] - mean) <= 1e-4 * std).all()
