"""Graphs of models with `target="log"`: mean and standard deviation of the log-normal law, by hand and by torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from density_regression import DensityRegressor
from density_regression.baselines import (
    DeepEnsembleRegressor,
    DeterministicRegressor,
    EvidentialRegressor,
    GaussianRegressor,
    NaturalPosteriorRegressor,
    QuantileRegressor,
    SNGPRegressor,
)
from density_regression.estimators.base import DeepRegressor
from density_regression.tabular.table import Floats
from inference.helpers import QUICK, assert_same, run

METHODS = [
    DensityRegressor,
    DeterministicRegressor,
    GaussianRegressor,
    DeepEnsembleRegressor,
    EvidentialRegressor,
    NaturalPosteriorRegressor,
    QuantileRegressor,
    SNGPRegressor,
]
BY_HAND = [DensityRegressor, GaussianRegressor, DeepEnsembleRegressor]


# One target of graphs by hand; torch's take seconds, and the law is after the network.
@pytest.mark.parametrize(
    ("targets", "method"), [(1, method) for method in BY_HAND] + [(2, method) for method in METHODS]
)
def test_same_as_predict(
    method: type[DeepRegressor], targets: int, rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    x, y = rows
    prices = np.exp(np.stack([y, 5.0 + x[:, 1]], 1)[:, :targets])
    model = method(target="log", **QUICK).fit(x, prices)
    assert model.to_onnx(tmp_path / "model.onnx") < 1e-3
    assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x]))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "encoder", [None, lambda columns: torch.nn.Sequential(torch.nn.Linear(columns, 8), torch.nn.Tanh())]
)
def test_finite_and_above_zero_everywhere(
    dtype: Any, encoder: Any, rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    # Of the large column float32 has too few digits.
    x, y = np.delete(rows[0], 3, axis=1), rows[1] - 50.0
    model = DensityRegressor(**QUICK, target="log", encoder=encoder).fit(x, np.exp(y))
    model.to_onnx(tmp_path / "model.onnx", dtype=dtype)
    far = np.concatenate([1e3 * x, -1e10 * x, 1e30 * x]).astype(dtype)
    found = run(tmp_path / "model.onnx", far)
    for name in ("mean", "std"):
        assert np.isfinite(found[name]).all()
        assert (found[name] > 0).all()
    expected = np.log(model.predict(x, return_std=True))
    near = run(tmp_path / "model.onnx", x.astype(dtype))
    np.testing.assert_allclose(np.log([near["mean"][:, 0], near["std"][:, 0]]), expected, atol=1e-4)


def test_the_law_adds_few_nodes(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows
    counts = []
    for target in ("identity", "log"):
        GaussianRegressor(target=target, **QUICK).fit(x, np.exp(y)).to_onnx(tmp_path / "model.onnx")
        counts.append(len(onnx.load(tmp_path / "model.onnx").graph.node))
    assert counts[1] - counts[0] <= 16


def test_program(rows: tuple[Floats, Floats]) -> None:
    x, y = rows
    model = DensityRegressor(target="log", **QUICK).fit(x, np.exp(y))
    mean, std, _ = model.to_program().module()(torch.from_numpy(x))
    np.testing.assert_allclose(np.stack([mean[:, 0], std[:, 0]]), model.predict(x, return_std=True), rtol=1e-4)


def test_check_onnx(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows
    model = DensityRegressor(target="log", **QUICK).fit(x, np.exp(y))
    model.to_onnx(tmp_path / "model.onnx")
    difference = model.check_onnx(tmp_path / "model.onnx", x)
    assert max(difference) < 1e-4
    other = DensityRegressor(target="log", **QUICK).fit(x, np.exp(-y))
    assert other.check_onnx(tmp_path / "model.onnx", x).mean > 0.1
