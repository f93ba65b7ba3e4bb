"""The default model with all folded that can be, for predictions: one program, run by torch or written as ONNX."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression._numeric import FAR, LARGE
from density_regression.density import GaussianDensity, MixtureDensity, RobustTempering
from density_regression.encoders import MLP, WithInputs, beside
from density_regression.head import LOG_STD_LIMIT, MeanHead
from density_regression.model import DensityRegression

__all__ = ["Array", "Constants", "Layers", "LeanMoments", "LeanRegression", "numbers"]

Array = NDArray[np.float64]

LARGEST: Final = 1e37
"""Numbers that stay below this do not overflow in float32."""

ROUNDED: Final = 8
"""Columns of a product come in multiples of this: else they are rounded by a row's place in its batch."""


class LeanMoments(NamedTuple):
    """Mean and log standard deviation (n, k), and log-density (n,)."""

    mean: Tensor
    log_std: Tensor
    log_density: Tensor


class Layers(NamedTuple):
    """The linear layers of an `MLP`, each followed by a ReLU, and whether inputs stand beside its features."""

    linear: list[nn.Linear]
    with_inputs: bool

    @classmethod
    def of(cls, encoder: nn.Module) -> Self | None:
        """Those of an encoder; None if it has other parts, or computes anything else with them."""
        with_inputs = type(encoder) is WithInputs
        inner = encoder.encoder if with_inputs else encoder
        hooked = any(part._forward_hooks or part._forward_pre_hooks for part in encoder.modules())
        if type(inner) is not MLP or hooked:
            return None
        linear = [layer for layer in inner if type(layer) is nn.Linear and layer.bias is not None]
        # Somebody may have put layers of their own into it.
        if [type(part) for part in inner] != [nn.Linear, nn.ReLU] * len(linear):
            return None
        return cls(linear, with_inputs)

    def bounds(self, farthest: float = FAR) -> Array:
        """Largest size (D,) of each feature, for scaled inputs of any size (which are held within +-`farthest`)."""
        inputs = np.full(self.linear[0].in_features, farthest)
        bound = inputs
        for layer in self.linear:
            bound = np.abs(numbers(layer.weight)) @ bound + np.abs(numbers(layer.bias))
        return np.concatenate([bound, inputs]) if self.with_inputs else bound


