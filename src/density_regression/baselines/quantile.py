"""Quantile regression: several non-crossing quantiles from one network, by the pinball loss."""

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

from density_regression.baselines.base import Baseline, BaselineRegressor
from density_regression.estimators.prediction import normal_scores
from density_regression.estimators.settings import About, Settings
from density_regression.nn.heads import Moments
from density_regression.tabular.laws import from_law
from density_regression.tabular.table import Floats

__all__ = ["DEFAULT_LEVELS", "QuantileNetwork", "QuantileRegressor"]

DEFAULT_LEVELS: Final = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)
MAX_LEVELS: Final = 1000

MIN_RELATIVE_STEP: Final = 1e-6
"""Smallest step between neighbouring quantiles, relative to their size: distinct in float32."""

TAIL_SCORES: Final = 100.0
"""Normal scores over which the tails are extended; those of all float64 levels but 0 and 1 are smaller."""


class QuantileNetwork(Baseline):
    """Quantiles linear in the features, by the pinball loss (Koenker & Bassett, 1978).

    loss = mean over levels p of max(p (y - q_p), (p - 1) (y - q_p)).

    They cannot cross: the quantile nearest to the median is an output, and neighbouring quantiles differ by positive
    steps, softplus of the other outputs.

    Arguments are described in `Network` and `QuantileRegressor`.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP, TrainingOptions
    >>> from density_regression.baselines import fit_baseline
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> model = QuantileNetwork(MLP(1, (8,)), features=8, levels=(0.1, 0.5, 0.9))
    >>> rows = list(zip(x.split(10), (2 * x).split(10), strict=True))
    >>> report = fit_baseline(model, rows, options=TrainingOptions(epochs=2))
    >>> tuple(model(x).stddev.shape)
    (40, 1)
    """

    probabilities: Tensor
    mean_weight: Tensor
    std_weight: Tensor

    def __init__(
        self, encoder: nn.Module, features: int, targets: int = 1, *, levels: Sequence[float] = DEFAULT_LEVELS
    ) -> None:
        super().__init__(encoder, features, targets)
        self.levels = _checked(levels)
        self.anchor = min(range(len(self.levels)), key=lambda j: abs(self.levels[j] - 0.5))
        scores = ndtri(self.levels)
        self.linear = nn.Linear(features, len(self.levels) * targets)
        with torch.no_grad():
            # Start at the quantiles of a Normal of unit variance for every row, that of the scaled target.
            steps = torch.from_numpy(np.diff(scores)).float().expm1().log()
            self.linear.weight[targets:].zero_()
            self.linear.bias[targets:] = steps.repeat(targets)
        # Least squares of quantiles on normal scores; as sums of steps, slopes have positive weights only.
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
        """Moments (n, k) of the Normal that fits the quantiles best.

        Mean and standard deviation are intercept and slope of the least-squares line of quantiles on normal scores.
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
        """Anchor (n, k, 1), distances of the quantiles from it (n, k, levels), and steps between them."""
        # Under autocast the layer returns half precision, too coarse for steps.
        output = self.linear(z).to(self.linear.weight.dtype)
        anchor = output[:, : self.targets, None]
        steps = F.softplus(output[:, self.targets :]).unflatten(1, (self.targets, -1))
        # Relative to the quantiles: beside 1e10, a step of 1 would be lost in rounding.
        size = 1.0 + anchor.abs() + steps.sum(-1, keepdim=True)
        steps = steps + MIN_RELATIVE_STEP * size.detach()
        below, above = steps[..., : self.anchor], steps[..., self.anchor :]
        down = below.flip(-1).cumsum(-1).flip(-1)
        return anchor, torch.cat([-down, torch.zeros_like(anchor), above.cumsum(-1)], -1), steps


def _checked(levels: Sequence[float]) -> tuple[float, ...]:
    """Levels as a tuple of floats; raises a ValueError if they are invalid."""
    try:
        values = tuple(float(level) for level in levels)
    except (TypeError, ValueError) as error:
        raise ValueError(f"levels must be a sequence of numbers, got {levels!r}.") from error
    if not 2 <= len(values) <= MAX_LEVELS:
        raise ValueError(f"levels must be from 2 to {MAX_LEVELS} numbers, got {len(values)}.")
    if not all(0 < level < 1 for level in values) or not all(low < high for low, high in pairwise(values)):
        raise ValueError(f"levels must be strictly increasing and strictly between 0 and 1, got {levels!r}.")
    return values


class QuantileRegressor(BaselineRegressor):
    """Quantile regression: non-crossing quantiles of the target, all from one network.

    `predict_quantiles` and `predict_interval` return them directly; mean and standard deviation are those of the
    Normal that fits them best.

    Parameters
    ----------
    levels : sequence of float
        Levels of the quantiles: from 2 to 1,000, strictly increasing and strictly between 0 and 1.
    **settings
        See `DeepRegressor`.

    Examples
    --------
    >>> from density_regression.baselines import QuantileRegressor
    >>> from density_regression.datasets import make_cubic
    >>> reg = QuantileRegressor(levels=(0.1, 0.5, 0.9), epochs=5, random_state=0).fit(*make_cubic(200, random_state=0))
    >>> reg.predict_quantiles([[0.0]], [0.1, 0.9]).shape
    (1, 2)
    """

    network_class = QuantileNetwork
    about = About("Quantile", "Koenker & Bassett, 1978; Romano et al., 2019")
    model_: QuantileNetwork

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaselineRegressor._parameter_constraints,
        "levels": ["array-like"],
    }

    def __init__(self, *, levels: tuple[float, ...] = DEFAULT_LEVELS, **settings: Unpack[Settings]) -> None:
        super().__init__(**settings)
        self.levels = levels

    def predict_quantiles(self, X: ArrayLike, levels: ArrayLike) -> Floats:
        """Quantiles (n, L) or (n, k, L) at `levels` (L,), each strictly between 0 and 1.

        Between the learnt levels they are interpolated linearly in the normal score; beyond them they are extended as
        those of a Normal with the predicted standard deviation. With ``target="log"`` all this is of log y.
        """
        wanted = normal_scores(levels)
        check_is_fitted(self)
        quantiles, log_std = self._apply(X, lambda x: (self.model_.quantiles(x), self.model_.moments(x).log_std))
        quantiles, tail = quantiles.swapaxes(1, 2), TAIL_SCORES * np.exp(log_std)[:, None]
        knots = np.concatenate([quantiles[:, :1] - tail, quantiles, quantiles[:, -1:] + tail], axis=1)
        own = ndtri(self.model_.levels)
        scores = np.concatenate([own[:1] - TAIL_SCORES, own, own[-1:] + TAIL_SCORES])
        left = np.searchsorted(scores, wanted, side="right") - 1
        share = ((wanted - scores[left]) / (scores[left + 1] - scores[left]))[:, None]
        between = knots[:, left] + share * (knots[:, left + 1] - knots[:, left])
        return from_law(np.moveaxis(self._in_units(between, shift=True), 1, -1), self.target_)
