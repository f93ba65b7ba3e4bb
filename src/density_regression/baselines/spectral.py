"""Spectral normalisation: every layer of an encoder within a Lipschitz bound, as SNGP and DUE need it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from numbers import Real
from typing import Any, ClassVar, Final, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn
from torch.nn.utils import parametrize

from density_regression.base import Settings
from density_regression.baselines.base import Baseline, BaselineRegressor
from density_regression.batches import Batches, on_device
from density_regression.encoders import ResidualMLP
from density_regression.network import Features, position_weights

__all__ = ["SpectralBaseline", "SpectralNorm", "SpectralRegressor", "mean_distance", "normalise", "settle"]

LAYERS: Final = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
"""Layers whose weight is bounded."""


class SpectralNorm(nn.Module):
    """A weight W divided by max(1, sigma(W) / bound), with its largest singular value sigma by power iteration.

    A weight within the bound is left as it is. The kernel of a convolution is bounded as the matrix (first channels,
    the rest); the convolution itself may stretch by more, at most the square root of the kernel's size as much.

    Parameters
    ----------
    weight : Tensor
        What the power iteration starts with.
    bound : float
        Largest singular value allowed.
    start : int
        Steps of the power iteration now; while training there is one more for each use.
    """

    u: Tensor
    v: Tensor

    def __init__(self, weight: Tensor, bound: float, *, start: int = 15) -> None:
        super().__init__()
        self.bound = bound
        matrix = weight.detach().flatten(1)
        self.register_buffer("u", torch.zeros_like(matrix[:, 0]))
        self.register_buffer("v", torch.randn_like(matrix[0]))
        for _ in range(start):
            self._iterate(matrix)

    def forward(self, weight: Tensor) -> Tensor:
        """The bounded weight."""
        if self.training:
            self._iterate(weight.detach().flatten(1))
        return weight / (self.sigma(weight) / self.bound).clamp_min(1.0)

    def sigma(self, weight: Tensor) -> Tensor:
        """Largest singular value of `weight`, as far as the power iteration knows it."""
        # Copies: the same layer may be used again before the gradient asks for these.
        sigma: Tensor = self.u.clone() @ weight.flatten(1) @ self.v.clone()
        return sigma

    @torch.no_grad()
    def _iterate(self, matrix: Tensor) -> None:
        u = matrix @ self.v
        self.u.copy_(u / u.norm().clamp_min(torch.finfo(u.dtype).tiny))
        v = matrix.T @ self.u
        # A weight of zeros has no direction; it must be able to find one when it grows.
        self.v.copy_(torch.where(v.norm() > 0, v / v.norm(), self.v))


def normalise(encoder: nn.Module, bound: float) -> None:
    """Bound every linear and convolutional layer of `encoder` in place, while it is trained.

    Layers whose weight is already computed from something else, by a parametrisation of the caller's, keep theirs.
    """
    for layer in _layers(encoder):
        if isinstance(layer._parameters.get("weight"), nn.Parameter):
            parametrize.register_parametrization(layer, "weight", SpectralNorm(layer.weight, bound))


@torch.no_grad()
def settle(encoder: nn.Module) -> None:
    """Undo `normalise`: leave plain weights, within their bound exactly (by singular value decomposition)."""
    for layer in _layers(encoder):
        norm = _norm(layer)
        if norm is not None:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
            sigma = torch.linalg.matrix_norm(layer.weight.double().flatten(1), ord=2)
            layer.weight.div_((sigma / norm.bound).clamp_min(1.0).to(layer.weight))


def _layers(encoder: nn.Module) -> Iterator[Any]:
    return (layer for layer in list(encoder.modules()) if isinstance(layer, LAYERS))


def _norm(layer: nn.Module) -> SpectralNorm | None:
    """The normalisation that `normalise` gave to a layer."""
    if not parametrize.is_parametrized(layer, "weight"):
        return None
    first = layer.parametrizations["weight"][0]  # type: ignore[index]
    return first if isinstance(first, SpectralNorm) else None


def mean_distance(z: Tensor, rows: int = 500) -> float:
    """Mean distance between (the first `rows`) rows of `z` (n, features), or 1 where they are all alike."""
    distance = float(torch.pdist(z[:rows].double()).mean())
    return distance if 0.0 < distance < math.inf else 1.0


class SpectralBaseline(Baseline):
    """A Gaussian process on the features of an encoder that is spectrally normalised, so that it keeps distances.

    The weights are normalised while the network is trained; afterwards plain weights within the bound are left, and
    so the state is that of the encoder as it was given. Batch normalisation rescales features, and is not bounded.

    Parameters
    ----------
    encoder, features, targets
        See `Network`.
    spectral_bound : float
        Largest singular value of each linear or convolutional layer's weight matrix.
    """

    SAMPLE: Final = 2000
    """Most rows whose features say where to start."""

    draws = True
    """`begin` draws from torch's generator."""

    total_weight: float = 1.0
    """Sum of the weights of the training rows and positions, against which the prior counts as one."""

    def __init__(self, encoder: nn.Module, features: int, targets: int = 1, *, spectral_bound: float = 0.95) -> None:
        super().__init__(encoder, features, targets)
        if not (math.isfinite(spectral_bound) and spectral_bound > 0):
            raise ValueError(f"spectral_bound must be positive and finite, got {spectral_bound}.")
        self.spectral_bound = spectral_bound

    @abstractmethod
    def row_variance(self, z: Tensor) -> Tensor:
        """Variance (n, k) of the Gaussian process, without the noise, at features `z` (n, features)."""

    def variance(self, x: Tensor) -> Tensor:
        """Variance of the Gaussian process, without the noise, of shape (batch, k) or (batch, k, ...)."""
        z = self.encode(x)
        return self.widened(self.positions(self.row_variance(self.rows(z)), z), power=2)

    @abstractmethod
    def start(self, rows: Features) -> None:
        """Begin with what the features of some training rows suggest."""

    def begin(self, train: Batches) -> None:
        """Normalise the encoder, and look at the features it starts with."""
        normalise(self.encoder, self.spectral_bound)
        self.eval()
        sample: list[Features] = []
        seen, self.total_weight = 0, 0.0
        for batch in train:
            x, y, weight = on_device(batch, next(self.parameters()).device)
            self.total_weight += float(position_weights(weight, y).double().sum())
            if seen < self.SAMPLE:
                with torch.no_grad():
                    rows = self.flat(x, y, weight)
                sample.append(Features(*(part[rows.weight > 0] for part in rows)))
                seen += len(sample[-1].z)
        if not seen:
            raise ValueError("The training batches have no rows with weight.")
        self.start(Features(*(torch.cat(parts)[: self.SAMPLE] for parts in zip(*sample, strict=True))))

    def finish(self, train: Batches, held_out: Batches) -> None:
        """Leave plain weights within their bound."""
        settle(self.encoder)


class SpectralRegressor(BaselineRegressor):
    """A regressor around a `SpectralBaseline`; `encoder=None` is a `ResidualMLP`."""

    model_: SpectralBaseline

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaselineRegressor._parameter_constraints,
        "spectral_bound": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, *, spectral_bound: float = 0.95, **settings: Unpack[Settings]) -> None:
        super().__init__(**settings)
        self.spectral_bound = spectral_bound

    def _encoder(self, inputs: int) -> nn.Module:
        return ResidualMLP(inputs, tuple(self.hidden)) if self.encoder is None else super()._encoder(inputs)

    def score_samples(self, X: ArrayLike) -> NDArray[np.float32]:
        """Minus the variance of the Gaussian process (n,), without the noise: the lower, the stranger the input.

        In units of the scaled target, the mean over targets if there are several; in float32, as features are.
        """
        (variance,) = self._apply(X, lambda x: (self.model_.variance(x),))
        score: NDArray[np.float32] = -variance.mean(axis=1).astype(np.float32)
        return score
