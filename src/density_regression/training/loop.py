"""The loop that trains any network here: AdamW, early stopping and averaged weights, by Lightning Fabric."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import starmap
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor, nn

from density_regression.nn.processes import ALONE, Processes
from density_regression.nn.runtime import TrainingOptions, fabric_for
from density_regression.training.batches import Batches, TensorBatches, reader
from density_regression.training.kept_weights import DIVERGED, Average, Best, stopping_epoch
from density_regression.training.shares import Shares, agree_on
from density_regression.training.state import LoopState

if TYPE_CHECKING:
    from density_regression.training.callbacks import Callback
    from density_regression.training.checkpoints import Unfinished
    from density_regression.training.progress import Monitor

__all__ = ["Losses", "TrainingReport", "along_signs", "monitor_for", "optimise", "timed"]

PERTURBED_WEIGHT: Final = 0.5
"""Weight of a batch with perturbed inputs beside the batch itself; see `TrainingOptions.smoothness`."""


class Losses(NamedTuple):
    """Losses after each epoch: held-out ones (those of training without held-out rows), and those of training."""

    held_out: list[float]
    train: list[float]

    def until(self, epoch: int) -> Losses:
        """Those of so many epochs."""
        return Losses(self.held_out[:epoch], self.train[:epoch])


@dataclass
class TrainingReport:
    """Seconds of each training step, and losses of the network after each epoch.

    Attributes
    ----------
    seconds : dict
        Seconds of each step; 0 for one resumed from a checkpoint or left out.
    history : list of float
        Held-out loss after each epoch; that of the training rows where none are held out. Of an ensemble the mean.
    train_history : list of float
        Training loss of each epoch: mean over its batches, each before its step. It includes dropout and penalties, and
        its weights are not averaged, so it may lie above the held-out loss.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    history: list[float] = field(default_factory=list)
    train_history: list[float] = field(default_factory=list)

    def shared(self, number: int) -> TrainingReport:
        """The part of one of `number` fits that were made together."""
        seconds = {step: seconds / number for step, seconds in self.seconds.items()}
        return TrainingReport(seconds, list(self.history), list(self.train_history))


@contextmanager
def timed(report: TrainingReport, step: str) -> Iterator[None]:
    """Add the seconds of a step to a report."""
    start = time.perf_counter()
    yield
    report.seconds[step] = report.seconds.get(step, 0.0) + time.perf_counter() - start


def monitor_for(verbose: bool, callbacks: Iterable[Callback], step: str) -> Monitor | None:
    """A progress bar that tells callbacks of each epoch of a step; None without callbacks, terminal and notebook."""
    if not callbacks and not (verbose and (_is_terminal() or "ipykernel" in sys.modules)):
        return None
    from density_regression.training.progress import Monitor

    return Monitor(verbose, callbacks, step)


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    # There may be none, one that was closed, or one that can only be written to.
    except (AttributeError, ValueError):
        return False


