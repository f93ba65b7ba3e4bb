"""Gaussian processes on the features of a spectrally normalised encoder, which SNGP and DUE share."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from numbers import Real
from typing import Any, ClassVar, Final, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.utils import parametrize

from density_regression.baselines.base import Baseline, BaselineRegressor
from density_regression.estimators.settings import Settings
from density_regression.io.sklearn_private import Interval
from density_regression.nn.encoders import ResidualMLP
from density_regression.nn.network import Features, position_weights
from density_regression.training.batches import Batches, on_device

__all__ = [
    "SpectralBaseline",
    "SpectralNorm",
    "SpectralRegressor",
    "apply_spectral_norm",
    "mean_distance",
    "remove_spectral_norm",
]

INITIAL_ROWS: Final = 2000
"""Largest number of training rows whose features initialise the Gaussian process."""


class SpectralNorm(nn.Module):
    """Weight W divided by max(1, sigma(W) / bound), where sigma, its largest singular value, is by power iteration.

    There are `start` iterations at once and one more for each use in train mode. The kernel of a convolution is
    reshaped to a matrix (first channels, rest); the norm of the convolution itself may be larger, by a factor of at
    most the square root of the kernel's size.
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
        """Estimate of the largest singular value of `weight`."""
        # Copies, as another use of the layer may change the buffers before the backward pass.
        sigma: Tensor = self.u.clone() @ weight.flatten(1) @ self.v.clone()
        return sigma

    @torch.no_grad()
    def _iterate(self, matrix: Tensor) -> None:
        u = matrix @ self.v
        self.u.copy_(u / u.norm().clamp_min(torch.finfo(u.dtype).tiny))
        v = matrix.T @ self.u
        # Keep the last direction for a weight of zeros, which may grow later.
        self.v.copy_(torch.where(v.norm() > 0, v / v.norm(), self.v))


def apply_spectral_norm(encoder: nn.Module, bound: float) -> None:
    """Give each linear and convolutional layer of `encoder` a `SpectralNorm`, unless its weight is parametrised."""
    for layer in _layers(encoder):
        if isinstance(layer._parameters.get("weight"), nn.Parameter):
            parametrize.register_parametrization(layer, "weight", SpectralNorm(layer.weight, bound))


@torch.no_grad()
def remove_spectral_norm(encoder: nn.Module) -> None:
    """Undo `apply_spectral_norm`, leaving plain weights within their bound exactly (by an SVD)."""
    for layer in _layers(encoder):
        norm = layer.parametrizations["weight"][0] if parametrize.is_parametrized(layer, "weight") else None
        if isinstance(norm, SpectralNorm):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
            sigma = torch.linalg.matrix_norm(layer.weight.double().flatten(1), ord=2)
            layer.weight.div_((sigma / norm.bound).clamp_min(1.0).to(layer.weight))


def _layers(encoder: nn.Module) -> Iterator[Any]:
    """Linear layers and convolutions, transposed ones too."""
    return (layer for layer in list(encoder.modules()) if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd))


def mean_distance(z: Tensor, rows: int = 500) -> float:
    """Mean distance between the first `rows` rows of `z` (n, features); 1 if they are all equal."""
    distance = float(torch.pdist(z[:rows].double()).mean())
    return distance if 0.0 < distance < math.inf else 1.0


class SpectralBaseline(Baseline):
    """A Gaussian process on the features of a spectrally normalised encoder, which approximately preserves distances.

    The normalisation is removed after training, leaving plain weights within `spectral_bound`, so that the encoder's
    state dict has the keys it had. Batch normalisation is not bounded. Positions of images and sequences are rows,
    which the papers on SNGP and DUE do not consider.
    """

    draws = True
    """`begin` draws from torch's generator."""

    total_weight: float = 1.0
    """Sum of the weights of the training rows and positions, by which the prior's term is divided."""

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
    def initialise(self, rows: Features) -> None:
        """Initialise the Gaussian process from the features of some training rows."""

    def begin(self, train: Batches) -> None:
        """Normalise the encoder, and initialise the Gaussian process from its features."""
        apply_spectral_norm(self.encoder, self.spectral_bound)
        self.eval()
        sample: list[Features] = []
        seen, self.total_weight = 0, 0.0
        for batch in train:
            x, y, weight = on_device(batch, next(self.parameters()).device)
            self.total_weight += float(position_weights(weight, y).double().sum())
            if seen < INITIAL_ROWS:
                with torch.no_grad():
                    rows = self.flat(x, y, weight)
                sample.append(Features(*(part[rows.weight > 0] for part in rows)))
                seen += len(sample[-1].z)
        if not seen:
            raise ValueError("The training batches have no rows with weight.")
        self.initialise(Features(*(torch.cat(parts)[:INITIAL_ROWS] for parts in zip(*sample, strict=True))))

    def finish(self, train: Batches, held_out: Batches) -> None:
        """Remove the normalisation."""
        remove_spectral_norm(self.encoder)


class SpectralRegressor(BaselineRegressor):
    """A regressor around a `SpectralBaseline`; `encoder=None` is a `ResidualMLP`."""

    plain_network = ResidualMLP
    model_: SpectralBaseline

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaselineRegressor._parameter_constraints,
        "spectral_bound": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, *, spectral_bound: float = 0.95, **settings: Unpack[Settings]) -> None:
        super().__init__(**settings)
        self.spectral_bound = spectral_bound

    def score_samples(self, X: ArrayLike) -> NDArray[np.float32]:
        """Minus the variance of the Gaussian process (n,), without the noise: the lower, the less familiar the input.

        In units of the scaled target and in float32; the mean over targets if there are several.
        """
        (variance,) = self._apply(X, lambda x: (self.model_.variance(x),))
        score: NDArray[np.float32] = -variance.mean(axis=1).astype(np.float32)
        return score
