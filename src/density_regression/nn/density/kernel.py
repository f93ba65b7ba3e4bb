"""Kernel density estimate on whitened features."""

import math
from typing import Final, Literal

import torch
from torch import Tensor

from density_regression.nn.density.base import Density

__all__ = ["KernelDensity"]

MAX_DISTANCES: Final = 4_000_000
"""Most distances held in memory at a time."""

MAX_SCALED_DISTANCE: Final = 1e18
"""Bound on distances in units of the bandwidth; its square is finite in float32."""


class KernelDensity(Density):
    """Kernel density estimate from up to `max_points` training rows, as in the paper's toy example.

    p(t) = mean over i of K(t - t_i), of the whitened coordinates t and those of training rows, t_i.

    The slowest density to evaluate: each row is compared with every point.

    Parameters
    ----------
    kernel : {"exponential", "gaussian"}
        Product of Laplace kernels, exp(-|t - t_i|_1 / h) / (2 h)^q, or isotropic normal with standard deviation h.
    bandwidth : float or "auto"
        The h above, in whitened units. "auto" takes the one with the highest held-out likelihood.
    max_points : int
        Most training rows with a kernel, drawn at random.
    variance, max_dims, max_rows
        See `Density`.

    Examples
    --------
    >>> import torch
    >>> z = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> density = KernelDensity("gaussian").fit(z)
    >>> bool(density.log_prob(torch.zeros(1, 2)) > density.log_prob(torch.full((1, 2), 9.0)))
    True
    """

    points: Tensor
    log_weight: Tensor
    width: Tensor

    def __init__(
        self,
        kernel: Literal["exponential", "gaussian"] = "exponential",
        bandwidth: float | Literal["auto"] = "auto",
        *,
        max_points: int = 2000,
        variance: float = 0.999,
        max_dims: int | None = 16,
        max_rows: int = 20_000,
    ) -> None:
        super().__init__(variance=variance, max_dims=max_dims, max_rows=max_rows)
        if kernel not in ("exponential", "gaussian"):
            raise ValueError(f'kernel must be "exponential" or "gaussian", got {kernel!r}.')
        if bandwidth != "auto" and not (math.isfinite(bandwidth) and bandwidth > 0):
            raise ValueError(f'bandwidth must be "auto" or positive and finite, got {bandwidth}.')
        if max_points < 1:
            raise ValueError(f"max_points must be at least 1, got {max_points}.")
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.max_points = max_points
        self.register_buffer("points", torch.zeros(0, 0))
        self.register_buffer("log_weight", torch.zeros(0))
        self.register_buffer("width", torch.tensor(1.0))

    def _fit(self, t: Tensor, weight: Tensor, held_out: Tensor, generator: torch.Generator) -> None:
        chosen = torch.randperm(len(t), generator=generator)[: self.max_points].to(t.device)
        self._store(points=t[chosen], log_weight=weight[chosen].log() - weight[chosen].sum().log())
        width = self._choose(held_out) if self.bandwidth == "auto" else self.bandwidth
        self._store(width=torch.tensor(width, dtype=torch.float64))

    def _choose(self, held_out: Tensor) -> float:
        """Bandwidth with the highest held-out likelihood: a coarse grid, then a fine one at its best."""
        # A thousand rows are enough to choose one number.
        distance = self._distance(held_out[: max(min(1000, MAX_DISTANCES // len(self.points)), 1)])

        def best(log_grid: Tensor) -> float:
            scores = [self._log_mean(distance, h).mean() for h in log_grid.exp()]
            return log_grid[torch.stack(scores).argmax()].item()

        coarse = torch.linspace(math.log(1e-2), math.log(1e2), 25).to(distance)
        step = (coarse[1] - coarse[0]).item()
        center = best(coarse)
        return math.exp(best(torch.linspace(center - step, center + step, 17).to(distance)))

    def _log_prob(self, t: Tensor) -> Tensor:
        rows = max(MAX_DISTANCES // len(self.points), 1)
        # An exported graph must not depend on the number of rows.
        if torch.compiler.is_exporting() or len(t) <= rows:
            return self._log_mean(self._distance(t), self.width)
        return torch.cat([self._log_mean(self._distance(part), self.width) for part in t.split(rows)])

    def _distance(self, t: Tensor) -> Tensor:
        """Distances (n, points) in the kernel's norm."""
        if not torch.compiler.is_exporting():
            # Distances by matrix products lose precision far from the origin.
            norm = 1.0 if self.kernel == "exponential" else 2.0
            return torch.cdist(t, self.points, norm, compute_mode="donot_use_mm_for_euclid_dist")
        # ONNX has no cdist; one coordinate at a time needs (n, points) numbers only.
        total = torch.zeros((), dtype=t.dtype, device=t.device)
        for row, point in zip(t.unbind(1), self.points.unbind(1), strict=True):
            difference = row[:, None] - point
            total = total + (difference.abs() if self.kernel == "exponential" else difference.square())
        return total if self.kernel == "exponential" else total.sqrt()

    def _log_mean(self, distance: Tensor, width: Tensor) -> Tensor:
        """Log of the weighted mean of the kernels (n,) at `distance` (n, points)."""
        scaled = (distance / width).clamp_max(MAX_SCALED_DISTANCE)
        if self.kernel == "exponential":
            exponent, log_norm = -scaled, torch.log(2.0 * width)
        else:
            exponent, log_norm = -0.5 * scaled.square(), torch.log(math.sqrt(2 * math.pi) * width)
        return (self.log_weight + exponent).logsumexp(-1) - self.points.shape[1] * log_norm