def optimise(  # noqa: PLR0912, PLR0915 - one loop, read from top to bottom
    objective: nn.Module,
    train: Batches,
    held_out: Batches | None,
    options: TrainingOptions,
    progress: Monitor | None = None,
    *,
    name: str = "network",
    keep_last: bool = False,
    unfinished: Unfinished | None = None,
) -> list[Losses]:
    """Minimise a loss by AdamW over mini-batches, and keep the weights with the best held-out loss.

    Parameters
    ----------
    objective : nn.Module
        Called with a batch (x, y, weight), returns its mean loss; what it holds is trained in place. An ensemble of M
        members returns M losses, and every tensor it holds begins with M: each member is then clipped, stopped and
        kept on its own, as if it were trained alone.
    train : iterable of batches
        Iterated once each epoch. Of `TensorBatches` the mean loss by weight over all rows is minimised. The total
        weight of other batches is not known beforehand: each counts as much as any other.
    held_out : iterable of batches, optional
        Rows whose loss decides which weights are best; without them the training loss does.
    options, progress, name : TrainingOptions, Monitor and str
        How to train; where to show the progress, and under which name.
    keep_last : bool
        Train for all epochs and keep the last weights with a finite held-out loss, which then chooses nothing.
    unfinished : Unfinished, optional
        Where the state of the loop is kept from time to time, and from where it goes on after an interruption: to the
        same weights, bit for bit. Callbacks are told the earlier epochs again.

    Returns
    -------
    list of Losses
        Of each member, or of the only network, after each epoch until it was stopped.
    """
    fabric = fabric_for(options)
    weights, adamw = objective, _adamw(objective, options)
    length = _length(train)
    if options.compile:
        objective.compile()
    agree_on(train, length, fabric.processes)
    objective, optimizer = fabric.setup(objective, adamw)
    trained = [parameter for parameter in weights.parameters() if parameter.requires_grad]
    if options.epochs > 0 and not trained:
        raise ValueError("There is nothing to train: no parameter of the network requires a gradient.")
    patience = None if keep_last else options.patience
    average, best = Average(weights, options.average * length), Best(patience)
    read = reader(train)
    in_memory = isinstance(train, TensorBatches)
    mean_weight = train.mean_weight() if isinstance(train, TensorBatches) else None
    state = LoopState(weights, adamw, train, held_out, average, best, options, fabric, unfinished)
    state.resume()
    if progress is not None:
        progress.step(name, options.epochs)
        for losses in zip(state.train_losses, state.held_out_losses, strict=True):
            progress.epoch(losses[0], None if held_out is None else losses[1])
    shares = Shares(weights, train, fabric.processes)
    while state.epoch < options.epochs:
        objective.train()
        state.begin_epoch()
        for batch in train:
            for group in optimizer.param_groups:
                share = state.step / (options.epochs * length)
                group["lr"] = 0.5 * options.learning_rate * (1.0 + math.cos(math.pi * share))
            x, y, weight = read(batch, fabric.device)
            if options.smoothness > 0:
                x = _movable(x)
            own = shares.of(x, y, weight)
            loss = _share(own.scaled(objective(*own[:3])), weight, mean_weight)
            for parameter in trained:
                parameter.grad = None
            fabric.backward(loss.sum())
            if options.smoothness > 0:
                moved = shares.of(_perturbed(x, options.smoothness), y, weight)
                again = _share(moved.scaled(objective(*moved[:3])), weight, mean_weight)
                fabric.backward(PERTURBED_WEIGHT * again.sum())
            fabric.unscale(optimizer)
            _clip(trained, options.gradient_clip, members=loss.ndim > 0)
            optimizer.step()
            average.step()
            state.end_step(loss.detach(), None if in_memory else weight.sum())
        if state.batches == 0:
            raise ValueError("The batches have no rows, or were used up: they must come anew in each epoch.")
        if not (train.rows[2].any() if isinstance(train, TensorBatches) else state.seen):
            raise ValueError("The training batches have no rows with weight: give some a weight above 0.")
        train_loss = state.total / length
        with average.in_place():
            value = train_loss if held_out is None else _evaluate(objective, held_out, fabric.device, fabric.processes)
            score = torch.where(value.isfinite(), -float(state.step), math.inf) if keep_last else value
            running = best.see(score, weights)
        state.end_epoch(value, train_loss, running)
        if progress is not None:
            progress.epoch(state.train_losses[-1], None if held_out is None else state.held_out_losses[-1])
        if best.waited_enough():
            break
        state.keep(epoch_over=True)
    if options.epochs == 0:
        return [Losses([], [])]
    weights.load_state_dict(best.state())
    # Features are bounded, so the loss may be finite where weights are not.
    if not all(parameter.isfinite().all() for parameter in weights.parameters()):
        raise ValueError(DIVERGED)
    both = zip(_by_member(state.held_out_losses), _by_member(state.train_losses), strict=True)
    return [own.until(stopping_epoch(own.held_out, patience)) for own in starmap(Losses, both)]


