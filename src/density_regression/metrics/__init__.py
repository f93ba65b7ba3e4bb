"""Metrics of predictive distributions: functions of (y_true, mean, std) on arrays, and `accumulate` for batches."""

from typing import TYPE_CHECKING, Any

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
from density_regression.metrics.scores import crps, crps_log_normal, interval_score, nll, nll_own
from density_regression.metrics.width import interval_width, sharpness

if TYPE_CHECKING:
    from density_regression.metrics.scorers import make_scorer, register_scorers

__all__ = [
    "auroc",
    "ause",
    "calibration_curve",
    "calibration_error",
    "coverage",
    "crps",
    "crps_log_normal",
    "ence",
    "interval_score",
    "interval_width",
    "mace",
    "mae",
    "make_scorer",
    "miscalibration_area",
    "nll",
    "nll_own",
    "r2",
    "register_scorers",
    "rmse",
    "sharpness",
    "sparsification_curve",
    "spearman",
]


def __getattr__(name: str) -> Any:
    # Imported on first use, because only these need scikit-learn.
    if name in ("make_scorer", "register_scorers"):
        from density_regression.metrics import scorers

        return getattr(scorers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
