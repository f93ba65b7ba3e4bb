"""Gaussian mixture by expectation-maximisation, the default density."""

import math
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from density_regression.nn.density.base import FEW_DIMENSIONS, Density
from density_regression.nn.density.clusters import k_means
from density_regression.nn.density.nearest import fit_nearest, log_joint
from density_regression.nn.density.quadratics import Quadratics

__all__ = ["MixtureDensity"]

WEAK_PRIOR: Final = 0.1
"""Weight of the weaker prior on covariances, relative to the usual one."""


BACKGROUND_WIDTH: Final = 1.5
"""Standard deviation of the background, relative to that of all rows."""


class _Mixture(NamedTuple):
    log_weight: Tensor  # (K,)
    mean: Tensor  # (K, q)
    precision_factor: Tensor  # (K, q, q), P with precision = P P^T

    def quadratics(self) -> Quadratics:
        q = self.mean.shape[1]
        log_det = self.precision_factor.diagonal(dim1=1, dim2=2).log().sum(1)
        return Quadratics(
            factor=self.precision_factor.permute(1, 0, 2).reshape(q, -1),
            shift=torch.einsum("kq,kqp->kp", self.mean, self.precision_factor).reshape(-1),
            log_norm=self.log_weight + log_det - 0.5 * q * math.log(2 * math.pi),
        )

    def beside_background(self, weight: float) -> "_Mixture":
        """The mixture with one more component of this weight, for whitened rows."""
        if weight == 0:
            return self
        q = self.mean.shape[1]
        wide = torch.eye(q).to(self.mean) / BACKGROUND_WIDTH
        return _Mixture(
            torch.cat([self.log_weight + math.log1p(-weight), self.log_weight.new_tensor([math.log(weight)])]),
            torch.cat([self.mean, self.mean.new_zeros(1, q)]),
            torch.cat([self.precision_factor, wide[None]]),
        )

    def log_joint(self, t: Tensor) -> Tensor:
        return log_joint(self.quadratics(), t)

    def mean_log_prob(self, t: Tensor) -> float:
        """Mean log-density of the columns of `t` (q, n)."""
        return self.log_joint(t).logsumexp(0).mean().item()


