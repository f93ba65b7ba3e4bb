"""Radial flows, the density of Natural Posterior Networks; needs no extra."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.nn.density.flow import TrainedFlow

__all__ = ["RadialFlow", "RadialFlowDensity"]


class RadialFlow(nn.Module):
    r"""`layers` radial transformations (Rezende & Mohamed, 2015) of q coordinates, from data to a standard normal.

    Each moves points along the rays from its centre c, with r = |t - c|,

    .. math:: t + \beta\, (t - c) / (\alpha + r), \qquad \alpha > 0,\ \beta > -\alpha,

    which is monotone along every ray, and so invertible. Positive beta raises the density around the centre, negative
    beta lowers it.
    """

    FLOOR = 1e-3
    """Least slope along a ray at the centre; at zero the log-determinant would be infinite."""

    def __init__(self, q: int, layers: int) -> None:
        super().__init__()
        self.center = nn.Parameter(torch.randn(layers, q))
        # Each layer starts near the identity: alpha = 1, beta close to 0.
        self.raw_alpha = nn.Parameter(torch.full((layers,), math.log(math.expm1(1.0))))
        self.raw_slope = nn.Parameter(math.log(math.expm1(1.0)) + 0.1 * torch.randn(layers))

    def forward(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised coordinates (n, q) of `t` (n, q), and the log-determinant of the Jacobian (n,)."""
        # Softplus may round to zero in float32.
        alpha = F.softplus(self.raw_alpha) + 1e-6
        slope = F.softplus(self.raw_slope) + self.FLOOR
        log_det = torch.zeros_like(t[:, 0])
        for center, a, s in zip(self.center, alpha, slope, strict=True):
            offset = t - center
            # With beta = a (s - 1), s is the slope at the centre, and a / (a + r) falls from 1 to 0.
            nearness = a / (a + torch.linalg.vector_norm(offset, dim=-1))
            stretch = 1.0 + (s - 1.0) * nearness
            along = 1.0 + (s - 1.0) * nearness.square()
            t = center + offset * stretch[:, None]
            log_det = log_det + (t.shape[-1] - 1) * stretch.log() + along.log()
        return t, log_det

    def log_prob(self, t: Tensor) -> Tensor:
        """Log-density (n,) of `t` (n, q)."""
        u, log_det = self.forward(t)
        return log_det - 0.5 * (u.square().sum(-1) + u.shape[-1] * math.log(2 * math.pi))


class RadialFlowDensity(TrainedFlow):
    """Radial flow with a standard normal base, as Natural Posterior Networks use (Charpentier et al., 2022).

    log p(t) = log N(g(t); 0, I) + log |det dg / dt|, with g a chain of radial transforms.

    Parameters
    ----------
    layers : int
        Number of radial transformations.
    epochs, batch_size, learning_rate, patience, variance, max_dims, max_rows
        See `FlowDensity`.

    Examples
    --------
    >>> import torch
    >>> z = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> density = RadialFlowDensity(epochs=2).fit(z)
    >>> bool(density.log_prob(torch.zeros(1, 2)) > density.log_prob(torch.full((1, 2), 99.0)))
    True
    """

    flow: RadialFlow | None
    layers: int

    def __init__(
        self,
        *,
        layers: int = 8,
        epochs: int = 50,
        batch_size: int = 256,
        learning_rate: float = 3e-2,
        patience: int = 5,
        variance: float = 0.999,
        max_dims: int | None = 16,
        max_rows: int = 20_000,
    ) -> None:
        counts = {"epochs": epochs, "batch_size": batch_size, "patience": patience, "layers": layers}
        super().__init__(learning_rate, variance, max_dims, max_rows, **counts)

    def _build(self, q: int) -> nn.Module:
        return RadialFlow(q, self.layers)

    def _flow_log_prob(self, t: Tensor) -> Tensor:
        assert self.flow is not None
        return self.flow.log_prob(t)
