"""Mean-field variational inference: every weight is a Gaussian, learnt by the evidence lower bound."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Literal, NamedTuple, Unpack, get_args

import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.base import About, Settings
from density_regression.baselines.drawn import Draws, RandomNetwork, current_draws, with_replaced
from density_regression.baselines.gaussian import split_moments
from density_regression.baselines.sampled import SampledRegressor
from density_regression.batches import Batches, on_device
from density_regression.head import Moments
from density_regression.network import position_weights

__all__ = ["BayesianLinear", "BayesianNetwork", "BayesianRegressor", "Prior", "gaussian_kl", "mixture_kl"]

Gradient = Literal["local", "flipout"]

INITIAL_STD: Final = 0.01
"""Standard deviation of every weight before training: small, so that the noise does not hide the data at first."""


class Prior(NamedTuple):
    """Prior of a weight: a Gaussian or, with a `narrow_share`, its mixture with a narrow one (Blundell et al., 2015).

    Attributes
    ----------
    std : float
        Standard deviation of the Gaussian.
    narrow_std : float
        Standard deviation of the narrow one, which pulls weights towards zero.
    narrow_share : float
        Weight of the narrow one in the mixture, at least 0 and below 1.
    """

    std: float = 1.0
    narrow_std: float = 0.0025
    narrow_share: float = 0.0

    def divergence(self, mean: Tensor, std: Tensor) -> Tensor:
        """KL divergence of independent Gaussians from this prior, summed; for a mixture estimated from one draw."""
        return mixture_kl(mean, std, self) if self.narrow_share else gaussian_kl(mean, std, self.std)


def gaussian_kl(mean: Tensor, std: Tensor, prior_std: float) -> Tensor:
    """KL(N(mean, std^2) || N(0, prior_std^2)), summed over all entries."""
    squares = (mean.square().sum() + std.square().sum()) / (2 * prior_std**2)
    return squares - std.log().sum() + mean.numel() * (math.log(prior_std) - 0.5)


def mixture_kl(mean: Tensor, std: Tensor, prior: Prior) -> Tensor:
    """Unbiased estimate of KL(N(mean, std^2) || mixture), summed over all entries (Blundell et al., 2015, eq. 7).

    The entropy is exact; the prior's log-density takes a draw of the weights.
    """
    entropy = std.log().sum() + mean.numel() * 0.5 * math.log(2 * math.pi * math.e)
    weight = mean + std * torch.randn_like(mean)
    wide, narrow = (
        math.log(share / scale) - 0.5 * (weight / scale).square()
        for scale, share in ((prior.std, 1 - prior.narrow_share), (prior.narrow_std, prior.narrow_share))
    )
    log_prior = torch.logaddexp(wide, narrow).sum() - mean.numel() * 0.5 * math.log(2 * math.pi)
    return -entropy - log_prior


class BayesianLinear(nn.Module):
    """A linear layer whose weights and biases are independent Gaussians, with standard deviations softplus(rho).

    In training every row has noise of its own, and so has every position of a sequence; at prediction every drawn
    network has. Outside both, the weights are at their means.

    Parameters
    ----------
    linear : nn.Linear
        Gives the sizes, and the means to begin with.
    prior : Prior
        Of each weight and bias.
    gradient : {"local", "flipout"}
        How noise is drawn in training; see `BayesianRegressor`.
    initial_std : float
        Standard deviation of every weight before training.
    """

    def __init__(
        self, linear: nn.Linear, prior: Prior, gradient: Gradient = "local", initial_std: float = INITIAL_STD
    ) -> None:
        super().__init__()
        self.prior = prior
        self.gradient = gradient
        self.has_bias = linear.bias is not None
        # The bias is a last column, for an input that is always one.
        parts = [linear.weight, linear.bias[:, None]] if self.has_bias else [linear.weight]
        learnt = linear.weight.requires_grad
        self.mean = nn.Parameter(torch.cat(parts, 1).detach(), requires_grad=learnt)
        rho = torch.full_like(self.mean, math.log(math.expm1(initial_std)))
        self.rho = nn.Parameter(rho.detach(), requires_grad=learnt)

    @property
    def weight(self) -> Tensor:
        """Means of the weights (outputs, inputs), for modules that read those of their parts."""
        return self.mean[:, :-1] if self.has_bias else self.mean

    @property
    def bias(self) -> Tensor | None:
        """Means of the biases (outputs,)."""
        return self.mean[:, -1] if self.has_bias else None

    @property
    def std(self) -> Tensor:
        """Standard deviations of the weights (outputs, inputs), with those of the biases as a last column."""
        return F.softplus(self.rho)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (..., outputs) at inputs `x` (..., inputs)."""
        x = F.pad(x, (0, 1), value=1.0) if self.has_bias else x
        draws = current_draws()
        if draws is not None:
            return self._drawn(x, draws)
        center = F.linear(x, self.mean)
        if not self.training:
            return center
        return center + (self._local(x) if self.gradient == "local" else self._flipout(x))

    def divergence(self) -> Tensor:
        """KL divergence of the weights from their prior."""
        return self.prior.divergence(self.mean, self.std)

    def _local(self, x: Tensor) -> Tensor:
        """Noise of the outputs: Gaussian, because the weights are (Kingma et al., 2015)."""
        # Squares overflow half precision.
        with torch.autocast(x.device.type, enabled=False):
            variance = F.linear(x.to(self.rho.dtype).square(), self.std.square())
        # An input of zero leaves no noise, and there the root has no slope.
        return variance.clamp_min(1e-16).sqrt() * torch.randn_like(variance)

    def _flipout(self, x: Tensor) -> Tensor:
        """Noise by one draw of the weights, uncorrelated between rows through random signs (Wen et al., 2018)."""
        noise = F.linear(x * _signs(x), self.std * torch.randn_like(self.mean))
        return noise * _signs(noise)

    def _drawn(self, x: Tensor, draws: Draws) -> Tensor:
        # A layer that the encoder uses twice has the same weights both times.
        if self not in draws.kept:
            shape = self.mean.shape
            noise = [torch.randn(shape, generator=generator, device="cpu") for generator in draws.generators]
            draws.kept[self] = self.mean + self.std * torch.stack(noise).to(self.mean)
        draws.check(x)
        # In float64: batched products of single precision round otherwise for a row in another place.
        weight = draws.kept[self].double()
        output = x.reshape(len(weight), -1, x.shape[-1]).double() @ weight.mT
        return output.reshape(*x.shape[:-1], weight.shape[1]).to(self.mean.dtype)

    def extra_repr(self) -> str:
        """Sizes, prior and gradient."""
        outputs, inputs = self.mean.shape
        return f"{inputs - self.has_bias}, {outputs}, prior={tuple(self.prior)}, gradient={self.gradient!r}"