class MixtureDensity(Density):
    """Gaussian mixture with full covariances.

    p(t) = sum over j of w_j N(t; m_j, S_j), of the whitened coordinates t.

    EM from a k-means++ start. Each component's covariance is the posterior mode under a prior worth `q` rows with the
    overall covariance (the identity, after whitening), so that a component with few rows cannot collapse. A prior of a
    tenth of that weight is used instead where its held-out likelihood is higher, as for tight clusters.

    Parameters
    ----------
    components : int or "auto"
        Number of components. "auto" doubles it as long as the held-out likelihood rises.
    max_components : int
        Largest number that "auto" tries.
    background : float
        Weight of one more component, centred on all rows and half as wide again; 0 for none. With it the log-density
        far away is that of one Gaussian, whatever the width of the others.
    centers : int
        In more than nine dimensions, up to so many components of one covariance instead, around centres found by
        k-means. A row has the density of the nearest, divided by what that integrates to. 0 for none.
    max_iterations, tolerance : int and float
        Stop EM after this many iterations, or when the mean log-likelihood rises by less, in nats.
    variance, max_dims, max_rows
        See `Density`.

    Examples
    --------
    >>> import torch
    >>> z = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> density = MixtureDensity(components=2).fit(z)
    >>> bool(density.log_prob(torch.zeros(1, 2)) > density.log_prob(torch.full((1, 2), 9.0)))
    True
    """

    factor: Tensor
    shift: Tensor
    log_norm: Tensor

    def __init__(
        self,
        components: int | Literal["auto"] = "auto",
        *,
        max_components: int = 8,
        background: float = 0.0,
        centers: int = 0,
        max_iterations: int = 30,
        tolerance: float = 1e-2,
        variance: float = 0.999,
        max_dims: int | None = 16,
        max_rows: int = 5_000,
    ) -> None:
        super().__init__(variance=variance, max_dims=max_dims, max_rows=max_rows)
        if components != "auto" and components < 1:
            raise ValueError(f'components must be "auto" or at least 1, got {components}.')
        if max_components < 1:
            raise ValueError(f"max_components must be at least 1, got {max_components}.")
        if not 0 <= background < 1:
            raise ValueError(f"background must be at least 0 and below 1, got {background}.")
        if centers < 0:
            raise ValueError(f"centers must be at least 0, got {centers}.")
        self.components = components
        self.max_components = max_components
        self.background = background
        self.centers = centers
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        self.register_buffer("factor", torch.zeros(0, 0))
        self.register_buffer("shift", torch.zeros(0))
        self.register_buffer("log_norm", torch.zeros(0))

    def _fit(self, t: Tensor, weight: Tensor, held_out: Tensor, generator: torch.Generator) -> None:
        rows, weight = t.double(), weight.double()
        t, held_out = (part.double().T.contiguous() for part in (t, held_out))
        # The prior is worth q rows, so weights must add up to the effective sample size (Kish, 1965).
        weight = weight * weight.sum() / weight.square().sum()
        if self.centers and self.dims > FEW_DIMENSIONS:
            self._store(**fit_nearest(rows, weight, held_out.T, self.centers, generator)._asdict())
            return
        best, best_score = None, -math.inf
        for k in self._candidates(len(rows)):
            mixture = self._expectation_maximisation(t, weight, k_means(rows, weight, k, generator))
            score = mixture.mean_log_prob(held_out)
            if best is not None and score <= best_score:
                break
            best, best_score = mixture, score
        assert best is not None
        tight = self._expectation_maximisation(t, weight, best.log_joint(t).softmax(0), prior=WEAK_PRIOR)
        if tight.mean_log_prob(held_out) > best_score:
            best = tight
        self._store(**best.beside_background(self.background).quadratics()._asdict())

    def _log_prob(self, t: Tensor) -> Tensor:
        components = self.quadratics()
        joint = log_joint(components, t.T)
        return joint.amax(0).to(t) if components.shared else joint.logsumexp(0)

    def quadratics(self) -> Quadratics:
        """All components; see `Density.quadratics`."""
        return Quadratics(self.factor, self.shift, self.log_norm)

    def _candidates(self, n: int) -> list[int]:
        if self.components != "auto":
            return [min(self.components, n)]
        return [k for k in (2**i for i in range(20)) if k <= min(self.max_components, max(n // 10, 1))]

    def _expectation_maximisation(
        self, t: Tensor, weight: Tensor, responsibility: Tensor, prior: float = 1.0
    ) -> _Mixture:
        mixture = _maximise(t, weight, responsibility, prior)
        previous = -math.inf
        for _ in range(self.max_iterations if len(responsibility) > 1 else 0):
            log_joint = mixture.log_joint(t)
            log_prob = log_joint.logsumexp(0)
            mixture = _maximise(t, weight, (log_joint - log_prob).exp(), prior)
            current = (weight @ log_prob / weight.sum()).item()
            if current - previous < self.tolerance:
                break
            previous = current
        return mixture


def _maximise(t: Tensor, weight: Tensor, responsibility: Tensor, prior: float) -> _Mixture:
    """M step on `t` (q, n) and `responsibility` (K, n); the prior on covariances is worth `prior` times q rows."""
    q = len(t)
    rows = prior * q
    count = responsibility * weight
    total = count.sum(1).clamp_min(1e-8)
    mean = (count @ t.T) / total[:, None]
    eye = torch.eye(q, dtype=t.dtype, device=t.device)
    factors = []
    for k in range(len(total)):
        centered = t - mean[k, :, None]
        scatter = (centered * count[k]) @ centered.T
        cholesky = torch.linalg.cholesky((scatter + rows * eye) / (total[k] + rows))
        factors.append(torch.linalg.solve_triangular(cholesky, eye, upper=False).T)
    return _Mixture((total / weight.sum()).log(), mean, torch.stack(factors))
