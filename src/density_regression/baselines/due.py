"""DUE: sparse variational Gaussian process on a spectrally normalised encoder."""

import math
from numbers import Integral
from typing import Any, ClassVar, Final, Literal, NamedTuple, Unpack

import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn

from density_regression.baselines.gaussian import gaussian_nll
from density_regression.baselines.spectral_normalisation import SpectralBaseline, SpectralRegressor, mean_distance
from density_regression.estimators.settings import About, Settings
from density_regression.io.extras import import_extra
from density_regression.io.sklearn_private import Interval, StrOptions
from density_regression.nn.encoders import PiecewiseEmbedding
from density_regression.nn.heads import Moments
from density_regression.nn.network import Features
from density_regression.training.batches import Batches

__all__ = ["DUENetwork", "DUERegressor", "Posterior", "SparseGP"]

MAX_INDUCING_POINTS: Final = 2**10
"""Largest number of inducing points, as a saved model may ask for any; memory grows with its square."""

JITTER: Final = 1e-6
"""Added to the prior variance at inducing points, two of which may coincide."""


class Posterior(NamedTuple):
    """q(u) as prediction needs it: with k = k(z, Z), the mean is c + k a and the variance k(z, z) - k B k^T."""

    a: Tensor
    B: Tensor


class SparseGP(nn.Module):
    """Independent sparse variational Gaussian processes, one for each target (Hensman et al., 2015).

    All targets share M = `n_inducing` inducing points Z. Modules of gpytorch hold and constrain the parameters, in
    float64. Moments and KL divergence are computed here in closed form: several times faster than gpytorch's lazy
    covariances, and independent of the rest of the batch, at whose mean gpytorch centres its distances.
    """

    def __init__(
        self, features: int, targets: int = 1, n_inducing: int = 20, kernel: Literal["rbf", "matern"] = "rbf"
    ) -> None:
        super().__init__()
        gpytorch = _gpytorch()
        if not 1 <= n_inducing <= MAX_INDUCING_POINTS:
            raise ValueError(f"n_inducing must lie between 1 and {MAX_INDUCING_POINTS}, got {n_inducing}.")
        kernels = {"rbf": gpytorch.kernels.RBFKernel, "matern": gpytorch.kernels.MaternKernel}
        if kernel not in kernels:
            raise ValueError(f'kernel must be "rbf" or "matern", got {kernel!r}.')
        self.kernel = kernel
        batch = torch.Size([targets])
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernels[kernel](batch_shape=batch), batch_shape=batch)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood(
            batch_shape=batch, noise_constraint=gpytorch.constraints.GreaterThan(1e-6)
        )
        distribution = gpytorch.variational.CholeskyVariationalDistribution(n_inducing, batch)
        self.variational_strategy = gpytorch.variational.VariationalStrategy(
            self, torch.randn(n_inducing, features), distribution, jitter_val=JITTER
        )
        # gpytorch would otherwise reset q(u) when it is first called.
        self.variational_strategy.variational_params_initialized.fill_(1)
        self.double()

    def forward(self, z: Tensor) -> Any:
        """The prior at `z` (n, features), which gpytorch requires."""
        return _gpytorch().distributions.MultivariateNormal(self.mean_module(z), self.covar_module(z))

    @property
    def points(self) -> Tensor:
        """Inducing points Z (M, features)."""
        points: Tensor = self.variational_strategy.inducing_points
        return points

    @property
    def scale(self) -> Tensor:
        """Prior variance (k,)."""
        scale: Tensor = self.covar_module.outputscale
        return scale

    @property
    def noise(self) -> Tensor:
        """Variance (k,) of the noise."""
        noise: Tensor = self.likelihood.noise
        return noise.squeeze(-1)

    def covariance(self, z: Tensor) -> Tensor:
        """Prior covariance k(z, Z) (k, n, M) of `z` (n, features) and the inducing points, in float64."""
        z, points = z.double(), self.points
        squared = z.square().sum(1)[:, None] + points.square().sum(1) - 2.0 * z @ points.T
        # Rounding may make it negative, and the gradient of a root is infinite at zero.
        squared = squared.clamp_min(1e-15) / self.covar_module.base_kernel.lengthscale.square()
        if self.kernel == "rbf":
            correlation = torch.exp(-0.5 * squared)
        else:
            distance = (5.0 * squared).sqrt()
            correlation = (1.0 + distance + distance.square() / 3.0) * torch.exp(-distance)
        return self.scale[:, None, None] * correlation

    def posterior(self) -> Posterior:
        r""":math:`a = L^{-\top} m` and :math:`B = L^{-\top} (I - R R^\top) L^{-1}` with :math:`L L^\top = k(Z, Z)`.

        Here m is the whitened mean of q(u), and R the root of its covariance.
        """
        mean, root = self._whitened()
        inverse = self._inverse_root()
        inner = inverse.mT @ root
        return Posterior((inverse.mT @ mean[..., None]).squeeze(-1), inverse.mT @ inverse - inner @ inner.mT)

    def moments(self, z: Tensor, posterior: Posterior) -> tuple[Tensor, Tensor]:
        """Mean and variance, without the noise, each (n, k), at `z` (n, features)."""
        covariance = self.covariance(z)
        mean = self.mean_module.constant[:, None] + (covariance @ posterior.a[..., None]).squeeze(-1)
        variance = self.scale[:, None] - ((covariance @ posterior.B) * covariance).sum(-1)
        return mean.T, variance.clamp_min(0.0).T

    def kl(self) -> Tensor:
        """KL divergence of q(u) from the prior, summed over targets."""
        mean, root = self._whitened()
        log_determinant = 2.0 * root.diagonal(dim1=-2, dim2=-1).abs().log().sum()
        return 0.5 * (mean.square().sum() + root.square().sum() - mean.numel() - log_determinant)

    @torch.no_grad()
    def initialise(self, z: Tensor) -> None:
        """Set inducing points to the k-means of `z` (n, features), and the length scale to their mean distance."""
        distinct = z.double().unique(dim=0)
        count = len(self.points)
        if len(distinct) > count:
            seed = int(torch.randint(2**31 - 1, ()))
            means = KMeans(count, n_init=1, random_state=seed).fit(z.double().cpu().numpy()).cluster_centers_
            self.points.copy_(torch.from_numpy(means))
        else:
            self.points.copy_(distinct[torch.arange(count, device=z.device) % len(distinct)])
        self.covar_module.base_kernel.lengthscale = mean_distance(z)
        self.covar_module.outputscale = 1.0
        self.likelihood.noise = 0.5

    @torch.no_grad()
    def condition(self, z: Tensor, y: Tensor, weight: Tensor) -> None:
        r"""Set q(u) to its optimum for rows `z` (n, features), `y` (n, k) and `weight` (n,) (Titsias, 2009).

        Whitened, with :math:`A = L^{-1} k(Z, z)`, diagonal W and noise :math:`s^2`, its covariance is
        :math:`S = (I + A W A^\top / s^2)^{-1}` and its mean :math:`S A W (y - c) / s^2`. Training from the prior
        may get stuck where everything is explained as noise.
        """
        q: Any = self.variational_strategy._variational_distribution
        whitened = self._inverse_root() @ self.covariance(z).mT
        scaled = whitened * (weight.double() / self.noise[:, None])[:, None, :]
        identity = torch.eye(len(self.points), dtype=torch.float64, device=z.device)
        covariance = torch.cholesky_inverse(torch.linalg.cholesky(identity + scaled @ whitened.mT))
        center = y.double().T - self.mean_module.constant[:, None]
        q.variational_mean.copy_((covariance @ (scaled @ center[..., None])).squeeze(-1))
        q.chol_variational_covar.copy_(torch.linalg.cholesky(covariance))

    def _whitened(self) -> tuple[Tensor, Tensor]:
        """Mean (k, M) of the whitened q(u), whose prior is standard normal, and root (k, M, M) of its covariance."""
        q: Any = self.variational_strategy._variational_distribution
        return q.variational_mean, q.chol_variational_covar.tril()

    def _inverse_root(self) -> Tensor:
        """Inverse (k, M, M) of the Cholesky root L of the prior covariance of u."""
        identity = torch.eye(len(self.points), dtype=self.points.dtype, device=self.points.device)
        root, failed = torch.linalg.cholesky_ex(self.covariance(self.points) + JITTER * identity)
        # NaN makes the training loop report divergence, with its own error message.
        root = root.masked_fill(failed[:, None, None] != 0, math.nan)
        inverse: Tensor = torch.linalg.solve_triangular(root, identity.expand_as(root), upper=False)
        return inverse


