"""SNGP: Gaussian process by random Fourier features, on a spectrally normalised encoder."""

import math
from numbers import Integral
from typing import Any, ClassVar, Final, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.baselines.gaussian import MAX_ABS_LOG_STD, gaussian_nll
from density_regression.baselines.spectral_normalisation import SpectralBaseline, SpectralRegressor, mean_distance
from density_regression.estimators.settings import About, Settings
from density_regression.io.sklearn_private import Interval
from density_regression.nn.density.base import FittedModule
from density_regression.nn.heads import Moments
from density_regression.nn.network import Features
from density_regression.training.batches import Batches, on_device

__all__ = ["RandomFeatureGP", "SNGPNetwork", "SNGPRegressor"]

MAX_RANDOM_FEATURES: Final = 2**16
"""Largest number of random features, as a saved model may ask for any; memory grows with its square."""

MAX_SCALED_NORM: Final = 100.0
"""Largest norm of z / length scale: cosines of larger angles are rounding noise."""


class RandomFeatureGP(FittedModule):
    r"""Gaussian processes, one for each target, as linear models of random Fourier features (Rahimi & Recht, 2007).

    .. math:: f(z) = \beta^\top \phi(z), \quad \phi(z) = \sqrt{2/D} \cos(W z / \ell + b), \quad \beta \sim N(0, I)

    with W standard normal and b uniform, both drawn once. As the number D of random features grows, the kernel of f
    converges to the RBF kernel with length scale l and variance 1. Targets share W, b and l; each has its own noise.
    """

    frequency: Tensor
    phase: Tensor
    factor: Tensor

    def __init__(self, features: int, targets: int = 1, random_features: int = 1024) -> None:
        super().__init__()
        if not 1 <= random_features <= MAX_RANDOM_FEATURES:
            raise ValueError(f"random_features must lie between 1 and {MAX_RANDOM_FEATURES}, got {random_features}.")
        self.features = features
        self.targets = targets
        self.random_features = random_features
        self._amplitude = math.sqrt(2.0 / random_features)
        self.register_buffer("frequency", torch.randn(random_features, features))
        self.register_buffer("phase", 2 * math.pi * torch.rand(random_features))
        self.log_length = nn.Parameter(torch.tensor(0.5 * math.log(features)))
        self.log_std = nn.Parameter(torch.zeros(targets))
        self.beta = nn.Parameter(torch.zeros(targets, random_features))
        # Empty until `condition`: before, the posterior is the prior.
        self.register_buffer("factor", torch.zeros(targets, 0, 0))

    def phi(self, z: Tensor) -> Tensor:
        """Random features (n, D) of `z` (n, features)."""
        return self._amplitude * self._cosines(z)

    def mean(self, z: Tensor) -> Tensor:
        """Posterior mean (n, k) at `z` (n, features)."""
        # Scaling the few weights is cheaper than scaling the cosines.
        return F.linear(self._cosines(z), self._amplitude * self.beta).to(self.beta.dtype)

    def variance(self, phi: Tensor) -> Tensor:
        """Posterior variance (n, k), without the noise, at random features `phi` (n, D)."""
        if not self.factor.numel():
            return phi.square().sum(1, keepdim=True).expand(-1, self.targets)
        # A sum of squares, accurate in float32 as nothing is subtracted.
        return torch.stack([(phi @ factor.T).square().sum(1) for factor in self.factor], 1)

    def noise_log_std(self) -> Tensor:
        """Log standard deviation (k,) of the noise."""
        return self.log_std.clamp(-MAX_ABS_LOG_STD, MAX_ABS_LOG_STD)

    def _cosines(self, z: Tensor) -> Tensor:
        scaled = z * torch.exp(-self.log_length)
        length = torch.linalg.vector_norm(scaled.detach(), dim=-1, keepdim=True)
        angle = F.linear(scaled * (MAX_SCALED_NORM / length.clamp_min(MAX_SCALED_NORM)), self.frequency, self.phase)
        # Under autocast the angle is in half precision, too little for a cosine.
        return torch.cos(angle.to(self.phase.dtype))

    @torch.no_grad()
    def condition(self, gram: Tensor, moment: Tensor) -> None:
        """Set the posterior of beta, N(m, S) with S = (I + gram / noise)^-1 and m = S moment / noise, in float64.

        `gram` (D, D) and `moment` (D, k) are the weighted sums of phi phi^T and phi y^T over the training rows.
        """
        identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        factors = []
        for target, noise in enumerate(torch.exp(2.0 * self.noise_log_std().to(gram.dtype))):
            root = torch.linalg.cholesky(identity + gram / noise)
            self.beta[target] = torch.cholesky_solve(moment[:, target, None] / noise, root)[:, 0]
            factors.append(torch.linalg.solve_triangular(root, identity, upper=False))
        self._store(factor=torch.stack(factors))


