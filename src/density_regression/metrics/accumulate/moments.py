"""Counts, means and sums of squared deviations, which merge over rows, batches and processes."""

__all__ = ["merged_moments", "row_moments"]

import torch
from torch import Tensor


def row_moments(values: Tensor, keep: Tensor) -> Tensor:
    """Moments of each row by itself.

    Parameters
    ----------
    values : Tensor of shape (n, k)
    keep : Tensor of shape (n, k)
        Whether an entry counts, as bool.

    Returns
    -------
    Tensor of shape (n, 3, k)
        For each column its count, 0 or 1, its mean and its sum of squared deviations, 0.
    """
    values = values.where(keep, 0.0)
    return torch.stack([keep.to(values.dtype), values, torch.zeros_like(values)], dim=1)


def merged_moments(parts: Tensor) -> Tensor:
    """Moments of all parts together: counts, means and sums of squared deviations.

    Sums of squares would lose the spread of a target far from 0; this does not.

    Parameters
    ----------
    parts : Tensor of shape (parts, 3, k)
        Moments of each part.

    Returns
    -------
    Tensor of shape (3, k)
    """
    count, mean, square = parts.unbind(dim=1)
    total = count.sum(dim=0)
    # From one part's mean: parts of one constant then have no spread at all, not one of rounding errors.
    origin = mean.gather(0, count.argmax(dim=0, keepdim=True))
    offset = mean - origin
    shift = (count * offset).sum(dim=0) / total.clamp(min=1)
    between = (count * (offset - shift) ** 2).sum(dim=0)
    return torch.stack([total, origin[0] + shift, square.sum(dim=0) + between])
