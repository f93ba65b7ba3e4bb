"""Densities p(z; alpha) on an encoder's features: their common interface, and the whitening they all begin with."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Self

import torch
from scipy.linalg import eigh
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.nn.density.quadratics import Quadratics
from density_regression.nn.runtime import WHITENED_BLOCK

__all__ = [
    "FEATURE_LIMIT",
    "FEW_DIMENSIONS",
    "Density",
    "FittedModule",
    "Whitening",
    "bound_features",
    "smooth_clamp",
    "weighted_quantiles",
]

FEATURE_LIMIT: Final = 1e12
"""Bound on |z|: its square, summed over thousands of features, is finite in float32."""

FEW_DIMENSIONS: Final = 9
"""Most dimensions of a density in which rows that are far away are far in the direction that matters."""

FULL_EIGEN_LIMIT: Final = 512
"""Most features of which all principal directions are computed, in time cubic in their number."""

SQUARED_RESIDUAL_LIMIT: Final = 1e36
"""Largest squared length of the residual: a feature of `FEATURE_LIMIT` in units of a residual scale of 1e-6."""


def bound_features(z: Tensor) -> Tensor:
    """Clip features to +-`FEATURE_LIMIT`; those that overflowed to NaN become the limit.

    An encoder may turn a finite input of 1e30 into inf or NaN. Such a feature is as far from the training data as can
    be, and whatever follows stays finite. float16 cannot hold the limit and becomes float32.
    """
    z = z.float() if z.dtype == torch.float16 else z
    if z.requires_grad and _is_bounded(z):
        return z
    return z.clamp(-FEATURE_LIMIT, FEATURE_LIMIT).nan_to_num(nan=FEATURE_LIMIT)


def _is_bounded(z: Tensor) -> bool:
    """Whether features need no clipping, where that is quickly seen: a copy and its gradient cost as much as a layer.

    A GPU would have to be waited for; under vmap and a compiler there are no values to look at.
    """
    if z.device.type != "cpu" or torch.compiler.is_compiling() or torch._C._functorch.is_batchedtensor(z):
        return False
    return bool(torch.linalg.vector_norm(z.detach()).item() < 0.5 * FEATURE_LIMIT)


def weighted_quantiles(values: Tensor, levels: Sequence[float], weight: Tensor | None = None) -> list[Tensor]:
    """Quantiles of each column of `values` (n, ...), rows counted by `weight` (n,).

    Without weights those of `torch.quantile` with linear interpolation, but for any number of rows. With weights, the
    smallest value at which the cumulated weight reaches a level.
    """
    ordered, order = values.sort(dim=0)
    if weight is None:
        return [_interpolated(ordered, level * (len(values) - 1)) for level in levels]
    cumulated = weight.to(values.dtype)[order].cumsum(dim=0)
    reached = [(cumulated >= level * cumulated[-1:]).int().argmax(dim=0, keepdim=True) for level in levels]
    return [ordered.gather(0, index).squeeze(0) for index in reached]


def _interpolated(ordered: Tensor, position: float) -> Tensor:
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below].lerp(ordered[above], position - below)


def smooth_clamp(value: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Clamp `value` to [low, high] by two softplus: never decreasing, and close to the identity inside.

    The corners are rounded over an eighth of the interval, and over one unit at the most.
    """
    beta = 8.0 / (high - low).clamp(1e-3, 8.0)
    # The result is constant this far outside, but the difference of two huge numbers would be rounding.
    value = value.clamp(low - 20.0 / beta, high + 20.0 / beta)
    return low + (F.softplus(beta * (value - low)) - F.softplus(beta * (value - high))) / beta


