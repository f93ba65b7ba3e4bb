"""Prediction methods shared by all regressors, in the target's units."""

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.distributions import LogNormal, Normal

from density_regression.estimators.hooks import RegressorHooks
from density_regression.estimators.tables import CodedRows, rows_to_predict
from density_regression.nn.runtime import ROW_BLOCK, full_precision, threads
from density_regression.tabular.laws import from_law, log_normal_moments
from density_regression.tabular.table import Floats

__all__ = ["Prediction", "Predictions", "ScaledRows", "finite_sum", "moments_of_exponential", "normal_scores"]

PREDICTED_ROWS: Final = 8192
"""Rows predicted at once, so that memory does not grow with the table."""

SMALLEST_STD: Final = float(np.finfo(np.float64).tiny)
LARGEST_FLOAT: Final = float(np.finfo(np.float64).max)
"""The smallest standard deviation and the largest number that are given."""


class ScaledRows(NamedTuple):
    """Rows (n, c) to predict that have been checked, coded and scaled already, as training rows are."""

    x: Tensor


class Predictions(NamedTuple):
    """All that is predicted of n rows, each part (n,), or (n, k) of several targets but for the last.

    `low` and `high` are ends of an interval. `familiarity` is None of a method that has no density.
    """

    mean: Floats
    std: Floats
    low: Floats
    high: Floats
    familiarity: Floats | None


