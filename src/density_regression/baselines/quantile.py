"""Quantile regression: several quantiles at once by the pinball loss, which never cross."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.base import About, Settings
from density_regression.baselines.base import Baseline, BaselineRegressor
from density_regression.head import Moments
from density_regression.predicting import normal_scores
from density_regression.tables import Floats

__all__ = ["LEVELS", "QuantileNetwork", "QuantileRegressor"]

LEVELS: Final = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)
"""Levels of the quantiles that are learnt by default."""

MOST_LEVELS: Final = 1000
"""More levels than this are a mistake, or a saved model that asks for memory."""

FLOOR: Final = 1e-6
"""Least step between neighbouring quantiles, relative to their size: float32 tells such numbers apart."""

REACH: Final = 100.0
"""Normal scores over which the tails go on: no level of float64, save 0 and 1, lies as far out."""


class QuantileNetwork(Baseline):
    """Quantiles linear in the features, by the pinball loss (Koenker & Bassett, 1978).

    They cannot cross: the one nearest to the median is an output of its own, and each further one lies a positive
    step, a softplus, farther out.

    Parameters
    ----------
    encoder, features, targets
        See `Network`.
    levels : sequence of float
        From 2 to 1,000 levels, strictly increasing and strictly between 0 and 1.
    """

    probabilities: Tensor
    mean_weight: Tensor
    std_weight: Tensor

    def __init__(
        self, encoder: nn.Module, features: int, targets: int = 1, *, levels: Sequence[float] = LEVELS
    ) -> None:
        super().__init__(encoder, features, targets)
        self.levels = _checked(levels)
        self.anchor = min(range(len(self.levels)), key=lambda j: abs(self.levels[j] - 0.5))
        scores = ndtri(self.levels)
        self.linear = nn.Linear(features, len(self.levels) * targets)
        with torch.no_grad():
            # Begin at the quantiles of a Normal of unit variance for every row, as the standardised target has.
            steps = torch.from_numpy(np.diff(scores)).float().expm1().log()
            self.linear.weight[targets:].zero_()
            self.linear.bias[targets:] = steps.repeat(targets)
        # Least squares of quantiles on normal scores. Steps enter the slope with positive weights only.
        slope = (scores - scores.mean()) / ((scores - scores.mean()) ** 2).sum()
        constants = {
            "probabilities": np.asarray(self.levels),
            "mean_weight": 1 / len(scores) - scores.mean() * slope,
            "std_weight": -slope.cumsum()[:-1],
        }
        for name, value in constants.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32), persistent=False)

    def row_quantiles(self, z: Tensor) -> Tensor:
        """Quantiles (n, k, levels) at features `z` (n, features), strictly increasing."""
        anchor, offsets, _ = self._parts(z)
        return anchor + offsets

    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) of the Normal whose quantile-quantile line fits the quantiles best.

        The line is that of least squares of quantiles on the normal scores of their levels; intercept and slope are
        mean and standard deviation. If the quantiles are those of a Normal, these are its own.
        """
        anchor, offsets, steps = self._parts(z)
        return Moments(anchor.squeeze(-1) + offsets @ self.mean_weight, (steps @ self.std_weight).log())

    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Pinball loss (n,), averaged over levels and targets."""
        error = y[:, :, None] - self.row_quantiles(z)
        return torch.maximum(self.probabilities * error, (self.probabilities - 1.0) * error).mean((1, 2))

    def quantiles(self, x: Tensor) -> Tensor:
        """Quantiles at inputs `x`, of shape (batch, k, levels) or (batch, k, ..., levels)."""
        z = self.encode(x)
        by_level = self.row_quantiles(self.rows(z)).unbind(-1)
        return self.shifted(torch.stack([self.positions(part, z) for part in by_level], -1))

    def _parts(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The anchor (n, k, 1), the quantiles' distances from it (n, k, levels), and the steps between them."""
        # Under autocast the product is in half precision, too coarse for steps.
        output = self.linear(z).to(self.linear.weight.dtype)
        anchor = output[:, : self.targets, None]
        steps = F.softplus(output[:, self.targets :]).unflatten(1, (self.targets, -1))
        # Relative to all that is added up: next to a quantile of 1e10, a step of 1 would be lost in rounding.
        size = 1.0 + anchor.abs() + steps.sum(-1, keepdim=True)
        steps = steps + FLOOR * size.detach()
        below, above = steps[..., : self.anchor], steps[..., self.anchor :]
        down = below.flip(-1).cumsum(-1).flip(-1)
        return anchor, torch.cat([-down, torch.zeros_like(anchor), above.cumsum(-1)], -1), steps


