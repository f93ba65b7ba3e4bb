"""Coefficient of determination, from counts, means and sums of squared deviations that can be merged."""

__all__ = ["R2"]

from typing import Any

import torch
from torch import Tensor

from density_regression.metrics._checks import check_count
from density_regression.metrics.accumulate.base import Metric, check_batch


class R2(Metric):
    """`density_regression.metrics.r2` over batches.

    Parameters
    ----------
    columns : int, default=1
        Number of targets, along the last dimension; their coefficients are averaged. With 1, all entries are values
        of one target, whatever their shape.

    Examples
    --------
    >>> import torch
    >>> score = R2()
    >>> score.update(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.0]), torch.tensor([0.5, 0.5]))
    >>> round(score.compute().item(), 3)
    0.5
    """

    full_state_update = False
    higher_is_better = True
    squared_error: Tensor
    moments: Tensor

    def __init__(self, columns: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.columns = check_count("columns", columns)
        self.add_state("squared_error", torch.zeros(self.columns, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("moments", torch.zeros(3, self.columns, dtype=torch.float64), dist_reduce_fx=_merge_moments)

    def update(self, y_true: Tensor, mean: Tensor, std: Tensor, mask: Tensor | None = None) -> None:
        """Add a batch, as `Accumulator.update` does; ``std`` is checked but not used.

        With several columns, all arguments have shape (..., columns).
        """
        tensors = check_batch(y_true, mean, std, mask, self.device)
        shape = tuple(tensors[0].shape)
        if self.columns > 1 and shape[-1:] != (self.columns,):
            raise ValueError(f"y_true must have {self.columns} columns, as R2 was given, got shape {shape}.")
        y_true, mean, _, keep = (tensor.reshape(-1, self.columns) for tensor in tensors)
        self.squared_error += ((y_true - mean) ** 2).where(keep, 0.0).sum(dim=0)
        target = y_true.where(keep, 0.0)
        row_moments = torch.stack([keep.to(target.dtype), target, torch.zeros_like(target)], dim=1)
        self.moments = _merge_moments(torch.cat([self.moments[None], row_moments]))

    def compute(self) -> Tensor:
        """Coefficient of all entries so far; NaN if a column had none."""
        count, _, spread = self.moments
        # As in scikit-learn: a constant target counts as 1 if predicted without error and as 0 otherwise.
        constant = (self.squared_error == 0).double().where(count > 0, torch.nan)
        return torch.where(spread > 0, 1 - self.squared_error / spread, constant).mean()


def _merge_moments(parts: Tensor) -> Tensor:
    """Merge counts, means and sums of squared deviations (parts, 3, k) into those of all rows together (3, k).

    Plain sums of squares would lose the variance of a target far from 0 to rounding.
    """
    count, mean, square = parts.unbind(dim=1)
    total = count.sum(dim=0)
    # Relative to the mean of the largest part, so that rounding leaves no variance in a constant target.
    origin = mean.gather(0, count.argmax(dim=0, keepdim=True))
    offset = mean - origin
    shift = (count * offset).sum(dim=0) / total.clamp(min=1)
    between = (count * (offset - shift) ** 2).sum(dim=0)
    return torch.stack([total, origin[0] + shift, square.sum(dim=0) + between])