class DUENetwork(SpectralBaseline):
    """Deterministic uncertainty estimation (van Amersfoort et al., 2022): deep kernel learning, spectrally normalised.

    loss = -E log p(y | f) + KL(q(u) || p(u)) / N, with f = the process at the features.

    Encoder and Gaussian process are learnt together by the evidence lower bound: the expected log-likelihood of the
    training rows minus KL / N for N rows, where KL is the divergence of q(u) from its prior. Early stopping uses the
    predictive likelihood of the held-out rows.

    Arguments are described in `Network` and `DUERegressor`.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP, TrainingOptions
    >>> from density_regression.baselines import fit_baseline
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> model = DUENetwork(MLP(1, (8,)), features=8, n_inducing=5)
    >>> rows = list(zip(x.split(10), (2 * x).split(10), strict=True))
    >>> report = fit_baseline(model, rows, options=TrainingOptions(epochs=2))
    >>> tuple(model(x).stddev.shape)
    (40, 1)
    """

    a: Tensor
    B: Tensor

    no_graph = "its Gaussian process is gpytorch's, in float64"

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        targets: int = 1,
        *,
        n_inducing: int = 20,
        kernel: Literal["rbf", "matern"] = "rbf",
        spectral_bound: float = 0.95,
    ) -> None:
        super().__init__(encoder, features, targets, spectral_bound=spectral_bound)
        self.gp = SparseGP(features, targets, n_inducing, kernel)
        # Zeros predict the prior until `finish`.
        self.register_buffer("a", torch.zeros(targets, n_inducing, dtype=torch.float64))
        self.register_buffer("B", torch.zeros(targets, n_inducing, n_inducing, dtype=torch.float64))

    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) of the predictive distribution, noise included, at features `z` (n, features)."""
        return self._noisy(*self.gp.moments(z, Posterior(self.a, self.B)))

    def row_variance(self, z: Tensor) -> Tensor:
        """Variance (n, k) of the Gaussian process, without the noise, at features `z` (n, features)."""
        return self.gp.moments(z, Posterior(self.a, self.B))[1]

    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Minus the expected log-likelihood (n,), or in eval mode the predictive one, averaged over targets."""
        mean, variance = self.gp.moments(z, self.gp.posterior())
        if not self.training:
            return gaussian_nll(self._noisy(mean, variance), y).to(y.dtype)
        noise = self.gp.noise
        losses = 0.5 * ((2.0 * math.pi * noise).log() + ((y - mean).square() + variance) / noise)
        return losses.mean(1).to(y.dtype)

    def penalty(self) -> Tensor | float:
        """KL divergence per training row and target; 0 in eval mode."""
        return self.gp.kl() / (self.total_weight * self.targets) if self.training else 0.0

    def initialise(self, rows: Features) -> None:
        """Initialise inducing points and kernel from the features, and q(u) from their targets."""
        z, y, weight = rows
        self.gp.initialise(z)
        # Scaled to the weight of all training rows, of which these are a sample.
        self.gp.condition(z, y, weight * (self.total_weight / weight.sum()))

    @torch.no_grad()
    def finish(self, train: Batches, held_out: Batches) -> None:
        """Remove the normalisation, and compute `a` and `B` for prediction."""
        super().finish(train, held_out)
        for buffer, value in zip((self.a, self.B), self.gp.posterior(), strict=True):
            buffer.copy_(value)

    def _noisy(self, mean: Tensor, variance: Tensor) -> Moments:
        return Moments(mean, 0.5 * (variance + self.gp.noise).log())


