"""Least squares: a point prediction, and one standard deviation for all."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from density_regression.base import About
from density_regression.baselines.base import Baseline, BaselineRegressor
from density_regression.batches import Batches, on_device
from density_regression.head import Moments

__all__ = ["DeterministicNetwork", "DeterministicRegressor"]


class DeterministicNetwork(Baseline):
    """A network that predicts the target alone, by least squares; its std is the RMSE on held-out rows.

    Parameters
    ----------
    encoder, features, targets
        See `Network`.
    """

    log_std: Tensor

    def __init__(self, encoder: nn.Module, features: int, targets: int = 1) -> None:
        super().__init__(encoder, features, targets)
        self.linear = nn.Linear(features, targets)
        self.register_buffer("log_std", torch.zeros(targets))

    def row_moments(self, z: Tensor) -> Moments:
        """Mean, and the same log standard deviation for every row, each (n, k)."""
        mean = self.linear(z)
        return Moments(mean, self.log_std.to(mean).expand_as(mean))

    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Half the squared error (n,), averaged over targets."""
        mean: Tensor = self.linear(z).to(y.dtype)
        return 0.5 * (y - mean).square().mean(1)

    @torch.no_grad()
    def finish(self, train: Batches, held_out: Batches) -> None:
        """Take the RMSE of each target on the held-out rows for its standard deviation."""
        total, count = torch.zeros_like(self.log_std, dtype=torch.float64), 0.0
        for batch in held_out:
            z, y, weight = self.flat(*on_device(batch, self.log_std.device))
            total += weight.double() @ (y - self.linear(z)).double().square()
            count += float(weight.double().sum())
        if not count:
            raise ValueError("The held-out batches have no rows with weight, and so no RMSE; give some.")
        # A handful of rows may be met exactly; a standard deviation of zero would be no distribution.
        self.log_std.copy_(0.5 * (total / count).clamp_min(1e-12).log())


class DeterministicRegressor(BaselineRegressor):
    """Least squares with a network: a point prediction, whose standard deviation is the held-out RMSE everywhere.

    It has the parameters of `DeepRegressor` and no others.

    Examples
    --------
    >>> from density_regression.baselines import DeterministicRegressor
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(n=200, random_state=0)
    >>> mean, std = DeterministicRegressor(epochs=5, random_state=0).fit(X, y).predict(X, return_std=True)
    >>> bool(std[0] == std[1])
    True
    """

    about = About("Deterministic", "Vapnik, 1998")

    def _network(self, encoder: nn.Module, features: int, targets: int) -> DeterministicNetwork:
        return DeterministicNetwork(encoder, features, targets)
