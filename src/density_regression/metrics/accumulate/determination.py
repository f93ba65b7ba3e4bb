"""The coefficient of determination, from moments that merge."""

__all__ = ["R2"]

from typing import Any

import torch
from torch import Tensor

from density_regression.metrics._arrays import count_of
from density_regression.metrics.accumulate.base import Metric, checked
from density_regression.metrics.accumulate.moments import merged_moments, row_moments


class R2(Metric):
    """`density_regression.metrics.r2` over batches.

    Parameters
    ----------
    columns : int, default=1
        Number of targets, along the last dimension, each compared with its own mean and then averaged over. With
        1, all entries are values of one target, whatever their shape.
    **kwargs
        Options of ``torchmetrics.Metric``.
    """

    full_state_update = False
    higher_is_better = True
    squared_error: Tensor
    moments: Tensor

    def __init__(self, columns: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.columns = count_of("columns", columns)
        self.add_state("squared_error", torch.zeros(self.columns, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("moments", torch.zeros(3, self.columns, dtype=torch.float64), dist_reduce_fx=merged_moments)

    def update(self, y_true: Tensor, mean: Tensor, std: Tensor, mask: Tensor | None = None) -> None:
        """Take in a batch.

        Parameters
        ----------
        y_true, mean, std : Tensor of any shape, or of shape (..., columns)
            Observed targets, predicted means and predicted standard deviations, all of one shape and in the
            target's units. ``std`` must be positive, and is not used.
        mask : Tensor of that shape, optional
            True where an entry counts. The others may hold anything, NaN included. By default all count.
        """
        tensors = checked(y_true, mean, std, mask, self.device)
        shape = tuple(tensors[0].shape)
        if self.columns > 1 and shape[-1:] != (self.columns,):
            raise ValueError(f"y_true must have {self.columns} columns, as R2 was given, got shape {shape}.")
        y_true, mean, _, keep = (tensor.reshape(-1, self.columns) for tensor in tensors)
        self.squared_error += ((y_true - mean) ** 2).where(keep, 0.0).sum(dim=0)
        self.moments = merged_moments(torch.cat([self.moments[None], row_moments(y_true, keep)]))

    def compute(self) -> Tensor:
        """Share explained of all entries so far, as a float64 scalar; NaN if a column had none."""
        count, _, spread = self.moments
        # As in scikit-learn: a constant target counts as 1 if predicted without error and as 0 otherwise.
        constant = (self.squared_error == 0).double().where(count > 0, torch.nan)
        return torch.where(spread > 0, 1 - self.squared_error / spread, constant).mean()
