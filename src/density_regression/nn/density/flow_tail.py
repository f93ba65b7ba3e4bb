"""Extrapolation of a flow's density beyond the rows it was trained on."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from density_regression.nn.density.base import FEATURE_LIMIT

__all__ = ["continue_radially", "trusted_radius"]


def trusted_radius(t: Tensor) -> Tensor:
    """Radius within which a flow trained on `t` (n, q) is used as it is: twice that of the farthest row.

    At least twice the root of q, the typical radius of a whitened row.
    """
    farthest: Tensor = torch.linalg.vector_norm(t, dim=-1).amax()
    return 2.0 * farthest.clamp_min(math.sqrt(t.shape[-1]))


def continue_radially(log_prob: Callable[[Tensor], Tensor], t: Tensor, radius: Tensor) -> Tensor:
    r"""`log_prob` within `radius` of the origin, and a Gaussian tail beyond it.

    A flow's own extrapolation may rise, or be -inf or NaN. Outside the radius R,

    .. math:: \log p(t) = \log p(R\, t / |t|) - (|t|^2 - R^2) / 2,

    which is continuous and falls as the standard normal does, so that `lemma:density` holds for any flow. The density
    integrates to one up to the mass that the flow itself has beyond R. `log_prob`, from (n, q) to (n,), is evaluated
    within R only; `t` (n, q) must lie within +-`FEATURE_LIMIT`.
    """
    distance: Tensor = torch.linalg.vector_norm(t, dim=-1).clamp_min(radius)
    inside = log_prob(t * (radius / distance)[:, None])
    inside = torch.nan_to_num(inside.clamp(-FEATURE_LIMIT, FEATURE_LIMIT), nan=-FEATURE_LIMIT)
    return inside - 0.5 * (distance - radius) * (distance + radius)
