"""Probabilistic PCA: the coordinates in which every density sees the features."""

from __future__ import annotations

import math

import torch
from scipy.linalg import eigh
from torch import Tensor
from torch.nn import functional as F

from density_regression._numeric import LARGE, FittedModule, tame

__all__ = ["Whitening"]

DIRECT = 512
"""Most features of which all principal directions are computed; that takes a time that grows with their cube."""

FARTHEST = 1e36
"""Largest squared distance, that of a feature of size `LARGE` in units of a residual of 1e-6."""


class Whitening(FittedModule):
    r"""Centre, rotate and scale features so that the directions kept have unit variance.

    Dead and collinear units make any density degenerate, so only the leading principal directions are kept. The
    others are not forgotten: the length of what the projection leaves over is one more coordinate, with one shared
    variance, so that a unit silent in training that fires on a strange input is seen
    (Tipping & Bishop, 1999, with the residual taken as a single coordinate).

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
    """Least variance of the residual coordinate, as a share of the total variance.

    Well above the rounding error of float32, and low enough that a silent unit is noticed once it fires at the
    size of the others.
    """

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
        z = tame(z).double()
        weight = torch.ones(len(z), dtype=z.dtype, device=z.device) if sample_weight is None else sample_weight
        weight = weight.to(z) / weight.to(z).sum()
        # Relative to the first row, so that a constant column is centred without any rounding.
        center = z[0] + weight @ (z - z[0])
        centered = z - center
        # Features of any size: squares of the largest must not overflow, nor those of the smallest vanish.
        size = centered.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
        centered = centered / size
        eigenvalues, vectors, total = _principal(centered, weight, self.max_dims)
        # A tolerance of 1e-6 keeps out directions that exist by rounding alone, also when variance = 1.
        enough = (eigenvalues.cumsum(0) < (self.variance - 1e-6) * total).sum().item() + 1
        kept = min(int(enough), self.max_dims or len(eigenvalues), len(eigenvalues))
        # Along a direction in which no row moves, the width is that of float32's rounding; and no projection is so
        # steep that features of size LARGE overflow.
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
        # Narrow matrix products round by a row's place in its batch; with columns of zeros they do not.
        padding = -kept % 16
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
        padded = (centered @ self.projection).clamp(-LARGE, LARGE)
        t = padded[:, : self.kept]
        if not self.has_residual:
            # Not len(t), which would fix the number of rows in an exported model.
            return t, self.log_det.expand(t.shape[0])
        # What the kept directions do not explain, itself: as a difference of squares it would drown in rounding.
        left_over = torch.addmm(centered, padded, self.reconstruction, alpha=-1) / self.residual_scale
        return t, self.log_det - 0.5 * left_over.square().sum(-1).clamp_max(FARTHEST)


def _principal(centered: Tensor, weight: Tensor, most: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues (r,) of the covariance of rows (n, D), largest first, their eigenvectors (D, r), and its trace.

    Of more than `DIRECT` features only the `most` leading ones are computed, and where rows are fewer than features
    from the products of rows, (n, n), which have the same eigenvalues.
    """
    if centered.shape[1] <= DIRECT:
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
        # Directions in which no row moves are those of rounding, and of no length.
        moving = max(int((eigenvalues > 1e-12 * eigenvalues[0]).sum()), 1)
        eigenvalues, vectors = eigenvalues[:moving], F.normalize(rows.T @ vectors[:, :moving], dim=0)
    return eigenvalues, vectors, products.trace().clamp_min(1e-12)
