"""Scores that add up over batches and processes, as torchmetrics classes; they need the extra ``metrics``."""

from density_regression.metrics.accumulate.counts import CalibrationError, MiscalibrationArea
from density_regression.metrics.accumulate.determination import R2
from density_regression.metrics.accumulate.means import CRPS, MAE, NLL, RMSE, Coverage, IntervalScore, Sharpness

__all__ = [
    "CRPS",
    "MAE",
    "NLL",
    "R2",
    "RMSE",
    "CalibrationError",
    "Coverage",
    "IntervalScore",
    "MiscalibrationArea",
    "Sharpness",
]
