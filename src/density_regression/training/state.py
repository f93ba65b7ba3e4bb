"""All that the training loop goes on from, so that it can be interrupted at any batch and end with the same weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from density_regression.io.store import plain
from density_regression.nn.runtime import may_draw
from density_regression.training.batches import Batches, ScaledTargets, Seekable, generators_of
from density_regression.training.kept_weights import Average, Best

if TYPE_CHECKING:
    from density_regression.nn.runtime import Trainer, TrainingOptions
    from density_regression.training.checkpoints import Unfinished

__all__ = ["LoopState", "inside"]


class LoopState:
    """Where a training loop stands: its weights, what is kept beside them, and the batches and epochs behind it.

    Parameters
    ----------
    weights : nn.Module
        What is trained.
    optimizer : AdamW
        Of these weights.
    train, held_out : iterable of batches
        As given to the loop. Those that are not `Seekable` are continued at the beginning of an epoch.
    average, best : Average and Best
        The running mean of the weights, and the best ones.
    options, fabric : TrainingOptions and Trainer
        How they are trained, and where.
    unfinished : Unfinished, optional
        Where to keep the state from time to time.

    Attributes
    ----------
    step, batches : int
        Steps of the optimizer, and those of the present epoch.
    total, seen : Tensor
        Sum of the losses in the present epoch, () or (M,), and sum of its weights, ().
    held_out_losses, train_losses : list of Tensor
        Of each epoch that is over, () or (M,).
    """

    def __init__(
        self,
        weights: nn.Module,
        optimizer: torch.optim.AdamW,
        train: Batches,
        held_out: Batches | None,
        average: Average,
        best: Best,
        options: TrainingOptions,
        fabric: Trainer,
        unfinished: Unfinished | None = None,
    ) -> None:
        self.weights, self.optimizer = weights, optimizer
        self.average, self.best = average, best
        self._several = {"train": train, "held_out": held_out}
        self._fabric = fabric
        self._unfinished = unfinished
        self._seekable = _unwrapped(train) if isinstance(_unwrapped(train), Seekable) else None
        # A generator that all share is not to be touched where nothing is drawn from it.
        self._draws = options.smoothness > 0 or self._seekable is None or may_draw(weights)
        self._within_epoch = False
        self.step = self.batches = 0
        self.total = self.seen = torch.zeros((), device=fabric.device)
        self.held_out_losses: list[Tensor] = []
        self.train_losses: list[Tensor] = []

    @property
    def epoch(self) -> int:
        """Number of epochs that are over."""
        return len(self.train_losses)

    def begin_epoch(self) -> None:
        """Let all processes draw the same shuffles, though their parts of a batch may have drawn unequally often."""
        if self._draws and self._fabric.processes.size > 1:
            torch.set_rng_state(self._fabric.processes.from_first(torch.get_rng_state))

    def end_step(self, loss: Tensor, weight: Tensor | None) -> None:
        """Add the loss, () or (M,), and the sum of the weights of a batch, if that is asked for."""
        self.step += 1
        self.batches += 1
        self.total = self.total + self._fabric.processes.mean(loss)
        self.seen = self.seen if weight is None else self.seen + weight
        if self._unfinished is not None:
            self.keep()

    def end_epoch(self, held_out_loss: Tensor, train_loss: Tensor, running: Tensor) -> None:
        """Add the losses of an epoch, each () or (M,), those of members that still run, and begin the next one."""
        for losses, loss in ((self.held_out_losses, held_out_loss), (self.train_losses, train_loss)):
            losses.append(torch.where(running, loss, losses[-1]) if losses else loss)
        self.batches = 0
        self.total = self.seen = torch.zeros((), device=self._fabric.device)

    def keep(self, *, epoch_over: bool = False) -> None:
        """Keep the state if it is time to; at the end of an epoch also if that took longer."""
        if self._unfinished is None or not (epoch_over or self._seekable is not None):
            return
        if self._unfinished.is_due() or (epoch_over and self._within_epoch):
            self._unfinished.save(self.tensors())
            self._within_epoch = not epoch_over

    def resume(self) -> None:
        """Go on from the state that was kept last, if there is one; in all processes from that of the first."""
        if kept := self._fabric.processes.from_first(self._kept):
            self.load(kept)

    def _kept(self) -> dict[str, Tensor]:
        kept = {} if self._unfinished is None else self._unfinished.load()
        # Several processes begin with the same weights and shuffles, whatever was drawn in each before.
        return plain(self.tensors()) if not kept and self._fabric.processes.size > 1 else kept

    def tensors(self) -> dict[str, Tensor]:
        """The whole state, by names."""
        moments = self.optimizer.state_dict()["state"].items()
        parts = {
            "loop": {"step": torch.tensor(self.step), "batches": torch.tensor(self.batches)},
            "sums": {"loss": self.total, "weight": self.seen},
            "weights": self.weights.state_dict(),
            "optimizer": {f"{i}/{name}": value for i, own in moments for name, value in own.items()},
            "scale": self._fabric.scale(),
            "average": self.average.tensors(),
            "best": self.best.tensors(),
            "losses": {
                f"{name}/{epoch}": loss
                for name, losses in (("held_out", self.held_out_losses), ("train", self.train_losses))
                for epoch, loss in enumerate(losses)
            },
            "draws": _draws(self._fabric.device) if self._draws else {},
            **{name: _position(batches) for name, batches in self._several.items()},
        }
        return {f"{part}/{name}": value for part, own in parts.items() for name, value in own.items()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` returned."""
        device = self._fabric.device
        loop, sums = inside(tensors, "loop"), inside(tensors, "sums")
        self.step, self.batches = int(loop["step"]), int(loop["batches"])
        self._within_epoch = self.batches > 0
        self.total, self.seen = sums["loss"].to(device), sums["weight"].to(device)
        self.weights.load_state_dict(inside(tensors, "weights"))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in inside(tensors, "optimizer").items():
            i, of = name.split("/")
            moments.setdefault(int(i), {})[of] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        self._fabric.set_scale(inside(tensors, "scale"))
        self.average.load(inside(tensors, "average"))
        self.best.load(inside(tensors, "best"), self.weights)
        self.held_out_losses, self.train_losses = (
            [losses[str(epoch)].to(device) for epoch in range(len(losses))]
            for losses in (inside(tensors, "losses/held_out"), inside(tensors, "losses/train"))
        )
        for name, batches in self._several.items():
            _seek(batches, inside(tensors, name))
        if self._draws:
            _set_draws(inside(tensors, "draws"), device)


def inside(tensors: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """Those named "part/name", by the name alone."""
    return {name.removeprefix(f"{part}/"): value for name, value in tensors.items() if name.startswith(f"{part}/")}


def _unwrapped(batches: Batches | None) -> Batches | None:
    return _unwrapped(batches.batches) if isinstance(batches, ScaledTargets) else batches


def _position(batches: Batches | None) -> dict[str, Tensor]:
    """Where batches stand; of those that cannot be continued, the states of their generators."""
    own = _unwrapped(batches)
    if isinstance(own, Seekable):
        return own.position()
    return {str(i): generator.get_state() for i, generator in enumerate(generators_of(own))}


def _seek(batches: Batches | None, position: dict[str, Tensor]) -> None:
    own = _unwrapped(batches)
    if isinstance(own, Seekable):
        own.seek(position)
        return
    for i, generator in enumerate(generators_of(own)):
        generator.set_state(position[str(i)])


def _draws(device: torch.device) -> dict[str, Tensor]:
    """States of the generators that dropout draws from."""
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else states


def _set_draws(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    # A fit may go on where there is no GPU.
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
