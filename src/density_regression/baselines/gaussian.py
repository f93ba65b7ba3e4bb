"""The Gaussian network: mean and variance from one network, by maximum likelihood."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, ClassVar, Final, Unpack

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from density_regression._numeric import narrow
from density_regression.base import About, Settings
from density_regression.baselines.base import Baseline, BaselineRegressor
from density_regression.head import Moments, gaussian_losses
from density_regression.network import LinearGaussian

__all__ = ["GaussianNetwork", "GaussianRegressor", "gaussian_nll", "split_moments"]

LOG_STD_LIMIT: Final = 10.0
"""Largest |log std|, in units of the scaled target: a linear map of strange features may ask for any."""


def split_moments(output: Tensor) -> Moments:
    """Moments (..., k) from a linear layer's output (..., 2 k): means, then log standard deviations."""
    mean, log_std = output.chunk(2, dim=-1)
    return Moments(mean, log_std.clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT))


def gaussian_nll(moments: Moments, y: Tensor, beta: float = 0.0) -> Tensor:
    """Negative log-likelihood (...,) of targets `y` (..., k), in nats, averaged over targets.

    With `beta` each term is weighted by var^beta, taken as a constant (beta-NLL): 0 is maximum likelihood, and 1
    learns the mean as least squares would.
    """
    if not beta:
        return gaussian_losses(moments, y)
    mean, log_std = moments
    nll = log_std + 0.5 * ((y - mean) * torch.exp(-log_std)).square() + 0.5 * math.log(2 * math.pi)
    return (nll * torch.exp(2.0 * beta * log_std.detach())).mean(-1)


class GaussianNetwork(Baseline):
    """Mean and log standard deviation, both linear in the features, by maximum likelihood (Nix & Weigend, 1994).

    Parameters
    ----------
    encoder, features, targets
        See `Network`.
    beta : float
        Exponent of beta-NLL (Seitzer et al., 2022), between 0 and 1; 0 is maximum likelihood.
    """

    def __init__(self, encoder: nn.Module, features: int, targets: int = 1, *, beta: float = 0.0) -> None:
        super().__init__(encoder, features, targets)
        if not 0 <= beta <= 1:
            raise ValueError(f"beta must lie between 0 and 1, got {beta}.")
        self.beta = beta
        self.linear = nn.Linear(features, 2 * targets)
        with torch.no_grad():
            # Begin at unit variance for every row, that of the standardised target.
            self.linear.weight[targets:].zero_()
            self.linear.bias[targets:].zero_()

    def linear_gaussian(self) -> LinearGaussian:
        """The last layer, which predicts mean and log standard deviation."""
        return LinearGaussian(self.linear, LOG_STD_LIMIT)

    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) at features `z` (n, features)."""
        # Under autocast the product is in half precision; the exponentials that follow need more.
        return split_moments(narrow(self.linear, z).to(self.linear.weight.dtype))

    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Negative log-likelihood (n,), weighted by var^beta while training."""
        return gaussian_nll(self.row_moments(z), y, self.beta if self.training else 0.0)


class GaussianRegressor(BaselineRegressor):
    """A Gaussian whose mean and variance both come from the network, by maximum likelihood or beta-NLL.

    Parameters
    ----------
    beta : float
        Exponent of beta-NLL (Seitzer et al., 2022), between 0 and 1: 0 is maximum likelihood; 0.5 keeps rows with
        a large variance from being ignored.
    weight_decay : float
        Of AdamW; less than for `DensityRegressor`, as it makes networks agree, and so too sure, away from the data.
    **settings
        See `DeepRegressor`.

    Examples
    --------
    >>> from density_regression.baselines import GaussianRegressor
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(n=200, random_state=0)
    >>> mean, std = GaussianRegressor(epochs=5, random_state=0).fit(X, y).predict(X, return_std=True)
    >>> mean.shape, std.shape
    ((200,), (200,))
    """

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

    def _network(self, encoder: nn.Module, features: int, targets: int) -> GaussianNetwork:
        return GaussianNetwork(encoder, features, targets, beta=self.beta)
