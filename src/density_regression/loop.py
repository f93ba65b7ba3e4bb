"""The loop that trains any network here: AdamW, early stopping, averaged weights, on Lightning Fabric."""

from __future__ import annotations

import copy
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Final

import torch
from torch import Tensor, nn

from density_regression._numeric import along_signs
from density_regression._progress import StepProgress
from density_regression.batches import Batches, TensorBatches, reader

__all__ = [
    "PRECISIONS",
    "TrainingOptions",
    "TrainingReport",
    "find_device",
    "full_precision",
    "kept_draws",
    "may_draw",
    "optimise",
    "optimise_each",
    "own_draws",
    "taking_turns",
    "timed",
    "usual_torch",
]


PRECISIONS: Final = ("32-true", "16-mixed", "bf16-mixed")
"""Precisions of training, by Fabric's names: the weights stay in float32, which fitting a density needs."""

MOVED: Final = 0.5
"""What a row counts when its inputs are moved, beside itself; see `TrainingOptions.smoothness`."""

AUTOCAST: Final = ("cpu", "cuda", "mps")
"""Kinds of device on which a caller may have switched autocast on."""

QUIET: Final = ("torch.nn.modules.", "density_regression.")
DRAWING: Final = (nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
"""Where layers come from that draw nothing while they are trained, and those from there that do."""


class _Turn:
    """The lock of the one thread that may fit."""

    lock = threading.RLock()

    @classmethod
    def was_forked(cls) -> None:
        # The thread that held it stayed behind in the parent.
        cls.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Turn.was_forked)


DIVERGED: Final = (
    "Training diverged: no epoch gave a finite loss. "
    "Look for NaN among inputs and targets, scale them, or lower learning_rate."
)


@dataclass(frozen=True)
class TrainingOptions:
    """How to train; the defaults suit tables.

    Attributes
    ----------
    epochs : int
        Most passes over the data; 0 leaves the network as it is.
    learning_rate : float
        Of AdamW; falls to zero along a cosine.
    weight_decay : float
        Of AdamW.
    patience : int or None
        Stop after this many epochs without a better held-out loss; None never stops early. The best weights
        are kept in any case.
    average : float
        Epochs over which a running mean of the weights, and of the statistics of batch norm, reaches; it is the mean
        that is judged and kept. 0 for none.
    smoothness : float
        Train on every batch twice: as it is, and, counted half, with each row's inputs moved by up to this, to where
        its loss rises fastest (Goodfellow et al., 2015), so that inputs close to each other are given alike
        predictions. 0 for once.
    gradient_clip : float
        Largest norm of a gradient.
    device : str
        "cpu", "cuda" (or "cuda:1" and so on), or "auto" for a GPU if there is one.
    precision : {"32-true", "16-mixed", "bf16-mixed"}
        Of the network's training, by Fabric's names.
    compile : bool
        Whether to compile the network's training (worth it for large encoders only).
    seed : int
        Seed of everything random but the network's first weights.
    """

    epochs: int = 100
    learning_rate: float = 1e-2
    weight_decay: float = 0.1
    patience: int | None = 30
    average: float = 0.0
    smoothness: float = 0.0
    gradient_clip: float = 10.0
    device: str = "cpu"
    precision: str = "32-true"
    compile: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "weight_decay", "average", "smoothness"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)}.")
        for name in ("epochs", "seed"):
            if not isinstance(getattr(self, name), Integral):
                raise ValueError(f"{name} must be a whole number, got {getattr(self, name)!r}.")
        if self.patience is not None and not self.patience >= 1:
            raise ValueError(f"patience must be None or at least 1, got {self.patience}.")
        if not self.gradient_clip > 0:
            raise ValueError(f"gradient_clip must be positive, got {self.gradient_clip}.")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}.")


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
        Training loss of each epoch: mean over its batches, each before its step. Noise of training (dropout, say) and
        penalties count in, and weights are not averaged, so it may lie above the held-out loss.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    history: list[float] = field(default_factory=list)
    train_history: list[float] = field(default_factory=list)

    def shared(self, number: int) -> TrainingReport:
        """The part of one of `number` fits that were made together."""
        seconds = {step: seconds / number for step, seconds in self.seconds.items()}
        return TrainingReport(seconds, list(self.history), list(self.train_history))


