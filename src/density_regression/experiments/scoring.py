"""Metrics of a fitted regressor on sets of test rows, in the target's units."""

import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from density_regression import metrics
from density_regression.datasets import Rows
from density_regression.estimators.base import DeepRegressor

__all__ = ["CURVE_LEVELS", "FloatArray", "common_metrics", "held_out_scale", "score", "std_factor"]

FloatArray = NDArray[np.float64]

CURVE_LEVELS: Final = 21
"""Levels of the calibration curve in a record."""

SAMPLE_ROWS: Final = 200
"""Most test rows in a record, for figures."""

MAX_SCORE: Final = 1e300
"""Scores are clipped to this, as JSON has no infinity."""


def std_factor(y: FloatArray, mean: FloatArray, std: FloatArray) -> float:
    """Factor on the standard deviation that maximises the likelihood of a Normal."""
    with np.errstate(over="ignore"):
        scale = float(np.sqrt(np.mean(np.square((y - mean) / std))))
    return float(np.clip(scale, 1e-6, 1e6))


def held_out_scale(regressor: DeepRegressor, held_out: Rows) -> float:
    """`std_factor` of held-out rows."""
    return std_factor(held_out.y, *regressor.predict(held_out.X, return_std=True))


def score(
    regressor: DeepRegressor,
    tests: dict[str, Rows],
    *,
    levels: int,
    scale: float,
    target_sd: float,
    sample: str | None = None,
) -> tuple[dict[str, Any], float]:
    """Every metric on every test set, and the seconds of prediction.

    The first test set is in distribution; the AUROC of the others is against it. `levels` is the number of levels of
    the paper's calibration error, `scale` the factor on the standard deviation for the metrics that end in
    `_rescaled`, and `target_sd` the standard deviation of the training targets. `sample` says which `SAMPLE_ROWS` rows
    to keep for figures: evenly spaced ones ("spread"), the first ones ("first"), or none.
    """
    results: dict[str, Any] = {}
    seconds = 0.0
    first: tuple[FloatArray, FloatArray | None] | None = None
    for name, (X, y) in tests.items():
        start = time.perf_counter()
        mean, std = regressor.predict(X, return_std=True)
        seconds += time.perf_counter() - start
        values = common_metrics(y, mean, std, levels, scale, target_sd) | {
            "r2": metrics.r2(y, mean),
            "interval_score": metrics.interval_score(y, mean, std),
            "coverage_50": metrics.coverage(y, mean, std, level=0.5),
            "coverage_90": metrics.coverage(y, mean, std, level=0.9),
            "width_95": metrics.interval_width(std, level=0.95),
            "mace": metrics.mace(y, mean, std),
            "miscalibration_area": metrics.miscalibration_area(y, mean, std),
            "ence": metrics.ence(y, mean, std),
            "spearman": metrics.spearman(y, mean, std),
            "std_factor": std_factor(y, mean, std),
        }
        if hasattr(regressor, "own_dist"):
            values["nll_own"] = metrics.nll_own(y, regressor.own_dist(X))
        elif regressor.target_ == "log":
            values["nll_own"] = metrics.nll_own(y, regressor.predict_dist(X))
        has_density = len(tests) > 1 and hasattr(regressor, "score_samples")
        log_density = np.asarray(regressor.score_samples(X), dtype=np.float64) if has_density else None
        if first is None:
            first = std, log_density
        else:
            values["auroc_std"] = metrics.auroc(first[0], std)
            if log_density is not None and first[1] is not None:
                values["auroc_score"] = metrics.auroc(-first[1], -log_density)
        results[name] = {
            "rows": len(y),
            "metrics": {key: _json_number(key, value) for key, value in values.items()},
            "curve": [round(float(part), 5) for part in metrics.calibration_curve(y, mean, std, CURVE_LEVELS)[1]],
        }
        if sample is not None:
            results[name]["sample"] = _sample(sample, y=y, mean=mean, std=std)
    return results, seconds


def common_metrics(
    y: FloatArray, mean: FloatArray, std: FloatArray, levels: int, scale: float, target_sd: float
) -> dict[str, float]:
    """Metrics that the records of tables and of depth images share; arguments as in `score`."""
    rescaled = std * scale
    return {
        "nll": metrics.nll(y, mean, std),
        "nll_rescaled": metrics.nll(y, mean, rescaled),
        "rmse": metrics.rmse(y, mean),
        "mae": metrics.mae(y, mean),
        "cal": metrics.calibration_error(y, mean, std, levels),
        "cal_rescaled": metrics.calibration_error(y, mean, rescaled, levels),
        "sharpness": metrics.sharpness(std),
        "sharpness_sd": metrics.sharpness(std, unit=target_sd),
        "crps": metrics.crps(y, mean, std),
        "crps_rescaled": metrics.crps(y, mean, rescaled),
        "coverage_95": metrics.coverage(y, mean, std, level=0.95),
        "ause": metrics.ause(y, mean, std),
    }


def _json_number(name: str, value: float) -> float:
    """Seven digits, clipped to what JSON can hold."""
    if np.isnan(value):
        raise ValueError(f"{name} is not a number.")
    return float(f"{np.clip(value, -MAX_SCORE, MAX_SCORE):.7g}")


def _sample(which: str, **columns: FloatArray) -> dict[str, list[float]]:
    n = len(columns["y"])
    step = max(-(-n // SAMPLE_ROWS), 1) if which == "spread" else 1
    return {name: [float(f"{value:.5g}") for value in column[::step][:SAMPLE_ROWS]] for name, column in columns.items()}
