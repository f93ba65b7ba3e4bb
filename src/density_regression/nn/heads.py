"""From features and their density to a Gaussian: temperings of the density, and heads (Theorem 3.1, Corollary 3.2)."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from density_regression.nn.density.base import FittedModule, smooth_clamp, weighted_quantiles

__all__ = [
    "DEFAULT_REACH",
    "HEADS",
    "TEMPERINGS",
    "ExactTempering",
    "Head",
    "MeanHead",
    "Moments",
    "NaturalHead",
    "RescaledTempering",
    "RobustTempering",
    "Tempering",
    "gaussian_losses",
    "squared_error_scale",
    "weighted_mean",
]

LOG_STD_LIMIT: Final = 80.0
"""Largest |log std|: e^80 is finite in float32, e^89 is not."""

DEFAULT_REACH: Final = 3.0
"""Reach of a model that has not learnt its own."""

S_LIMIT: Final = 20.0
"""Bound on the log-precision s while it is trained."""

INITIAL_STATE: Final = {
    **{"s_low": -S_LIMIT, "s_high": S_LIMIT, "s_min": -S_LIMIT, "s_max": S_LIMIT},
    **{"level": 0.0, "detail": 1.0, "offset": 0.0},
}
"""Buffers of a head before they are learnt: nothing is shrunk or calibrated."""


class Moments(NamedTuple):
    """Mean and log standard deviation, each (n, k)."""

    mean: Tensor
    log_std: Tensor


def gaussian_losses(moments: Moments, y: Tensor) -> Tensor:
    """Negative log-likelihood (...,) of targets `y` (..., k), in nats, averaged over targets."""
    mean, log_std = moments
    # vmap cannot go through a hand-written gradient.
    by_hand = mean.requires_grad and not torch._C._functorch.is_batchedtensor(mean)
    return _GaussianLosses.apply(mean, log_std, y) if by_hand else _losses(mean, log_std, y)[0]  # type: ignore[no-untyped-call]


def _losses(mean: Tensor, log_std: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Losses (...,), residuals r (..., k) in standard deviations, and the inverse of these."""
    inverse = torch.exp(-log_std)
    residual = (y - mean) * inverse
    return (log_std + 0.5 * residual.square() + 0.5 * math.log(2 * math.pi)).mean(-1), residual, inverse


class _GaussianLosses(torch.autograd.Function):
    """`_losses` with its gradient in closed form: -r / std for the mean, 1 - r^2 for log std, each divided by k."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, log_std: Tensor, y: Tensor) -> Tensor:
        losses, residual, inverse = _losses(mean, log_std, y)
        ctx.save_for_backward(residual, inverse, mean, log_std, y)
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        residual, inverse, *inputs = ctx.saved_tensors
        if torch.is_grad_enabled():
            # A second derivative needs a graph, which the saved tensors do not have.
            _, residual, inverse = _losses(*inputs)
        each = (gradients[0] / residual.shape[-1]).unsqueeze(-1)
        by_residual = each * residual
        return -by_residual * inverse, each - by_residual * residual, None


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    """Mean of `losses` (..., n) by `weight` (..., n); 0 for a batch without weight."""
    return (losses * weight).sum(-1) / weight.sum(-1).clamp_min(torch.finfo(weight.dtype).tiny)


def squared_error_scale(moments: Moments, y: Tensor, weight: Tensor, log_scale: Tensor | float = 0.0) -> Tensor:
    """Log of the factor on the variance (..., 1, k) that is most likely for targets `y` (n, k) with `weight` (n,).

    One pseudo-row of mean weight at the scale `log_scale` keeps a handful of rows from promising no variance at all.
    """
    weight = weight / weight.mean()
    mean, log_std = moments
    # In logs: squared ratios overflow where the density is taken literally.
    log_squared = 2.0 * ((y - mean).abs().clamp_min(1e-30).log() - log_std)
    log_total = (log_squared + weight.log()[:, None]).logsumexp(-2, keepdim=True)
    prior = torch.as_tensor(log_scale).to(log_total).expand_as(log_total)
    return torch.logaddexp(log_total, prior) - torch.log1p(weight.sum())


class Tempering(FittedModule, ABC):
    """Monotone map from log p(z) to log p~(z), the log-density that multiplies the precision.

    The buffer `reference` is the median log-density of held-out rows.
    """

    reference: Tensor

    reads_training_rows: ClassVar[bool] = False
    """Whether `fit` uses the log-densities of training rows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("reference", torch.tensor(0.0))

    @torch.no_grad()
    def fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None = None) -> Self:
        """Learn from log-densities of training rows (n,) and of held-out rows (m,)."""
        (reference,) = weighted_quantiles(held_out, [0.5], held_out_weight)
        self._store(reference=reference)
        self._fit(train, held_out, held_out_weight)
        return self

    @property
    def reference_level(self) -> Tensor:
        """log p~ at the reference."""
        level: Tensor = self(self.reference)
        return level

    def _fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None) -> None:
        """Learn what is left beside the reference."""

    @abstractmethod
    def forward(self, log_prob: Tensor) -> Tensor:
        """log p~ of the same shape as `log_prob`."""


