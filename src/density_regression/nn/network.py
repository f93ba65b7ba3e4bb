"""Modules whose forward returns a Normal: what all of them share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from density_regression.nn.density.base import bound_features
from density_regression.nn.heads import Moments

__all__ = [
    "Features",
    "LinearGaussian",
    "Network",
    "Predictor",
    "along",
    "missing_features",
    "position_weights",
]

T = TypeVar("T")

LOG_STD_LIMIT_IN_UNITS: Final = 87.0
"""Largest |log std| in the target's units: e^87 is finite in float32, and e^-87 is not 0."""


class Features(NamedTuple):
    """Features z (n, D) with targets (n, k) and weights (n,), one row for every position."""

    z: Tensor
    y: Tensor
    weight: Tensor


class LinearGaussian(NamedTuple):
    """A linear layer from features to k means and k log standard deviations, clipped to +-`log_std_limit`."""

    layer: nn.Linear
    log_std_limit: float


class Predictor(nn.Module, ABC):
    """A module whose forward returns a Normal, in the target's units.

    Training sees targets of mean 0 and standard deviation 1. Their own mean and standard deviation are the buffers
    `target_center` and `target_scale` (k,); both are None where targets are taken as they are.
    """

    no_graph: ClassVar[str] = ""
    """Why predictions cannot be written as one graph, if they cannot."""

    LEARNT: ClassVar[tuple[str, ...]] = ("target_center", "target_scale")
    """Buffers that are None until a fit learns them, and in states of earlier versions."""

    target_center: Tensor | None
    target_scale: Tensor | None

    def __init__(self, targets: int = 1) -> None:
        super().__init__()
        if targets < 1:
            raise ValueError(f"targets must be at least 1, got {targets}.")
        self.targets = targets
        for name in self.LEARNT:
            self.register_buffer(name, None)

    def forward(self, x: Tensor) -> Normal:
        """Predictive distribution, of shape (batch, k) or (batch, k, ...)."""
        mean, log_std = self.moments(x)
        return Normal(mean, log_std.exp(), validate_args=False)

    @abstractmethod
    def moments(self, x: Tensor) -> Moments:
        """Mean and log standard deviation, of the shape of `forward` and in the target's units."""

    def mixture(self) -> Sequence[Network]:
        """The networks whose equal mixture this module predicts; empty if it is not one."""
        return ()

    def scale_targets(self, center: Tensor | None, scale: Tensor | None) -> None:
        """Set mean and standard deviation (k,) of the targets; None and None to take targets as they are."""
        like = self._own_type()
        self.target_center = None if center is None else center.detach().to(like)
        self.target_scale = None if scale is None else scale.detach().to(like)

    def in_units(self, moments: Moments, axis: int = 1) -> Moments:
        """Moments of scaled targets in the target's units, finite; targets along an axis."""
        if self.target_scale is None:
            return moments
        mean, log_std = moments
        log_std = log_std + along(self.target_scale.log(), log_std, axis)
        return Moments(self.shifted(mean, axis), log_std.clamp(-LOG_STD_LIMIT_IN_UNITS, LOG_STD_LIMIT_IN_UNITS))

    def shifted(self, values: Tensor, axis: int = 1) -> Tensor:
        """Values of scaled targets, such as means, in the target's units, finite; targets lie along an axis."""
        if self.target_center is None or self.target_scale is None:
            return values
        largest = torch.finfo(values.dtype).max
        values = values * along(self.target_scale, values, axis) + along(self.target_center, values, axis)
        return values.clamp(-largest, largest)

    def widened(self, values: Tensor, power: int = 1) -> Tensor:
        """Standard deviations (batch, k, ...) in the target's units; variances with power 2."""
        if self.target_scale is None:
            return values
        return (values * along(self.target_scale, values) ** power).clamp_max(torch.finfo(values.dtype).max)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The state of an encoder alone says nothing of these buffers.
        whole = any(name.startswith(prefix) and not name.startswith(f"{prefix}encoder.") for name in state_dict)
        for name in self.LEARNT if whole else ():
            saved, own = state_dict.get(prefix + name), self._buffers[name]
            if saved is None:
                self._buffers[name] = None
            elif own is None or own.shape != saved.shape:
                self._buffers[name] = self._own_type().new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _own_type(self) -> Tensor:
        """A tensor of the device and dtype of the predictions."""
        parameters = list(self.parameters())
        real = [parameter for parameter in parameters if parameter.is_floating_point()]
        # The last one: the encoder comes first, and may be of another precision than the head.
        return (real or parameters)[-1].detach()


