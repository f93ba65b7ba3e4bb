"""From features and their tempered log-density to a Gaussian: heads (Theorem 3.1, Corollary 3.2)."""

import math
from abc import ABC, abstractmethod
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.nn.density.base import smooth_clamp, weighted_quantiles

__all__ = [
    "ADDED_RATIO",
    "HEADS",
    "Head",
    "MeanHead",
    "Moments",
    "NaturalHead",
    "gaussian_losses",
    "squared_error_doubt",
    "squared_error_scale",
    "weighted_mean",
]

LOG_STD_LIMIT: Final = 80.0
"""Largest |log std|: e^80 is finite in float32, e^89 is not."""

S_LIMIT: Final = 20.0
"""Bound on the log-precision s while it is trained."""

ADDED_RATIO: Final = 0.1
"""Share of the noise in r beside the disagreement: far away the variance grows even where no two networks differ."""

RATIO_LIMIT: Final = 20.0
WIDEST_RANGE: Final = 30.0
"""How far outside its bounds the output for log r is constant; and the largest distance of these bounds."""

HIGHEST_RATIO: Final = 0.99
"""Quantile of log r on training rows to which `Head.cap_ratio` bounds it."""

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


def squared_error_doubt(moments: Moments, y: Tensor, weight: Tensor) -> Tensor:
    r"""Log of the factor (1, k) by which a variance should exceed the one that is most likely for a few rows.

    With u the squared errors (n, k) of targets `y` in standard deviations, divided by their mean, and `weight` (n,) w,
    it is

    .. math:: 1 + \sum w^2 (u - 1)^2 / (\sum w)^2,

    one plus the relative variance of their mean, the estimate of the scale. As this varies about the true scale v, the
    c that minimises the mean of log(c estimate) + v / (c estimate) is the mean of v / estimate, to second order that
    factor. Few rows, or errors with heavy tails, tell less about the scale. It is at most 3.
    """
    weight = (weight / weight.sum())[:, None]
    mean, log_std = moments
    log_squared = 2.0 * ((y - mean).abs().clamp_min(1e-30).log() - log_std)
    log_mean = (log_squared + weight.log()).logsumexp(-2, keepdim=True)
    # Each weight times u is at most 1, so that nothing overflows.
    share = torch.exp(log_squared + weight.log() - log_mean)
    return torch.log1p((share - weight).square().sum(-2, keepdim=True))


