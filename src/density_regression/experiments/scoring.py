"""All metrics of a fitted regressor on sets of test rows, in the target's units."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from density_regression import metrics
from density_regression.base import DeepRegressor
from density_regression.datasets import Rows

__all__ = ["held_out_scale", "score"]

Floats = NDArray[np.float64]

CURVE = 21
"""Levels of the calibration curve that a record keeps."""

SAMPLE = 200
"""Most test rows that a record keeps, for figures."""

LARGEST = 1e300
"""JSON has no infinity; a score beyond this is this."""


def held_out_scale(regressor: DeepRegressor, held_out: Rows) -> float:
    """Factor on the standard deviation that maximises the likelihood of held-out rows."""
    mean, std = regressor.predict(held_out.X, return_std=True)
    with np.errstate(over="ignore"):
        scale = float(np.sqrt(np.mean(np.square((held_out.y - mean) / std))))
    return float(np.clip(scale, 1e-6, 1e6))


def score(
    regressor: DeepRegressor,
    tests: dict[str, Rows],
    *,
    levels: int,
    scale: float,
    target_sd: float,
    sample: str | None = None,
) -> tuple[dict[str, Any], float]:
    """Every metric on every set of test rows, and the seconds that prediction took.

    Parameters
    ----------
    regressor : DeepRegressor
        Fitted.
    tests : dict of Rows
        By name; where there are several, the first is in distribution, and the others are told from it (AUROC).
    levels : int
        Number of levels of the paper's calibration error.
    scale : float
        What `held_out_scale` gave, for the metrics that end in `_rescaled`.
    target_sd : float
        Standard deviation of the training targets.
    sample : "spread", "first" or None
        Which `SAMPLE` rows to keep for figures: evenly spaced ones, the first ones, or none.
    """
    results: dict[str, Any] = {}
    seconds = 0.0
    familiar: tuple[Floats, Floats | None] | None = None
    for name, rows in tests.items():
        start = time.perf_counter()
        mean, std = regressor.predict(rows.X, return_std=True)
        seconds += time.perf_counter() - start
        figures = _figures(rows.y, mean, std, levels, scale, target_sd)
        if hasattr(regressor, "own_dist"):
            figures["nll_own"] = metrics.nll_own(rows.y, regressor.own_dist(rows.X))
        familiarity = _scores(regressor, rows.X) if len(tests) > 1 else None
        if familiar is None:
            familiar = std, familiarity
        else:
            figures["auroc_std"] = metrics.auroc(familiar[0], std)
            if familiarity is not None and familiar[1] is not None:
                figures["auroc_score"] = metrics.auroc(-familiar[1], -familiarity)
        results[name] = {
            "rows": len(rows.y),
            "metrics": {key: _number(key, value) for key, value in figures.items()},
            "curve": [round(float(part), 5) for part in metrics.calibration_curve(rows.y, mean, std, CURVE)[1]],
        }
        if sample is not None:
            results[name]["sample"] = _sample(sample, y=rows.y, mean=mean, std=std)
    return results, seconds


def _figures(y: Floats, mean: Floats, std: Floats, levels: int, scale: float, target_sd: float) -> dict[str, float]:
    rescaled = std * scale
    return {
        "nll": metrics.nll(y, mean, std),
        "nll_rescaled": metrics.nll(y, mean, rescaled),
        "rmse": metrics.rmse(y, mean),
        "mae": metrics.mae(y, mean),
        "r2": metrics.r2(y, mean),
        "cal": metrics.calibration_error(y, mean, std, levels),
        "cal_rescaled": metrics.calibration_error(y, mean, rescaled, levels),
        "sharpness": metrics.sharpness(std),
        "sharpness_sd": metrics.sharpness(std, unit=target_sd),
        "crps": metrics.crps(y, mean, std),
        "crps_rescaled": metrics.crps(y, mean, rescaled),
        "interval_score": metrics.interval_score(y, mean, std),
        "coverage_50": metrics.coverage(y, mean, std, level=0.5),
        "coverage_90": metrics.coverage(y, mean, std, level=0.9),
        "coverage_95": metrics.coverage(y, mean, std, level=0.95),
        "width_95": metrics.interval_width(std, level=0.95),
        "mace": metrics.mace(y, mean, std),
        "miscalibration_area": metrics.miscalibration_area(y, mean, std),
        "ence": metrics.ence(y, mean, std),
        "ause": metrics.ause(y, mean, std),
        "spearman": metrics.spearman(y, mean, std),
    }


def _scores(regressor: Any, X: Floats) -> Floats | None:
    return np.asarray(regressor.score_samples(X), dtype=np.float64) if hasattr(regressor, "score_samples") else None


def _number(name: str, value: float) -> float:
    """Seven digits, within what JSON can hold."""
    if np.isnan(value):
        raise ValueError(f"{name} is not a number.")
    return float(f"{np.clip(value, -LARGEST, LARGEST):.7g}")


def _sample(which: str, **columns: Floats) -> dict[str, list[float]]:
    n = len(columns["y"])
    step = max(-(-n // SAMPLE), 1) if which == "spread" else 1
    return {name: [float(f"{value:.5g}") for value in column[::step][:SAMPLE]] for name, column in columns.items()}