class ExactTempering(Tempering):
    """No tempering: log p~ = log p, as in the paper (Eq. 8, `eq:exp`)."""

    def forward(self, log_prob: Tensor) -> Tensor:
        """Return `log_prob`."""
        return log_prob


class RescaledTempering(Tempering):
    """Min-max scaling of training log-densities to [low, high], as in the authors' code.

    Parameters
    ----------
    low, high : float
        The range; the authors set it by hand for each experiment, [0, 0.4] for the cubic toy.
    """

    lowest: Tensor
    slope: Tensor

    reads_training_rows = True

    def __init__(self, low: float = 0.0, high: float = 0.4) -> None:
        super().__init__()
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"Need finite low < high, got low={low}, high={high}.")
        self.low = low
        self.high = high
        self.register_buffer("lowest", torch.tensor(0.0))
        self.register_buffer("slope", torch.tensor(1.0))

    def _fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None) -> None:
        spread = (train.amax() - train.amin()).clamp_min(1e-3)
        self._store(lowest=train.amin(), slope=(self.high - self.low) / spread)

    def forward(self, log_prob: Tensor) -> Tensor:
        """Linear in `log_prob`."""
        return self.low + self.slope * (log_prob - self.lowest)


class RobustTempering(Tempering):
    r"""Polynomial instead of exponential growth of the variance, and none inside the training data.

    With the excess e = max(0, reference - start * spread - log p) / (reach * spread),

    .. math:: \log \tilde p = -g \log(1 + 2 e).

    The spread is the distance from the median of held-out log-densities to their 16 % quantile, so that "far" means
    the same in any number of dimensions. The reach is the length scale on which the variance grows, in spreads. For a
    Gaussian density the variance grows as the squared Mahalanobis distance to the power g; g = 1 is Bayesian linear
    regression.

    Parameters
    ----------
    exponent : float
        The g above, positive.
    reach : float or "auto"
        In spreads, positive. "auto" is 3 until a fit learns it from rows hidden from a few networks.
    start : float
        How far below the median the variance begins to grow, in spreads.
    """

    exponent: Tensor
    spread: Tensor
    learnt_reach: Tensor

    LOW: Final = 0.16
    LEAST_SPREAD: Final = 0.5
    ROUNDINGS: Final = 16.0
    """Lower quantile; least spread in nats (0.76 for one Gaussian dimension), and in roundings of the reference."""

    def __init__(self, exponent: float = 2.0, reach: float | Literal["auto"] = "auto", start: float = 0.0) -> None:
        super().__init__()
        if not (math.isfinite(exponent) and exponent > 0):
            raise ValueError(f"exponent must be positive and finite, got {exponent}.")
        if reach != "auto" and not (math.isfinite(reach) and reach > 0):
            raise ValueError(f'reach must be "auto" or positive and finite, got {reach}.')
        if not (math.isfinite(start) and start >= 0):
            raise ValueError(f"start must be at least 0 and finite, got {start}.")
        self.reach = reach
        self.start = start
        self.register_buffer("exponent", torch.tensor(float(exponent)))
        self.register_buffer("spread", torch.tensor(1.0))
        self.register_buffer("learnt_reach", torch.tensor(DEFAULT_REACH if reach == "auto" else float(reach)))

    def _fit(self, train: Tensor, held_out: Tensor, held_out_weight: Tensor | None) -> None:
        (low,) = weighted_quantiles(held_out, [self.LOW], held_out_weight)
        # Differences of huge log-densities, of held-out rows unlike the others, are rounding.
        rounding = self.ROUNDINGS * torch.finfo(torch.float32).eps * self.reference.abs()
        self._store(spread=(self.reference - low).clamp_min(self.LEAST_SPREAD).maximum(rounding))

    def set_reach(self, reach: float) -> None:
        """Set the reach that was learnt."""
        self._store(learnt_reach=torch.tensor(reach))

    def forward(self, log_prob: Tensor) -> Tensor:
        """At most 0, and 0 wherever `log_prob` is at or above the reference."""
        begin = self.reference - self.start * self.spread if self.start else self.reference
        excess = (begin - log_prob).clamp_min(0.0) / (self.learnt_reach * self.spread)
        return -self.exponent * torch.log1p(2.0 * excess)


