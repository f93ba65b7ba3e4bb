"""Many Gaussians of one covariance, of which a row has the density of the nearest."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

from density_regression.nn.density.clusters import k_means
from density_regression.nn.density.quadratics import Quadratics

__all__ = ["fit_nearest", "log_joint"]

ROWS_OF_CENTER: Final = 4
"""Fewest rows for each centre, on average."""

ITERATIONS: Final = 15
"""Of Lloyd's algorithm."""

WIDTHS: Final = (0.7, 0.85, 1.0, 1.2, 1.4, 2.0)
"""Standard deviations that are tried, relative to those of the rows about their centres."""

DRAWS: Final = 20_000
"""Rows drawn to find the integral of the largest component."""


def log_joint(components: Quadratics, t: Tensor) -> Tensor:
    """Log of weight times density of each component at each column of `t` (q, n): (K, n).

    All components in one matrix product; with rows along the last axis the sums are fastest.
    """
    factor, shift, log_norm = components
    if components.shared:
        # Components may be narrow beside their distances: the difference of two squares needs more digits.
        factor, shift, log_norm, t = (part.double() for part in (factor, shift, log_norm, t))
        u = factor.T @ t
        centers = shift.unflatten(0, (len(log_norm), -1))
        constant = log_norm - 0.5 * centers.square().sum(1)
        return torch.addmm(constant[:, None], centers, u).sub_(u.square().sum(0), alpha=0.5)
    whitened = torch.addmm(-shift[:, None], factor.T, t).unflatten(0, (len(log_norm), len(factor)))
    return torch.add(log_norm[:, None], whitened.square().sum(1), alpha=-0.5)


def fit_nearest(rows: Tensor, weight: Tensor, held_out: Tensor, centers: int, generator: torch.Generator) -> Quadratics:
    """Components around up to so many centres of whitened `rows` (n, q); their largest one integrates to one.

    The centres are those of k-means; the covariance is that of the rows about them, with a prior worth one row, times
    the square of the width under which `held_out` (m, q) are most likely.
    """
    n, q = rows.shape
    count = max(min(centers, n // ROWS_OF_CENTER), 1)
    assigned = k_means(rows, weight, count, generator, ITERATIONS) * weight
    assigned = assigned[assigned.sum(1) > 0]
    total = assigned.sum(1)
    means = (assigned @ rows) / total[:, None]
    scatter = (rows.T * weight) @ rows - (means.T * total) @ means
    eye = torch.eye(q).to(rows)
    # Rows lie nearer to the mean of their own few than to the centre they were drawn around.
    freedom = max(weight.sum().item() - len(total), 0.5 * weight.sum().item())
    cholesky = torch.linalg.cholesky((scatter + eye) / (freedom + 1.0))
    factor = torch.linalg.solve_triangular(cholesky, eye, upper=False).T
    log_weight = (total / total.sum()).log()

    def of_width(width: float) -> Quadratics:
        log_norm = log_weight + (factor / width).diagonal().log().sum() - 0.5 * q * math.log(2 * math.pi)
        return Quadratics(factor / width, (means @ factor / width).flatten(), log_norm)

    def held_out_likelihood(width: float) -> float:
        return log_joint(of_width(width), held_out.T).logsumexp(0).mean().item()

    components = of_width(max(WIDTHS, key=held_out_likelihood))
    integral = _integral_of_largest(components, generator)
    return components._replace(log_norm=components.log_norm - math.log(integral))


def _integral_of_largest(components: Quadratics, generator: torch.Generator) -> float:
    """Integral of the largest of the components: its mean share in all of them, over draws from their mixture."""
    factor, shift, log_norm = components
    chosen = torch.multinomial(log_norm.softmax(0).cpu(), DRAWS, replacement=True, generator=generator).to(shift.device)
    noise = torch.randn(DRAWS, len(factor), generator=generator).to(shift)
    u = shift.unflatten(0, (len(log_norm), -1))[chosen] + noise
    centered = Quadratics(torch.eye(len(factor)).to(factor), shift, log_norm)
    joint = log_joint(centered, u.T)
    return (joint.amax(0) - joint.logsumexp(0)).exp().mean().item()
