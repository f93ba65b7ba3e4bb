"""Least squares: a point prediction with a constant standard deviation."""

import torch
from torch import Tensor, nn

from density_regression.baselines.base import Baseline, BaselineRegressor
from density_regression.estimators.settings import About
from density_regression.nn.heads import Moments
from density_regression.training.batches import Batches, on_device

__all__ = ["DeterministicNetwork", "DeterministicRegressor"]


class DeterministicNetwork(Baseline):
    """Least-squares network; the standard deviation of each target is its RMSE on held-out rows.

    mean = W z, std = sqrt(mean of (y - mean)^2) over the held-out rows.

    Arguments are described in `Network`.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP, TrainingOptions
    >>> from density_regression.baselines import fit_baseline
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> model = DeterministicNetwork(MLP(1, (8,)), features=8)
    >>> rows = list(zip(x.split(10), (2 * x).split(10), strict=True))
    >>> report = fit_baseline(model, rows, options=TrainingOptions(epochs=2))
    >>> tuple(model(x).stddev.shape)
    (40, 1)
    """

    log_std: Tensor

    def __init__(self, encoder: nn.Module, features: int, targets: int = 1) -> None:
        super().__init__(encoder, features, targets)
        self.linear = nn.Linear(features, targets)
        self.register_buffer("log_std", torch.zeros(targets))

    def row_moments(self, z: Tensor) -> Moments:
        """Mean and constant log standard deviation, each (n, k)."""
        mean = self.linear(z)
        return Moments(mean, self.log_std.to(mean).expand_as(mean))

    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Half the squared error (n,), averaged over targets."""
        mean: Tensor = self.linear(z).to(y.dtype)
        return 0.5 * (y - mean).square().mean(1)

    @torch.no_grad()
    def finish(self, train: Batches, held_out: Batches) -> None:
        """Set the standard deviation of each target to its RMSE on the held-out rows."""
        total, count = torch.zeros_like(self.log_std, dtype=torch.float64), 0.0
        for batch in held_out:
            z, y, weight = self.flat(*on_device(batch, self.log_std.device))
            total += weight.double() @ (y - self.linear(z)).double().square()
            count += float(weight.double().sum())
        if not count:
            raise ValueError("The held-out batches have no rows with weight, and so no RMSE; give some.")
        # A few rows may be fitted exactly, but a standard deviation must be positive.
        self.log_std.copy_(0.5 * (total / count).clamp_min(1e-12).log())


class DeterministicRegressor(BaselineRegressor):
    """Least squares with a network; the standard deviation is the held-out RMSE for every input.

    Its parameters are those of `DeepRegressor`.

    Examples
    --------
    >>> from density_regression.baselines import DeterministicRegressor
    >>> from density_regression.datasets import make_cubic
    >>> reg = DeterministicRegressor(epochs=5, random_state=0).fit(*make_cubic(n=200, random_state=0))
    >>> mean, std = reg.predict([[0.0], [40.0]], return_std=True)
    >>> bool(std[0] == std[1])
    True
    """

    network_class = DeterministicNetwork
    about = About("Deterministic", "Vapnik, 1998")
