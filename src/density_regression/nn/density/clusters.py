"""Clusters of rows, from which mixtures begin."""

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["k_means"]


def k_means(t: Tensor, weight: Tensor, k: int, generator: torch.Generator, iterations: int = 5) -> Tensor:
    """One-hot assignments (k, n) of rows (n, q): k-means++ (Arthur & Vassilvitskii, 2007), then Lloyd steps."""
    chosen = [_draw(weight, generator)]
    nearest = (t - t[chosen[0]]).square().sum(1)
    while len(chosen) < k:
        chosen.append(_draw(weight * nearest, generator))
        nearest = torch.minimum(nearest, (t - t[chosen[-1]]).square().sum(1))
    centers = t[chosen]
    for _ in range(iterations):
        assigned = _assignments(t, centers) * weight[:, None]
        total = assigned.sum(0)
        centers = torch.where(total[:, None] > 0, (assigned.T @ t) / total[:, None].clamp_min(1e-8), centers)
    return (_assignments(t, centers) * (weight[:, None] > 0)).to(t).T


def _assignments(t: Tensor, centers: Tensor) -> Tensor:
    return F.one_hot(torch.cdist(t, centers).argmin(1), len(centers))


def _draw(probability: Tensor, generator: torch.Generator) -> int:
    """Index drawn in proportion to `probability`; uniform if all of it is zero."""
    probability = probability.cpu()
    if probability.sum() <= 0:
        probability = torch.ones_like(probability)
    return int(torch.multinomial(probability, 1, generator=generator))