class Constants(NamedTuple):
    """A fitted default model in float64, from its D features on; t are the q whitened ones, and K components.

    Columns of `weight` and `bias`: t; a column of ones; the k means; and how far each s lies above the lower and the
    upper end of its range, in units in which the range's corners are rounded alike.
    """

    weight: Array  # (D, q + 1 + 3 k)
    bias: Array  # (q + 1 + 3 k,)
    back: Array  # (q + 1, D), from t and the ones to what they explain of the features
    unit: float  # 1 / the scale of what is left over; 0 if nothing is
    factor: Array  # (q, K q)
    shift: Array  # (K q,)
    log_norm: Array  # (K,)
    slope: float  # log p~ = -exponent * log(max(1, level - slope * log p))
    level: float
    exponent: float
    width: Array  # (k,), of the range of s
    detail: Array  # (k,), by which its distances enter the log std
    constant: Array  # (k,), of the log std
    clip_features: bool  # where they may leave +-`LARGE`
    clip_whitened: bool
    clip_std: bool

    @property
    def membership(self) -> Array:
        """Ones where a whitened direction (K q,) belongs to a component (K,)."""
        return np.asarray(np.kron(np.eye(len(self.log_norm)), np.ones((len(self.factor), 1))), dtype=np.float64)

    @classmethod
    def of(cls, model: DensityRegression, bounds: Array, *, log_scale: Array | float = 0.0) -> Self | None:
        """Those of a model with bounds (D,) on its features and a scale of targets; None if unlike the default."""
        head, density, tempering = model.head, model.density, model.tempering
        if type(head) is not MeanHead or type(tempering) is not RobustTempering:
            return None
        # A density derived from these may have another log-density.
        if type(density) not in (GaussianDensity, MixtureDensity) or density is None or not density.fitted:
            return None
        quadratics = density.quadratics()
        assert isinstance(tempering, RobustTempering)
        whitening = density.whitening
        if quadratics is None or bounds.max() > LARGEST:
            return None
        d, q, k = len(bounds), whitening.kept, head.targets
        center, low, high = numbers(whitening.center)[:d], numbers(head.s_low), numbers(head.s_high)
        directions = numbers(whitening.projection)[:d, :q]
        # Of features that the head does not read, its weights are none.
        read = np.zeros((d, 2 * k))
        read[: head.features] = numbers(head.linear.weight).T[:d]
        location, s = np.split(read, [k], axis=1)
        location_bias, s_bias = np.split(numbers(head.linear.bias), [k])
        beta = 8.0 / np.clip(high - low, 1e-3, 8.0)
        factor, shift, log_norm = (numbers(part) for part in quadratics)
        exponent, reach, spread, reference, log_det = (
            float(part)
            for part in (
                tempering.exponent,
                tempering.learnt_reach,
                tempering.spread,
                tempering.reference,
                whitening.log_det,
            )
        )
        slope = 2.0 / (reach * spread)
        level = 1.0 + slope * (reference - tempering.start * spread)
        detail, typical = numbers(head.detail), numbers(head.level)
        constant = -0.5 * (typical + detail * (low - typical) + numbers(head.offset) + math.log(2))
        back = np.vstack([numbers(whitening.reconstruction)[:q, :d], center])
        unit = 1.0 / float(whitening.residual_scale) if whitening.has_residual else 0.0
        # How large each number can become on the way, and so what need not be clipped.
        whitened = (np.minimum(bounds, LARGE) + np.abs(center)) @ np.abs(directions)
        largest = np.minimum(whitened, LARGE)
        left_over = unit * (np.minimum(bounds, LARGE) + np.append(largest, 1.0) @ np.abs(back))
        distance = np.square(largest @ np.abs(factor) + np.abs(shift)).sum() + np.square(left_over).sum()
        if distance > LARGEST:
            return None
        farthest = 0.5 * exponent * math.log(abs(level) + slope * (distance + np.abs(log_norm).max() + abs(log_det)))
        return cls(
            weight=np.hstack([directions, np.zeros((d, 1)), location, s * beta, s * beta]),
            bias=np.concatenate(
                [-center @ directions, [1.0], location_bias, beta * (s_bias - low), beta * (s_bias - high)]
            ),
            back=back,
            unit=unit,
            factor=factor,
            shift=shift,
            log_norm=log_norm + log_det,
            slope=slope,
            level=level,
            exponent=exponent,
            width=beta * (high - low),
            detail=0.5 * detail / beta,
            constant=constant + np.broadcast_to(log_scale, constant.shape),
            clip_features=bool(bounds.max() > LARGE),
            clip_whitened=bool(whitened.max() > LARGE),
            clip_std=bool((np.abs(constant) + 0.5 * detail * (high - low) + farthest + 1 > LOG_STD_LIMIT).any()),
        )


