"""A single Gaussian: the standard normal on whitened features."""

import math

import torch
from torch import Tensor

from density_regression.nn.density.base import Density
from density_regression.nn.density.quadratics import Quadratics

__all__ = ["GaussianDensity"]


class GaussianDensity(Density):
    """Gaussian with the features' mean and covariance.

    log p(t) = -(|t|^2 + q log 2 pi) / 2, of the q whitened coordinates t.

    Examples
    --------
    >>> import torch
    >>> z = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> density = GaussianDensity().fit(z)
    >>> bool(density.log_prob(torch.zeros(1, 3)) > density.log_prob(torch.full((1, 3), 9.0)))
    True
    """

    def _fit(self, t: Tensor, weight: Tensor, held_out: Tensor, generator: torch.Generator) -> None:
        """Nothing to learn: the whitening holds mean and covariance."""

    def quadratics(self) -> Quadratics:
        """One component; see `Density.quadratics`."""
        q, like = self.whitening.kept, self.whitening.scales
        constant = like.new_full((1,), -0.5 * q * math.log(2 * math.pi))
        return Quadratics(torch.eye(q).to(like), like.new_zeros(q), constant)

    def _log_prob(self, t: Tensor) -> Tensor:
        return -0.5 * (t.square().sum(-1) + t.shape[-1] * math.log(2 * math.pi))