def _signs(like: Tensor) -> Tensor:
    return torch.empty_like(like).bernoulli_(0.5).mul_(2.0).sub_(1.0)


class BayesianNetwork(RandomNetwork):
    """A Gaussian network whose linear layers are Bayesian, by mean-field variational inference.

    Every nn.Linear of the encoder, and the last layer, becomes a `BayesianLinear` (Blundell et al., 2015); other
    layers, such as convolutions, stay deterministic. The loss is the mean NLL of the training rows and the KL
    divergence of all weights from their prior, divided by the number of target values that training sees: rows, times
    positions of an image, times targets.

    Parameters
    ----------
    encoder, features, targets
        See `Network`; the encoder is copied, and needs an nn.Linear at least.
    prior : Prior
        Of each weight and bias.
    gradient : {"local", "flipout"}
        How noise is drawn in training; see `BayesianRegressor`.
    initial_std : float
        Standard deviation of every weight before training.
    n_samples : int
        Networks that are averaged.
    """

    linear: BayesianLinear  # type: ignore[assignment]

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        targets: int = 1,
        *,
        prior: Prior | None = None,
        gradient: Gradient = "local",
        initial_std: float = INITIAL_STD,
        n_samples: int = 50,
    ) -> None:
        prior = prior or Prior()
        if not (0 < prior.std < math.inf and 0 < prior.narrow_std < math.inf and 0 <= prior.narrow_share < 1):
            raise ValueError(
                f"prior must have positive, finite standard deviations and a share from 0 to below 1, got {prior}."
            )
        if gradient not in get_args(Gradient):
            raise ValueError(f'gradient must be "local" or "flipout", got {gradient!r}.')
        if not 0 < initial_std < math.inf:
            raise ValueError(f"initial_std must be positive and finite, got {initial_std}.")

        def bayesian(module: nn.Module) -> BayesianLinear | None:
            # Not its subclasses: what surrounds them reads their weights, as nn.MultiheadAttention does.
            return BayesianLinear(module, prior, gradient, initial_std) if type(module) is nn.Linear else None

        encoder = with_replaced(encoder, bayesian)
        if not any(isinstance(part, BayesianLinear) for part in encoder.modules()):
            raise ValueError(
                "The encoder has no nn.Linear to be made Bayesian, and other layers stay deterministic. Use an encoder "
                "with linear layers, or another method."
            )
        super().__init__(encoder, features, targets, n_samples=n_samples)
        self.linear = BayesianLinear(self.linear, prior, gradient, initial_std)  # type: ignore[arg-type]
        self.observations = 1

    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) at features `z` (n, features)."""
        # Under autocast the product is in half precision; the exponentials that follow need more.
        return split_moments(self.linear(z).to(self.linear.mean.dtype))

    def begin(self, train: Batches) -> None:
        """Count the target values, of rows and positions that weigh something."""
        self.observations = 0
        for batch in train:
            _, y, weight = on_device(batch, torch.device("cpu"))
            self.observations += int((position_weights(weight, y) > 0).sum()) * self.targets

    def penalty(self) -> Tensor:
        """KL divergence of all weights from their prior, for each target value."""
        layers = (part for part in self.modules() if isinstance(part, BayesianLinear))
        return torch.stack([layer.divergence() for layer in layers]).sum() / max(self.observations, 1)


class BayesianRegressor(SampledRegressor):
    """A Bayesian neural network by mean-field variational inference: every weight is a Gaussian.

    It serves encoders of linear layers; other layers stay deterministic.

    Parameters
    ----------
    prior : {"gaussian", "mixture"}
        Prior of every weight: a Gaussian, or Blundell's mixture of it with a narrow one.
    prior_std : float
        Standard deviation of the Gaussian.
    narrow_std : float
        Standard deviation of the narrow one; for the mixture only.
    narrow_share : float
        Weight of the narrow one, between 0 and 1; for the mixture only.
    gradient : {"local", "flipout"}
        How noise is drawn in training: "local" draws each layer's outputs (Kingma et al., 2015), with the least
        variance; "flipout" draws weights, once for a batch, and random signs for each row (Wen et al., 2018).
    initial_std : float
        Standard deviation of every weight before training, which early stopping may leave near it: smaller ones are
        more accurate among the training data, larger ones less sure away from them.
    n_samples : int
        Networks, and forward passes, for a prediction.
    weight_decay : float
        Of AdamW. None by default: it would be a second prior.
    **settings
        See `DeepRegressor`. The usual learning rate is lower than elsewhere, because of the noise.

    Examples
    --------
    >>> from density_regression.baselines import BayesianRegressor
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(n=200, random_state=0)
    >>> means, stds = BayesianRegressor(n_samples=20, epochs=5, random_state=0).fit(X, y).predict_members(X)
    >>> means.shape, stds.shape
    ((20, 200), (20, 200))
    """

    about = About("MFVI-BNN", "Blundell et al., 2015; Wen et al., 2018", passes=50, needs_prior=True)
    usual_rate = 2e-3

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SampledRegressor._parameter_constraints,
        "prior": [StrOptions({"gaussian", "mixture"})],
        "prior_std": [Interval(Real, 1e-6, 1e6, closed="both")],
        "narrow_std": [Interval(Real, 1e-6, 1e6, closed="both")],
        "narrow_share": [Interval(Real, 0, 1, closed="neither")],
        "gradient": [StrOptions({"local", "flipout"})],
        "initial_std": [Interval(Real, 1e-6, 100, closed="both")],
        # A saved model may ask for any number.
        "n_samples": [Interval(Integral, 1, 10_000, closed="both")],
    }

    def __init__(  # type: ignore[misc]
        self,
        *,
        prior: Literal["gaussian", "mixture"] = "gaussian",
        prior_std: float = 1.0,
        narrow_std: float = 0.0025,
        narrow_share: float = 0.5,
        gradient: Gradient = "local",
        initial_std: float = INITIAL_STD,
        n_samples: int = 50,
        weight_decay: float = 0.0,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(weight_decay=weight_decay, **settings)
        self.prior = prior
        self.prior_std = prior_std
        self.narrow_std = narrow_std
        self.narrow_share = narrow_share
        self.gradient = gradient
        self.initial_std = initial_std
        self.n_samples = n_samples

    def _network(self, encoder: nn.Module, features: int, targets: int) -> BayesianNetwork:
        share = self.narrow_share if self.prior == "mixture" else 0.0
        prior = Prior(self.prior_std, self.narrow_std, share)
        return BayesianNetwork(
            encoder,
            features,
            targets,
            prior=prior,
            gradient=self.gradient,
            initial_std=self.initial_std,
            n_samples=self.n_samples,
        )