class Head(nn.Module, ABC):
    r"""A Gaussian whose precision is the density times a learnt factor.

    A linear map gives a location and a log-precision s for each of k targets, and

    .. math:: \log \sigma^2 = -(\log 2 + \log \tilde p(z) + a + \lambda (\bar s - a) + b).

    s-bar is s, smoothly clamped to the range it had on the training features (`bound_log_precision`), because a linear
    s promises any precision far away. It is shrunk towards its typical level a by lambda (`shrink_log_precision`); b
    is an offset fitted on held-out rows (`calibrate`). All three act on the variance alone.

    With `disagreement` a third linear output gives r, the variance among several networks of equal right relative to
    their noise, plus a tenth (`ADDED_RATIO`). The density then multiplies that part alone:

    .. math:: \log \sigma^2 = -(\log 2 + a + \lambda (\bar s - a) + b) + \log(1 + r / \tilde p(z)).

    Parameters
    ----------
    features, targets : int
        Width D of z, and number k of targets. Of wider features the first D are read; the others are for the density.
    disagreement : bool
        Whether there is that third output.

    Attributes
    ----------
    noise_apart : bool
        Whether the encoder learns from the mean alone in step 1: s reads the features, but does not train them. False
        unless set.

    Examples
    --------
    >>> import torch
    >>> from density_regression.nn.heads import MeanHead
    >>> head = MeanHead(features=3, targets=2)
    >>> tuple(head(torch.zeros(5, 3), log_density=torch.zeros(5)).mean.shape)
    (5, 2)
    """

    s_low: Tensor
    s_high: Tensor
    s_min: Tensor
    s_max: Tensor
    level: Tensor
    detail: Tensor
    offset: Tensor
    ratio_low: Tensor
    ratio_range: Tensor

    QUANTILES: Final = (0.02, 0.98)
    """Quantiles of s on the training features to which s is clamped."""

    def __init__(self, features: int, targets: int = 1, *, disagreement: bool = False) -> None:
        super().__init__()
        self.features = features
        self.targets = targets
        self.disagreement = disagreement
        self.noise_apart = False
        self.linear = nn.Linear(features, (3 if disagreement else 2) * targets)
        with torch.no_grad():
            # Unit variance for every row, that of the standardised target.
            self.linear.weight[targets:].zero_()
            self.linear.bias[targets:].zero_()
            self.linear.bias[targets : 2 * targets].fill_(-math.log(2))
        for name in INITIAL_STATE:
            self.register_buffer(name, torch.zeros(targets))
        for name in ("ratio_low", "ratio_range") if disagreement else ():
            self.register_buffer(name, torch.zeros(targets))
        self.reset()

    def forward(self, z: Tensor, log_density: Tensor | None = None) -> Moments:
        """Moments at features `z` (n, D), with tempered log-density (n,) if there is one."""
        return self.combine(*self._linear(z), log_density=log_density)

    def combine(
        self, location: Tensor, s: Tensor, ratio: Tensor | None = None, *, log_density: Tensor | None = None
    ) -> Moments:
        """Moments from the linear map's outputs, each (n, k)."""
        log_precision = self._shrunk(s) + (self.offset + math.log(2))
        density = torch.zeros(()).to(s) if log_density is None else log_density[:, None]
        if ratio is None:
            log_var = -(log_precision + density)
        else:
            log_var = F.softplus(self.log_ratio(ratio) - density) - log_precision
        return Moments(self._mean(location, s), (0.5 * log_var).clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT))

    def noise(self, z: Tensor) -> Tensor:
        """Log standard deviation (n, k) of the noise alone, for a head with disagreement."""
        log_precision = self._shrunk(self._linear(z)[1]) + (self.offset + math.log(2))
        return (0.5 * (math.log1p(ADDED_RATIO) - log_precision)).clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT)

    def unbounded(self, z: Tensor) -> Moments:
        """Moments at features `z` (n, D) as step 1 trains them: s neither bounded, shrunk nor calibrated."""
        mean, log_noise, log_ratio = self.taught(z)
        return Moments(mean, 0.5 * (log_noise if log_ratio is None else log_noise + F.softplus(log_ratio)))

    def taught(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Mean, log variance of the noise and log r (n, k) at features `z` (n, D), s as in `unbounded`."""
        location, s, *ratio = self._linear(z)
        if self.noise_apart:
            s = self._linear(z.detach())[1]
        log_noise = -(s.clamp(-S_LIMIT, S_LIMIT) + math.log(2))
        return self._mean(location, s), log_noise, self.log_ratio(ratio[0]) if ratio else None

    def bound_ratio(self, low: Tensor, high: Tensor) -> None:
        """Keep log r between `low` and `high` (k,)."""
        self.ratio_low.copy_(low)
        self.ratio_range.copy_((high - low).clamp(0.0, WIDEST_RANGE))

    @torch.no_grad()
    def cap_ratio(self, z: Tensor, weight: Tensor) -> None:
        """Keep log r at most at its 99 % quantile on the training features `z` (n, D)."""
        (high,) = weighted_quantiles(self.log_ratio(self._linear(z)[2]), [HIGHEST_RATIO], weight)
        self.ratio_range.copy_((high - self.ratio_low).clamp_min(0.0).minimum(self.ratio_range))

    def log_ratio(self, ratio: Tensor) -> Tensor:
        """Log r within its bounds, from the linear map's third output (n, k): the bounds' corners are softplus."""
        # Constant this far outside, but the difference of two huge numbers would be rounding.
        ratio = ratio.clamp_min(-RATIO_LIMIT).minimum(self.ratio_range + RATIO_LIMIT)
        return self.ratio_low + (F.softplus(ratio) - F.softplus(ratio - self.ratio_range))

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
        """Move the offset to its most likely value on held-out rows, and a little on; returns their moments with it.

        The variance is then larger by `squared_error_doubt`: new rows cost more where it is too small than where it is
        too large by as much.
        """
        parts = self._linear(z)
        self.offset.sub_(squared_error_scale(self.combine(*parts, log_density=log_density), y, weight)[0])
        self.offset.sub_(squared_error_doubt(self.combine(*parts, log_density=log_density), y, weight)[0])
        return self.combine(*parts, log_density=log_density)

    def _shrunk(self, s: Tensor) -> Tensor:
        return torch.lerp(self.level, smooth_clamp(s, self.s_low, self.s_high), self.detail)

    def _linear(self, z: Tensor) -> tuple[Tensor, ...]:
        """Location, log-precision s and, with disagreement, the output for log r, each (n, k)."""
        z = z if z.shape[-1] == self.features else z[..., : self.features]
        # Under autocast the product is in half precision; the exponentials that follow need more.
        outputs: Tensor = self.linear(z).to(self.linear.weight.dtype)
        return outputs.chunk(3 if self.disagreement else 2, dim=-1)

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

    Examples
    --------
    >>> import torch
    >>> head = NaturalHead(features=3)
    >>> z = torch.zeros(2, 3)
    >>> mean, log_std = head(z, log_density=torch.tensor([0.0, -4.0]))
    >>> bool(mean[0] == mean[1]), round((log_std[1] - log_std[0]).item(), 3)
    (True, 2.0)
    """

    def _mean(self, location: Tensor, s: Tensor) -> Tensor:
        return -location * torch.exp(-s.maximum(self.s_min).minimum(self.s_max))

    def location_of(self, mean: Tensor, s: Tensor) -> Tensor:
        """Location parameter that gives this mean at constant s."""
        return -mean * torch.exp(s)


class MeanHead(Head):
    """The mean itself linear in z.

    mean = m, log var = -(log 2 + log p~(z) + s), with m and s linear in z.

    Examples
    --------
    >>> import torch
    >>> head = MeanHead(features=3)
    >>> z = torch.zeros(2, 3)
    >>> mean, log_std = head(z, log_density=torch.tensor([0.0, -4.0]))
    >>> bool(mean[0] == mean[1]), round((log_std[1] - log_std[0]).item(), 3)
    (True, 2.0)
    """

    def _mean(self, location: Tensor, s: Tensor) -> Tensor:
        return location

    def location_of(self, mean: Tensor, s: Tensor) -> Tensor:
        """The mean."""
        return mean


HEADS: dict[str, type[Head]] = {"natural": NaturalHead, "mean": MeanHead}
"""Heads by the name that `head=` takes."""
