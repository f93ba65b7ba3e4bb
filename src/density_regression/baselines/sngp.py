"""SNGP: a Gaussian process by random Fourier features, on a spectrally normalised encoder."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, ClassVar, Final, Unpack

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression._numeric import FittedModule
from density_regression.base import About, Settings
from density_regression.baselines.gaussian import LOG_STD_LIMIT, gaussian_nll
from density_regression.baselines.spectral import SpectralBaseline, SpectralRegressor, mean_distance
from density_regression.batches import Batches, on_device
from density_regression.head import Moments
from density_regression.network import Features

__all__ = ["RandomFeatureGP", "SNGPNetwork", "SNGPRegressor"]

MOST_FEATURES: Final = 2**16
"""Most random features: a saved model may ask for any number, and their covariance has its square."""

FARTHEST: Final = 100.0
"""Length scales beyond which nothing is told apart: all is strange there, and cosines of such angles are noise."""


class RandomFeatureGP(FittedModule):
    r"""Gaussian processes, one for each target, as linear models of random Fourier features (Rahimi & Recht, 2007).

    .. math:: f(z) = \beta^\top \phi(z), \quad \phi(z) = \sqrt{2/D} \cos(W z / \ell + b), \quad \beta \sim N(0, I)

    with W standard normal and b uniform, both drawn once. As D grows, the kernel of f becomes the RBF kernel with
    length scale l and variance 1, that of the scaled target.

    Parameters
    ----------
    features : int
        Width of z.
    targets : int
        Number k of targets; W, b and l are common to all, each has its own noise.
    random_features : int
        Number D of random features.
    """

    frequency: Tensor
    phase: Tensor
    factor: Tensor

    def __init__(self, features: int, targets: int = 1, random_features: int = 1024) -> None:
        super().__init__()
        if not 1 <= random_features <= MOST_FEATURES:
            raise ValueError(f"random_features must lie between 1 and {MOST_FEATURES}, got {random_features}.")
        self.features = features
        self.targets = targets
        self.random_features = random_features
        self.register_buffer("frequency", torch.randn(random_features, features))
        self.register_buffer("phase", 2 * math.pi * torch.rand(random_features))
        self.log_length = nn.Parameter(torch.tensor(0.5 * math.log(features)))
        self.log_std = nn.Parameter(torch.zeros(targets))
        self.beta = nn.Parameter(torch.zeros(targets, random_features))
        # Empty until there is a posterior: that of a model just built is the prior.
        self.register_buffer("factor", torch.zeros(targets, 0, 0))

    def phi(self, z: Tensor) -> Tensor:
        """Random features (n, D) of `z` (n, features)."""
        return self._amplitude * self._cosines(z)

    def mean(self, z: Tensor) -> Tensor:
        """Posterior mean (n, k) at `z` (n, features)."""
        # The few weights are scaled rather than the many cosines.
        return F.linear(self._cosines(z), self._amplitude * self.beta).to(self.beta.dtype)

    def variance(self, phi: Tensor) -> Tensor:
        """Posterior variance (n, k), without the noise, at random features `phi` (n, D)."""
        if not self.factor.numel():
            return phi.square().sum(1, keepdim=True).expand(-1, self.targets)
        # Squares of single precision: no two large numbers are subtracted.
        return torch.stack([(phi @ factor.T).square().sum(1) for factor in self.factor], 1)

    def noise_log_std(self) -> Tensor:
        """Log standard deviation (k,) of the noise."""
        return self.log_std.clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT)

    @property
    def _amplitude(self) -> float:
        return math.sqrt(2.0 / self.random_features)

    def _cosines(self, z: Tensor) -> Tensor:
        scaled = z * torch.exp(-self.log_length)
        length = torch.linalg.vector_norm(scaled.detach(), dim=-1, keepdim=True)
        angle = F.linear(scaled * (FARTHEST / length.clamp_min(FARTHEST)), self.frequency, self.phase)
        # The angle may be in half precision, under autocast; its cosine needs more.
        return torch.cos(angle.to(self.phase.dtype))

    @torch.no_grad()
    def condition(self, gram: Tensor, moment: Tensor) -> None:
        r"""Take the posterior of beta, N(m, S) with S = (I + gram / noise)^-1 and m = S moment / noise, in float64.

        Parameters
        ----------
        gram : Tensor of shape (D, D)
            Weighted sum of phi phi^T over the training rows.
        moment : Tensor of shape (D, k)
            Weighted sum of phi y^T.
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

    Encoder, weights beta and noise are learnt by the mean negative log-likelihood, to which the prior of beta adds
    |beta|^2 / (2 N) for N training rows. The length scale is learnt too, from the mean distance between features of
    training rows. Once all that is final, the Laplace approximation, exact for a Gaussian likelihood, gives the
    posterior of beta from all training rows: the covariance, and the mode, at which mini-batches arrive only nearly.

    Several targets share the encoder and the kernel. Where the encoder returns positions (images, sequences), each
    is a row of its own; the paper has no such use.

    Parameters
    ----------
    encoder, features, targets
        See `Network`.
    random_features : int
        Number D of random features; for each target the posterior has a (D, D) matrix.
    spectral_bound : float
        See `SpectralBaseline`.
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
        """Negative log-likelihood (n,) given beta, averaged over targets: the variance of beta comes at the end."""
        mean = self.gp.mean(z)
        return gaussian_nll(Moments(mean, self.gp.noise_log_std().expand_as(mean)), y)

    def penalty(self) -> Tensor | float:
        """Minus the log-prior of beta, for one training row and one target; the held-out loss is without."""
        return self.gp.beta.square().sum() / (2.0 * self.total_weight * self.targets) if self.training else 0.0

    @torch.no_grad()
    def start(self, rows: Features) -> None:
        """Begin with the mean distance between features for the length scale."""
        self.gp.log_length.fill_(math.log(mean_distance(rows.z)))

    @torch.no_grad()
    def finish(self, train: Batches, held_out: Batches) -> None:
        """Leave plain weights within their bound, and take the posterior of beta from all training rows."""
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

    Several targets work; they share the encoder and the kernel.

    Parameters
    ----------
    random_features : int
        Number D of random Fourier features; for each target the model holds a (D, D) matrix.
    spectral_bound : float
        Largest singular value of each layer's weight matrix (of a convolution: of its reshaped kernel).
    weight_decay : float
        Of AdamW, while training. None by default: the bound and the prior of the last layer are in its place, and
        the last layer ends at the mode of its posterior in any case.
    **settings
        See `DeepRegressor`; with `encoder=None` the network is a `ResidualMLP`.

    Examples
    --------
    >>> from density_regression.baselines import SNGPRegressor
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(n=200, random_state=0)
    >>> reg = SNGPRegressor(random_features=128, epochs=5, random_state=0).fit(X, y)
    >>> near, far = reg.score_samples([[0.0], [40.0]])
    >>> bool(near > far)
    True
    """

    about = About("SNGP", "Liu et al., 2020", needs_prior=True)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SpectralRegressor._parameter_constraints,
        "random_features": [Interval(Integral, 1, MOST_FEATURES, closed="both")],
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

    def _network(self, encoder: nn.Module, features: int, targets: int) -> SNGPNetwork:
        return SNGPNetwork(
            encoder, features, targets, random_features=self.random_features, spectral_bound=self.spectral_bound
        )
