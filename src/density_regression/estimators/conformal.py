"""Split-conformal intervals: marginal coverage from rows that were kept aside."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor

from density_regression.estimators.density_ratio import DensityRatio, Familiarity
from density_regression.estimators.prediction import (
    LARGEST_FLOAT,
    Prediction,
    Predictions,
    finite_sum,
    moments_of_exponential,
    normal_scores,
)
from density_regression.tabular.laws import candidate_laws, from_law, to_law
from density_regression.tabular.table import Floats, refuse_non_numbers

__all__ = ["Conformal", "ConformalPrediction", "check_coverage", "rows_needed"]

FEW_EFFECTIVE_ROWS: Final = 30
"""Effective rows below which weighted intervals are called vague."""

FEWEST_SHIFTED_ROWS: Final = 20
"""Fewest rows from which a shift is learnt."""

ROUNDING: Final = 1e-9
"""By so much may the rank of a quantile, or a cumulated share, be off by rounding."""


@dataclass(frozen=True)
class Conformal:
    """Scores of rows that were kept aside, from which the intervals of others follow.

    A score is the distance of a target from the predicted mean, in standard deviations; of log y with ``target="log"``.

    Attributes
    ----------
    scores : array of shape (n, k)
        Scores of the rows for each target, in order.
    weights : array of shape (n, k) or None
        Weights of the same rows, if inputs have shifted: 1 on average.
    ratio : DensityRatio or None
        Gives inputs their weights.
    """

    scores: Floats
    weights: Floats | None = None
    ratio: DensityRatio | None = None

    @classmethod
    def of(cls, scores: Floats, weights: Floats | None = None, ratio: DensityRatio | None = None) -> Self:
        """From scores (n, k) and weights (n,) in any order."""
        order = np.argsort(scores, axis=0, kind="stable")
        return cls(np.take_along_axis(scores, order, 0), None if weights is None else weights[order], ratio)

    @property
    def rows(self) -> int:
        """Number of rows that were kept aside."""
        return len(self.scores)

    @property
    def effective_rows(self) -> float:
        """Number of rows of equal weight that would say as much: (sum w)^2 / sum w^2 (Kish, 1965)."""
        if self.weights is None:
            return float(self.rows)
        weights = self.weights[:, 0]
        return float(weights.sum() ** 2 / (weights**2).sum())

    def quantile(self, coverage: float) -> Floats:
        """Score (k,) within which a new row lies with probability `coverage`: the ceil((n + 1) coverage)-th of n."""
        needed = rows_needed(coverage)
        if self.rows < needed:
            raise ValueError(
                f"coverage={coverage:g} needs at least {needed} rows in conformalize, but there were {self.rows}: give "
                f"it more rows, or ask for a coverage of {self.rows / (self.rows + 1):.3g} or less."
            )
        return np.asarray(self.scores[math.ceil((self.rows + 1) * coverage - ROUNDING) - 1])

    def weighted_quantiles(self, coverage: float, weights: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Scores (m, k) for rows of these weights (m,), and whether (m,) they are finite (Tibshirani et al., 2019).

        A row that weighs so much beside those kept aside that its score would be infinite gets the largest, or that of
        the law itself where this is larger.
        """
        assert self.weights is not None
        # Refuses too few rows, whatever they weigh.
        self.quantile(coverage)
        cumulated = self.weights.cumsum(axis=0)
        wanted = coverage * (cumulated[-1, 0] + weights) * (1.0 - ROUNDING)
        columns = range(self.scores.shape[1])
        index = np.stack([np.searchsorted(cumulated[:, column], wanted) for column in columns], axis=1)
        finite = index[:, 0] < self.rows
        found = np.take_along_axis(self.scores, np.minimum(index, self.rows - 1), 0)
        widest = np.maximum(self.scores[-1], ndtri((1.0 + coverage) / 2.0))
        return np.where(finite[:, None], found, widest), finite

    def tensors(self) -> dict[str, Tensor]:
        """All that is learnt, to be saved."""
        parts = {"scores": self.scores, "weights": self.weights}
        tensors = {name: torch.from_numpy(part.copy()) for name, part in parts.items() if part is not None}
        learnt = {} if self.ratio is None else self.ratio.tensors()
        return tensors | {f"ratio.{name}": tensor for name, tensor in learnt.items()}

    @classmethod
    def saved(cls, tensors: dict[str, Tensor]) -> Self:
        """From `tensors`; raises a ValueError if something else was saved."""
        scores, weights = (
            tensors[name].double().numpy() if name in tensors else None for name in ("scores", "weights")
        )
        if scores is None or scores.ndim != 2 or not (np.isfinite(scores) & (scores >= 0)).all():
            raise ValueError("The saved scores are not a table of finite numbers.")
        if not (np.diff(scores, axis=0) >= 0).all():
            raise ValueError("The saved scores are not in order.")
        if weights is None:
            return cls(scores)
        if weights.shape != scores.shape or not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError("The saved weights are not those of the saved scores.")
        learnt = {name.removeprefix("ratio."): part for name, part in tensors.items() if name.startswith("ratio.")}
        return cls(scores, weights, DensityRatio.saved(learnt))