def _by_member(losses: list[Tensor]) -> list[list[float]]:
    """Losses of each member over epochs, from those () or (M,) of each epoch."""
    return torch.stack(losses).reshape(len(losses), -1).T.tolist()


def _adamw(objective: nn.Module, options: TrainingOptions) -> torch.optim.AdamW:
    # torch has no fused steps for complex parameters.
    fused = all(parameter.is_floating_point() for parameter in objective.parameters())
    return torch.optim.AdamW(
        objective.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay, fused=fused
    )


def _share(loss: Tensor, weight: Tensor, mean_weight: Tensor | None) -> Tensor:
    """The mean loss of a batch, () or (M,), times its weight relative to the mean over batches."""
    if mean_weight is None:
        return loss
    return loss * (_of_each(weight, loss).mean(-1) / mean_weight.to(weight))


def _of_each(weight: Tensor, loss: Tensor) -> Tensor:
    """Weights (n,) of a batch, or (M, n) where each of M members has a batch of its own."""
    each = loss.ndim > 0 and weight.ndim > 1 and len(weight) == len(loss)
    return weight.flatten(1) if each else weight.flatten()


def _movable(x: Tensor) -> Tensor:
    """Inputs that take a gradient."""
    if not x.is_floating_point():
        raise ValueError(f"smoothness moves inputs a little, which those of type {x.dtype} cannot; set it to 0.")
    return x.detach().requires_grad_()


def along_signs(x: Tensor, gradient: Tensor, size: Tensor | float) -> Tensor:
    """Inputs moved by `size` along the signs of a gradient: the fast gradient sign method (Goodfellow et al., 2015).

    Where the gradient is no number, they stay.
    """
    return x.detach() + size * gradient.nan_to_num().sign()


@torch.no_grad()
def _perturbed(x: Tensor, most: float) -> Tensor:
    """Inputs (n, ...) with a gradient, moved along its signs; each row as far as chance has it, up to `most`."""
    if x.grad is None:
        return x
    share = torch.rand(len(x), *[1] * (x.ndim - 1)).to(x)
    return along_signs(x, x.grad, most * share)


@torch.no_grad()
def _clip(parameters: list[nn.Parameter], largest: float, *, members: bool) -> None:
    """Bring the norm of the gradient, that of each member apart, down to `largest`."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return
    if not members:
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, (largest / (norm + 1e-6)).clamp_max_(1.0))
        return
    norm = torch.cat([gradient.reshape(len(gradient), -1) for gradient in gradients], 1).norm(dim=1)
    shrink = (largest / (norm + 1e-6)).clamp_max(1.0)
    torch._foreach_mul_(gradients, [shrink.view(-1, *[1] * (gradient.ndim - 1)) for gradient in gradients])


@torch.no_grad()
def _evaluate(objective: nn.Module, batches: Batches, device: torch.device, processes: Processes = ALONE) -> Tensor:
    objective.eval()
    total, count = torch.zeros((), device=device), torch.zeros((), device=device)
    read, shares = reader(batches), Shares(objective, batches, processes)
    for batch in batches:
        own = shares.of(*read(batch, device))
        loss = objective(*own[:3])
        rows = _of_each(own.weight, loss).sum(-1)
        total = total + loss * rows
        count = count + rows
    total, count = processes.sum(total), processes.sum(count)
    if not (count > 0).all():
        raise ValueError("The batches in held_out have no rows, or rows without weight; give some, or None.")
    return total / count


def _length(batches: Batches) -> int:
    try:
        return max(len(batches), 1)  # type: ignore[arg-type]
    # A DataLoader of an `IterableDataset` has one only if its data has.
    except TypeError as error:
        raise ValueError("Batches must have a length (the number of batches), as a DataLoader has.") from error
