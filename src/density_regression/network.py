"""What every network here is: an encoder, whatever reads its features, and a Normal out of `forward`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from density_regression._numeric import tame
from density_regression.head import Moments

__all__ = ["Features", "Network", "Predictor", "position_weights", "weighted_mean"]

T = TypeVar("T")


class Features(NamedTuple):
    """Features z (n, D) with targets (n, k) and weights (n,), one row for every position."""

    z: Tensor
    y: Tensor
    weight: Tensor


class Predictor(nn.Module, ABC):
    """A module whose forward returns a Normal.

    Parameters
    ----------
    targets : int
        Number k of targets.
    """

    no_graph: ClassVar[str] = ""
    """Why predictions cannot be written as one graph, if they cannot."""

    def __init__(self, targets: int = 1) -> None:
        super().__init__()
        if targets < 1:
            raise ValueError(f"targets must be at least 1, got {targets}.")
        self.targets = targets

    def forward(self, x: Tensor) -> Normal:
        """Predictive distribution, of shape (batch, k) or (batch, k, ...)."""
        mean, log_std = self.moments(x)
        return Normal(mean, log_std.exp(), validate_args=False)

    @abstractmethod
    def moments(self, x: Tensor) -> Moments:
        """Mean and log standard deviation, of the shape of `forward`."""


class Network(Predictor):
    """Encoder f, and a head that turns each feature vector into the moments of a Gaussian.

    A subclass says what the head makes of rows of features in `row_moments`; images and sequences, whose every
    position has a feature vector of its own, are brought into rows and back here.

    Parameters
    ----------
    encoder : nn.Module
        Any module whose output has shape (batch, features) or, for sequences and images, (batch, features, ...).
    features : int
        Width of that output.
    targets : int
        Number k of targets.
    """

    def __init__(self, encoder: nn.Module, features: int, targets: int = 1) -> None:
        super().__init__(targets)
        if features < 1:
            raise ValueError(f"features must be at least 1, got {features}.")
        self.features = features
        self.encoder = encoder

    def moments(self, x: Tensor) -> Moments:
        """Mean and log standard deviation, of the shape of `forward`."""
        z = self.encode(x)
        mean, log_std = self.precisely(self.row_moments, self.rows(z))
        return Moments(self.positions(mean, z), self.positions(log_std, z))

    @abstractmethod
    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) at features `z` (n, features)."""

    def encode(self, x: Tensor) -> Tensor:
        """Features z, of shape (batch, features) or (batch, features, ...), always finite."""
        z: Tensor = self.encoder(x)
        if not isinstance(z, Tensor):
            raise ValueError(f"The encoder returned a {type(z).__name__}; expected one tensor of features.")
        if z.ndim < 2 or z.shape[1] != self.features:
            raise ValueError(
                f"The encoder returned shape {tuple(z.shape)}; expected (batch, {self.features}) or "
                f"(batch, {self.features}, ...). Set features= to its width."
            )
        z = tame(z)
        return z if z.dtype == torch.float32 else self._readable(z)

    def _readable(self, z: Tensor) -> Tensor:
        """Features of an encoder in another precision than what reads them, in single precision."""
        if z.dtype == torch.bfloat16 and torch.is_autocast_enabled(z.device.type):
            return z
        own = {part.dtype for name, part in self.named_parameters() if not name.startswith("encoder.")}
        return z if z.dtype in own else z.float()

    def precisely(self, function: Callable[[Tensor], T], rows: Tensor) -> T:
        """A function of features (n, features), in full precision also where the encoder is under autocast.

        Half precision cannot hold features far away, nor tell one log-density from the next.
        """
        if not torch.is_autocast_enabled(rows.device.type):
            return function(rows)
        with torch.autocast(rows.device.type, enabled=False):
            return function(self._readable(rows))

    def flat(self, x: Tensor, y: Tensor, weight: Tensor) -> Features:
        """Features, targets and weights of a batch, one row for every position."""
        z = self.encode(x)
        expected = (len(z), self.targets, *z.shape[2:])
        if y.shape != expected:
            raise ValueError(f"Targets have shape {tuple(y.shape)}, the model predicts {expected}.")
        return Features(self.rows(z), self.rows(y), position_weights(weight, y))

    @staticmethod
    def rows(values: Tensor) -> Tensor:
        """From (batch, d, ...) to (n, d): one row for every position."""
        return values if values.ndim == 2 else values.movedim(1, -1).flatten(0, -2)

    @staticmethod
    def positions(rows: Tensor, like: Tensor) -> Tensor:
        """From (n, d) back to (batch, d, ...), positions as in `like`."""
        return rows if like.ndim == 2 else rows.unflatten(0, (like.shape[0], *like.shape[2:])).movedim(-1, 1)


def position_weights(weight: Tensor, y: Tensor) -> Tensor:
    """Weights (n,), one for every position, of a batch with targets `y` (batch, k, ...).

    Given are those of whole samples, (batch,), or of their positions, (batch, ...): zero where a target is missing.
    """
    if weight.shape == y.shape[:1]:
        return weight.repeat_interleave(y.shape[2:].numel()) if y.ndim > 2 else weight
    expected = (len(y), *y.shape[2:])
    if weight.shape != expected:
        raise ValueError(f"Weights have shape {tuple(weight.shape)}, expected {expected[:1]} or {expected}.")
    return weight.flatten()


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    """Mean of `losses` (..., n) by `weight` (..., n) over the rows.

    Rows may all weigh nothing in a mini-batch; it then counts for nothing.
    """
    return (losses * weight).sum(-1) / weight.sum(-1).clamp_min(torch.finfo(weight.dtype).tiny)