def rows_needed(coverage: float) -> int:
    """Fewest rows from which a finite interval of this coverage follows."""
    return math.ceil(coverage / (1.0 - coverage) - ROUNDING)


def check_coverage(coverage: Any) -> float:
    """The coverage as a number strictly between 0 and 1."""
    number = isinstance(coverage, Real) or (np.ndim(coverage) == 0 and np.asarray(coverage).dtype.kind in "fiu")
    if not number or not 0 < coverage < (1 + coverage) / 2 < 1:
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r}.")
    return float(coverage)


def _checked_targets(y: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Targets as finite numbers (n, k), of this shape."""
    refuse_non_numbers(y, "y")
    target: Floats = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
    target = target.reshape(len(target), -1)
    if len(target) != shape[0]:
        raise ValueError(f"y has {len(target)} rows, but X has {shape[0]}.")
    if target.shape != shape:
        raise ValueError(f"y has {target.shape[1]} target(s), but the model was fitted to {shape[1]}.")
    return target


class ConformalPrediction(Prediction):
    """`conformalize`, and intervals that follow from it."""

    conformal_: Conformal | None

    def conformalize(self, X: ArrayLike, y: ArrayLike, *, shifted: ArrayLike | None = None) -> Self:
        """Give intervals marginal coverage, from rows that the model has not seen (split conformal prediction).

        From then on `predict_interval` gives the mean and so many standard deviations on either side (of log y with
        ``target="log"``) as hold that share of these rows, whatever the law of the target: over rows like these the
        target is in the interval with at least the probability asked for. `predict_quantiles`, `predict_dist` and
        `sample` stay as they are. The scores of the rows are saved with the model; fitting anew forgets them.

        Parameters
        ----------
        X : array-like or data frame of shape (n, c)
            Rows that neither trained the model nor were held out in training, as many as 100 or more: a coverage of
            0.9 needs 9, one of 0.99 needs 99.
        y : array-like of shape (n,) or (n, k)
            Their targets. Of several each has an interval of its own, with that coverage.
        shifted : array-like or data frame of shape (m, c), optional
            Inputs from where the model is to be used, if those have shifted; targets are not needed. Rows then count
            by how much more usual they are there, by the model's own density (weighted conformal prediction,
            Tibshirani et al., 2019; `DensityRatio`). The coverage is then approximate, as the weights are estimated.
            ``conformal_.effective_rows`` says how many rows are left. For `DensityRegressor` only.

        Returns
        -------
        self

        Examples
        --------
        >>> from density_regression import DensityRegressor
        >>> from density_regression.datasets import make_cubic
        >>> X, y = make_cubic(n=300, random_state=0)
        >>> reg = DensityRegressor(epochs=5, random_state=0).fit(X[:200], y[:200])
        >>> low, high = reg.conformalize(X[200:], y[200:]).predict_interval([[0.0]], coverage=0.9)
        >>> reg.conformal_.rows
        100
        """
        check_is_fitted(self)
        mean, std = (part.reshape(len(part), -1) for part in self._mean_std(X))
        target = _checked_targets(y, mean.shape)
        candidate_laws(self.target_, target)
        with np.errstate(over="ignore"):
            scores = np.minimum(np.abs(to_law(target, self.target_) - mean) / std, LARGEST_FLOAT)
        if shifted is None:
            self.conformal_ = Conformal.of(scores)
            return self
        usual, new = self._familiar(X), self._familiar(shifted)
        if len(new.log_density) < FEWEST_SHIFTED_ROWS:
            least = f"at least {FEWEST_SHIFTED_ROWS}"
            raise ValueError(f"shifted has {len(new.log_density)} rows, too few to learn a shift from: give {least}.")
        ratio = DensityRatio.fit(new, usual)
        conformal = Conformal.of(scores, ratio.weights(usual), ratio)
        if conformal.effective_rows < FEW_EFFECTIVE_ROWS:
            warnings.warn(
                f"The {conformal.rows} rows of conformalize are as good as {conformal.effective_rows:.0f} where inputs "
                "have shifted: intervals are vague there. Give more rows, or rows nearer to the shifted ones.",
                stacklevel=2,
            )
        self.conformal_ = conformal
        return self

    def predict_interval(self, X: ArrayLike, coverage: float = 0.95) -> tuple[Floats, Floats]:
        """Ends of the central interval that holds the target with probability `coverage`, each (n,) or (n, k).

        By the predictive distribution; after `conformalize` by the rows given there.
        """
        coverage = check_coverage(coverage)
        if getattr(self, "conformal_", None) is None:
            low, high = np.moveaxis(self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2]), -1, 0)
            return low, high
        return self._conformal_interval(X, *self._mean_std(X), coverage)

    def _conformal_interval(self, X: ArrayLike, mean: Floats, std: Floats, coverage: float) -> tuple[Floats, Floats]:
        """Ends of the intervals by what `conformalize` learnt, given the moments of the law's Normal."""
        assert self.conformal_ is not None
        scores = self._interval_scores(self.conformal_, X, coverage, mean.shape)
        low, high = (from_law(finite_sum(mean, std, side * scores), self.target_) for side in (-1.0, 1.0))
        return low, high

    def _predict_all(self, X: ArrayLike, coverage: float) -> Predictions:
        """What `predict`, `predict_interval` and, where there is one, `familiarity` give, from one pass over the rows.

        Two where a class has quantiles of its own.
        """
        coverage = check_coverage(coverage)
        mean, std, *log_density = self._apply(X, self._all_parts)
        mean, std = (part.reshape(len(part), *self.target_shape_) for part in (mean, std))
        if getattr(self, "conformal_", None) is not None:
            low, high = self._conformal_interval(X, mean, std, coverage)
        elif type(self).predict_quantiles is Prediction.predict_quantiles:
            scores = normal_scores([(1 - coverage) / 2, (1 + coverage) / 2])
            low, high = (from_law(finite_sum(mean, std, score), self.target_) for score in scores)
        else:
            low, high = self.predict_interval(X, coverage)
        if self.target_ == "log":
            mean, std = moments_of_exponential(mean, std)
        familiarity = self._shares_below(log_density[0]) if log_density else None
        return Predictions(mean, std, low, high, familiarity)

    def _shares_below(self, log_density: Floats) -> Floats:
        """Share of held-out rows that are no more familiar, from log-densities (n,); for a method with a density."""
        raise NotImplementedError

    def _interval_scores(self, conformal: Conformal, X: ArrayLike, coverage: float, shape: tuple[int, ...]) -> Floats:
        """Standard deviations on either side of the mean, of this shape."""
        if conformal.ratio is None:
            return np.broadcast_to(conformal.quantile(coverage), (shape[0], conformal.scores.shape[1])).reshape(shape)
        scores, finite = conformal.weighted_quantiles(coverage, conformal.ratio.weights(self._familiar(X)))
        if not finite.all():
            warnings.warn(
                f"{(~finite).sum()} of {len(finite)} rows are too unlike those of conformalize for a coverage of "
                f"{coverage:g}: their intervals are as wide as the largest score has it, without that guarantee.",
                stacklevel=3,
            )
        return scores.reshape(shape)

    def _familiar(self, X: ArrayLike) -> Familiarity:
        """What the density of the features knows of rows, for weights."""
        raise ValueError(f"shifted asks for weights by a density, which a {type(self).__name__} has not: leave it out.")
