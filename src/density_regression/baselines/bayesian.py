"""Bayesian neural network by mean-field variational inference."""

import math
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Literal, NamedTuple, Unpack, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.baselines.gaussian import split_moments
from density_regression.baselines.mixture import MixtureRegressor
from density_regression.baselines.stochastic_layers import DRAWS, Draws, StochasticNetwork, replace_modules
from density_regression.estimators.settings import About, Settings
from density_regression.io.sklearn_private import Interval, StrOptions
from density_regression.nn.heads import Moments
from density_regression.nn.network import position_weights
from density_regression.training.batches import Batches, on_device

__all__ = ["BayesianLinear", "BayesianNetwork", "BayesianRegressor", "Prior", "gaussian_kl", "mixture_kl"]

Gradient = Literal["local", "flipout"]

INITIAL_STD: Final = 0.01
"""Initial standard deviation of every weight: small, so that early training is not dominated by noise."""


class Prior(NamedTuple):
    """Prior of a weight: (1 - narrow_share) N(0, std^2) + narrow_share N(0, narrow_std^2) (Blundell et al., 2015)."""

    std: float = 1.0
    narrow_std: float = 0.0025
    narrow_share: float = 0.0

    def divergence(self, mean: Tensor, std: Tensor) -> Tensor:
        """KL divergence of independent Gaussians from this prior, summed; for a mixture a one-sample estimate."""
        return mixture_kl(mean, std, self) if self.narrow_share else gaussian_kl(mean, std, self.std)


def gaussian_kl(mean: Tensor, std: Tensor, prior_std: float) -> Tensor:
    """KL(N(mean, std^2) || N(0, prior_std^2)), summed over all entries."""
    squares = (mean.square().sum() + std.square().sum()) / (2 * prior_std**2)
    return squares - std.log().sum() + mean.numel() * (math.log(prior_std) - 0.5)


def mixture_kl(mean: Tensor, std: Tensor, prior: Prior) -> Tensor:
    """Unbiased estimate of KL(N(mean, std^2) || mixture), summed over all entries (Blundell et al., 2015, eq. 7).

    The entropy is exact; the prior's log-density is evaluated at one sample of the weights.
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
    """Linear layer whose weights and biases are independent Gaussians, with standard deviations softplus(rho).

    The means are initialised from `linear`. In training, noise is independent between rows and positions; at
    prediction each sampled network has its own weights; otherwise the weights are at their means.
    """

    def __init__(
        self, linear: nn.Linear, prior: Prior, gradient: Gradient = "local", initial_std: float = INITIAL_STD
    ) -> None:
        super().__init__()
        self.prior = prior
        self.gradient = gradient
        self.has_bias = linear.bias is not None
        # The bias is the last column, for a constant input of one.
        parts = [linear.weight, linear.bias[:, None]] if self.has_bias else [linear.weight]
        mean = torch.cat(parts, 1).detach()
        self.mean = nn.Parameter(mean, requires_grad=linear.weight.requires_grad)
        rho = torch.full_like(mean, math.log(math.expm1(initial_std)))
        self.rho = nn.Parameter(rho, requires_grad=linear.weight.requires_grad)

    @property
    def weight(self) -> Tensor:
        """Means of the weights (outputs, inputs), as nn.TransformerEncoderLayer reads them."""
        return self.mean[:, :-1] if self.has_bias else self.mean

    @property
    def bias(self) -> Tensor | None:
        """Means of the biases (outputs,)."""
        return self.mean[:, -1] if self.has_bias else None

    @property
    def std(self) -> Tensor:
        """Standard deviations (outputs, inputs) of the weights, with those of the biases as the last column."""
        return F.softplus(self.rho)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (..., outputs) at inputs `x` (..., inputs)."""
        x = F.pad(x, (0, 1), value=1.0) if self.has_bias else x
        draws = DRAWS.get()
        if draws is not None:
            return self._sampled(x, draws)
        center = F.linear(x, self.mean)
        if not self.training:
            return center
        return center + (self._local(x) if self.gradient == "local" else self._flipout(x))

    def _local(self, x: Tensor) -> Tensor:
        """Gaussian noise of the outputs, by local reparametrisation (Kingma et al., 2015)."""
        # Squares overflow in half precision.
        with torch.autocast(x.device.type, enabled=False):
            variance = F.linear(x.to(self.rho.dtype).square(), self.std.square())
        # The gradient of the root is infinite at zero, the variance for an input of zeros.
        return variance.clamp_min(1e-16).sqrt() * torch.randn_like(variance)

    def _flipout(self, x: Tensor) -> Tensor:
        """Noise from one sample of the weights, decorrelated between rows by random signs (Wen et al., 2018)."""
        noise = F.linear(x * _signs(x), self.std * torch.randn_like(self.mean))
        return noise * _signs(noise)

    def _sampled(self, x: Tensor, draws: Draws) -> Tensor:
        # Kept: a layer that the encoder uses twice has the same weights both times.
        if self not in draws.kept:
            shape = self.mean.shape
            noise = [torch.randn(shape, generator=generator, device="cpu") for generator in draws.generators]
            draws.kept[self] = self.mean + self.std * torch.stack(noise).to(self.mean)
        draws.check(x)
        # In float64, as float32 rounding in batched products depends on the position of a row.
        weight = draws.kept[self].double()
        output = x.reshape(len(weight), -1, x.shape[-1]).double() @ weight.mT
        return output.reshape(*x.shape[:-1], weight.shape[1]).to(self.mean.dtype)

    def extra_repr(self) -> str:
        """Sizes, prior and gradient."""
        outputs, inputs = self.mean.shape
        return f"{inputs - self.has_bias}, {outputs}, prior={tuple(self.prior)}, gradient={self.gradient!r}"


