"""Metrics accumulated over batches and processes, as torchmetrics classes; they need the extra ``metrics``.

Each equals the function of the same name in `density_regression.metrics`. Further keyword arguments of their
constructors are those of ``torchmetrics.Metric``; ``compute`` returns a float64 scalar, NaN if there were no entries.
"""

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
