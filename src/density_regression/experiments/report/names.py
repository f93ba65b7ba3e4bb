"""Metrics, suites and methods: what they are called, in which order they come, and which way is better."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.registry import methods

__all__ = ["MAIN", "RANKED", "Metric", "in_order", "metric", "suite_title"]

FloatArray = NDArray[np.float64]


class Metric(NamedTuple):
    """How a metric is read; a width is no virtue alone, and of an unknown metric nothing is known."""

    label: str
    better: Literal["lower", "higher", "near", "width", "unknown"] = "lower"
    level: float = 0.0

    def score(self, values: FloatArray) -> FloatArray:
        """The same values, so that lower is better."""
        if self.better == "higher":
            return -values
        return np.abs(values - self.level) if self.better == "near" else values


MAIN: Final = ("nll", "nll_own", "rmse", "cal", "sharpness_sd", "crps", "coverage_95", "auroc_std", "auroc_score")
"""Metrics that have tables of their own."""

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
    "auroc_std": Metric("AUROC of std", "higher"),
    "auroc_score": Metric("AUROC of the density score", "higher"),
}

_SUITES: Final = {
    "cubic": "Cubic toy",
    "uci": "UCI, standard splits",
    "uci-shift": "UCI, gaps and tails",
    "wine": "Wine, red and white",
    "weather": "Weather",
    "stations": "Weather stations",
}


def metric(name: str) -> Metric:
    """What is known of a metric of the records."""
    return _METRICS.get(name, Metric(name, "unknown"))


def suite_title(name: str) -> str:
    """A suite's heading."""
    return _SUITES.get(name, name)


def in_order(names: Iterable[str], kind: Literal["metric", "suite", "protocol", "method", "dataset"]) -> list[str]:
    """Names without repeats: those that are known first, in their usual order, then the others by the alphabet."""
    known = {
        "metric": (*MAIN, *_METRICS),
        "suite": tuple(_SUITES),
        "protocol": ("paper", "tuned"),
        "method": tuple(method.name for method in methods()),
        "dataset": (),
    }[kind]
    place = {name: index for index, name in reversed(list(enumerate(known)))}
    return sorted(set(names), key=lambda name: (place.get(name, len(known)), name.casefold(), name))