class Prediction(RegressorHooks):
    """Prediction methods shared by all regressors: everything that is derived from a Normal.

    With ``target="log"`` that is the Normal of log y, and y is log-normal: intervals, quantiles and samples are
    exponentials of those of log y, and so above 0, and mean and standard deviation are the moments of the log-normal
    law. Of a method whose own law is another, too: that has the mean and variance which the method gives log y. All are
    kept between e^-708 and e^709. The mean is far above the median where the standard deviation of log y is large, as
    it is far from the training data: the median, ``predict_quantiles(X, [0.5])``, is then the better guess.
    """

    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Predictive mean, and standard deviation if asked, in the target's units.

        Parameters
        ----------
        X : array-like or data frame of shape (n, c)
            Inputs in their own units. Columns of a frame are found by their names.
        return_std : bool
            Whether to return the standard deviation too.

        Returns
        -------
        mean : array of shape (n,) or (n, k)
        std : array of shape (n,) or (n, k)
            Only if `return_std`.
        """
        mean, std = self._mean_std(X)
        if self.target_ == "log":
            mean, std = moments_of_exponential(mean, std)
        return (mean, std) if return_std else mean

    def predict_quantiles(self, X: ArrayLike, levels: ArrayLike) -> Floats:
        """Quantiles at `levels` (L,), each strictly between 0 and 1: an array (n, L) or (n, k, L)."""
        scores = normal_scores(levels)
        mean, std = self._mean_std(X)
        return from_law(finite_sum(mean[..., None], std[..., None], scores), self.target_)

    def predict_dist(self, X: ArrayLike) -> Normal | LogNormal:
        """Predictive distribution in the target's units, of shape (n,) or (n, k), in float64.

        Normal; log-normal of a model whose `target` is "log".
        """
        mean, std = (torch.from_numpy(part) for part in self._mean_std(X))
        return LogNormal(mean, std) if self.target_ == "log" else Normal(mean, std)

    def sample(self, X: ArrayLike, n: int = 1, random_state: Any = None) -> Floats:
        """Draw `n` times from each row's predictive distribution: an array (n, rows) or (n, rows, k).

        Randomness is that of the estimator's `random_state`, unless another is given.
        """
        if not isinstance(n, Integral) or n < 1:
            raise ValueError(f"n must be an integer of at least 1, got {n!r}.")
        mean, std = self._mean_std(X)
        rng = check_random_state(self.random_state if random_state is None else random_state)
        return from_law(finite_sum(mean, std, rng.standard_normal((int(n), *mean.shape))), self.target_)

    def _mean_std(self, X: ArrayLike | ScaledRows) -> tuple[Floats, Floats]:
        """Mean and standard deviation, (n,) or (n, k), of the law's Normal: of the target or of its logarithm."""
        mean, std = self._apply(X, self._mean_and_std)
        return mean.reshape(len(mean), *self.target_shape_), std.reshape(len(std), *self.target_shape_)

    def _mean_and_std(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (n, k) of the law's Normal at scaled rows `x`, no longer scaled."""
        return self._without_scale(*self._moments(x))

    def _without_scale(self, mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (n, k), no longer scaled, from `_moments`."""
        return self._unscaled(mean.double(), shift=True), self._unscaled(log_std.double().exp_())

    def _all_parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """Mean and standard deviation (n, k) as `_mean_and_std` has them, and log-density (n,) of a method with one."""
        return self._mean_and_std(x)

    def _apply(self, X: ArrayLike | ScaledRows, function: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Floats, ...]:
        """Results of `function` on scaled rows, in chunks, as float64 arrays (n, ...)."""
        # check_is_fitted and next(model_.parameters()) each take as long as a layer of one row.
        if not hasattr(self, "any_parameter_"):
            check_is_fitted(self)
        device = self.any_parameter_.device
        if torch.is_autocast_enabled(device.type):
            with full_precision():
                return self._apply(X, function)
        parts = []
        with threads(self.n_threads), torch.inference_mode():
            x: Any = X.x if isinstance(X, ScaledRows) else self._rows(X)
            for start in range(0, len(x), PREDICTED_ROWS):
                part = x[start : start + PREDICTED_ROWS]
                rows = (part if isinstance(X, ScaledRows) else self.x_scaling_.apply(part)).to(device)
                count = len(rows)
                if count % ROW_BLOCK:
                    rows = torch.cat([rows, rows.new_zeros(ROW_BLOCK - count % ROW_BLOCK, rows.shape[1])])
                parts.append([value[:count].double().cpu().numpy() for value in function(rows)])
        return tuple(parts[0]) if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))

    def _shares(self, X: ArrayLike, parts: Sequence[Floats]) -> tuple[Floats, ...]:
        """Standard deviations in the target's units from those of parts of log y, each (n,) or (n, k).

        The first two are all of it. A part's share of the variance of y is its share of that of log y.
        """
        total = np.hypot(parts[0], parts[1])
        _, std = self.predict(X, return_std=True)
        return tuple(std * (part / total) for part in parts)

    # Here torch computes what numpy could: a switch between the two costs as much as several layers of one row.

    def _rows(self, X: ArrayLike) -> Floats | CodedRows:
        """Rows to predict, checked; those of a table with text, dates or gaps are coded some at a time."""
        # What is plainly right is not looked at any closer: that would take longer than predicting a row.
        if type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.flags.carray and len(X) > 0:
            known = X.shape[1] == self.n_features_in_ and not hasattr(self, "feature_names_in_")
            if known and self.columns_ is None and math.isfinite(torch.from_numpy(X).sum().item()):
                return X
        return rows_to_predict(self, X)

    def _in_units(self, values: Floats, *, shift: bool = False) -> Floats:
        """From the scaled target's units to the target's own, (..., k); one target is squeezed."""
        result = self._unscaled(torch.from_numpy(values), shift=shift).numpy()
        return result.reshape(*values.shape[:-1], *self.target_shape_)

    def _unscaled(self, values: Tensor, *, shift: bool = False) -> Tensor:
        """From the scaled target's units to the target's own, (..., k), finite."""
        values = values * torch.from_numpy(self.y_scaling_.scale).to(values.device)
        if not shift:
            return values.clamp_(SMALLEST_STD, LARGEST_FLOAT)
        values = values.add_(torch.from_numpy(self.y_scaling_.center).to(values.device))
        return values.clamp_(-LARGEST_FLOAT, LARGEST_FLOAT)


def normal_scores(levels: ArrayLike) -> Floats:
    """Quantiles (L,) of the standard Normal at levels (L,), which are checked."""
    try:
        probabilities = np.asarray(levels, dtype=np.float64)
    except (TypeError, ValueError):
        probabilities = np.zeros(1)
    if probabilities.ndim != 1 or not ((probabilities > 0) & (probabilities < 1)).all():
        raise ValueError(f"levels must be a list of numbers strictly between 0 and 1, got {levels!r}.")
    scores: Floats = ndtri(probabilities)
    return scores


def moments_of_exponential(mean: Floats, std: Floats) -> tuple[Floats, Floats]:
    """`log_normal_moments` of arrays."""
    mean, std = (part.numpy() for part in log_normal_moments(torch.from_numpy(mean), torch.from_numpy(std)))
    return mean, std


def finite_sum(mean: Floats, std: Floats, scores: Floats) -> Floats:
    """Mean + std * scores, finite."""
    with np.errstate(over="ignore"):
        return np.clip(mean + std * scores, -LARGEST_FLOAT, LARGEST_FLOAT)
