"""Fused inference: whitening, mixture, tempering and head of the default model folded into few matrix products."""

import math
from typing import Final, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.nn.density import GaussianDensity, MixtureDensity
from density_regression.nn.density.base import FEATURE_LIMIT
from density_regression.nn.encoders import MLP, Embedded, PiecewiseEmbedding, WithInputs
from density_regression.nn.encoders.embedding import BIN_SIZE, SMOOTH_RANGE
from density_regression.nn.heads import LOG_STD_LIMIT, MeanHead, Moments
from density_regression.nn.model import DensityRegression
from density_regression.nn.runtime import FUSED_BLOCK
from density_regression.nn.tempering import RobustTempering
from density_regression.tabular.table import INPUT_LIMIT, Floats

__all__ = ["FLOAT32_LIMIT", "Constants", "FusedRegression", "Layers", "as_float64", "fused_form"]

FLOAT32_LIMIT: Final = 1e37
"""Numbers bounded by this do not overflow in float32."""


class Layers(NamedTuple):
    """The linear layers of an `MLP`, each followed by a ReLU.

    `with_inputs` says whether the inputs are appended to its features; `embedding` is that of the inputs, if any.
    """

    linear: list[nn.Linear]
    with_inputs: bool
    embedding: PiecewiseEmbedding | None = None

    @classmethod
    def of(cls, encoder: nn.Module) -> Self | None:
        """The layers of an `MLP`, with or without embedding and inputs appended; None for any other encoder."""
        with_inputs = type(encoder) is WithInputs
        inner = encoder.encoder if with_inputs else encoder
        embedding = None
        if type(inner) is Embedded and type(inner.embedding) is PiecewiseEmbedding:
            embedding, inner = inner.embedding, inner.encoder
        hooked = any(part._forward_hooks or part._forward_pre_hooks for part in encoder.modules())
        if type(inner) is not MLP or hooked:
            return None
        linear = [layer for layer in inner if type(layer) is nn.Linear and layer.bias is not None]
        # An `MLP` is a list of layers, which users can change.
        if [type(part) for part in inner] != [nn.Linear, nn.ReLU] * len(linear):
            return None
        return cls(linear, with_inputs, embedding)

    @property
    def columns(self) -> int:
        """Number of inputs."""
        return self.linear[0].in_features if self.embedding is None else self.embedding.columns

    def bounds(self, limit: float = INPUT_LIMIT) -> Floats:
        """Upper bound (D,) on the absolute value of each feature, for scaled inputs within +-`limit`."""
        bound = inputs = np.full(self.columns, limit)
        if self.embedding is not None:
            bound = np.repeat([SMOOTH_RANGE, BIN_SIZE], [self.columns, len(self.embedding.column)])
        for layer in self.linear:
            bound = np.abs(as_float64(layer.weight)) @ bound + np.abs(as_float64(layer.bias))
        return np.concatenate([bound, inputs]) if self.with_inputs else bound


