"""Graphs with parts say what `decompose` says, written by hand and by torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

from density_regression import DensityRegressor
from density_regression.baselines import DeepEnsembleRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.inference.onnx.graph import LOG_MOMENTS, PARTS
from density_regression.tabular.table import Floats
from inference.helpers import QUICK, run

SETTINGS = QUICK | {"epochs": 8, "members": 3}


def near_and_far(x: Floats) -> Floats:
    return np.concatenate([x, 3 * x, -100 * x, 1e6 * x])


def assert_parts(model: DensityRegressor, found: dict[str, Floats], x: Any, tolerance: float = 3e-5) -> None:
    expected = model.decompose(x)
    _, std = model.predict(x, return_std=True)
    std, total = std.reshape(len(x), -1), 0.0
    for name, part in zip(PARTS, (expected.aleatoric, expected.disagreement, expected.distance), strict=True):
        assert part is not None
        # Of a log-normal law the total may change a lot by a rounding of log y's deviation.
        whole = found["std"] if model.target == "log" else std
        shares, own = (found[name] / whole) ** 2, (part.reshape(std.shape) / std) ** 2
        assert np.abs(shares - own).max() < tolerance, name
        total += shares
    np.testing.assert_allclose(total, 1.0, rtol=0, atol=3 * tolerance)


@pytest.mark.parametrize(
    ("params", "target", "targets"),
    [
        *(({}, target, targets) for target in ("identity", "log") for targets in (1, 2)),
        ({"members": 0}, "identity", 1),
        ({"members": 0}, "log", 2),
        ({"density": "gaussian"}, "log", 1),
        ({"embedding": None, "with_inputs": False}, "identity", 2),
    ],
)
def test_the_same_as_decompose(
    params: dict[str, Any], target: Any, targets: int, rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    x, y = rows
    both = np.exp(0.1 * np.stack([y, x[:, 1]], 1)[:, :targets])
    model = DensityRegressor(**SETTINGS | params, target=target).fit(x, both)
    without = model.to_onnx(tmp_path / "model.onnx")
    assert model.to_onnx(tmp_path / "model.onnx", parts=True) <= max(without, 1e-3)
    found = run(tmp_path / "model.onnx", near_and_far(x))
    assert all(found[name].shape == (len(near_and_far(x)), targets) for name in PARTS)
    assert_parts(model, found, near_and_far(x))
    # Nothing is as the training rows, and something is far: each part has been seen.
    assert (found["distance"] == 0).any()
    assert (found["distance"] > 0.1 * found["std"]).any()
    assert (found["disagreement"] > 0).any() == (model.members == 3)


@pytest.mark.parametrize(
    "params",
    [
        {"encoder": lambda columns: torch.nn.Sequential(torch.nn.Linear(columns, 8), torch.nn.Tanh())},
        {"head": "natural", "members": 0},
    ],
    ids=["encoder", "natural"],
)
def test_graphs_by_torch(params: dict[str, Any], rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    members = {"members": 0} if "encoder" in params else {}
    model = DensityRegressor(**SETTINGS | members | params).fit(*rows)
    model.to_onnx(tmp_path / "model.onnx", parts=True)
    assert_parts(model, run(tmp_path / "model.onnx", near_and_far(rows[0])), near_and_far(rows[0]), 1e-4)


def test_moments_of_the_logarithm(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    """From them any quantile follows; of any method."""
    x, y = rows
    model = DeepEnsembleRegressor(**QUICK, n_members=2, target="log").fit(x, np.exp(0.1 * y))
    model.to_onnx(tmp_path / "model.onnx", parts=True)
    found = run(tmp_path / "model.onnx", x)
    assert list(found) == ["mean", "std", *LOG_MOMENTS]
    low, high = model.predict_quantiles(x, [0.5, 0.841344746068543]).T
    np.testing.assert_allclose(np.exp(found["log_mean"][:, 0]), low, rtol=1e-5)
    np.testing.assert_allclose(np.exp(found["log_mean"] + found["log_std"])[:, 0], high, rtol=1e-5)


@pytest.mark.parametrize("target", ["identity", "log"])
def test_beside_intervals(target: Any, rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows
    model = DensityRegressor(**SETTINGS, target=target).fit(x, np.exp(0.1 * y)).conformalize(x, np.exp(0.1 * y))
    model.to_onnx(tmp_path / "model.onnx", coverage=0.8, parts=True)
    found = run(tmp_path / "model.onnx", x)
    assert_parts(model, found, x)
    for name, end in zip(("low", "high"), model.predict_interval(x, 0.8), strict=True):
        np.testing.assert_allclose(found[name][:, 0], end, rtol=1e-4)


def test_columns_named_as_the_parts_keep_their_inputs(tmp_path: Path) -> None:
    """As `X.noise`, if there are parts: names are unique in a graph. Without parts the name is as it was."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"noise": rng.normal(size=80), "std": rng.normal(size=80), "town": ["a", "b"] * 40})
    model = DensityRegressor(**SETTINGS).fit(frame, frame["noise"] + (frame["town"] == "a"))
    for parts, names in ((True, ["X.noise", "X.std", "town"]), (False, ["noise", "X.std", "town"])):
        model.to_onnx(tmp_path / "model.onnx", parts=parts)
        session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
        assert [part.name for part in session.get_inputs()] == names
        assert model.check_onnx(tmp_path / "model.onnx", frame).mean < 1e-4
        if parts:
            feeds = {"X.noise": frame["noise"], "X.std": frame["std"], "town": frame["town"]}
            results = session.run(None, {name: column.to_numpy() for name, column in feeds.items()})
            outputs = [part.name for part in session.get_outputs()]
            assert_parts(model, dict(zip(outputs, results, strict=True)), frame)


def test_other_methods_have_no_parts(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    model: DeepRegressor = DeepEnsembleRegressor(**QUICK, n_members=2).fit(*rows)
    model.to_onnx(tmp_path / "model.onnx", parts=True)
    assert list(run(tmp_path / "model.onnx", rows[0])) == ["mean", "std"]


def test_float32_and_int8(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x = np.delete(rows[0], 3, axis=1)
    model = DensityRegressor(**SETTINGS).fit(x, rows[1])
    model.to_onnx(tmp_path / "model.onnx", parts=True, dtype="float32")
    found = run(tmp_path / "model.onnx", x.astype(np.float32))
    assert {found[name].dtype for name in PARTS} == {np.dtype(np.float32)}
    assert_parts(model, found, x, 1e-4)
    model.to_onnx(tmp_path / "model.onnx", parts=True, int8=True)
    found = run(tmp_path / "model.onnx", x)
    np.testing.assert_allclose(np.sqrt(sum(found[name] ** 2 for name in PARTS)), found["std"], rtol=1e-4)
