"""What tests of exported models share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from density_regression import DensityRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.tabular.table import Floats

QUICK: dict[str, Any] = {"epochs": 2, "hidden": (16, 16), "verbose": False, "random_state": 0}
ALONE: dict[str, Any] = QUICK | {"embedding": None, "members": 0, "weight_decay": 0.1}
"""Of a network that reads the columns as they are, and learns from no other."""


def run(path: Path, x: Floats) -> dict[str, Floats]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": x}), strict=True))


def assert_same(model: DeepRegressor, path: Path, x: Floats) -> None:
    mean, std = (part.reshape(len(x), -1) for part in model.predict(x, return_std=True))
    found = run(path, x)
    np.testing.assert_allclose(found["std"], std, rtol=1e-4)
    assert (np.abs(found["mean"] - mean) <= 1e-4 * np.maximum(std, np.abs(mean))).all()
    if isinstance(model, DensityRegressor) and model.density is not None:
        np.testing.assert_allclose(found["log_density"], model.score_samples(x), rtol=1e-4, atol=1e-3)
