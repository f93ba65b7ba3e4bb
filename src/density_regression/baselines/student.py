"""Student's t, the law of a target whose Normal has an uncertain mean and variance (Normal-inverse-gamma)."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import StudentT

from density_regression.base import Decomposition
from density_regression.baselines.base import Baseline, BaselineRegressor
from density_regression.head import Moments

__all__ = ["NormalInverseGamma", "StudentBaseline", "StudentRegressor"]


class NormalInverseGamma(NamedTuple):
    r"""Belief about a Normal: sigma^2 ~ InverseGamma(alpha, beta) and mu ~ Normal(mean, sigma^2 / nu), each (n, k).

    With alpha > 1 every variance below is finite.
    """

    mean: Tensor
    nu: Tensor
    alpha: Tensor
    beta: Tensor

    def log_aleatoric(self) -> Tensor:
        """Logarithm of E sigma^2 = beta / (alpha - 1), the noise expected."""
        return self.beta.log() - (self.alpha - 1.0).log()

    def log_epistemic(self) -> Tensor:
        """Logarithm of Var mu = beta / (nu (alpha - 1)), what is not known of the mean."""
        return self.log_aleatoric() - self.nu.log()

    def moments(self) -> Moments:
        """Mean and log standard deviation of the predictive law; the two variances add up."""
        log_variance = self.log_aleatoric() + self.nu.reciprocal().log1p()
        return Moments(self.mean, 0.5 * log_variance)

    def log_scale(self) -> Tensor:
        """Logarithm of the scale of the predictive Student's t, which has 2 alpha degrees of freedom."""
        return 0.5 * (self.beta.log() + self.nu.reciprocal().log1p() - self.alpha.log())

    def nll(self, y: Tensor) -> Tensor:
        """Negative log-density (n, k) of the predictive Student's t at `y` (n, k), in nats."""
        spread = 2.0 * self.beta * (1.0 + self.nu.reciprocal())
        unusual = ((y - self.mean).square() / spread).log1p()
        return 0.5 * (math.pi * spread).log() - log_gamma_ratio(self.alpha) + (self.alpha + 0.5) * unusual

    def expected_log_likelihood(self, y: Tensor) -> Tensor:
        """E log Normal(y; mu, sigma^2) over the belief, (n, k)."""
        error = self.alpha / self.beta * (y - self.mean).square() + self.nu.reciprocal()
        return 0.5 * (self.alpha.digamma() - self.beta.log() - math.log(2 * math.pi) - error)

    def entropy(self) -> Tensor:
        """Entropy of the belief about (mu, sigma^2), in nats, (n, k)."""
        alpha = self.alpha.clamp_max(SERIES)
        exact = alpha.lgamma() + alpha - (alpha + 1.5) * alpha.digamma()
        x = self.alpha.clamp_min(SERIES).reciprocal()
        # Stirling's series: the exact terms cancel each other, and with them every digit of float32.
        series = 2.0 * x.log() + 0.5 * math.log(2 * math.pi) + 0.5 + x * (11 / 12 + x * (1 / 8 - x / 90))
        of_alpha = torch.where(self.alpha < SERIES, exact, series)
        return 0.5 + 0.5 * math.log(2 * math.pi) + of_alpha + 1.5 * self.beta.log() - 0.5 * self.nu.log()


SERIES = 30.0
"""Series in 1 / alpha serve from this alpha on."""


def log_gamma_ratio(alpha: Tensor) -> Tensor:
    """log Gamma(alpha + 1/2) - log Gamma(alpha), also where the two are equal to all digits of float32."""
    small = alpha.clamp_max(SERIES)
    x = alpha.clamp_min(SERIES).reciprocal()
    series = -0.5 * x.log() - x * (1 / 8 - x.square() / 192)
    return torch.where(alpha < SERIES, (small + 0.5).lgamma() - small.lgamma(), series)


class StudentBaseline(Baseline):
    """A baseline that predicts a belief about a Normal, and so Student's t; its moments are those of that law."""

    @abstractmethod
    def row_belief(self, z: Tensor) -> NormalInverseGamma:
        """The belief at features `z` (n, features)."""

    def row_moments(self, z: Tensor) -> Moments:
        """Mean and log standard deviation (n, k) of Student's t."""
        return self.row_belief(z).moments()

    def belief(self, x: Tensor) -> NormalInverseGamma:
        """The belief at inputs `x`, of shape (batch, k) or (batch, k, ...)."""
        z = self.encode(x)
        mean, nu, alpha, beta = (self.positions(part, z) for part in self.row_belief(self.rows(z)))
        return NormalInverseGamma(self.shifted(mean), nu, alpha, self.widened(beta, power=2))


class StudentRegressor(BaselineRegressor):
    """A regressor around a `StudentBaseline`."""

    model_: StudentBaseline

    def own_dist(self, X: ArrayLike) -> StudentT:
        """Student's t itself, in the target's units, of shape (n,) or (n, k), in float64."""
        mean, log_scale, alpha = self._apply(X, self._student)
        mean, scale = self._in_units(mean, shift=True), self._in_units(np.exp(log_scale))
        df, loc, spread = (torch.from_numpy(part) for part in (2.0 * alpha.reshape(mean.shape), mean, scale))
        return StudentT(df, loc, spread)

    def decompose(self, X: ArrayLike) -> Decomposition:
        """Aleatoric and epistemic standard deviations, each (n,) or (n, k), in the target's units.

        The aleatoric part is the noise expected, E sigma^2; the epistemic part is how little is known of the mean,
        Var mu. They add up as variances to that of the prediction.
        """
        return Decomposition(*(self._in_units(std) for std in self._apply(X, self._parts)))

    def _student(self, x: Tensor) -> tuple[Tensor, ...]:
        belief = self.model_.belief(x)
        return belief.mean, belief.log_scale(), belief.alpha

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        belief = self.model_.belief(x)
        return (0.5 * belief.log_aleatoric()).exp(), (0.5 * belief.log_epistemic()).exp()
