"""Forecasts, and the metrics by their arguments."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression import metrics

FloatArray = NDArray[np.float64]
Metric = Callable[..., float]


class Forecast(NamedTuple):
    y_true: FloatArray
    mean: FloatArray
    std: FloatArray


THREE_ARGUMENTS: list[Metric] = [
    metrics.nll,
    metrics.crps,
    metrics.calibration_error,
    metrics.miscalibration_area,
    metrics.coverage,
    metrics.interval_score,
    metrics.mace,
    metrics.ence,
    metrics.ause,
    metrics.spearman,
]
ALL: list[Metric] = [*THREE_ARGUMENTS, metrics.rmse, metrics.mae, metrics.r2]


def arguments(metric: Metric, forecast: Forecast) -> tuple[FloatArray, ...]:
    return forecast if metric in THREE_ARGUMENTS else forecast[:2]


def make_forecast(n: int = 400, spread: float = 1.0, bias: float = 0.0, seed: int = 0) -> Forecast:
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=n)
    std = rng.uniform(0.2, 3.0, size=n)
    return Forecast(mean + bias + spread * std * rng.normal(size=n), mean, std)


FORECASTS = {
    "calibrated": make_forecast(),
    "overconfident": make_forecast(spread=3.0, seed=1),
    "underconfident": make_forecast(spread=0.3, seed=2),
    "biased": make_forecast(bias=2.0, seed=3),
    "tiny": make_forecast(n=7, seed=4),
    "one": make_forecast(n=1, seed=5),
}
