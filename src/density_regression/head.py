"""Regression heads g: from features and their density to a Gaussian (`theo:gauss`, `corol:gauss`)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from density_regression._numeric import smooth_clamp, weighted_quantiles

__all__ = ["HEADS", "Head", "MeanHead", "Moments", "NaturalHead", "gaussian_losses"]

LOG_STD_LIMIT: Final = 80.0
"""Largest |log std|: e^80 is finite in float32, e^89 is not."""

RELEASED: Final = {
    "s_low": -20.0,
    "s_high": 20.0,
    "s_min": -20.0,
    "s_max": 20.0,
    "level": 0.0,
    "detail": 1.0,
    "offset": 0.0,
}
"""What a head holds before training has set it."""


class Moments(NamedTuple):
    """Mean and log standard deviation, each (n, k)."""

    mean: Tensor
    log_std: Tensor


def gaussian_losses(moments: Moments, y: Tensor) -> Tensor:
    """Negative log-likelihood (...,) of targets `y` (..., k), in nats, averaged over targets."""
    mean, log_std = moments
    # A gradient through each step would take as long as a layer of a small network, but only there can vmap go.
    cheap = mean.requires_grad and not torch._C._functorch.is_batchedtensor(mean)
    return _GaussianLosses.apply(mean, log_std, y) if cheap else _losses(mean, log_std, y)[0]  # type: ignore[no-untyped-call]


def _losses(mean: Tensor, log_std: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Losses (...,), residuals (..., k) in units of the standard deviation, and its inverse."""
    inverse = torch.exp(-log_std)
    residual = (y - mean) * inverse
    return (log_std + 0.5 * residual.square() + 0.5 * math.log(2 * math.pi)).mean(-1), residual, inverse


