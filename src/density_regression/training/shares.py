"""What each of several processes computes of a batch, so that together they compute the loss of the whole batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

from density_regression.nn.processes import Processes
from density_regression.training.batches import Batches, TensorBatches

__all__ = ["Part", "Shares", "agree_on"]


class Part(NamedTuple):
    """The rows of a batch that a process computes, and the factor on their mean loss; None for the whole batch.

    The mean over processes of these losses is that of the whole batch, and so is the mean of their gradients.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    factor: Tensor | None

    def scaled(self, loss: Tensor) -> Tensor:
        """The mean loss of these rows, () or (M,), times the factor."""
        return loss if self.factor is None else loss * self.factor


class Shares:
    """Divides batches among processes.

    Parameters
    ----------
    objective : nn.Module
        The loss: the mean by weight of the rows' losses; or their sum divided by its `divisor(y, weight)`.
    batches : iterable of batches
        Those to be divided; all processes have the same ones.
    processes : Processes
        Among which.
    """

    def __init__(self, objective: nn.Module, batches: Batches, processes: Processes) -> None:
        self._processes = processes
        self._divisor = getattr(objective, "divisor", _total_weight)
        # With a batch for each member of an ensemble, rows are in the second place.
        self._dim = 1 if isinstance(batches, TensorBatches) and batches.several else 0

    def of(self, x: Tensor, y: Tensor, weight: Tensor) -> Part:
        """The part of this process."""
        if self._processes.size == 1:
            return Part(x, y, weight, None)
        own = [self._processes.take(part, self._dim) for part in (x, y, weight)]
        if own[0].shape[self._dim] == 0:
            # A batch with fewer rows than there are processes: one row that counts for nothing.
            own = [part.narrow(self._dim, 0, 1) for part in (x, y, 0.0 * weight)]
            return Part(own[0], own[1], own[2], weight.new_zeros(()))
        # Where no row of the batch has weight, all losses are zero.
        whole = self._divisor(y, weight).clamp_min(torch.finfo(weight.dtype).tiny)
        return Part(own[0], own[1], own[2], self._processes.size * self._divisor(own[1], own[2]) / whole)


def _total_weight(y: Tensor, weight: Tensor) -> Tensor:
    return weight.sum()


def agree_on(batches: Batches, length: int, processes: Processes) -> None:
    """Raise a ValueError unless all processes have the same number of batches, and divide them themselves."""
    if processes.size == 1:
        return
    if isinstance(getattr(batches, "sampler", None), DistributedSampler):
        raise ValueError(
            "The loader has a DistributedSampler, but each process takes its rows of every batch by itself: give the "
            "loader of all rows, the same in each process."
        )
    expected = processes.from_first(lambda: length)
    if expected != length:
        raise ValueError(
            f"Process {processes.rank + 1} has {length} batches, but the first has {expected}: give all the same ones."
        )