def _checked(levels: Sequence[float]) -> tuple[float, ...]:
    """Levels as a tuple, or a ValueError that says what is wrong with them."""
    try:
        values = tuple(float(level) for level in levels)
    except (TypeError, ValueError) as error:
        raise ValueError(f"levels must be a sequence of numbers, got {levels!r}.") from error
    if not 2 <= len(values) <= MOST_LEVELS:
        raise ValueError(f"levels must be from 2 to {MOST_LEVELS} numbers, got {len(values)}.")
    if not all(0 < level < 1 for level in values) or not all(low < high for low, high in pairwise(values)):
        raise ValueError(f"levels must be strictly increasing and strictly between 0 and 1, got {levels!r}.")
    return values


class QuantileRegressor(BaselineRegressor):
    """Quantiles of the target, all from one network, that never cross.

    `predict_quantiles` and `predict_interval` read them directly; mean and standard deviation are those of the Normal
    that fits them best (see `QuantileNetwork.row_moments`).

    Parameters
    ----------
    levels : sequence of float
        Levels of the quantiles that are learnt: from 2 to 1,000, strictly increasing and strictly between 0 and 1.
    **settings
        See `DeepRegressor`.

    Examples
    --------
    >>> from density_regression.baselines import QuantileRegressor
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(n=200, random_state=0)
    >>> reg = QuantileRegressor(levels=(0.1, 0.5, 0.9), epochs=5, random_state=0).fit(X, y)
    >>> reg.predict_quantiles(X, [0.1, 0.9]).shape
    (200, 2)
    """

    about = About("Quantile", "Koenker & Bassett, 1978; Romano et al., 2019")
    model_: QuantileNetwork

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaselineRegressor._parameter_constraints,
        "levels": ["array-like"],
    }

    def __init__(self, *, levels: tuple[float, ...] = LEVELS, **settings: Unpack[Settings]) -> None:
        super().__init__(**settings)
        self.levels = levels

    def predict_quantiles(self, X: ArrayLike, levels: ArrayLike) -> Floats:
        """Quantiles at `levels` (L,), each strictly between 0 and 1: an array (n, L) or (n, k, L).

        Between the levels that were learnt, quantiles are linear in the normal score; beyond the outermost ones they
        go on as those of a Normal with the predicted standard deviation.
        """
        wanted = normal_scores(levels)
        check_is_fitted(self)
        quantiles, log_std = self._apply(X, self._knots)
        quantiles, reach = quantiles.swapaxes(1, 2), REACH * np.exp(log_std)[:, None]
        knots = np.concatenate([quantiles[:, :1] - reach, quantiles, quantiles[:, -1:] + reach], axis=1)
        own = ndtri(self.model_.levels)
        scores = np.concatenate([own[:1] - REACH, own, own[-1:] + REACH])
        left = np.searchsorted(scores, wanted, side="right") - 1
        share = ((wanted - scores[left]) / (scores[left + 1] - scores[left]))[:, None]
        between = knots[:, left] + share * (knots[:, left + 1] - knots[:, left])
        return np.moveaxis(self._in_units(between, shift=True), 1, -1)

    def _network(self, encoder: nn.Module, features: int, targets: int) -> QuantileNetwork:
        return QuantileNetwork(encoder, features, targets, levels=self.levels)

    def _knots(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.model_.quantiles(x), self.model_.moments(x).log_std
