"""Gaussian network: mean and variance from one network, by maximum likelihood or beta-NLL."""

import math
from numbers import Real
from typing import Any, ClassVar, Final, Unpack

import torch
from torch import Tensor, nn

from density_regression.baselines.base import Baseline, BaselineRegressor
from density_regression.estimators.settings import About, Settings
from density_regression.io.sklearn_private import Interval
from density_regression.nn.density.folded import narrow
from density_regression.nn.heads import Moments, gaussian_losses
from density_regression.nn.network import LinearGaussian

__all__ = ["GaussianNetwork", "GaussianRegressor", "gaussian_nll", "moments_layer", "split_moments"]

MAX_ABS_LOG_STD: Final = 10.0
"""Largest |log std| of the scaled target: linear outputs are unbounded far from the training data."""


def moments_layer(features: int, targets: int) -> nn.Linear:
    """Linear layer to 2 k outputs, means and log standard deviations, the latter initialised to 0 for every row."""
    layer = nn.Linear(features, 2 * targets)
    with torch.no_grad():
        layer.weight[targets:].zero_()
        layer.bias[targets:].zero_()
    return layer


def split_moments(output: Tensor) -> Moments:
    """Moments (..., k) from the output (..., 2 k) of a `moments_layer`; log standard deviations are clipped."""
    mean, log_std = output.chunk(2, dim=-1)
    return Moments(mean, log_std.clamp(-MAX_ABS_LOG_STD, MAX_ABS_LOG_STD))


def gaussian_nll(moments: Moments, y: Tensor, beta: float = 0.0) -> Tensor:
    """Negative log-likelihood (...,) of targets `y` (..., k), in nats, averaged over targets.

    Each term is weighted by var^beta, without gradient (beta-NLL): with `beta` 0 this is the likelihood, and with 1
    the mean is learnt as by least squares.
    """
    if not beta:
        return gaussian_losses(moments, y)
    mean, log_std = moments
    nll = log_std + 0.5 * ((y - mean) * torch.exp(-log_std)).square() + 0.5 * math.log(2 * math.pi)
    return (nll * torch.exp(2.0 * beta * log_std.detach())).mean(-1)


class GaussianNetwork(Baseline):
    """Mean and log standard deviation, both linear in the features, by maximum likelihood (Nix & Weigend, 1994).

    loss = log std + (y - mean)^2 / (2 std^2), up to a constant.

    Arguments are described in `Network` and `GaussianRegressor`.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP, TrainingOptions
    >>> from density_regression.baselines import fit_baseline
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> model = GaussianNetwork(MLP(1, (8,)), features=8)
    >>> rows = list(zip(x.split(10), (2 * x).split(10), strict=True))
    >>> report = fit_baseline(model, rows, options=TrainingOptions(epochs=2))
    >>> tuple(model(x).stddev.shape)
    (40, 1)
    """

    def __init__(self, encoder: nn.Module, features: int, targets: int = 1, *, beta: float = 0.0) -> None:
        super().__init__(encoder, features, targets)
        if not 0 <= beta <= 1:
            raise ValueError(f"beta must lie between 0 and 1, got {beta}.")
        self.beta = beta
        self.linear = moments_layer(features, targets)

    def linear_gaussian(self) -> LinearGaussian:
        """The last layer, which predicts mean and log standard deviation."""
        return LinearGaussian(self.linear, MAX_ABS_LOG_STD)

    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) at features `z` (n, features)."""
        # Under autocast the layer returns half precision, too little for exponentials.
        return split_moments(narrow(self.linear, z).to(self.linear.weight.dtype))

    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Negative log-likelihood (n,), weighted by var^beta while training."""
        return gaussian_nll(self.row_moments(z), y, self.beta if self.training else 0.0)


class GaussianRegressor(BaselineRegressor):
    """Gaussian whose mean and variance are both outputs of the network, by maximum likelihood or beta-NLL.

    Parameters
    ----------
    beta : float
        Exponent of beta-NLL (Seitzer et al., 2022), from 0 to 1: 0 is maximum likelihood; with 0.5 rows of large
        variance still train the mean.
    weight_decay : float
        Weight decay of AdamW; less than for `DensityRegressor`, since decay makes networks overconfident away from
        the training data.
    **settings
        See `DeepRegressor`.

    Examples
    --------
    >>> from density_regression.baselines import GaussianRegressor
    >>> from density_regression.datasets import make_cubic
    >>> reg = GaussianRegressor(epochs=5, random_state=0).fit(*make_cubic(n=200, random_state=0))
    >>> mean, std = reg.predict([[0.0], [40.0]], return_std=True)
    """

    network_class = GaussianNetwork
    about = About("Gaussian", "Nix & Weigend, 1994; Chua et al., 2018")

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaselineRegressor._parameter_constraints,
        "beta": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(  # type: ignore[misc]
        self, *, beta: float = 0.0, weight_decay: float = 1e-4, **settings: Unpack[Settings]
    ) -> None:
        super().__init__(weight_decay=weight_decay, **settings)
        self.beta = beta