class SNGPNetwork(SpectralBaseline):
    """Spectral-normalised neural Gaussian process (Liu et al., 2020).

    mean = phi(z) beta, var = noise^2 + phi(z) C phi(z)^T, with C = covariance of beta.

    Encoder, weights beta, noise and length scale are learnt by the mean negative log-likelihood plus |beta|^2 / (2 N)
    for N training rows, the prior of beta. Afterwards the Laplace approximation, exact for a Gaussian likelihood,
    gives mean and covariance of beta from all training rows.

    Arguments are described in `Network` and `SNGPRegressor`.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP, TrainingOptions
    >>> from density_regression.baselines import fit_baseline
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> model = SNGPNetwork(MLP(1, (8,)), features=8, random_features=64)
    >>> rows = list(zip(x.split(10), (2 * x).split(10), strict=True))
    >>> report = fit_baseline(model, rows, options=TrainingOptions(epochs=2))
    >>> tuple(model(x).stddev.shape)
    (40, 1)
    """

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        targets: int = 1,
        *,
        random_features: int = 1024,
        spectral_bound: float = 0.95,
    ) -> None:
        super().__init__(encoder, features, targets, spectral_bound=spectral_bound)
        self.gp = RandomFeatureGP(features, targets, random_features)

    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) of the posterior predictive, noise included, at features `z` (n, features)."""
        variance = self.row_variance(z) + torch.exp(2.0 * self.gp.noise_log_std())
        return Moments(self.gp.mean(z), 0.5 * variance.log())

    def row_variance(self, z: Tensor) -> Tensor:
        """Variance (n, k) of the Gaussian process, without the noise, at features `z` (n, features)."""
        return self.gp.variance(self.gp.phi(z))

    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Negative log-likelihood (n,) given beta, averaged over targets."""
        mean = self.gp.mean(z)
        return gaussian_nll(Moments(mean, self.gp.noise_log_std().expand_as(mean)), y)

    def penalty(self) -> Tensor | float:
        """Minus the log-prior of beta per training row and target; 0 in eval mode."""
        return self.gp.beta.square().sum() / (2.0 * self.total_weight * self.targets) if self.training else 0.0

    @torch.no_grad()
    def initialise(self, rows: Features) -> None:
        """Set the length scale to the mean distance between features."""
        self.gp.log_length.fill_(math.log(mean_distance(rows.z)))

    @torch.no_grad()
    def finish(self, train: Batches, held_out: Batches) -> None:
        """Remove the normalisation, and compute the posterior of beta from all training rows."""
        super().finish(train, held_out)
        gram = self.gp.beta.new_zeros(self.gp.random_features, self.gp.random_features, dtype=torch.float64)
        moment = torch.zeros_like(gram[:, : self.targets])
        for batch in train:
            z, y, weight = self.flat(*on_device(batch, gram.device))
            phi = self.gp.phi(z).double()
            weighted = phi * weight[:, None]
            gram.addmm_(phi.T, weighted)
            moment.addmm_(weighted.T, y.double())
        self.gp.condition(gram, moment)


class SNGPRegressor(SpectralRegressor):
    """SNGP (Liu et al., 2020): random-feature Gaussian process on a spectrally normalised residual network.

    Several targets share the encoder and the kernel.

    Parameters
    ----------
    random_features : int
        Number D of random Fourier features; for each target the model holds a (D, D) matrix.
    spectral_bound : float
        Largest singular value of each layer's weight matrix (of a convolution: of its reshaped kernel).
    weight_decay : float
        Weight decay of AdamW; 0 by default, as the bound and the prior of the last layer regularise instead.
    **settings
        See `DeepRegressor`; with `encoder=None` the network is a `ResidualMLP`.

    Examples
    --------
    >>> from density_regression.baselines import SNGPRegressor
    >>> from density_regression.datasets import make_cubic
    >>> reg = SNGPRegressor(random_features=128, epochs=5, random_state=0).fit(*make_cubic(n=200, random_state=0))
    >>> near, far = reg.score_samples([[0.0], [40.0]])
    >>> bool(near > far)
    True
    """

    network_class = SNGPNetwork
    about = About("SNGP", "Liu et al., 2020", needs_prior=True)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SpectralRegressor._parameter_constraints,
        "random_features": [Interval(Integral, 1, MAX_RANDOM_FEATURES, closed="both")],
    }

    def __init__(  # type: ignore[misc]
        self,
        *,
        random_features: int = 1024,
        spectral_bound: float = 0.95,
        weight_decay: float = 0.0,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(spectral_bound=spectral_bound, weight_decay=weight_decay, **settings)
        self.random_features = random_features