class Head(nn.Module, ABC):
    r"""A Gaussian whose precision is the density times a learnt factor.

    A linear map gives a location and a log-precision s for each of k targets, and

    .. math:: \log \sigma^2 = -(\log 2 + \log \tilde p(z) + a + \lambda (\bar s - a) + b).

    s-bar is s, smoothly clamped to the range it had on the training features (`bound_log_precision`), because a linear
    s promises any precision far away. It is shrunk towards its typical level a by lambda (`shrink_log_precision`); b
    is an offset fitted on held-out rows (`calibrate`). All three act on the variance alone.

    Parameters
    ----------
    features, targets : int
        Width D of z, and number k of targets. Of wider features the first D are read; the others are for the density.

    Attributes
    ----------
    noise_apart : bool
        Whether the encoder learns from the mean alone in step 1: s reads the features, but does not train them. False
        unless set.
    """

    s_low: Tensor
    s_high: Tensor
    s_min: Tensor
    s_max: Tensor
    level: Tensor
    detail: Tensor
    offset: Tensor

    QUANTILES: Final = (0.02, 0.98)
    """Quantiles of s on the training features to which s is clamped."""

    def __init__(self, features: int, targets: int = 1) -> None:
        super().__init__()
        self.features = features
        self.targets = targets
        self.noise_apart = False
        self.linear = nn.Linear(features, 2 * targets)
        with torch.no_grad():
            # Unit variance for every row, that of the standardised target.
            self.linear.weight[targets:].zero_()
            self.linear.bias[targets:].fill_(-math.log(2))
        for name in INITIAL_STATE:
            self.register_buffer(name, torch.zeros(targets))
        self.reset()

    def forward(self, z: Tensor, log_density: Tensor | None = None) -> Moments:
        """Moments at features `z` (n, D), with tempered log-density (n,) if there is one."""
        return self.combine(*self._linear(z), log_density)

    def combine(self, location: Tensor, s: Tensor, log_density: Tensor | None = None) -> Moments:
        """Moments from the linear map's location and log-precision, each (n, k)."""
        log_precision = self._shrunk(s) + (self.offset + math.log(2))
        if log_density is not None:
            log_precision = log_precision + log_density[:, None]
        log_std = (-0.5 * log_precision).clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT)
        return Moments(self._mean(location, s), log_std)

    def unbounded(self, z: Tensor) -> Moments:
        """Moments at features `z` (n, D) as step 1 trains them: s neither bounded, shrunk nor calibrated."""
        location, s = self._linear(z)
        if self.noise_apart:
            s = self._linear(z.detach())[1]
        return Moments(self._mean(location, s), -0.5 * (s.clamp(-S_LIMIT, S_LIMIT) + math.log(2)))

    def reset(self) -> None:
        """Undo `bound_log_precision`, `shrink_log_precision` and `calibrate`."""
        for name, value in INITIAL_STATE.items():
            getattr(self, name).fill_(value)

    @torch.no_grad()
    def bound_log_precision(self, z: Tensor, weight: Tensor | None = None) -> None:
        """Clamp s to the range it has on the training features `z` (n, D)."""
        s = self._linear(z)[1].clamp(self.s_min, self.s_max)
        low, high = weighted_quantiles(s, self.QUANTILES, weight)
        self.s_low.copy_(low)
        self.s_high.copy_(high)
        self.s_min.copy_(s.amin(0))
        self.s_max.copy_(s.amax(0))

    @torch.no_grad()
    def shrink_log_precision(self, detail: float, z: Tensor, weight: Tensor) -> None:
        """Keep the share `detail` of s, and shrink the rest to its level on the held-out features `z` (n, D)."""
        self.detail.fill_(1.0)
        s = self._shrunk(self._linear(z)[1])
        # The precision that belongs to their mean variance.
        self.level.copy_(weight.sum().log() - (weight.log()[:, None] - s).logsumexp(0))
        self.detail.fill_(detail)

    @torch.no_grad()
    def calibrate(self, z: Tensor, y: Tensor, log_density: Tensor | None, weight: Tensor) -> Moments:
        """Move the offset to its most likely value on held-out rows; returns their moments with it."""
        parts = self._linear(z)
        self.offset.sub_(squared_error_scale(self.combine(*parts, log_density), y, weight)[0])
        return self.combine(*parts, log_density)

    def _shrunk(self, s: Tensor) -> Tensor:
        return torch.lerp(self.level, smooth_clamp(s, self.s_low, self.s_high), self.detail)

    def _linear(self, z: Tensor) -> tuple[Tensor, Tensor]:
        z = z if z.shape[-1] == self.features else z[..., : self.features]
        # Under autocast the product is in half precision; the exponentials that follow need more.
        location, s = self.linear(z).to(self.linear.weight.dtype).chunk(2, dim=-1)
        return location, s

    @abstractmethod
    def _mean(self, location: Tensor, s: Tensor) -> Tensor:
        """Mean from the location parameter and the log-precision."""

    @abstractmethod
    def location_of(self, mean: Tensor, s: Tensor) -> Tensor:
        """Location parameter that gives this mean at constant s."""


class NaturalHead(Head):
    """Natural parameters, both linear in z: mean = -m e^-s (Corollary 3.2, `corol:gauss`).

    The density cancels from the mean. s is clamped to its extremes on the training features, as e^-s would blow the
    mean up far away.
    """

    def _mean(self, location: Tensor, s: Tensor) -> Tensor:
        return -location * torch.exp(-s.maximum(self.s_min).minimum(self.s_max))

    def location_of(self, mean: Tensor, s: Tensor) -> Tensor:
        """Location parameter that gives this mean at constant s."""
        return -mean * torch.exp(s)


class MeanHead(Head):
    """The mean itself linear in z."""

    def _mean(self, location: Tensor, s: Tensor) -> Tensor:
        return location

    def location_of(self, mean: Tensor, s: Tensor) -> Tensor:
        """The mean."""
        return mean


HEADS: dict[str, type[Head]] = {"natural": NaturalHead, "mean": MeanHead}
"""Heads by the name that `head=` takes."""

TEMPERINGS: dict[str, type[Tempering]] = {
    "robust": RobustTempering,
    "exact": ExactTempering,
    "rescaled": RescaledTempering,
}
"""Temperings by the name that `tempering=` takes."""