def optimise(
    objective: nn.Module,
    train: Batches,
    held_out: Batches | None,
    options: TrainingOptions,
    progress: StepProgress | None = None,
    *,
    name: str = "network",
) -> list[float]:
    """Minimise a loss by AdamW over mini-batches, and keep the weights with the best held-out loss.

    Parameters
    ----------
    objective : nn.Module
        Called with a batch (x, y, weight), returns its mean loss; what it holds is trained in place. An ensemble of M
        members returns M losses, and every tensor it holds begins with M: each member is then clipped, stopped and
        kept on its own, as if it were trained alone.
    train : iterable of batches
        Iterated once each epoch. Of `TensorBatches` the mean loss by weight over all rows is minimised. Of other
        batches nobody knows beforehand what they weigh: each counts as much as any other, and weights tell the rows
        within it apart.
    held_out : iterable of batches, optional
        Says which weights are best; without it, the training loss does.
    options : TrainingOptions
        How to train.
    progress : StepProgress, optional
        Where to show how far it is, under `name`.

    Returns
    -------
    list of float
        The loss after each epoch, on the held-out rows if there are any; the mean over members.
    """
    return [loss.mean().item() for loss in _optimise(objective, train, held_out, options, progress, name)]


def optimise_each(
    objective: nn.Module,
    train: Batches,
    held_out: Batches | None,
    options: TrainingOptions,
    progress: StepProgress | None = None,
    *,
    name: str = "networks",
) -> list[list[float]]:
    """`optimise` an ensemble; returns the losses of each member, until it was stopped."""
    losses = torch.stack(_optimise(objective, train, held_out, options, progress, name)).T.tolist()
    return [_until_stopped(own, options.patience) for own in losses]


def _optimise(
    objective: nn.Module,
    train: Batches,
    held_out: Batches | None,
    options: TrainingOptions,
    progress: StepProgress | None,
    name: str,
) -> list[Tensor]:
    """Losses () or (M,) after each epoch."""
    progress = progress or StepProgress(visible=False)
    fabric = _fabric(options)
    weights = objective
    optimizer = _adamw(objective, options)
    steps = max(options.epochs * _length(train), 1)
    if options.compile:
        objective.compile()
    objective, optimizer = fabric.setup(objective, optimizer)
    trained = [parameter for parameter in weights.parameters() if parameter.requires_grad]
    if options.epochs > 0 and not trained:
        raise ValueError("There is nothing to train: no parameter of the network requires a gradient.")
    history: list[Tensor] = []
    best = _Best(options.patience)
    read = _Reading(train)
    mean_weight = train.mean_weight() if isinstance(train, TensorBatches) else None
    average = _Average(weights, options.average * _length(train))
    progress.step(name, options.epochs)
    step = 0
    for _ in range(options.epochs):
        objective.train()
        total = torch.zeros((), device=fabric.device)
        for batch in train:
            for group in optimizer.param_groups:
                group["lr"] = 0.5 * options.learning_rate * (1.0 + math.cos(math.pi * step / steps))
            x, y, weight = read(batch, fabric.device)
            if options.smoothness > 0:
                x = _movable(x)
            loss = _share(objective(x, y, weight), weight, mean_weight)
            for parameter in trained:
                parameter.grad = None
            fabric.backward(loss.sum())
            if options.smoothness > 0:
                moved = objective(_uphill(x, options.smoothness), y, weight)
                fabric.backward(MOVED * _share(moved, weight, mean_weight).sum())
            fabric.unscale(optimizer)
            _clip(trained, options.gradient_clip, members=loss.ndim > 0)
            optimizer.step()
            average.step()
            step += 1
            total = total + loss.detach()
        read.end_epoch()
        with average.in_place():
            value = total / _length(train) if held_out is None else _evaluate(objective, held_out, fabric.device)
            running = best.see(value, weights)
        history.append(value)
        progress.epoch(total / _length(train), None if held_out is None else value, running)
        if best.waited_enough():
            break
    if options.epochs > 0:
        weights.load_state_dict(best.state())
        # Features that are no numbers are tamed, and the loss may hide them.
        if not all(parameter.isfinite().all() for parameter in weights.parameters()):
            raise ValueError(DIVERGED)
    return history