class FittedModule(nn.Module):
    """A module whose buffers get their shapes in `fit`, and whose state dict loads into a fresh object."""

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: object) -> None:
        for name, buffer in self._buffers.items():
            saved = state_dict.get(prefix + name)
            if buffer is not None and saved is not None and saved.ndim == buffer.ndim and saved.shape != buffer.shape:
                self._buffers[name] = buffer.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def config(self) -> dict[str, Any]:
        """Arguments of `__init__` that build this module, as plain numbers and strings."""
        names = inspect.signature(type(self)).parameters
        lost = [name for name in names if not hasattr(self, name)]
        if lost:
            raise ValueError(
                f"{type(self).__name__} must keep each argument of its __init__ as an attribute of that name, or have "
                f"a config() of its own; it lacks {', '.join(lost)}."
            )
        values = {name: getattr(self, name) for name in names}
        return {name: value.item() if isinstance(value, Tensor) else value for name, value in values.items()}

    def _store(self, **buffers: Tensor) -> None:
        """Set buffers, keeping each one's dtype and device."""
        for name, value in buffers.items():
            self._buffers[name] = value.detach().to(getattr(self, name)).contiguous()


class Whitening(FittedModule):
    """Probabilistic PCA (Tipping & Bishop, 1999): centre, rotate and scale features to unit variance.

    Only the leading principal directions are kept, as dead and collinear units make any density degenerate. The length
    of the residual of the others is one more coordinate, so that a unit that was silent in training is noticed when it
    fires.

    Parameters
    ----------
    variance : float
        Share of the total variance that the kept directions explain, in (0, 1].
    max_dims : int or None
        Keep at most this many directions.
    """

    center: Tensor
    projection: Tensor
    reconstruction: Tensor
    scales: Tensor
    residual_scale: Tensor
    log_det: Tensor

    FLOOR = 1e-4
    """Least variance of the residual coordinate, as a share of the total variance; well above float32's rounding."""

    def __init__(self, variance: float = 0.999, max_dims: int | None = None) -> None:
        super().__init__()
        if not 0 < variance <= 1:
            raise ValueError(f"variance must lie in (0, 1], got {variance}.")
        if max_dims is not None and max_dims < 1:
            raise ValueError(f"max_dims must be at least 1, got {max_dims}.")
        self.variance = variance
        self.max_dims = max_dims
        self.register_buffer("center", torch.zeros(0))
        self.register_buffer("projection", torch.zeros(0, 0))
        self.register_buffer("reconstruction", torch.zeros(0, 0))
        self.register_buffer("scales", torch.ones(0))
        self.register_buffer("residual_scale", torch.tensor(1.0))
        self.register_buffer("log_det", torch.tensor(0.0))

    @property
    def kept(self) -> int:
        """Number of principal directions kept; 0 before `fit`."""
        return len(self.scales)

    @property
    def has_residual(self) -> bool:
        """Whether some directions were dropped, and so a residual coordinate exists."""
        return len(self.scales) < len(self.center)

    @property
    def dims(self) -> int:
        """Number of coordinates a density is a function of, the residual's included."""
        return self.kept + self.has_residual

    @torch.no_grad()
    def fit(self, z: Tensor, sample_weight: Tensor | None = None) -> Whitening:
        """Learn centre, directions and scales from features `z` (n, D)."""
        z = bound_features(z).double()
        weight = torch.ones(len(z), dtype=z.dtype, device=z.device) if sample_weight is None else sample_weight
        weight = weight.to(z) / weight.to(z).sum()
        # Relative to the first row, so that a constant column is centred exactly.
        center = z[0] + weight @ (z - z[0])
        centered = z - center
        # To unit size, so that squares neither overflow nor underflow.
        size = centered.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
        centered = centered / size
        eigenvalues, vectors, total = _principal(centered, weight, self.max_dims)
        # A tolerance of 1e-6 excludes directions that exist by rounding alone, also when variance = 1.
        enough = (eigenvalues.cumsum(0) < (self.variance - 1e-6) * total).sum().item() + 1
        kept = min(int(enough), self.max_dims or len(eigenvalues), len(eigenvalues))
        # At least float32's rounding along each direction, so that no projection overflows.
        sizes = z.abs().amax(0)[:, None]
        rounding = 1e-7 * torch.linalg.vector_norm(sizes * vectors[:, :kept], dim=0).clamp_min(1e-11)
        scales = eigenvalues[:kept].clamp_min(1e-6 * total.item()).sqrt() * size
        scales = scales.maximum(rounding)
        log_det = -scales.log().sum()
        dropped = len(center) - kept
        residual = (total - eigenvalues[:kept].sum()).clamp_min(self.FLOOR * total.item()).sqrt() * size
        left_over = (1e-14 * sizes.square().sum() - rounding.square().sum()).clamp_min(1e-36 * dropped)
        residual = residual.maximum(left_over.sqrt())
        if dropped:
            log_det = log_det - residual.log() - 0.5 * math.log(2 * math.pi)
        padding = -kept % WHITENED_BLOCK
        self._store(
            center=center,
            projection=F.pad(vectors[:, :kept] / scales, (0, padding)),
            reconstruction=F.pad(vectors[:, :kept].T * scales[:, None], (0, 0, 0, padding)),
            scales=scales,
            residual_scale=residual,
            log_det=log_det,
        )
        return self

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Whitened coordinates (n, kept), and the log-density of the residual coordinate and the Jacobian (n,)."""
        centered = z - self.center
        padded = (centered @ self.projection).clamp(-FEATURE_LIMIT, FEATURE_LIMIT)
        t = padded[:, : self.kept]
        if not self.has_residual:
            # Not len(t), which would fix the number of rows in an exported model.
            return t, self.log_det.expand(t.shape[0])
        # The residual vector itself: a difference of squares would lose all digits by cancellation.
        left_over = torch.addmm(centered, padded, self.reconstruction, alpha=-1) / self.residual_scale
        return t, self.log_det - 0.5 * left_over.square().sum(-1).clamp_max(SQUARED_RESIDUAL_LIMIT)


def _principal(centered: Tensor, weight: Tensor, most: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues (r,) of the covariance of rows (n, D), largest first, their eigenvectors (D, r), and its trace.

    Of more than `FULL_EIGEN_LIMIT` features only the `most` leading ones; with fewer rows than features from the Gram
    matrix (n, n), which has the same eigenvalues.
    """
    if centered.shape[1] <= FULL_EIGEN_LIMIT:
        eigenvalues, vectors = torch.linalg.eigh((centered * weight[:, None]).T @ centered)
        eigenvalues, vectors = eigenvalues.flip(0).clamp_min(0.0), vectors.flip(1)
        return eigenvalues, vectors, eigenvalues.sum().clamp_min(1e-12)
    rows = centered * weight.sqrt()[:, None]
    by_rows = len(rows) < rows.shape[1]
    products = rows @ rows.T if by_rows else rows.T @ rows
    size = len(products)
    leading = (size - min(most or size, size), size - 1)
    values, basis = eigh(products.cpu().numpy(), subset_by_index=leading)
    eigenvalues, vectors = (torch.from_numpy(part.copy()).to(rows).flip(-1) for part in (values, basis))
    eigenvalues = eigenvalues.clamp_min(0.0)
    if by_rows:
        # Directions in which no row varies are rounding.
        moving = max(int((eigenvalues > 1e-12 * eigenvalues[0]).sum()), 1)
        eigenvalues, vectors = eigenvalues[:moving], F.normalize(rows.T @ vectors[:, :moving], dim=0)
    return eigenvalues, vectors, products.trace().clamp_min(1e-12)


