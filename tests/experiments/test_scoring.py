"""Scores of shifted rows, and the factor that held-out rows ask for."""

from __future__ import annotations

import numpy as np

from density_regression import DensityRegressor
from density_regression.baselines import GaussianRegressor
from density_regression.datasets import Rows
from density_regression.experiments.scoring import held_out_scale, score


def test_shifted_rows_are_told_from_the_others(cubic: Rows) -> None:
    regressor = DensityRegressor(epochs=60, n_threads=1, random_state=0).fit(*cubic)
    far = Rows(np.linspace(20, 30, 50)[:, None], np.zeros(50))
    tests, seconds = score(regressor, {"near": Rows(*cubic), "far": far}, levels=20, scale=2.0, target_sd=1.0)
    assert seconds > 0
    assert "auroc_std" not in tests["near"]["metrics"]
    assert tests["far"]["metrics"]["auroc_std"] > 0.9
    assert tests["far"]["metrics"]["auroc_score"] == 1.0
    assert "sample" not in tests["near"]


def test_the_scale_is_what_held_out_rows_ask_for(cubic: Rows) -> None:
    regressor = GaussianRegressor(epochs=5, n_threads=1, random_state=0).fit(*cubic)
    scale = held_out_scale(regressor, Rows(*cubic))
    mean, std = regressor.predict(cubic.X, return_std=True)
    nlls = [
        np.mean(np.log(s * std) + 0.5 * ((cubic.y - mean) / (s * std)) ** 2)
        for s in (0.99 * scale, scale, 1.01 * scale)
    ]
    assert nlls[1] < min(nlls[0], nlls[2])
