"""Three ways in which the density may enter the precision, each a monotone function of log p(z)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Final, Literal, Self

import torch
from torch import Tensor

from density_regression._numeric import FittedModule, weighted_quantiles

__all__ = ["TYPICAL_REACH", "ExactTempering", "RescaledTempering", "RobustTempering", "Tempering"]

TYPICAL_REACH: Final = 3.0
"""Reach of a model that has not learnt its own."""


class Tempering(FittedModule, ABC):
    """From log p(z) to log p~(z), the density that multiplies the precision.

    `reference` is the median log-density of held-out rows: the level of a typical input.
    """

    reference: Tensor

    reads_training_rows: ClassVar[bool] = False
    """Whether `fit` looks at the log-densities of training rows, too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("reference", torch.tensor(0.0))

    @torch.no_grad()
    def fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None = None) -> Self:
        """Learn levels from log-densities of training rows (n,) and of held-out rows (m,)."""
        (reference,) = weighted_quantiles(held_out, [0.5], held_out_weight)
        self._store(reference=reference)
        self._fit(train, held_out, held_out_weight)
        return self

    @property
    def reference_level(self) -> Tensor:
        """log p~ of a typical held-out row."""
        level: Tensor = self(self.reference)
        return level

    def _fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None) -> None:
        """Learn what the reference level does not say."""

    @abstractmethod
    def forward(self, log_prob: Tensor) -> Tensor:
        """log p~ of the same shape as `log_prob`."""


class ExactTempering(Tempering):
    """The paper's `eq:exp` to the letter: log p~ = log p."""

    def forward(self, log_prob: Tensor) -> Tensor:
        """Return `log_prob`."""
        return log_prob


class RescaledTempering(Tempering):
    """Training log-densities mapped linearly onto [low, high], and so beyond, as the authors' code does.

    Parameters
    ----------
    low, high : float
        The range; the authors set it by hand for each experiment, [0, 0.4] for the cubic toy.
    """

    lowest: Tensor
    slope: Tensor

    reads_training_rows = True

    def __init__(self, low: float = 0.0, high: float = 0.4) -> None:
        super().__init__()
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"Need finite low < high, got low={low}, high={high}.")
        self.low = low
        self.high = high
        self.register_buffer("lowest", torch.tensor(0.0))
        self.register_buffer("slope", torch.tensor(1.0))

    def _fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None) -> None:
        spread = (train.amax() - train.amin()).clamp_min(1e-3)
        self._store(lowest=train.amin(), slope=(self.high - self.low) / spread)

    def forward(self, log_prob: Tensor) -> Tensor:
        """Linear in `log_prob`."""
        return self.low + self.slope * (log_prob - self.lowest)


class RobustTempering(Tempering):
    r"""Polynomial instead of exponential growth of the variance, and none inside the training data.

    With the excess e = max(0, reference - start * spread - log p) / (reach * spread), how far a row lies below a
    typical held-out one,

    .. math:: \log \tilde p = -g \log(1 + 2 e).

    The spread is that of the held-out rows' own log-densities, from their median down to their 16 % quantile, so that
    "far" means the same in any number of dimensions. The reach says for how many such spreads the network's mean can
    still be trusted. For a Gaussian density and g = 1 the variance grows with the squared Mahalanobis distance, as in
    Bayesian linear regression; for g = 2 with its square.

    Parameters
    ----------
    exponent : float
        The g above, positive.
    reach : float or "auto"
        In spreads, positive. "auto" is 3 until a regressor learns it from rows that it hides from a few networks.
    start : float
        In spreads, how far below a typical row the variance begins to grow.
    """

    exponent: Tensor
    spread: Tensor
    learnt_reach: Tensor

    LOW: Final = 0.16
    """The quantile one standard deviation below the median, if log-densities were normal."""

    LEAST_SPREAD: Final = 0.5
    """In nats; a Gaussian of a single dimension has 0.76."""

    ROUNDINGS: Final = 16.0
    """Of the reference, that the spread has at least: differences below are none."""

    def __init__(self, exponent: float = 2.0, reach: float | Literal["auto"] = "auto", start: float = 0.0) -> None:
        super().__init__()
        if not (math.isfinite(exponent) and exponent > 0):
            raise ValueError(f"exponent must be positive and finite, got {exponent}.")
        if reach != "auto" and not (math.isfinite(reach) and reach > 0):
            raise ValueError(f'reach must be "auto" or positive and finite, got {reach}.')
        if not (math.isfinite(start) and start >= 0):
            raise ValueError(f"start must be at least 0 and finite, got {start}.")
        self.reach = reach
        self.start = start
        self.register_buffer("exponent", torch.tensor(float(exponent)))
        self.register_buffer("spread", torch.tensor(1.0))
        self.register_buffer("learnt_reach", torch.tensor(TYPICAL_REACH if reach == "auto" else float(reach)))

    def _fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None) -> None:
        (low,) = weighted_quantiles(held_out, [self.LOW], held_out_weight)
        # Where held-out rows are nothing like the others, of which there may be two, log-densities are mostly rounding.
        rounding = self.ROUNDINGS * torch.finfo(torch.float32).eps * self.reference.abs()
        self._store(spread=(self.reference - low).clamp_min(self.LEAST_SPREAD).maximum(rounding))

    def extend(self, reach: float) -> None:
        """Take a reach that was learnt."""
        self._store(learnt_reach=torch.tensor(reach))

    def forward(self, log_prob: Tensor) -> Tensor:
        """At most 0, and 0 wherever `log_prob` is at or above the reference."""
        begin = self.reference - self.start * self.spread if self.start else self.reference
        excess = (begin - log_prob).clamp_min(0.0) / (self.learnt_reach * self.spread)
        return -self.exponent * torch.log1p(2.0 * excess)
