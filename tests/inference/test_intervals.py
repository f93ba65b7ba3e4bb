"""Graphs of models after `conformalize` give `low` and `high`, by hand and by torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from density_regression import DensityRegressor
from density_regression.baselines import DeepEnsembleRegressor, GaussianRegressor, NaturalPosteriorRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.inference.onnx import ExportError
from density_regression.tabular.table import Floats
from inference.helpers import QUICK, assert_same, run


def conformal(
    rows: tuple[Floats, Floats], method: type[DeepRegressor] = DensityRegressor, targets: int = 1, **settings: Any
) -> DeepRegressor:
    x, y = rows
    both = np.exp(0.1 * np.stack([y, x[:, 1]], 1)[:, :targets])
    return method(**{**QUICK, **settings}).fit(x[:120], both[:120]).conformalize(x[120:], both[120:])


BY_HAND = [DensityRegressor, GaussianRegressor, DeepEnsembleRegressor]
CASES = [(targets, target, method) for targets in (1, 2) for target in ("identity", "log") for method in BY_HAND]


# torch writes the graph of the last one, in seconds.
@pytest.mark.parametrize(("targets", "target", "method"), [*CASES, (2, "log", NaturalPosteriorRegressor)])
def test_same_as_predict_interval(
    method: type[DeepRegressor], target: Any, targets: int, rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    model = conformal(rows, method, targets, target=target)
    assert model.to_onnx(tmp_path / "model.onnx", coverage=0.8) < 1e-3
    x = np.concatenate([rows[0], 3 * rows[0]])
    found = run(tmp_path / "model.onnx", x)
    assert list(found)[-2:] == ["low", "high"]
    assert_same(model, tmp_path / "model.onnx", x)
    ends = [end.reshape(len(x), -1) for end in model.predict_interval(x, 0.8)]
    assert all(found[name].shape == (len(x), targets) for name in ("low", "high"))
    if target == "log":
        # Where the law's Normal is compared, a rounding is what it is far away, too.
        ends, found = [np.log(end) for end in ends], {name: np.log(found[name]) for name in ("low", "high")}
    for name, expected in zip(("low", "high"), ends, strict=True):
        assert (np.abs(found[name] - expected) <= 1e-4 * np.maximum(np.abs(expected), ends[1] - ends[0])).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("target", ["identity", "log"])
def test_finite_everywhere(dtype: Any, target: Any, rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = np.delete(rows[0], 3, axis=1), rows[1]
    for encoder in (None, lambda columns: torch.nn.Sequential(torch.nn.Linear(columns, 8), torch.nn.Tanh())):
        model = conformal((x, y), target=target, encoder=encoder)
        model.to_onnx(tmp_path / "model.onnx", dtype=dtype)
        found = run(tmp_path / "model.onnx", np.concatenate([1e3 * x, -1e10 * x, 1e30 * x]).astype(dtype))
        assert all(np.isfinite(part).all() for part in found.values())
        assert (found["low"] <= found["high"]).all()


def test_the_file_names_its_coverage(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    """By default that of `predict_interval`."""
    model = conformal(rows)
    model.to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["coverage"]) == 0.95
    found = run(tmp_path / "model.onnx", rows[0])
    np.testing.assert_allclose(found["high"][:, 0], model.predict_interval(rows[0])[1], rtol=1e-4)
    assert model.check_onnx(tmp_path / "model.onnx", rows[0]).mean < 1e-4


def test_program(rows: tuple[Floats, Floats]) -> None:
    model = conformal(rows, target="log")
    *_, low, high = model.to_program(coverage=0.5).module()(torch.from_numpy(rows[0]))
    expected = model.predict_interval(rows[0], 0.5)
    np.testing.assert_allclose(np.stack([low[:, 0], high[:, 0]]), expected, rtol=1e-4)


def test_what_has_no_interval_says_so(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows
    model = DensityRegressor(**QUICK).fit(x, y)
    model.to_onnx(tmp_path / "model.onnx")
    assert list(run(tmp_path / "model.onnx", x)) == ["mean", "std", "log_density"]
    with pytest.raises(ValueError, match="after conformalize only"):
        model.to_onnx(tmp_path / "other.onnx", coverage=0.9)
    model.conformalize(x, y, shifted=x)
    with pytest.raises(ExportError, match="without shifted"):
        model.to_onnx(tmp_path / "other.onnx")
    model.conformalize(x[:12], y[:12])
    with pytest.raises(ValueError, match="needs at least 19 rows"):
        model.to_onnx(tmp_path / "other.onnx")
    with pytest.raises(ValueError, match="coverage must lie"):
        model.to_onnx(tmp_path / "other.onnx", coverage=1.5)
    assert not (tmp_path / "other.onnx").exists()
