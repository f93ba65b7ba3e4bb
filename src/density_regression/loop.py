"""The loop that trains any network here: mini-batches, AdamW, early stopping, on Lightning Fabric."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from density_regression._progress import StepProgress

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = [
    "Batches",
    "TensorBatches",
    "TrainingOptions",
    "TrainingReport",
    "find_device",
    "on_device",
    "optimise",
]


class Batches(Protocol):
    """What training iterates over: batches (x, y) or (x, y, weight); a `DataLoader` is one."""

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]: ...


@dataclass(frozen=True)
class TrainingOptions:
    """How to train; the defaults suit tables.

    Attributes
    ----------
    epochs : int
        Most passes over the data in step 1.
    learning_rate : float
        Of AdamW; falls to zero along a cosine.
    weight_decay : float
        Of AdamW.
    patience : int or None
        Stop step 1 after this many epochs without a better held-out loss; None never stops early. The best weights
        are kept in any case.
    gradient_clip : float
        Largest norm of a gradient.
    device : str
        "cpu", "cuda" (or "cuda:1" and so on), or "auto" for a GPU if there is one.
    precision : str
        Fabric's name for the precision of step 1, such as "32-true" or "bf16-mixed".
    compile : bool
        Whether to compile step 1 (worth it for large encoders only).
    seed : int
        Seed of everything random in steps 2 and 3.
    """

    epochs: int = 100
    learning_rate: float = 1e-2
    weight_decay: float = 0.1
    patience: int | None = 30
    gradient_clip: float = 10.0
    device: str = "cpu"
    precision: str = "32-true"
    compile: bool = False
    seed: int = 0


@dataclass
class TrainingReport:
    """What happened: seconds of each step (0 for one that was resumed), and held-out NLL after each epoch."""

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("pretrain", "fit_density", "refit_head"), 0.0)
    )
    history: list[float] = field(default_factory=list)


class TensorBatches:
    """Batches from tensors in memory, of nearly equal size, shuffled anew each time if a generator is given.

    Indexing whole tensors is several times faster than a `DataLoader` over rows.
    """

    def __init__(
        self, x: Tensor, y: Tensor, weight: Tensor, batch_size: int, generator: torch.Generator | None = None
    ) -> None:
        self._data = (x, y, weight)
        self._batches = max(math.ceil(len(x) / batch_size), 1)
        self._generator = generator

    def __len__(self) -> int:
        return self._batches

    def rewind(self) -> None:
        """Begin the sequence of shuffles anew."""
        if self._generator is not None:
            self._generator.manual_seed(self._generator.initial_seed())

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        x = self._data[0]
        if self._generator is None:
            yield from zip(*(part.tensor_split(self._batches) for part in self._data), strict=True)
            return
        order = torch.randperm(len(x), generator=self._generator).to(x.device)
        for index in order.tensor_split(self._batches):
            yield tuple(part[index] for part in self._data)


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
        Called with a batch (x, y, weight), returns its mean loss. What it holds is trained in place.
    train : iterable of batches
        Iterated once each epoch.
    held_out : iterable of batches, optional
        Says which weights are best; without it, the training loss does.
    options : TrainingOptions
        How to train.
    progress : StepProgress, optional
        Where to show how far it is, under `name`.

    Returns
    -------
    list of float
        The loss after each epoch, on the held-out rows if there are any.
    """
    progress = progress or StepProgress(visible=False)
    fabric = _fabric(options)
    weights = objective
    optimizer = torch.optim.AdamW(
        objective.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(options.epochs * _length(train), 1))
    if options.compile:
        objective.compile()
    objective, optimizer = fabric.setup(objective, optimizer)
    history: list[float] = []
    best, best_state, waited = math.inf, None, 0
    progress.step(name, options.epochs)
    for _ in range(options.epochs):
        objective.train()
        total = torch.zeros((), device=fabric.device)
        for batch in train:
            loss = objective(*on_device(batch, fabric.device))
            optimizer.zero_grad()
            fabric.backward(loss)
            fabric.clip_gradients(objective, optimizer, max_norm=options.gradient_clip, error_if_nonfinite=False)
            optimizer.step()
            schedule.step()
            total += loss.detach()
        value = total.item() / _length(train) if held_out is None else _evaluate(objective, held_out, fabric.device)
        history.append(value)
        progress.advance(value)
        if value < best:
            best, best_state, waited = value, copy.deepcopy(weights.state_dict()), 0
        else:
            waited += 1
        if options.patience is not None and waited >= options.patience:
            break
    if best_state is None and options.epochs > 0:
        raise ValueError(
            "Training diverged: no epoch gave a finite loss. Scale the inputs and targets, or lower learning_rate."
        )
    if best_state is not None:
        weights.load_state_dict(best_state)
    return history


@torch.no_grad()
def _evaluate(objective: nn.Module, batches: Batches, device: torch.device) -> float:
    objective.eval()
    total, count = 0.0, 0.0
    for batch in batches:
        x, y, weight = on_device(batch, device)
        total += objective(x, y, weight).item() * weight.sum().item()
        count += weight.sum().item()
    if not count > 0:
        raise ValueError("The batches in held_out have no rows, or rows without weight; give some, or None.")
    return total / count


def on_device(batch: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """A batch on the device, with weights of one if it came without."""
    x, y, *rest = batch
    weight = rest[0] if rest else torch.ones(len(x))
    return x.to(device), y.to(device), weight.to(device, y.dtype)


def _length(batches: Batches) -> int:
    if not isinstance(batches, Sized):
        raise ValueError("Batches must have a length (the number of batches), as a DataLoader has.")
    return max(len(batches), 1)


def find_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    # Step 3 is done in float64, which other devices lack.
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f'device must be "cpu", "cuda" or "auto", got {name!r}.')
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f'device is {name!r}, but there is no GPU that torch can use; set device="cpu".')
    return torch.device(name)


def _fabric(options: TrainingOptions) -> Fabric:
    # Imported late: it takes a second or two, and prediction needs none of it.
    from lightning_fabric import Fabric

    device = find_device(options.device)
    devices: int | list[int] = [device.index] if device.index is not None else 1
    return Fabric(accelerator=device.type, devices=devices, precision=options.precision)  # type: ignore[arg-type]
