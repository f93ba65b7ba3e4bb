"""A file that ONNX Runtime runs must give what `predict` gives: for every density, near and far."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from density_regression import MLP, DensityRegressor
from density_regression.baselines import (
    BayesianRegressor,
    DeepEnsembleRegressor,
    DeterministicRegressor,
    DUERegressor,
    EvidentialRegressor,
    GaussianRegressor,
    MCDropoutRegressor,
    NaturalPosteriorRegressor,
    QuantileRegressor,
)
from density_regression.cli import app
from density_regression.estimators.base import DeepRegressor
from density_regression.inference.onnx import ExportError
from density_regression.nn.encoders import WithInputs
from density_regression.tabular.table import Floats
from inference.helpers import QUICK, assert_same, run


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"density": "gaussian"},
        {"density": "kernel"},
        {"density": "flow"},
        {"density": None},
        {"tempering": "exact"},
        {"head": "natural"},
        {"encoder": lambda columns: torch.nn.Sequential(torch.nn.Linear(columns, 8), torch.nn.Tanh())},
    ],
    ids=["default", "gaussian", "kernel", "flow", "no density", "exact", "natural", "own encoder"],
)
def test_same_as_predict(settings: dict[str, Any], rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows
    model = DensityRegressor(**{**QUICK, **settings}).fit(x, y)
    difference = model.to_onnx(tmp_path / "model.onnx")
    assert 0 <= difference < 1e-3
    assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, -100 * x, 1e20 * x, 1e300 * np.sign(x)]))


def test_a_target_of_any_size(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    for size in (1e-30, 1e60):
        model = DensityRegressor(**QUICK).fit(rows[0], size * rows[1])
        model.to_onnx(tmp_path / "model.onnx")
        assert_same(model, tmp_path / "model.onnx", rows[0])


def test_any_number_of_rows_and_targets(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows
    model = DensityRegressor(**QUICK).fit(x, np.stack([y, x[:, 1]], 1))
    model.to_onnx(tmp_path / "model.onnx")
    for n in (1, 2, 7, 200):
        assert_same(model, tmp_path / "model.onnx", x[:n])
        assert run(tmp_path / "model.onnx", x[:n])["std"].shape == (n, 2)


@pytest.mark.parametrize(
    "method",
    [
        DeterministicRegressor,
        GaussianRegressor,
        DeepEnsembleRegressor,
        EvidentialRegressor,
        NaturalPosteriorRegressor,
        QuantileRegressor,
    ],
)
def test_rivals(method: type[DeepRegressor], rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    model = method(**QUICK).fit(*rows)
    model.to_onnx(tmp_path / "model.onnx")
    assert_same(model, tmp_path / "model.onnx", rows[0])


@pytest.mark.parametrize(
    ("method", "reason"),
    [(MCDropoutRegressor, "at random"), (BayesianRegressor, "at random"), (DUERegressor, "gpytorch")],
)
def test_what_cannot_be_exported_says_so(
    method: type[DeepRegressor], reason: str, rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    model = method(**QUICK).fit(*rows)
    with pytest.raises(ExportError, match=reason):
        model.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_looks_at_its_numbers(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    class Choosy(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x if x.sum().item() > 0 else -x)

    model = DensityRegressor(**QUICK, encoder=lambda columns: Choosy(columns, 4)).fit(*rows)
    with pytest.raises(ExportError, match="cannot be written as a graph"):
        model.to_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "encoder",
    [MLP(2, (8,)), WithInputs(MLP(2, (8,))), torch.nn.Identity()],
    ids=["by hand", "beside inputs", "by torch"],
)
def test_inputs_in_their_own_units(encoder: torch.nn.Module, tmp_path: Path) -> None:
    x = 1e9 * np.random.default_rng(0).normal(size=(300, 2))
    model = DensityRegressor.from_trained(encoder, x, 1e-9 * x[:, 0], random_state=0)
    model.to_onnx(tmp_path / "model.onnx")
    assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, -100 * x, 1e300 * np.sign(x)]))


def test_program(rows: tuple[Floats, Floats]) -> None:
    x, y = rows
    model = DensityRegressor(**QUICK).fit(x, y)
    mean, std, log_density = model.to_program().module()(torch.from_numpy(x))
    expected, expected_std = model.predict(x, return_std=True)
    np.testing.assert_allclose(mean[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(std[:, 0], expected_std, rtol=1e-4)
    np.testing.assert_allclose(log_density, model.score_samples(x), rtol=1e-4, atol=1e-3)


def test_compiles_without_a_break(rows: tuple[Floats, Floats]) -> None:
    model = DensityRegressor(**QUICK).fit(*rows)
    x = model.x_scaling_.apply(rows[0])
    with torch.no_grad():
        compiled = torch.compile(model.model_, fullgraph=True, backend="eager")(x)
        assert torch.equal(compiled.mean, model.model_(x).mean)


def test_the_file_says_what_it_is(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    frame = pd.DataFrame(rows[0], columns=list("abcde"))
    DensityRegressor(**QUICK).fit(frame, rows[1]).to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["columns"]) == list("abcde")
    assert about["method"] == "DensityRegressor"
    assert session.get_inputs()[0].shape == ["rows", 5]


def test_command(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    model = DensityRegressor(**QUICK).fit(*rows)
    model.save(tmp_path / "model")
    out = tmp_path / "model.onnx"
    result = CliRunner().invoke(app, ["export", str(tmp_path / "model"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "model.onnx" in result.output
    assert_same(model, out, rows[0])
    missing = CliRunner().invoke(app, ["export", str(tmp_path / "none")])
    assert missing.exit_code == 1
    assert "No model" in missing.output
