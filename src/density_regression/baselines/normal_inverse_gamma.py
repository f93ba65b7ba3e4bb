"""Normal-inverse-gamma distributions of a Normal's mean and variance, and their predictive Student's t."""

import math
from abc import abstractmethod
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import ExpTransform, StudentT, TransformedDistribution

from density_regression.baselines.base import Baseline, BaselineRegressor
from density_regression.nn.heads import Moments
from density_regression.nn.model import Decomposition
from density_regression.tabular.table import Floats

__all__ = ["NormalInverseGamma", "StudentTBaseline", "StudentTRegressor"]

SERIES_FROM_ALPHA: Final = 30.0
"""From this alpha on, Stirling series in 1 / alpha replace differences of gamma functions, which cancel in float32."""


class NormalInverseGamma(NamedTuple):
    """Belief about a Normal: sigma^2 ~ InverseGamma(alpha, beta), mu ~ Normal(mean, sigma^2 / nu), each (n, k).

    With alpha > 1 every variance below is finite.
    """

    mean: Tensor
    nu: Tensor
    alpha: Tensor
    beta: Tensor

    def log_aleatoric(self) -> Tensor:
        """Log of the expected noise variance, E sigma^2 = beta / (alpha - 1)."""
        return self.beta.log() - (self.alpha - 1.0).log()

    def log_epistemic(self) -> Tensor:
        """Log of the variance of the mean, Var mu = beta / (nu (alpha - 1))."""
        return self.log_aleatoric() - self.nu.log()

    def moments(self) -> Moments:
        """Mean and log standard deviation of the predictive distribution; its variance is E sigma^2 + Var mu."""
        return Moments(self.mean, 0.5 * (self.log_aleatoric() + self.nu.reciprocal().log1p()))

    def log_scale(self) -> Tensor:
        """Log scale of the predictive Student's t, which has 2 alpha degrees of freedom."""
        return 0.5 * (self.beta.log() + self.nu.reciprocal().log1p() - self.alpha.log())

    def nll(self, y: Tensor) -> Tensor:
        """Negative log-density (n, k) of the predictive Student's t at `y` (n, k), in nats."""
        spread = 2.0 * self.beta * (1.0 + self.nu.reciprocal())
        unusual = ((y - self.mean).square() / spread).log1p()
        return 0.5 * (math.pi * spread).log() - log_gamma_ratio(self.alpha) + (self.alpha + 0.5) * unusual

    def expected_log_likelihood(self, y: Tensor) -> Tensor:
        """E log Normal(y; mu, sigma^2) under the belief, (n, k)."""
        error = self.alpha / self.beta * (y - self.mean).square() + self.nu.reciprocal()
        return 0.5 * (self.alpha.digamma() - self.beta.log() - math.log(2 * math.pi) - error)

    def entropy(self) -> Tensor:
        """Entropy of the belief about (mu, sigma^2), in nats, (n, k)."""
        alpha = self.alpha.clamp_max(SERIES_FROM_ALPHA)
        exact = alpha.lgamma() + alpha - (alpha + 1.5) * alpha.digamma()
        x = self.alpha.clamp_min(SERIES_FROM_ALPHA).reciprocal()
        series = 2.0 * x.log() + 0.5 * math.log(2 * math.pi) + 0.5 + x * (11 / 12 + x * (1 / 8 - x / 90))
        of_alpha = torch.where(self.alpha < SERIES_FROM_ALPHA, exact, series)
        return 0.5 + 0.5 * math.log(2 * math.pi) + of_alpha + 1.5 * self.beta.log() - 0.5 * self.nu.log()


def log_gamma_ratio(alpha: Tensor) -> Tensor:
    """log Gamma(alpha + 1/2) - log Gamma(alpha), accurate in float32 for large alpha too."""
    small = alpha.clamp_max(SERIES_FROM_ALPHA)
    x = alpha.clamp_min(SERIES_FROM_ALPHA).reciprocal()
    series = -0.5 * x.log() - x * (1 / 8 - x.square() / 192)
    return torch.where(alpha < SERIES_FROM_ALPHA, (small + 0.5).lgamma() - small.lgamma(), series)


class StudentTBaseline(Baseline):
    """A baseline that predicts a Normal-inverse-gamma belief, and so a Student's t."""

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


class StudentTRegressor(BaselineRegressor):
    """A regressor around a `StudentTBaseline`."""

    model_: StudentTBaseline

    def own_dist(self, X: ArrayLike) -> StudentT | TransformedDistribution:
        """The predictive Student's t, in the target's units, of shape (n,) or (n, k), in float64.

        With ``target="log"`` that of the exponential of a Student's t, whose mean is infinite.
        """
        mean, log_scale, alpha = self._apply(X, self._student_t)
        mean, scale = self._in_units(mean, shift=True), self._in_units(np.exp(log_scale))
        df, loc, spread = (torch.from_numpy(part) for part in (2.0 * alpha.reshape(mean.shape), mean, scale))
        law = StudentT(df, loc, spread)
        return TransformedDistribution(law, ExpTransform()) if self.target_ == "log" else law

    def decompose(self, X: ArrayLike) -> Decomposition[Floats]:
        """Aleatoric and epistemic standard deviations, each (n,) or (n, k), in the target's units.

        As variances they are E sigma^2 and Var mu, which add up to that of the prediction. With ``target="log"`` each
        has the share of the variance of y that it has of that of log y.
        """
        parts = [self._in_units(std) for std in self._apply(X, self._parts)]
        return Decomposition(*(self._shares(X, parts) if self.target_ == "log" else parts))

    def _student_t(self, x: Tensor) -> tuple[Tensor, ...]:
        belief = self.model_.belief(x)
        return belief.mean, belief.log_scale(), belief.alpha

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        belief = self.model_.belief(x)
        return (0.5 * belief.log_aleatoric()).exp(), (0.5 * belief.log_epistemic()).exp()