class _Reading:
    """Brings training batches to a device, and sees to it that an epoch has rows with weight."""

    def __init__(self, batches: Batches) -> None:
        self._read = reader(batches)
        self._batches = 0
        # Those of a loader are added up as they come; nobody waits for a GPU before the epoch ends.
        self._known = batches.rows[2].any() if isinstance(batches, TensorBatches) else None
        self._weight: Tensor | float = 0.0

    def __call__(self, batch: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        x, y, weight = self._read(batch, device)
        self._batches += 1
        if self._known is None:
            self._weight = self._weight + weight.sum()
        return x, y, weight

    def end_epoch(self) -> None:
        if self._batches == 0:
            raise ValueError("The batches have no rows, or were used up: they must come anew in each epoch.")
        if not (self._weight if self._known is None else self._known):
            raise ValueError("The training batches have no rows with weight: give some a weight above 0.")
        self._batches, self._weight = 0, 0.0


def _adamw(objective: nn.Module, options: TrainingOptions) -> torch.optim.AdamW:
    # Of complex numbers, as of Fourier layers, torch has no fused steps.
    fused = all(parameter.is_floating_point() for parameter in objective.parameters())
    return torch.optim.AdamW(
        objective.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay, fused=fused
    )


class _Average:
    """A running mean of weights and running statistics over about so many `steps`; with 0, they themselves."""

    def __init__(self, module: nn.Module, steps: float) -> None:
        self._steps = steps
        self._seen = 0
        self._weights: list[Tensor] = []
        if steps > 0:
            self._weights = [weight for weight in module.parameters() if weight.requires_grad]
            self._weights += [value for value in _running_statistics(module) if value.is_floating_point()]
        self._mean = [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def step(self) -> None:
        """Take the weights after a step into account, and the first ones less and less."""
        if self._weights:
            self._seen += 1
            share = max(1.0 / max(self._steps, 1.0), 9.0 / (self._seen + 9.0))
            torch._foreach_lerp_(self._mean, self._weights, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the mean in the place of the weights for a while."""
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


def _until_stopped(losses: list[float], patience: int | None) -> list[float]:
    """The losses of one member, up to the epoch in which its patience ended."""
    best, waited = math.inf, 0
    for epoch, loss in enumerate(losses, start=1):
        best, waited = (loss, 0) if loss < best else (best, waited + 1)
        if patience is not None and waited >= patience:
            return losses[:epoch]
    return losses


class _Best:
    """The weights with the lowest loss so far: of each member of an ensemble, or of the only one."""

    def __init__(self, patience: int | None) -> None:
        self._patience = math.inf if patience is None else patience
        self._loss: Tensor = torch.tensor(math.inf)
        self._waited: Tensor = torch.tensor(0)
        self._state: dict[str, Tensor] = {}

    def see(self, loss: Tensor, weights: nn.Module) -> Tensor:
        """Look at the `loss`, () or (M,), after an epoch; a member that has waited too long is seen no more.

        Returns which were looked at.
        """
        running = self._waited.to(loss.device) < self._patience
        better = (loss < self._loss.to(loss)) & running
        self._loss = torch.where(better, loss, self._loss.to(loss))
        self._waited = torch.where(better, 0, self._waited.to(loss.device) + 1)
        if better.all() or (better.any() and not self._state):
            # Deep copies of what is no tensor: a module may have such a state, too.
            self._state = {
                name: value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
                for name, value in weights.state_dict().items()
            }
        elif better.any():
            for name, value in weights.state_dict().items():
                self._state[name][better] = value[better]
        return running

    def waited_enough(self) -> bool:
        return bool((self._waited >= self._patience).all())

    def state(self) -> dict[str, Tensor]:
        if not self._loss.isfinite().all():
            raise ValueError(DIVERGED)
        return self._state


def _share(loss: Tensor, weight: Tensor, mean_weight: Tensor | None) -> Tensor:
    """The mean loss of a batch, () or (M,), as its share in that of all rows: light batches count less."""
    if mean_weight is None:
        return loss
    return loss * (_of_each(weight, loss).mean(-1) / mean_weight.to(weight))


def _of_each(weight: Tensor, loss: Tensor) -> Tensor:
    """Weights (n,) of a batch, or (M, n) where an ensemble's `loss` (M,) is of M batches and not of a shared one."""
    each = loss.ndim > 0 and weight.ndim > 1 and len(weight) == len(loss)
    return weight.flatten(1) if each else weight.flatten()


def _movable(x: Tensor) -> Tensor:
    """Inputs that take a gradient."""
    if not x.is_floating_point():
        raise ValueError(f"smoothness moves inputs a little, which those of type {x.dtype} cannot; set it to 0.")
    return x.detach().requires_grad_()


@torch.no_grad()
def _uphill(x: Tensor, most: float) -> Tensor:
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
def _evaluate(objective: nn.Module, batches: Batches, device: torch.device) -> Tensor:
    objective.eval()
    total, count = torch.zeros((), device=device), torch.zeros((), device=device)
    read = reader(batches)
    for batch in batches:
        x, y, weight = read(batch, device)
        loss = objective(x, y, weight)
        rows = _of_each(weight, loss).sum(-1)
        total = total + loss * rows
        count = count + rows
    if not (count > 0).all():
        raise ValueError("The batches in held_out have no rows, or rows without weight; give some, or None.")
    return total / count


def _length(batches: Batches) -> int:
    try:
        return max(len(batches), 1)  # type: ignore[arg-type]
    # A DataLoader of an `IterableDataset` has one only if its data has.
    except TypeError as error:
        raise ValueError("Batches must have a length (the number of batches), as a DataLoader has.") from error


def find_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in ("cpu", "cuda"):
        lacking = " Density and head are fitted in float64, which mps lacks." if name.startswith("mps") else ""
        raise ValueError(f'device must be "cpu", "cuda" or "auto", got {name!r}.{lacking}')
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f'device is {name!r}, but there is no GPU that torch can use; set device="cpu".')
    return torch.device(name)


class _Plain:
    """What is needed of Fabric to train on a CPU in full precision, where its wrappers would cost a tenth of a step."""

    device = torch.device("cpu")

    def setup(self, objective: nn.Module, optimizer: Any) -> tuple[nn.Module, Any]:
        return objective, optimizer

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def unscale(self, optimizer: Any) -> None:
        """There is no scale."""


class _Fabric:
    """Fabric, for any device and precision."""

    def __init__(self, device: torch.device, precision: str) -> None:
        # Imported late: it takes a second or two, and prediction needs none of it.
        from lightning_fabric import Fabric

        devices: int | list[int] = [device.index] if device.index is not None else 1
        self._fabric = Fabric(accelerator=device.type, devices=devices, precision=precision)  # type: ignore[arg-type]
        self.device = self._fabric.device
        self.setup, self.backward = self._fabric.setup, self._fabric.backward

    def unscale(self, optimizer: Any) -> None:
        """Gradients of a loss that was scaled up, for half precision, as they are."""
        self._fabric.strategy.precision.unscale_gradients(optimizer.optimizer)


def _fabric(options: TrainingOptions) -> Any:
    device = find_device(options.device)
    if device.type == "cpu" and options.precision == "32-true":
        return _Plain()
    return _Fabric(device, options.precision)


@contextmanager
def taking_turns() -> Iterator[None]:
    """Let one thread at a time fit; the others wait."""
    with _Turn.lock:
        yield


@contextmanager
def own_draws() -> Iterator[None]:
    """Draw what is drawn (weights, dropout) by our seed, and leave the caller's generator as it was.

    The generator is that of the whole process: threads that draw meanwhile draw by our seed, too. So it is held no
    longer than needed, see `may_draw`, and by one thread at a time.
    """
    with taking_turns(), kept_draws():
        yield


@contextmanager
def kept_draws() -> Iterator[None]:
    """Leave torch's generators as they were; without taking turns, for what is over at once."""
    # All devices, as a seed is set on all; named, or torch warns where there are several.
    with torch.random.fork_rng(devices=range(torch.accelerator.device_count())):
        yield


def may_draw(network: nn.Module) -> bool:
    """Whether training a network may draw from torch's generator: by dropout and the like, or a layer unknown here."""
    return any(_may_draw(part) for part in network.modules())


def _may_draw(part: nn.Module) -> bool:
    known = type(part).__module__.startswith(QUIET) and not (part._forward_hooks or part._forward_pre_hooks)
    # Recurrent layers and attention drop without a layer for it; modules of ours that draw say so.
    return not known or isinstance(part, DRAWING) or any(getattr(part, name, False) for name in ("dropout", "draws"))


@contextmanager
def usual_torch() -> Iterator[None]:
    """Build and train as torch does by default, whatever the caller has set for tensors of their own.

    That is in float32, with gradients, on the CPU unless a device is named, and without autocast. All but the type are
    settings of the thread; the type is the process's, and is left alone if it is float32 already.
    """
    before = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.enter_context(full_precision())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if before != torch.float32:
            stack.callback(torch.set_default_dtype, before)
            torch.set_default_dtype(torch.float32)
        with torch.inference_mode(False), torch.enable_grad():
            yield


@contextmanager
def full_precision() -> Iterator[None]:
    """Switch off the caller's `torch.autocast`: half precision holds neither a density nor the second-order steps."""
    with ExitStack() as stack:
        for kind in AUTOCAST:
            if torch.is_autocast_enabled(kind):
                # Without its cache, too: weights that are cast for training of mixed precision would stay in it until
                # the caller's autocast ends, as they were at first.
                stack.enter_context(torch.autocast(kind, enabled=False, cache_enabled=False))
        yield


@contextmanager
def timed(report: TrainingReport, step: str) -> Iterator[None]:
    """Add the seconds of a step to a report."""
    start = time.perf_counter()
    yield
    report.seconds[step] = report.seconds.get(step, 0.0) + time.perf_counter() - start
