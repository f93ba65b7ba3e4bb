"""Scores of forecasts: plain functions of (y_true, mean, std) on NumPy arrays, and `accumulate` for batches."""

from density_regression.metrics.calibration import (
    calibration_curve,
    calibration_error,
    coverage,
    ence,
    mace,
    miscalibration_area,
)
from density_regression.metrics.error import mae, r2, rmse
from density_regression.metrics.ranking import auroc, ause, sparsification_curve, spearman
from density_regression.metrics.scores import crps, interval_score, nll, nll_own
from density_regression.metrics.width import interval_width, sharpness

__all__ = [
    "auroc",
    "ause",
    "calibration_curve",
    "calibration_error",
    "coverage",
    "crps",
    "ence",
    "interval_score",
    "interval_width",
    "mace",
    "mae",
    "miscalibration_area",
    "nll",
    "nll_own",
    "r2",
    "rmse",
    "sharpness",
    "sparsification_curve",
    "spearman",
]
