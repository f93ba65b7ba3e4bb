"""Weights that training keeps beside the present ones: their running mean, and the best so far."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor, nn

__all__ = ["DIVERGED", "Average", "Best", "stopping_epoch"]

DIVERGED: Final = (
    "Training diverged: no epoch gave a finite loss. "
    "Look for NaN among inputs and targets, scale them, or lower learning_rate."
)


class Average:
    """An exponential moving average of weights and running statistics over about so many `steps`; 0 for none."""

    def __init__(self, module: nn.Module, steps: float) -> None:
        self._steps = steps
        self._seen = 0
        self._weights: list[Tensor] = []
        if steps > 0:
            self._weights = [weight for weight in module.parameters() if weight.requires_grad]
            self._weights += [value for value in _running_statistics(module) if value.is_floating_point()]
        self._mean = [weight.detach().clone() for weight in self._weights]

    def tensors(self) -> dict[str, Tensor]:
        """The mean and the number of steps in it, to be kept in a file."""
        return {"seen": torch.tensor(self._seen), **{str(i): mean for i, mean in enumerate(self._mean)}}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` returned."""
        self._seen = int(tensors["seen"])
        for i, mean in enumerate(self._mean):
            mean.copy_(tensors[str(i)])

    @torch.no_grad()
    def step(self) -> None:
        """Take the weights after a step into account."""
        if self._weights:
            self._seen += 1
            share = max(1.0 / max(self._steps, 1.0), 9.0 / (self._seen + 9.0))
            torch._foreach_lerp_(self._mean, self._weights, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the average in the place of the weights."""
        if not self._weights:
            yield
            return
        kept = [weight.detach().clone() for weight in self._weights]
        self._write(self._mean)
        yield
        self._write(kept)

    @torch.no_grad()
    def _write(self, values: list[Tensor]) -> None:
        torch._foreach_copy_(self._weights, values)


def _running_statistics(module: nn.Module) -> Iterator[Tensor]:
    for part in module.modules():
        if getattr(part, "track_running_stats", False):
            yield from part.buffers(recurse=False)


def stopping_epoch(losses: list[float], patience: int | None) -> int:
    """Number of epochs until the patience of a member with these held-out losses ended."""
    best, waited = math.inf, 0
    for epoch, loss in enumerate(losses, start=1):
        best, waited = (loss, 0) if loss < best else (best, waited + 1)
        if patience is not None and waited >= patience:
            return epoch
    return len(losses)


class Best:
    """The weights with the lowest loss so far: of each member of an ensemble, or of the only one."""

    def __init__(self, patience: int | None) -> None:
        self._patience = math.inf if patience is None else patience
        self._loss: Tensor = torch.tensor(math.inf)
        self._waited: Tensor = torch.tensor(0)
        self._state: dict[str, Tensor] = {}

    def see(self, loss: Tensor, weights: nn.Module) -> Tensor:
        """Compare the `loss`, () or (M,), after an epoch; returns which members had not been stopped before."""
        running = self._waited.to(loss.device) < self._patience
        better = (loss < self._loss.to(loss)) & running
        self._loss = torch.where(better, loss, self._loss.to(loss))
        self._waited = torch.where(better, 0, self._waited.to(loss.device) + 1)
        if better.all() or (better.any() and not self._state):
            # A module may have a state that is no tensor.
            self._state = {
                name: value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
                for name, value in weights.state_dict().items()
            }
        elif better.any():
            for name, value in weights.state_dict().items():
                self._state[name][better] = value[better]
        return running

    def tensors(self) -> dict[str, Tensor]:
        """The best loss and weights, and the epochs since then, to be kept in a file."""
        weights = {f"weights/{name}": value for name, value in self._state.items()}
        return {"loss": self._loss, "waited": self._waited, **weights}

    def load(self, tensors: dict[str, Tensor], like: nn.Module) -> None:
        """Take back what `tensors` returned, on the devices of a module's weights."""
        self._loss, self._waited = tensors["loss"], tensors["waited"]
        self._state = {
            name: tensors[f"weights/{name}"].to(value.device)
            for name, value in like.state_dict().items()
            if f"weights/{name}" in tensors
        }

    def waited_enough(self) -> bool:
        """Whether the patience with all members has ended."""
        return bool((self._waited >= self._patience).all())

    def state(self) -> dict[str, Tensor]:
        """The best weights; a ValueError if there are none, as every loss was infinite or NaN."""
        if not self._loss.isfinite().all():
            raise ValueError(DIVERGED)
        return self._state