class DUERegressor(SpectralRegressor):
    """DUE (van Amersfoort et al., 2022): sparse Gaussian process on a spectrally normalised residual network.

    Needs gpytorch: ``pip install density-regression[gp]``. Several targets share the encoder and the inducing points,
    and are independent given these.

    Parameters
    ----------
    n_inducing : int
        Number of inducing points.
    kernel : {"rbf", "matern"}
        RBF, or Matern with smoothness 5/2.
    spectral_bound : float
        Largest singular value of each layer's weight matrix (of a convolution: of its reshaped kernel). The paper's
        0.95 keeps residual blocks from folding.
    hidden, epochs, patience
        See `DeepRegressor`. One more layer, as the first of a `ResidualMLP` is linear; fewer epochs, as each takes
        about three times as long as the Gaussian network's.
    weight_decay : float
        Weight decay of AdamW, also of inducing points and variances; 0 by default, as the bound and the prior
        regularise instead.
    **settings
        See `DeepRegressor`; with `encoder=None` the network is a `ResidualMLP`. The default learning rate is lower, so
        that the inducing points can follow the features.

    Examples
    --------
    >>> from density_regression.baselines import DUERegressor
    >>> from density_regression.datasets import make_cubic
    >>> reg = DUERegressor(epochs=5, random_state=0).fit(*make_cubic(n=200, random_state=0))
    >>> near, far = reg.score_samples([[0.0], [40.0]])
    >>> bool(near > far)
    True
    """

    network_class = DUENetwork
    about = About("DUE", "van Amersfoort et al., 2022", needs_prior=True)
    usual_rate = 3e-3

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SpectralRegressor._parameter_constraints,
        "n_inducing": [Interval(Integral, 1, MAX_INDUCING_POINTS, closed="both")],
        "kernel": [StrOptions({"rbf", "matern"})],
    }

    def __init__(  # type: ignore[misc]
        self,
        *,
        n_inducing: int = 20,
        kernel: Literal["rbf", "matern"] = "rbf",
        spectral_bound: float = 0.95,
        hidden: tuple[int, ...] = (100, 100, 100),
        epochs: int = 200,
        weight_decay: float = 0.0,
        patience: int | None = 30,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(
            spectral_bound=spectral_bound,
            hidden=hidden,
            epochs=epochs,
            weight_decay=weight_decay,
            patience=patience,
            **settings,
        )
        self.n_inducing = n_inducing
        self.kernel = kernel

    def _size(self, columns: int, targets: int, embedding: PiecewiseEmbedding | None = None) -> int:
        # Only the encoder is built on the meta device: gpytorch reads values while it is built.
        with torch.device("meta"):
            encoder = self._encoder(columns, embedding)
        weights = sum(parameter.numel() for parameter in encoder.parameters())
        return weights + self.n_inducing * (self.hidden[-1] + 2 * targets * self.n_inducing)


def _gpytorch() -> Any:
    return import_extra("gpytorch", needed_by="DUE", extra="gp")