class _GaussianLosses(torch.autograd.Function):
    """`_losses` with its gradient in closed form."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, log_std: Tensor, y: Tensor) -> Tensor:
        losses, residual, inverse = _losses(mean, log_std, y)
        ctx.save_for_backward(residual, inverse, mean, log_std, y)
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        residual, inverse, *inputs = ctx.saved_tensors
        if torch.is_grad_enabled():
            # Somebody wants a second derivative, of which what was saved knows nothing.
            _, residual, inverse = _losses(*inputs)
        each = (gradients[0] / residual.shape[-1]).unsqueeze(-1)
        by_residual = each * residual
        return -by_residual * inverse, each - by_residual * residual, None


class Head(nn.Module, ABC):
    r"""A Gaussian whose precision is the density times a learnt factor.

    From features z (n, D) a linear map gives a location and a log-precision s for each of k targets, and

    .. math:: \log \sigma^2 = -(\log 2 + \log \tilde p(z) + a + \lambda (\bar s - a) + b).

    Here s-bar is s held smoothly within the range it had on the training features (`bound`), because a linear s
    promises any precision far away. It may be drawn to its typical level a by a factor lambda (`blur`), as what it
    tells of single rows holds less well elsewhere; and b is an offset fitted on held-out rows (`calibrate`). All
    three act on the variance alone.

    Parameters
    ----------
    features : int
        Width D of z. Of wider features the first D are read: what follows is for the density alone.
    targets : int
        Number k of targets.

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
    """The range of s on the training features that is kept, robust to its extremes."""

    def __init__(self, features: int, targets: int = 1) -> None:
        super().__init__()
        self.features = features
        self.targets = targets
        self.noise_apart = False
        self.linear = nn.Linear(features, 2 * targets)
        with torch.no_grad():
            # Begin at unit variance for every row, that of the standardised target.
            self.linear.weight[targets:].zero_()
            self.linear.bias[targets:].fill_(-math.log(2))
        for name in RELEASED:
            self.register_buffer(name, torch.zeros(targets))
        self.release()

    def forward(self, z: Tensor, log_density: Tensor | None = None) -> Moments:
        """Moments at features `z` (n, D), with tempered log-density (n,) if there is one."""
        return self.combine(*self._linear(z), log_density)

    def of_columns(self, columns: Tensor, log_density: Tensor | None = None) -> Moments:
        """Moments at features given as columns (D, n): the fastest product of many rows with so few outputs."""
        linear = self.linear
        location, s = torch.addmm(linear.bias[:, None], linear.weight, columns[: self.features]).chunk(2)
        return self.combine(location.T, s.T, log_density)

    def combine(self, location: Tensor, s: Tensor, log_density: Tensor | None = None) -> Moments:
        """Moments from what the linear map gives, each (n, k)."""
        log_precision = self._kept(s) + (self.offset + math.log(2))
        if log_density is not None:
            log_precision = log_precision + log_density[:, None]
        log_std = (-0.5 * log_precision).clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT)
        return Moments(self._mean(location, s), log_std)

    def free(self, z: Tensor) -> Moments:
        """Moments at features `z` (n, D) as training step 1 sees them, without bound, blur or offset."""
        location, s = self._linear(z)
        if self.noise_apart:
            s = self._linear(z.detach())[1]
        return Moments(self._mean(location, s), -0.5 * (s.clamp(-20.0, 20.0) + math.log(2)))

    def release(self) -> None:
        """Undo `bound`, `blur` and `calibrate`: s may be what training makes of it, within +-20."""
        for name, value in RELEASED.items():
            getattr(self, name).fill_(value)

    @torch.no_grad()
    def bound(self, z: Tensor, weight: Tensor | None = None) -> None:
        """Hold s within the range it has on the training features `z` (n, D)."""
        s = self._linear(z)[1].clamp(self.s_min, self.s_max)
        low, high = weighted_quantiles(s, self.QUANTILES, weight)
        self.s_low.copy_(low)
        self.s_high.copy_(high)
        self.s_min.copy_(s.amin(0))
        self.s_max.copy_(s.amax(0))

    @torch.no_grad()
    def blur(self, detail: float, z: Tensor, weight: Tensor) -> None:
        """Keep this share of what s says of single rows; the rest is what it says of the held-out rows `z` (n, D)."""
        self.detail.fill_(1.0)
        s = self._kept(self._linear(z)[1])
        # The precision that belongs to their mean variance.
        self.level.copy_(weight.sum().log() - (weight.log()[:, None] - s).logsumexp(0))
        self.detail.fill_(detail)

    @torch.no_grad()
    def calibrate(self, z: Tensor, y: Tensor, log_density: Tensor | None, weight: Tensor) -> Moments:
        """Move the offset to its most likely value on held-out rows; returns their moments with it.

        One pseudo-row at the present scale, of their mean weight, keeps a handful of held-out rows from promising no
        variance at all.
        """
        weight = weight / weight.mean()
        parts = self._linear(z)
        mean, log_std = self.combine(*parts, log_density)
        # In logs: with the density taken literally, squared ratios overflow.
        log_squared = 2.0 * ((y - mean).abs().clamp_min(1e-30).log() - log_std)
        log_total = (log_squared + weight.log()[:, None]).logsumexp(0)
        log_mean = torch.logaddexp(log_total, torch.zeros_like(log_total)) - torch.log1p(weight.sum())
        self.offset.sub_(log_mean)
        return self.combine(*parts, log_density)

    @torch.no_grad()
    def start(self, z: Tensor, y: Tensor, weight: Tensor) -> None:
        """Begin at the ridge regression of `y` (n, k) on `z` (n, D), with one variance for all rows."""
        self.release()
        z = self._own(z).double()
        # About their mean: features a thousand deviations from zero would be shrunk for their place alone.
        center = weight.double() @ z / weight.sum()
        design = torch.cat([z - center, torch.ones_like(z[:, :1])], 1)
        weighted = design * weight[:, None].double()
        gram = weighted.T @ design
        ridge = 1e-4 * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        ridge[-1, -1] = 0.0
        coefficients = torch.linalg.lstsq(gram + ridge, weighted.T @ y.double()).solution
        residual = y.double() - design @ coefficients
        variance = (weight.double() @ residual.square()) / weight.sum()
        s = -(2 * variance.clamp_min(1e-8)).log()
        coefficients[-1] -= center @ coefficients[:-1]
        location = self._location(coefficients, s).to(self.linear.weight)
        self.linear.weight.zero_()
        self.linear.weight[: self.targets] = location[:-1].T
        self.linear.bias.copy_(torch.cat([location[-1], s.to(location)]))

    def _kept(self, s: Tensor) -> Tensor:
        """What is kept of the log-precision (n, k) that the linear map promises."""
        return torch.lerp(self.level, smooth_clamp(s, self.s_low, self.s_high), self.detail)

    def _linear(self, z: Tensor) -> tuple[Tensor, Tensor]:
        # Under autocast the product is in half precision; the exponentials that follow need more.
        location, s = self.linear(self._own(z)).to(self.linear.weight.dtype).chunk(2, dim=-1)
        return location, s

    def _own(self, z: Tensor) -> Tensor:
        return z if z.shape[-1] == self.features else z[..., : self.features]

    @abstractmethod
    def _mean(self, location: Tensor, s: Tensor) -> Tensor:
        """Mean from the location parameter and the log-precision."""

    @abstractmethod
    def _location(self, mean: Tensor, s: Tensor) -> Tensor:
        """Location parameter that gives this mean at constant s."""


class NaturalHead(Head):
    """Natural parameters, both linear in z: mean = -m e^-s.

    The corollary's long form multiplies and divides by p(z), which overflows; the density cancels from the mean.
    There s is held within its extremes on the training features, exactly as learnt on each of them: e^-s would blow
    the mean up far away, and a rounded or narrower bound would bend it where it was right.
    """

    def _mean(self, location: Tensor, s: Tensor) -> Tensor:
        return -location * torch.exp(-s.maximum(self.s_min).minimum(self.s_max))

    def _location(self, mean: Tensor, s: Tensor) -> Tensor:
        return -mean * torch.exp(s)


class MeanHead(Head):
    """The mean itself linear in z."""

    def _mean(self, location: Tensor, s: Tensor) -> Tensor:
        return location

    def _location(self, mean: Tensor, s: Tensor) -> Tensor:
        return mean


HEADS: dict[str, type[Head]] = {"natural": NaturalHead, "mean": MeanHead}
"""Heads by the name that `head=` takes."""
