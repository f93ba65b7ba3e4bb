"""Models that an earlier commit saved: they load, and predict what they predicted then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from density_regression import DensityRegressor, load
from density_regression.baselines import DeepEnsembleRegressor
from density_regression.vision.depth import DepthRegressor

SAVED = Path(__file__).parents[1] / "fixtures" / "saved-06ae3e5"


def expected(name: str) -> dict[str, np.ndarray]:
    """Inputs "X" and what the model predicted for them when it was saved."""
    with np.load(SAVED / f"{name}.npz") as arrays:
        return dict(arrays)


def assert_as_saved(got: dict[str, np.ndarray], then: dict[str, np.ndarray], rtol: float = 5e-6) -> None:
    assert got.keys() == then.keys() - {"X"}
    for name, values in got.items():
        np.testing.assert_allclose(values, then[name], rtol=rtol, err_msg=name)


def test_density() -> None:
    then = expected("density")
    model = load(SAVED / "density")
    assert isinstance(model, DensityRegressor)
    assert list(model.feature_names_in_) == ["age", "height", "weight"]
    X = pd.DataFrame(then["X"], columns=model.feature_names_in_)
    mean, std = model.predict(X, return_std=True)
    got = {
        "mean": mean,
        "std": std,
        "score": model.score_samples(X),
        "familiarity": model.familiarity(X),
        "decomposition": np.stack(model.decompose(X)[:2]),
    }
    assert_as_saved(got, then)


def test_ensemble() -> None:
    then = expected("ensemble")
    model = load(SAVED / "ensemble")
    assert isinstance(model, DeepEnsembleRegressor)
    mean, std = model.predict(then["X"], return_std=True)
    assert mean.shape == (len(then["X"]), 2)
    assert_as_saved({"mean": mean, "std": std}, then)


def test_depth() -> None:
    then = expected("depth")
    model = DepthRegressor.load(SAVED / "depth", device="cpu")
    # Equal to the bit on the machine that saved it; convolutions with other instructions differ by up to 1e-4.
    assert_as_saved(model.predict(torch.from_numpy(then["X"]))._asdict(), then, rtol=1e-3)