class Density(FittedModule, ABC):
    """A density on features: `fit(z)`, then `log_prob(z)`, finite for every input.

    log p(z) = log p(t) + log |det dt / dz|, with t the whitened features.

    Features are whitened first; a subclass models the whitened coordinates. All learnt state is in buffers, or in
    parameters without gradient.

    Parameters
    ----------
    variance : float
        Share of the features' variance that the kept principal directions explain.
    max_dims : int or None
        Keep at most this many directions.
    max_rows : int
        Fit on at most this many rows, drawn at random.

    Examples
    --------
    >>> import torch
    >>> from density_regression import GaussianDensity
    >>> class Wider(GaussianDensity):
    ...     def _log_prob(self, t):
    ...         return super()._log_prob(0.5 * t) - self.dims * torch.log(torch.tensor(2.0))
    >>> z = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> far = torch.full((1, 2), 9.0)
    >>> bool(Wider().fit(z).log_prob(far) > GaussianDensity().fit(z).log_prob(far))
    True
    """

    def __init__(self, *, variance: float = 0.999, max_dims: int | None = 16, max_rows: int = 20_000) -> None:
        super().__init__()
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}.")
        self.whitening = Whitening(variance, max_dims)
        self.max_rows = max_rows

    @property
    def variance(self) -> float:
        """Share of the features' variance that the kept directions explain."""
        return self.whitening.variance

    @property
    def max_dims(self) -> int | None:
        """Most directions kept."""
        return self.whitening.max_dims

    @property
    def fitted(self) -> bool:
        """Whether the density knows any data yet."""
        return self.whitening.kept > 0

    @property
    def dims(self) -> int:
        """Number of coordinates the density is a function of."""
        return self.whitening.dims

    @torch.no_grad()
    def fit(
        self,
        z: Tensor,
        sample_weight: Tensor | None = None,
        *,
        held_out: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Self:
        """Learn the density of features.

        Parameters
        ----------
        z : Tensor of shape (n, D)
            Features of the training rows.
        sample_weight : Tensor of shape (n,), optional
            Weight of each row; one of weight 0 is as good as none.
        held_out : Tensor of shape (m, D), optional
            Features of rows that neither encoder nor density have seen, for choices (number of components,
            bandwidth, when to stop), each counted once. Without them a fifth of `z` is set aside for that.
        generator : torch.Generator, optional
            Source of randomness, on the CPU.
        """
        if z.ndim != 2 or len(z) == 0:
            raise ValueError(f"Expected features of shape (n, D) with n >= 1, got {tuple(z.shape)}.")
        if sample_weight is not None:
            z, sample_weight = _with_weight(z, sample_weight)
        generator = generator or torch.Generator().manual_seed(0)
        self.whitening.to(z.device).fit(z, sample_weight)
        self.to(z.device)
        order = torch.randperm(len(z), generator=generator)[: self.max_rows].to(z.device)
        weight = torch.ones(len(z), device=z.device) if sample_weight is None else sample_weight
        t, weight = self._whiten(z[order]), weight[order].to(z)
        if held_out is None or len(held_out) == 0:
            aside = max(len(t) // 5, 1)
            held = t[:aside]
            t, weight = (t[aside:], weight[aside:]) if len(t) > 1 else (t, weight)
        else:
            # At random, as rows may come in order: positions of one image, hours of one day.
            order = torch.randperm(len(held_out), generator=generator)[: self.max_rows].to(z.device)
            held = self._whiten(held_out[order])
        self._fit(t, weight / weight.mean(), held, generator)
        return self

    def log_prob(self, z: Tensor) -> Tensor:
        """Log-density of features `z` (n, D), in nats, of shape (n,); never NaN, never infinite."""
        if not self.fitted:
            raise ValueError(f"This {type(self).__name__} is not fitted yet: call fit first.")
        return self(bound_features(z))  # type: ignore[no-any-return]

    def forward(self, z: Tensor) -> Tensor:
        """`log_prob` of features that are within +-`FEATURE_LIMIT` already."""
        t, rest = self.whitening(z)
        log_prob: Tensor = self._log_prob(t) + rest
        return log_prob

    def _whiten(self, z: Tensor) -> Tensor:
        t: Tensor = self.whitening(bound_features(z))[0]
        return t

    def quadratics(self) -> Quadratics | None:
        """The fitted density of whitened features as components, if that is what it is."""
        return None

    @abstractmethod
    def _fit(self, t: Tensor, weight: Tensor, held_out: Tensor, generator: torch.Generator) -> None:
        """Learn from whitened features `t` (n, q) with weights (n,) of mean 1."""

    @abstractmethod
    def _log_prob(self, t: Tensor) -> Tensor:
        """Log-density (n,) of whitened features `t` (n, q), each within +-`FEATURE_LIMIT`."""


def _with_weight(z: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with a weight above 0, and their weights; held-out rows are not weighted, so the others must go."""
    if weight.shape != z.shape[:1]:
        raise ValueError(f"sample_weight must be of shape ({len(z)},), one for each row, got {tuple(weight.shape)}.")
    if not (weight >= 0).all() or not 0 < weight.sum() < math.inf:
        raise ValueError("sample_weight must be at least 0 and finite, and some of it above 0.")
    some = weight > 0
    return (z, weight) if some.all() else (z[some], weight[some])