def _signs(like: Tensor) -> Tensor:
    return torch.empty_like(like).bernoulli_(0.5).mul_(2.0).sub_(1.0)


class BayesianNetwork(StochasticNetwork):
    """A Gaussian network whose linear layers are Bayesian, by mean-field variational inference.

    loss = -E log p(y | x, w) + KL(q(w) || p(w)) / N, with w drawn from q and N target values.

    Every nn.Linear of the encoder, and the last layer, becomes a `BayesianLinear` (Blundell et al., 2015); other
    layers, such as convolutions, stay deterministic. The loss is the negative evidence lower bound per target value:
    the mean NLL plus the KL divergence of all weights from their prior over the number of target values (rows, times
    positions of an image, times targets).

    Arguments are described in `Network` and `BayesianRegressor`, but `prior` is a `Prior`. The encoder is copied.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP, TrainingOptions
    >>> from density_regression.baselines import fit_baseline
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> model = BayesianNetwork(MLP(1, (8,)), features=8)
    >>> rows = list(zip(x.split(10), (2 * x).split(10), strict=True))
    >>> report = fit_baseline(model, rows, options=TrainingOptions(epochs=2))
    >>> tuple(model(x).stddev.shape)
    (40, 1)
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
            # Not subclasses, whose weights other modules read, as nn.MultiheadAttention does.
            return BayesianLinear(module, prior, gradient, initial_std) if type(module) is nn.Linear else None

        encoder = replace_modules(encoder, bayesian)
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
        # Under autocast the layer returns half precision, too little for exponentials.
        return split_moments(self.linear(z).to(self.linear.mean.dtype))

    def begin(self, train: Batches) -> None:
        """Count the target values with positive weight."""
        self.observations = 0
        for batch in train:
            _, y, weight = on_device(batch, torch.device("cpu"))
            self.observations += int((position_weights(weight, y) > 0).sum()) * self.targets

    def penalty(self) -> Tensor:
        """KL divergence of all weights from their prior, per target value."""
        layers = (part for part in self.modules() if isinstance(part, BayesianLinear))
        divergences = [layer.prior.divergence(layer.mean, layer.std) for layer in layers]
        return torch.stack(divergences).sum() / max(self.observations, 1)


class BayesianRegressor(MixtureRegressor):
    """Bayesian neural network by mean-field variational inference: the posterior of every weight is a Gaussian.

    Linear layers are Bayesian; other layers stay deterministic.

    Parameters
    ----------
    prior : {"gaussian", "mixture"}
        Prior of every weight: a Gaussian, or its mixture with a narrow Gaussian (Blundell et al., 2015).
    prior_std : float
        Standard deviation of the Gaussian.
    narrow_std, narrow_share : float
        Standard deviation of the narrow Gaussian, and its weight, between 0 and 1; for the mixture only.
    gradient : {"local", "flipout"}
        Noise in training: "local" samples each layer's outputs (Kingma et al., 2015), with the least variance;
        "flipout" samples weights once per batch and random signs per row (Wen et al., 2018).
    initial_std : float
        Initial standard deviation of every weight, near which early stopping may leave it: small values are more
        accurate near the training data, large ones less confident away from it.
    n_samples : int
        Number of sampled networks, and of forward passes, for a prediction.
    weight_decay : float
        Weight decay of AdamW; 0 by default, as it would act as a second prior.
    **settings
        See `DeepRegressor`. The default learning rate is lower, because of the noise.

    Examples
    --------
    >>> from density_regression.baselines import BayesianRegressor
    >>> from density_regression.datasets import make_cubic
    >>> reg = BayesianRegressor(n_samples=20, epochs=5, random_state=0).fit(*make_cubic(n=200, random_state=0))
    >>> means, stds = reg.predict_members([[0.0]])
    >>> means.shape
    (20, 1)
    """

    network_class = BayesianNetwork
    about = About("MFVI-BNN", "Blundell et al., 2015; Wen et al., 2018", passes=50, needs_prior=True)
    usual_rate = 2e-3

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MixtureRegressor._parameter_constraints,
        "prior": [StrOptions({"gaussian", "mixture"})],
        "prior_std": [Interval(Real, 1e-6, 1e6, closed="both")],
        "narrow_std": [Interval(Real, 1e-6, 1e6, closed="both")],
        "narrow_share": [Interval(Real, 0, 1, closed="neither")],
        "gradient": [StrOptions({"local", "flipout"})],
        "initial_std": [Interval(Real, 1e-6, 100, closed="both")],
        # Bounded, as a saved model may ask for any number.
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

    def _network(self, encoder: nn.Module, features: int, targets: int, **given: Any) -> Any:
        prior = Prior(self.prior_std, self.narrow_std, self.narrow_share if self.prior == "mixture" else 0.0)
        return super()._network(encoder, features, targets, prior=prior, **given)
