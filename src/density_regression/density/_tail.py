"""What a flow's density does beyond the rows it was trained on."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from density_regression._numeric import LARGE

__all__ = ["continue_radially", "trusted_radius"]


def trusted_radius(t: Tensor) -> Tensor:
    """Radius up to which a flow trained on `t` (n, q) is believed: twice that of the farthest row.

    The root of q, the typical radius of a whitened row, stands in for rows that all lie at the centre.
    """
    farthest: Tensor = torch.linalg.vector_norm(t, dim=-1).amax()
    return 2.0 * farthest.clamp_min(math.sqrt(t.shape[-1]))


def continue_radially(log_prob: Callable[[Tensor], Tensor], t: Tensor, radius: Tensor) -> Tensor:
    r"""`log_prob` within `radius` of the origin, and a tail that falls without bound beyond it.

    A flow extrapolates as its network pleases: to another mode, or to -inf and NaN. Outside the radius R,

    .. math:: \log p(t) = \log p(R\, t / |t|) - (|t|^2 - R^2) / 2,

    which is continuous and falls as the standard normal does, so that `lemma:density` holds whatever the flow. The
    density integrates to one up to what the flow itself puts beyond R, little where it was trained well.

    Parameters
    ----------
    log_prob : callable
        From (n, q) to (n,), the flow's own log-density; only asked within the radius.
    t : Tensor of shape (n, q)
        Whitened features, each within +-`LARGE` (whose squares float32 can hold).
    radius : Tensor of shape ()
        The R above, positive.
    """
    distance: Tensor = torch.linalg.vector_norm(t, dim=-1).clamp_min(radius)
    inside = log_prob(t * (radius / distance)[:, None])
    inside = torch.nan_to_num(inside.clamp(-LARGE, LARGE), nan=-LARGE)
    return inside - 0.5 * (distance - radius) * (distance + radius)