class LeanRegression:
    """A fitted default model with its constants folded into the matrices beside them, for predictions.

    The same results but for rounding, with half of the operations: small batches pay for each. Made from a model as it
    is, and only good as long as it is `current`.
    """

    def __init__(self, model: DensityRegression, layers: Layers, constants: Constants) -> None:
        c, k, q = constants, len(constants.detail), len(constants.back)
        like, features = layers.linear[0].weight, model.features
        self.device = like.device
        self._made_of = [*model.parameters(), *model.buffers()]
        self._versions: list[int] | None = self._counted()
        self._encoder = [(layer.weight.detach(), layer.bias.detach()) for layer in layers.linear]
        self._with_inputs = layers.with_inputs
        self._clip_features, self._clip_whitened, self._clip_std = c.clip_features, c.clip_whitened, c.clip_std
        self._unit, self._slope, self._level, self._half_exponent = c.unit, c.slope, c.level, 0.5 * c.exponent
        # Columns of zeros after the whitened features and after the rest, and rows of them for features of zeros.
        gap, d = -q % ROUNDED, len(c.weight)
        end = q + gap + 3 * k
        columns, width = np.r_[0:q, q + gap : end], end + -end % ROUNDED
        self._columns = ((0, q + gap), (q + gap, k), (q + gap + k, 2 * k))
        weight, bias, back, factor = (
            np.zeros((features, width)),
            np.zeros(width),
            np.zeros((q + gap, features)),
            np.zeros((len(c.shift), q + gap)),
        )
        weight[:d, columns], bias[columns], back[:q, :d], factor[:, : q - 1] = c.weight, c.bias, c.back, c.factor.T

        def tensor(values: Array) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(like)

        self._weight, self._bias, self._back = tensor(weight), tensor(bias), tensor(back)
        self._factor, self._shift = tensor(factor), tensor(-c.shift[:, None])
        self._sums, self._log_norm = tensor(-0.5 * c.membership.T), tensor(c.log_norm[:, None])
        self._ones = tensor(np.ones((1, len(c.log_norm))))
        self._constant, self._detail = tensor(c.constant), tensor(c.detail)
        self._lower, self._upper = slice(k), slice(k, None)
        self._highest = tensor(np.concatenate([c.width + 20.0, np.full(k, 20.0)]))

    @classmethod
    @torch.no_grad()
    def of(cls, model: nn.Module, *, farthest: float = FAR) -> Self | None:
        """The lean form of a model whose inputs are held within +-`farthest`; None if it is unlike the default."""
        if not isinstance(model, DensityRegression):
            return None
        layers = Layers.of(model.encoder)
        constants = None if layers is None else Constants.of(model, layers.bounds(farthest))
        return None if layers is None or constants is None else cls(model, layers, constants)

    @property
    def current(self) -> bool:
        """Whether the model's weights are what they were: nothing was trained or loaded in their place since."""
        return self._versions == self._counted()

    def __getstate__(self) -> dict[str, Any]:
        # Torch counts the changes of a tensor since it was made, and those of a copy begin anew.
        return self.__dict__ | {"_versions": [] if self.current else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._versions = None if self._versions is None else self._counted()

    def _counted(self) -> list[int]:
        return [part._version for part in self._made_of]

    def __call__(self, x: Tensor) -> LeanMoments:
        """Moments and log-density at scaled inputs (n, c)."""
        z = x
        for weight, bias in self._encoder:
            z = F.linear(z, weight, bias).relu_()
        if self._with_inputs:
            z = beside(z, x)
        if self._clip_features:
            z = z.clamp(-LARGE, LARGE)
        y = torch.addmm(self._bias, z, self._weight)
        t, mean, ends = (y.narrow(1, start, length) for start, length in self._columns)
        if self._clip_whitened:
            t = t.clamp(-LARGE, LARGE)
        log_density = self._log_density(z, t)
        growth = torch.rsub(log_density, self._level, alpha=self._slope).clamp_min_(1.0).log_()
        # Distances of s from the ends of its range. Nothing changes far above; far below, softplus is zero by itself.
        ends = F.softplus(ends.minimum(self._highest))
        log_std = torch.addcmul(self._constant, ends[:, self._upper] - ends[:, self._lower], self._detail)
        log_std = log_std.add_(growth.unsqueeze(1), alpha=self._half_exponent)
        if self._clip_std:
            log_std = log_std.clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT)
        return LeanMoments(mean, log_std, log_density)

    def _log_density(self, z: Tensor, t: Tensor) -> Tensor:
        # Rows along the last axis: what is done to each over all components is then the fastest. Sums are products,
        # because a sum's rounding depends on how many rows there are.
        squares = torch.addmm(self._shift, self._factor, t.T).square_()
        joint = torch.addmm(self._log_norm, self._sums, squares)
        log_density = joint[0]
        if len(joint) > 1:
            largest = joint.amax(0)
            log_density = torch.mm(self._ones, (joint - largest).exp_())[0].log_().add_(largest)
        if self._unit:
            # What the kept directions do not explain, itself: as a difference of squares it would drown in rounding.
            left_over = torch.addmm(z, t, self._back, beta=self._unit, alpha=-self._unit)
            log_density = torch.sub(log_density, left_over.square_().sum(1), alpha=0.5)
        return log_density


def numbers(values: Tensor) -> Array:
    """A tensor's numbers in float64."""
    return values.detach().double().cpu().numpy()