class Constants(NamedTuple):
    """A fitted default model from its D features z on, in float64: q whitened features t, K components, k targets.

    Whitening, mean and log-precision s are affine in z, as t = (z - c) P = z P - c P, so `z @ weight + bias` has the
    columns t, 1, mean, a = beta (s - s_low) and a - width. The 1 lets a product with [t, 1] add a shift. Inserting
    the definitions of `Whitening`, `RobustTempering` and `Head` leaves

        log p = logsumexp_k(log_norm_k - |t factor_k - shift_k|^2 / 2) - residual_factor^2 / 2 |z - [t, 1] back|^2,

    where `shared` with one factor for all components, and their maximum in place of logsumexp, and

        growth = exponent log(max(1, level - slope log p))
        log std = constant + detail (softplus(a - width) - softplus(a)) + growth / 2

    With disagreement a has k further columns, b in all, for the log-ratio r to the noise, and the last term is

        softplus(ratio_low + softplus(a) - softplus(a - width) + growth) / 2
    """

    weight: Floats  # (D, q + 1 + k + 2 b)
    bias: Floats  # (q + 1 + k + 2 b,)
    back: Floats  # (q + 1, D), reconstruction of z from [t, 1]
    residual_factor: float  # 1 / standard deviation of the residual z - [t, 1] back; 0 without residual
    factor: Floats  # (q, K q), or (q, q) if all components share it
    shift: Floats  # (K q,)
    log_norm: Floats  # (K,)
    slope: float
    level: float
    exponent: float
    width: Floats  # (b,), beta (s_high - s_low), and the range of log r
    detail: Floats  # (k,)
    constant: Floats  # (k,)
    ratio_low: Floats  # (b - k,)
    clip_features: bool  # whether z, t and log std can leave the range to which the model clips them
    clip_whitened: bool
    clip_std: bool

    @property
    def shared(self) -> bool:
        """Whether there are several components with one factor."""
        return bool(self.factor.shape[1] < len(self.shift))

    @property
    def centers(self) -> Floats:
        """The shifts of the components (K, q)."""
        return self.shift.reshape(len(self.log_norm), -1)

    @property
    def membership(self) -> Floats:
        """Indicator matrix (K q, K): which component each column of `factor` belongs to."""
        return np.asarray(np.kron(np.eye(len(self.log_norm)), np.ones((len(self.factor), 1))), dtype=np.float64)

    @classmethod
    def of(cls, model: DensityRegression, bounds: Floats, *, log_scale: Floats | float = 0.0) -> Self | None:
        """Constants of a model with features within +-`bounds` (D,), targets of such a scale; None for another kind."""
        head, density, tempering = model.head, model.density, model.tempering
        if type(head) is not MeanHead or type(tempering) is not RobustTempering:
            return None
        # Not isinstance: a subclass may have another log-density.
        if type(density) not in (GaussianDensity, MixtureDensity) or density is None or not density.fitted:
            return None
        quadratics, whitening = density.quadratics(), density.whitening
        assert isinstance(tempering, RobustTempering)
        if quadratics is None or bounds.max() > FLOAT32_LIMIT:
            return None
        d, q, k = len(bounds), whitening.kept, head.targets
        center, low, high = as_float64(whitening.center)[:d], as_float64(head.s_low), as_float64(head.s_high)
        projection = as_float64(whitening.projection)[:d, :q]
        # The head may read the first features only.
        linear = np.zeros((d, head.linear.out_features))
        linear[: head.features] = as_float64(head.linear.weight).T[:d]
        location, s, ratio = np.split(linear, [k, 2 * k], axis=1)
        location_bias, s_bias, ratio_bias = np.split(as_float64(head.linear.bias), [k, 2 * k])
        beta = 8.0 / np.clip(high - low, 1e-3, 8.0)
        ratio_low, ratio_range = np.empty(0), np.empty(0)
        if head.disagreement:
            ratio_low, ratio_range = as_float64(head.ratio_low), as_float64(head.ratio_range)
        width = np.concatenate([beta * (high - low), ratio_range])
        bounded, bounded_bias = np.hstack([s * beta, ratio]), np.concatenate([beta * (s_bias - low), ratio_bias])
        factor, shift, log_norm = (as_float64(part) for part in quadratics)
        exponent, spread, log_det = float(tempering.exponent), float(tempering.spread), float(whitening.log_det)
        slope = 2.0 / (float(tempering.learnt_reach) * spread)
        level = 1.0 + slope * (float(tempering.reference) - tempering.start * spread)
        detail, typical = as_float64(head.detail), as_float64(head.level)
        constant = -0.5 * (typical + detail * (low - typical) + as_float64(head.offset) + math.log(2))
        back = np.vstack([as_float64(whitening.reconstruction)[:q, :d], center])
        residual_factor = 1.0 / float(whitening.residual_scale) if whitening.has_residual else 0.0
        # Bounds on all intermediate results, to find out which of them need no clipping.
        features = np.minimum(bounds, FEATURE_LIMIT)
        whitened = (features + np.abs(center)) @ np.abs(projection)
        clipped = np.minimum(whitened, FEATURE_LIMIT)
        residual = residual_factor * (features + np.append(clipped, 1.0) @ np.abs(back))
        moved = np.tile(clipped @ np.abs(factor), len(shift) // factor.shape[1])
        distance = np.square(moved + np.abs(shift)).sum() + np.square(residual).sum()
        if distance > FLOAT32_LIMIT:
            return None
        log_density = distance + np.abs(log_norm).max() + abs(log_det)
        growth = 0.5 * exponent * math.log(abs(level) + slope * log_density)
        growth += 0.5 * (ratio_low + ratio_range).clip(min=0.0).max(initial=0.0)
        return cls(
            weight=np.hstack([projection, np.zeros((d, 1)), location, bounded, bounded]),
            bias=np.concatenate([-center @ projection, [1.0], location_bias, bounded_bias, bounded_bias - width]),
            back=back,
            residual_factor=residual_factor,
            factor=factor,
            shift=shift,
            log_norm=log_norm + log_det,
            slope=slope,
            level=level,
            exponent=exponent,
            width=width,
            detail=0.5 * detail / beta,
            constant=constant + np.broadcast_to(log_scale, constant.shape),
            ratio_low=ratio_low,
            clip_features=bool(bounds.max() > FEATURE_LIMIT),
            clip_whitened=bool(whitened.max() > FEATURE_LIMIT),
            clip_std=bool((np.abs(constant) + 0.5 * detail * (high - low) + growth + 1 > LOG_STD_LIMIT).any()),
        )


class FusedRegression:
    """A fitted default model by the equations of `Constants`: equal but for rounding, with half of the operations."""

    def __init__(self, model: DensityRegression, layers: Layers, constants: Constants) -> None:
        c, k, q, d = constants, len(constants.detail), len(constants.factor), len(constants.weight)
        outputs = k + 2 * len(c.width)
        like = layers.linear[0].weight
        self.device = like.device
        self._sources = [*model.parameters(), *model.buffers()]
        # Torch counts the in-place changes of each tensor.
        self._versions = [part._version for part in self._sources]
        self._constants = c
        # Transposed and contiguous: several times faster for few rows than `F.linear`.
        self._encoder = [(layer.weight.detach().T.contiguous(), layer.bias.detach()) for layer in layers.linear]
        self._with_inputs = layers.with_inputs
        self._embedding = layers.embedding
        if layers.embedding is not None:
            of_columns, begin = self._encoder[0]
            lost = as_float64(of_columns)[layers.columns :].T @ as_float64(layers.embedding.mean)
            self._encoder[0] = of_columns, begin - torch.from_numpy(lost).to(begin)
        # Zero columns after [t, 1] and at the end, up to whole blocks; zero rows where the features are padded.
        padding, first = model.features - d, _whole_blocks(q + 1)
        columns, width = np.r_[: q + 1, first : first + outputs], _whole_blocks(first + outputs)
        self._columns = ((0, first), (first, k), (first + k, 2 * len(c.width)))
        weight, bias = np.zeros((d + padding, width)), np.zeros(width)
        weight[:d, columns], bias[columns] = c.weight, c.bias

        def tensor(values: Floats) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(like)

        self._weight, self._bias, self._padding = tensor(weight), tensor(bias), tensor(np.zeros((1, padding)))
        self._back = tensor(np.pad(c.back, [(0, first - q - 1), (0, padding)]))
        factor = np.pad(c.factor.T, [(0, 0), (0, first - q)])
        if c.shared:
            parts = factor, c.centers, np.full((1, q), -0.5), c.log_norm[:, None]
            exact = (torch.from_numpy(np.ascontiguousarray(part, np.float64)).to(like.device) for part in parts)
            self._factor, self._centers, self._sums, log_norm = exact
            self._log_norm = log_norm - 0.5 * self._centers.square().sum(1, keepdim=True)
        else:
            self._factor, self._shift = tensor(factor), tensor(-c.shift[:, None])
            self._sums, self._log_norm = tensor(-0.5 * c.membership.T), tensor(c.log_norm[:, None])
            self._ones = tensor(np.ones((1, len(c.log_norm))))
        self._constant, self._detail = tensor(c.constant), tensor(c.detail)
        self._saturated = tensor(np.concatenate([c.width + 20.0, np.full(len(c.width), 20.0)]))
        self._ratio_low = tensor(c.ratio_low)
        self._one = tensor(np.ones(1))

    @classmethod
    @torch.no_grad()
    def of(cls, model: nn.Module, *, limit: float = INPUT_LIMIT) -> Self | None:
        """The fused form of a model whose inputs are within +-`limit`; None for another kind of model."""
        if not isinstance(model, DensityRegression) or (layers := Layers.of(model.encoder)) is None:
            return None
        constants = Constants.of(model, layers.bounds(limit))
        return None if constants is None else cls(model, layers, constants)

    def is_current(self, device: torch.device) -> bool:
        """Whether the model's weights are unchanged and on this device."""
        return self.device == device and self._versions == [part._version for part in self._sources]

    def __call__(self, x: Tensor) -> Moments:
        """Moments at scaled inputs (n, c)."""
        return self.with_density(x)[0]

    def with_density(self, x: Tensor) -> tuple[Moments, Tensor]:
        """Moments (n, k) at scaled inputs (n, c), and the log-density (n,) of their features."""
        c = self._constants
        z, t, mean, bounded = self._products(x)
        log_density = self._log_density(z, t)
        growth = torch.rsub(log_density, c.level, alpha=c.slope).clamp_min_(1.0).log_().unsqueeze(1)
        # The difference of the two is constant beyond `_saturated`, where each alone would lose digits.
        above_low, above_high = F.softplus(bounded.minimum(self._saturated)).chunk(2, 1)
        below = above_high.sub_(above_low)
        if len(c.ratio_low):
            below, ratio = below.chunk(2, 1)
            ratio = torch.sub(self._ratio_low, ratio).add_(growth, alpha=c.exponent)
            log_std = torch.addcmul(self._constant, below, self._detail).add_(F.softplus(ratio), alpha=0.5)
        else:
            log_std = torch.addcmul(self._constant, below, self._detail).add_(growth, alpha=0.5 * c.exponent)
        if c.clip_std:
            log_std = log_std.clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT)
        return Moments(mean, log_std), log_density

    def log_density(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the features of scaled inputs (n, c)."""
        z, t, _, _ = self._products(x)
        return self._log_density(z, t)

    def _products(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features, whitened features, means, and a and a - width of `Constants`."""
        c, z = self._constants, x if self._embedding is None else self._embedded(x, self._embedding)
        for weight, bias in self._encoder:
            z = torch.addmm(bias, z, weight).relu_()
        if self._with_inputs:
            z = torch.cat([z, x, self._padding.expand(len(x), -1)], 1)
        if c.clip_features:
            z = z.clamp(-FEATURE_LIMIT, FEATURE_LIMIT)
        y = torch.addmm(self._bias, z, self._weight)
        t, mean, bounded = (y.narrow(1, start, length) for start, length in self._columns)
        if c.clip_whitened:
            t = t.clamp(-FEATURE_LIMIT, FEATURE_LIMIT)
        return z, t, mean, bounded

    def _embedded(self, x: Tensor, embedding: PiecewiseEmbedding) -> Tensor:
        """Embedded columns, but for the mean of the bins, which the first layer's bias has."""
        clipped = torch.addcmul(self._one, x, x, value=1.0 / SMOOTH_RANGE**2).rsqrt_().mul_(x)
        bins = x.index_select(1, embedding.column).sub_(embedding.low).mul_(embedding.slope).clamp_(0.0, BIN_SIZE)
        return torch.cat([clipped, bins], 1)

    def _log_density(self, z: Tensor, t: Tensor) -> Tensor:
        # Rows along the last axis, where elementwise operations are fastest. Sums over components are matrix products,
        # because the rounding of a sum depends on the number of rows.
        if self._constants.shared:
            # Components may be narrow beside their distances: the difference of two squares needs more digits.
            u = torch.mm(self._factor, t.T.double())
            joint = torch.addmm(self._log_norm, self._centers, u)
            log_density = torch.mm(self._sums, u.square_())[0].add_(joint.amax(0)).to(t)
        else:
            squares = torch.addmm(self._shift, self._factor, t.T).square_()
            joint = torch.addmm(self._log_norm, self._sums, squares)
            log_density = joint[0]
            if len(joint) > 1:
                largest = joint.amax(0)
                log_density = torch.mm(self._ones, (joint - largest).exp_())[0].log_().add_(largest)
        scale = self._constants.residual_factor
        if scale:
            # The residual vector itself: a difference of squares would lose its digits by cancellation.
            residual = torch.addmm(z, t, self._back, beta=scale, alpha=-scale)
            log_density = torch.sub(log_density, residual.square_().sum(1), alpha=0.5)
        return log_density


_FORMS: WeakKeyDictionary[nn.Module, FusedRegression | None] = WeakKeyDictionary()


def fused_form(model: nn.Module, device: torch.device, limit: float) -> FusedRegression | None:
    """The fused form of a model, cached until its weights or device change; None for another kind of model."""
    form = _FORMS.get(model)
    if model not in _FORMS or (form is not None and not form.is_current(device)):
        form = _FORMS[model] = FusedRegression.of(model, limit=limit)
    return form


def as_float64(values: Tensor) -> Floats:
    """A float64 array of a tensor's values."""
    return values.detach().double().cpu().numpy()


def _whole_blocks(columns: int) -> int:
    return columns + -columns % FUSED_BLOCK
