"""Made-up forecasts, and evaluations of them."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from density_regression import metrics
from density_regression.experiments.evaluation.forecast import LEVELS, Forecast

Floats = NDArray[np.float64]


def normal_forecast(y: Floats, mean: Floats, std: Floats, familiarity: Floats | None = None) -> Forecast:
    """What a Normal law says of rows."""
    half = {level: float(ndtri(0.5 + level / 2)) * std for level in LEVELS}
    return Forecast(
        y,
        mean,
        std,
        (y - mean) / std,
        metrics.nll(y, mean, std),
        metrics.crps(y, mean, std),
        {level: (mean - part, mean + part) for level, part in half.items()},
        {},
        familiarity,
    )


def made_up(rows: int, *, spread: float = 1.0, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Targets, means and standard deviations, errors being `spread` times as large as predicted."""
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(3.0, 10.0, rows), rng.uniform(0.1, 2.0, rows)
    return mean + spread * std * rng.normal(size=rows), mean, std


def parts(cuts: list[int], rows: int) -> list[slice]:
    """Batches between these places, none of them empty."""
    ends = sorted({0, rows, *(cut % rows for cut in cuts)})
    return [slice(*pair) for pair in itertools.pairwise(ends)]
