"""Baselines that predict an equal mixture of Gaussians, such as the members of an ensemble."""

import math
from abc import abstractmethod

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Categorical, LogNormal, MixtureSameFamily, Normal

from density_regression.baselines.base import BaselineModule, BaselineRegressor
from density_regression.estimators.prediction import moments_of_exponential
from density_regression.nn.heads import Moments
from density_regression.tabular.table import Floats

__all__ = ["MixtureBaseline", "MixtureRegressor", "mixture_moments"]


def mixture_moments(members: Moments) -> Moments:
    """Moments (...,) of an equal mixture of Gaussians with moments (M, ...) (`eq:sampling-based`).

    The variance is the mean of the members' variances plus the variance of their means. It is computed in logs, as
    squares of large means overflow, and in float64, as the order in which torch sums depends on the number of rows.
    """
    means, log_stds = (part.double() for part in members)
    mean = means.mean(0)
    log_deviation = (means - mean).abs().clamp_min(torch.finfo(means.dtype).tiny).log()
    log_variance = torch.cat([2.0 * log_stds, 2.0 * log_deviation]).logsumexp(0) - math.log(len(means))
    return Moments(mean.to(members.mean), (0.5 * log_variance).to(members.log_std))


class MixtureBaseline(BaselineModule):
    """A baseline whose predictive distribution is an equal mixture of Gaussians."""

    @abstractmethod
    def scaled_member_moments(self, x: Tensor) -> Moments:
        """`member_moments` of the scaled target."""

    def member_moments(self, x: Tensor) -> Moments:
        """Moments of each member at inputs `x`, of shape (M, batch, k) or (M, batch, k, ...)."""
        return self.in_units(self.scaled_member_moments(x), axis=2)

    def moments(self, x: Tensor) -> Moments:
        """Moments of the mixture, of shape (batch, k) or (batch, k, ...)."""
        # Scaled afterwards: beside a large target mean, differences between members would be lost in rounding.
        return self.in_units(mixture_moments(self.scaled_member_moments(x)))


class MixtureRegressor(BaselineRegressor):
    """A regressor around a `MixtureBaseline`."""

    model_: MixtureBaseline

    def predict_members(self, X: ArrayLike) -> tuple[Floats, Floats]:
        """Means and standard deviations of the members, each (M, n) or (M, n, k), in the target's units."""
        means, stds = self._member_normals(X)
        return moments_of_exponential(means, stds) if self.target_ == "log" else (means, stds)

    def _member_normals(self, X: ArrayLike) -> tuple[Floats, Floats]:
        """Means and standard deviations (M, n) or (M, n, k) of the Normals of the members, of the target or its log."""
        means, log_stds = self._apply(X, lambda x: tuple(part.movedim(0, 1) for part in self.model_.member_moments(x)))
        mean, std = self._in_units(means, shift=True), self._in_units(np.exp(log_stds))
        return np.moveaxis(mean, 1, 0), np.moveaxis(std, 1, 0)

    def own_dist(self, X: ArrayLike) -> MixtureSameFamily:
        """The mixture, in the target's units, of shape (n,) or (n, k), in float64.

        Of log-normal distributions with ``target="log"``.
        """
        means, stds = (torch.from_numpy(np.moveaxis(part, 0, -1).copy()) for part in self._member_normals(X))
        law = LogNormal if self.target_ == "log" else Normal
        return MixtureSameFamily(Categorical(torch.ones_like(means)), law(means, stds))