class Network(Predictor):
    """Encoder f, and a head that turns each feature vector into the moments of a Gaussian.

    A subclass implements `row_moments`. Images and sequences, with features for every position, become rows and back.

    Parameters
    ----------
    encoder, features, targets
        See `DensityRegression`.
    """

    def __init__(self, encoder: nn.Module, features: int, targets: int = 1) -> None:
        super().__init__(targets)
        if features < 1:
            raise ValueError(f"features must be at least 1, got {features}.")
        self.features = features
        self.encoder = encoder

    def moments(self, x: Tensor) -> Moments:
        """Mean and log standard deviation in the target's units; NaN where NaN inputs make the features NaN."""
        return self.in_units(self.scaled_moments(x))

    def scaled_moments(self, x: Tensor) -> Moments:
        """Moments of the scaled target."""
        return Moments(*self.by_position(self.row_moments, x))

    @abstractmethod
    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) of the scaled target at features `z` (n, features)."""

    def linear_gaussian(self) -> LinearGaussian | None:
        """The layer from features to mean and log standard deviation; None if there is more between them."""
        return None

    def learn_from_inputs(self, inputs: Iterable[Tensor]) -> None:
        """Learn from batches of training inputs alone, after the network is trained; nothing by default."""

    def by_position(self, function: Callable[[Tensor], Iterable[Tensor]], x: Tensor) -> list[Tensor]:
        """Results (batch, k, ...) of a function from features (n, features) to several (n, k).

        NaN where NaN inputs made the features NaN.
        """
        raw = self.raw_features(x)
        z = self._bounded(raw)
        parts = [self.positions(part, z) for part in self.precisely(function, self.rows(z))]
        missing = missing_features(raw, x)
        return parts if missing is None else [part.masked_fill(missing, math.nan) for part in parts]

    def encode(self, x: Tensor) -> Tensor:
        """Features z, of shape (batch, features) or (batch, features, ...), always finite."""
        return self._bounded(self.raw_features(x))

    def raw_features(self, x: Tensor) -> Tensor:
        """The encoder's output, of the right shape; it may be infinite or NaN."""
        z: Tensor = self.encoder(x)
        if not isinstance(z, Tensor):
            raise ValueError(f"The encoder returned a {type(z).__name__}; expected one tensor of features.")
        if z.ndim < 2 or z.shape[1] != self.features:
            raise ValueError(
                f"The encoder returned shape {tuple(z.shape)}; expected (batch, {self.features}) or "
                f"(batch, {self.features}, ...). Set features= to its width."
            )
        return z

    def _bounded(self, z: Tensor) -> Tensor:
        return self._readable(bound_features(z))

    def _readable(self, z: Tensor) -> Tensor:
        """Features in single precision, if the encoder's precision is not that of the head."""
        if z.dtype == torch.float32 or (z.dtype == torch.bfloat16 and torch.is_autocast_enabled(z.device.type)):
            return z
        own = {part.dtype for name, part in self.named_parameters() if not name.startswith("encoder.")}
        return z if z.dtype in own else z.float()

    def precisely(self, function: Callable[[Tensor], T], rows: Tensor) -> T:
        """A function of features (n, features), in full precision also where the encoder is under autocast."""
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


def along(values: Tensor, like: Tensor, axis: int = 1) -> Tensor:
    """Values (k,), one for each target, along an axis of another tensor."""
    return values.view([-1 if i == axis else 1 for i in range(like.ndim)])


def missing_features(z: Tensor, x: Tensor) -> Tensor | None:
    """Where (batch, 1, ...) features are NaN in rows with NaN inputs; None if nowhere. Elsewhere NaN is an overflow.

    Not looked for in exported graphs and under vmap.
    """
    if torch.compiler.is_exporting() or torch._C._functorch.is_batchedtensor(z):
        return None
    if not (isinstance(x, Tensor) and x.is_floating_point() and len(x) == len(z)):
        return None
    # One sum tells on the CPU; a GPU would have to be waited for, and a compiler knows no values.
    if x.is_cpu and not torch.compiler.is_compiling() and not math.isnan(x.sum().item()):
        return None
    rows = x.isnan().flatten(1).any(1) if x.ndim > 1 else x.isnan()
    return z.isnan().any(1, keepdim=True) & along(rows, z, 0)


def position_weights(weight: Tensor, y: Tensor) -> Tensor:
    """Weights (n,), one for every position, of a batch with targets `y` (batch, k, ...).

    Given are those of samples, (batch,), or of positions, (batch, ...): zero where a target is missing.
    """
    if weight.shape == y.shape[:1]:
        return weight.repeat_interleave(y.shape[2:].numel()) if y.ndim > 2 else weight
    expected = (len(y), *y.shape[2:])
    if weight.shape != expected:
        raise ValueError(f"Weights have shape {tuple(weight.shape)}, expected {expected[:1]} or {expected}.")
    return weight.flatten()
