"""Forecast of a batch of rows beside their targets, from which all of an evaluation follows."""

from __future__ import annotations

import warnings
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtri
from torch import Tensor
from torch.distributions import LogNormal, Normal

from density_regression import metrics
from density_regression.estimators.base import DeepRegressor
from density_regression.estimators.conformal import rows_needed
from density_regression.estimators.prediction import Prediction, finite_sum, moments_of_exponential
from density_regression.tabular.laws import from_law
from density_regression.tabular.table import Floats

__all__ = ["LEVELS", "Ends", "Forecast", "forecast"]

LEVELS: Final = (0.5, 0.8, 0.9, 0.95)
"""Coverages of the intervals that are evaluated."""

GRID: Final = 200
"""Quantiles, less one, by which the place of a target in a law of learnt quantiles is found."""

LARGEST_SCORE: Final = float(np.finfo(np.float64).max)

Ends = dict[float, tuple[Floats, Floats]]
"""Lower and upper ends (n,) of intervals, by their coverage."""


class Forecast(NamedTuple):
    """What a regressor says of n rows, and their targets, in the target's units.

    Attributes
    ----------
    y, mean, std : arrays of shape (n,)
        Targets, predictive means and standard deviations.
    z : array of shape (n,)
        Targets as standard normal scores of the predictive law: the Normal quantile of F(y), finite.
    nll, crps : float
        Mean over the rows: negative log-likelihood under the method's own law, in nats, infinite if that law excludes a
        target; and the continuous ranked probability score of the Normal or log-normal law.
    ends, conformal : dict
        Ends of the central intervals of the law; and of those of `conformalize`, if it was called.
    familiarity : array of shape (n,) or None
        Share of held-out training rows that are no more familiar; None of a method without that notion.
    """

    y: Floats
    mean: Floats
    std: Floats
    z: Floats
    nll: float
    crps: float
    ends: Ends
    conformal: Ends
    familiarity: Floats | None

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Ends (n,) of the interval that `predict_interval` gives at one of `LEVELS`; the law's if rows are too few."""
        return self.conformal.get(level, self.ends[level])


def forecast(regressor: DeepRegressor, X: ArrayLike, y: Floats) -> Forecast:
    """Forecast of rows X (n, c) with targets y (n,), finite, by a regressor of one target."""
    if regressor.target_shape_:
        raise ValueError(
            f"The model has {regressor.target_shape_[0]} targets, and one at a time is evaluated: fit one for each."
        )
    # One pass over the rows gives all that a Normal law and familiarity need.
    center, scale, *log_density = regressor._apply(X, regressor._all_parts)
    center, scale = center.reshape(len(y)), scale.reshape(len(y))
    is_log = regressor.target_ == "log"
    mean, std = moments_of_exponential(center, scale) if is_log else (center, scale)
    with np.errstate(divide="ignore", over="ignore"):
        z = ((np.log(np.maximum(y, 0.0)) if is_log else y) - center) / scale
    ends = _ends(regressor, center, scale, {level: float(ndtri(0.5 + level / 2)) for level in LEVELS})
    if type(regressor).predict_quantiles is not Prediction.predict_quantiles:
        z, ends = _by_quantiles(regressor, X, y)
    return Forecast(
        y,
        mean,
        std,
        np.clip(z, -LARGEST_SCORE, LARGEST_SCORE),
        _own_nll(_own_law(regressor, X, center, scale), y, positive=is_log),
        (metrics.crps_log_normal if is_log else metrics.crps)(y, center, scale),
        ends,
        _conformal_ends(regressor, X, center, scale),
        regressor._shares_below(log_density[0]) if log_density and _knows_familiarity(regressor) else None,
    )


def _ends(regressor: DeepRegressor, center: Floats, scale: Floats, scores: dict[float, Any]) -> Ends:
    """Intervals of so many standard deviations on either side, by coverage."""
    law = regressor.target_
    return {
        level: (
            from_law(finite_sum(center, scale, -score), law),
            from_law(finite_sum(center, scale, score), law),
        )
        for level, score in scores.items()
    }


def _by_quantiles(regressor: DeepRegressor, X: ArrayLike, y: Floats) -> tuple[Floats, Ends]:
    """Normal scores of targets, and intervals, of a method that learns quantiles: its law is no Normal."""
    grid = np.arange(1, GRID) / GRID
    quantiles = regressor.predict_quantiles(X, grid)
    below = (quantiles < y[:, None]).sum(axis=1)
    tails = {level: (1 - level) / 2 for level in LEVELS}
    places = {level: (round(GRID * tail) - 1, round(GRID * (1 - tail)) - 1) for level, tail in tails.items()}
    ends = {level: (quantiles[:, low], quantiles[:, high]) for level, (low, high) in places.items()}
    return np.asarray(ndtri((below + 0.5) / GRID)), ends


def _conformal_ends(regressor: DeepRegressor, X: ArrayLike, center: Floats, scale: Floats) -> Ends:
    conformal = regressor.conformal_
    if conformal is None:
        return {}
    levels = [level for level in LEVELS if rows_needed(level) <= conformal.rows]
    if conformal.ratio is None:
        return _ends(regressor, center, scale, {level: conformal.quantile(level)[0] for level in levels})
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        # Of rows that are too strange for a finite interval: they count as the rows they are.
        return {level: regressor.predict_interval(X, level) for level in levels}


def _own_law(regressor: DeepRegressor, X: ArrayLike, center: Floats, scale: Floats) -> Any:
    """The method's own law, or the Normal or log-normal one."""
    if hasattr(regressor, "own_dist"):
        return regressor.own_dist(X)
    law = LogNormal if regressor.target_ == "log" else Normal
    return law(torch.from_numpy(center), torch.from_numpy(scale))


def _own_nll(law: Any, y: Floats, *, positive: bool) -> float:
    if positive and (y <= 0).any():
        # Outside of the support, where torch refuses to answer.
        return float("inf")
    with torch.no_grad():
        log_density: Tensor = law.log_prob(torch.tensor(y))
    return -float(log_density.double().mean())


def _knows_familiarity(regressor: DeepRegressor) -> bool:
    return hasattr(regressor, "familiarity") and getattr(regressor.model_, "familiar_levels", None) is not None
