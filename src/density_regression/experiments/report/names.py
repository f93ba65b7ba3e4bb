"""Labels and order of metrics, suites and methods, and which values of a metric are better."""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import numpy as np

from density_regression.experiments.significance import FloatArray
from density_regression.registry import methods

__all__ = ["MAIN", "OURS", "RANKED", "SUITE_TITLES", "Metric", "in_order", "metric"]

OURS: Final = "Density-Regression"


class Metric(NamedTuple):
    """Label of a metric, and which values are better.

    A "width" only between calibrated methods, "near" its `level`, a "factor" near 1, twice being as far as half.
    """

    label: str
    better: Literal["lower", "higher", "near", "factor", "width", "unknown"] = "lower"
    level: float = 0.0

    def score(self, values: FloatArray) -> FloatArray:
        """Values transformed so that lower is better."""
        if self.better == "higher":
            return -values
        if self.better == "factor":
            return np.abs(np.log(values))
        return np.abs(values - self.level) if self.better == "near" else values


MAIN: Final = (
    "nll",
    "nll_own",
    "rmse",
    "cal",
    "sharpness_sd",
    "crps",
    "coverage_95",
    "std_factor",
    "auroc_std",
    "auroc_score",
)
"""Metrics in the main tables; the others are in the appendix."""

RANKED: Final = ("nll", "cal", "crps")
"""Metrics by which methods are ranked over data sets."""

_METRICS: Final = {
    "nll": Metric("NLL"),
    "nll_own": Metric("NLL, own law"),
    "nll_rescaled": Metric("NLL, rescaled"),
    "rmse": Metric("RMSE"),
    "mae": Metric("MAE"),
    "r2": Metric("R²", "higher"),
    "cal": Metric("Calibration error"),
    "cal_rescaled": Metric("Calibration error, rescaled"),
    "sharpness": Metric("Sharpness (target's unit)", "width"),
    "sharpness_sd": Metric("Sharpness (training sd)", "width"),
    "crps": Metric("CRPS"),
    "crps_rescaled": Metric("CRPS, rescaled"),
    "interval_score": Metric("Interval score, 95 %"),
    "coverage_50": Metric("Coverage of 50 % intervals", "near", 0.50),
    "coverage_90": Metric("Coverage of 90 % intervals", "near", 0.90),
    "coverage_95": Metric("Coverage of 95 % intervals", "near", 0.95),
    "width_95": Metric("Width of 95 % intervals", "width"),
    "mace": Metric("Mean absolute calibration error"),
    "miscalibration_area": Metric("Miscalibration area"),
    "ence": Metric("ENCE"),
    "ause": Metric("AUSE"),
    "spearman": Metric("Spearman, error and std", "higher"),
    "std_factor": Metric("Standard-deviation factor", "factor"),
    "auroc_std": Metric("AUROC of std", "higher"),
    "auroc_score": Metric("AUROC of the density score", "higher"),
}

SUITE_TITLES: Final = {
    "cubic": "Cubic toy",
    "uci": "UCI, standard splits",
    "uci-shift": "UCI, gaps and tails",
    "shift": "Natural shifts",
    "wine": "Wine, red and white",
    "weather": "Weather",
    "stations": "Weather stations",
    "compare": "Cross-validation of your own table",
}


def metric(name: str) -> Metric:
    """Description of a metric by its name in the records."""
    return _METRICS.get(name, Metric(name, "unknown"))


def in_order(names: Iterable[str], kind: Literal["metric", "suite", "protocol", "method", "dataset"]) -> list[str]:
    """Names without repeats: known ones in their usual order, then the others by the alphabet."""
    known = {
        "metric": (*MAIN, *_METRICS),
        "suite": tuple(SUITE_TITLES),
        "protocol": ("paper", "default", "tuned"),
        "method": tuple(method.name for method in methods()),
        "dataset": (),
    }[kind]
    place = {name: index for index, name in reversed(list(enumerate(known)))}
    return sorted(set(names), key=lambda name: (place.get(name, len(known)), name.casefold(), name))
