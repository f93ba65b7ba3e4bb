"""What training iterates over: batches from tables in memory, or from any loader, and the way to their device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Batches", "ScaledTargets", "TensorBatches", "kept_shuffles", "on_device", "reader", "rewind"]


class Batches(Protocol):
    """What training iterates over: batches (x, y) or (x, y, weight); a `DataLoader` is one."""

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]: ...


class TensorBatches:
    """Batches from tensors in memory, of nearly equal size, shuffled anew each time if a generator is given.

    Indexing whole tensors is several times faster than a `DataLoader` over rows. With a list of M generators each
    batch holds M of them, one for each member of an ensemble: x (M, batch, ...), y (M, batch, ...), weight (M, batch).
    Members may also have a table each, see `side_by_side`. Targets without weight may be anything, NaN as well.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        batch_size: int,
        generator: torch.Generator | Sequence[torch.Generator] | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        if not len(x) == len(y) == len(weight):
            raise ValueError(f"x, y and weight must be of one length, got {len(x)}, {len(y)} and {len(weight)}.")
        _check_weights(weight)
        self.rows = (x, y if weight.all() else _without_missing(y, weight), weight)
        self.batch_size = batch_size
        self._length = len(x)
        self._batches = max(math.ceil(len(x) / batch_size), 1)
        self._generator = generator
        self._begins: Tensor | None = None

    @classmethod
    def side_by_side(cls, parts: Sequence[TensorBatches], members: int) -> TensorBatches:
        """Batches of several tables of one shape, with as many `members` each: x (tables * members, batch, ...)."""
        generators = [generator for part in parts for generator in part.generators]
        x, y, weight = (torch.cat(tables) for tables in zip(*(part.rows for part in parts), strict=True))
        together = cls(x, y, weight, parts[0].batch_size, generators or None)
        together._length, together._batches = parts[0]._length, parts[0]._batches
        together._begins = torch.arange(len(parts)).repeat_interleave(members)[:, None] * together._length
        return together

    def __len__(self) -> int:
        return self._batches

    def alone(self, member: int) -> TensorBatches:
        """The batches of one member of an ensemble."""
        generator = self._generator
        if generator is not None and not isinstance(generator, torch.Generator):
            generator = generator[member]
        return TensorBatches(*self.rows, self.batch_size, generator)

    def with_targets(self, y: Tensor) -> TensorBatches:
        """The same batches, shuffled by the same generators, with other targets."""
        x, _, weight = self.rows
        return TensorBatches(x, y, weight, self.batch_size, self._generator)

    def sample(self, rows: int) -> TensorBatches:
        """Batches of at most so many rows, drawn at random from those with weight, in the order of their table."""
        x, y, weight = self.rows
        if len(x) <= rows:
            return self
        counted = weight.nonzero()[:, 0].cpu()
        drawn = torch.randperm(len(counted), generator=torch.Generator().manual_seed(0))[:rows]
        index = counted[drawn].sort().values.to(x.device)
        return TensorBatches(x[index], y[index], weight[index], self.batch_size)

    def mean_weight(self) -> Tensor | None:
        """Mean weight of the rows, (), or of those of each member, (M,); None where all weigh the same."""
        weight = self.rows[2].double()
        if (weight == weight.flatten()[:1]).all():
            return None
        if self._begins is None:
            return weight.mean()
        of_tables = weight.flatten().view(-1, self._length * weight.shape[1:].numel()).mean(1)
        return of_tables[self._begins[:, 0] // self._length]

    @property
    def generators(self) -> list[torch.Generator]:
        """Where the shuffles come from; none if there are none."""
        return [self._generator] if isinstance(self._generator, torch.Generator) else list(self._generator or [])

    def rewind(self) -> None:
        """Begin the sequence of shuffles anew."""
        rewind(self)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        if self._generator is None and self._begins is None:
            yield from zip(*(part.tensor_split(self._batches) for part in self.rows), strict=True)
            return
        for index in self._order().to(self.rows[0].device).tensor_split(self._batches, dim=-1):
            # Faster than indexing by it.
            yield tuple(part.index_select(0, index.flatten()).unflatten(0, index.shape) for part in self.rows)

    def _order(self) -> Tensor:
        if isinstance(self._generator, torch.Generator):
            return torch.randperm(self._length, generator=self._generator)
        if self._generator is None:
            order = torch.arange(self._length)
        else:
            order = torch.stack([torch.randperm(self._length, generator=generator) for generator in self._generator])
        return order if self._begins is None else order + self._begins


class ScaledTargets:
    """Batches of any kind with their targets (batch, k, ...) scaled: (y - center) / scale, each (k,)."""

    def __init__(self, batches: Batches, center: Tensor, scale: Tensor) -> None:
        self.batches = batches
        self._center = center.double()
        self._scale = scale.double()

    @classmethod
    def of(cls, batches: Batches, center: Tensor, scale: Tensor) -> Batches:
        """Those of other batches; tables in memory are scaled once, and stay what they are."""
        scaled = cls(batches, center, scale)
        return batches.with_targets(scaled._apply(batches.rows[1])) if isinstance(batches, TensorBatches) else scaled

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self.batches:
            # What is no batch is refused where it is read.
            fine = isinstance(batch, Sequence) and len(batch) in (2, 3) and isinstance(batch[1], Tensor)
            yield (batch[0], self._apply(batch[1]), *batch[2:]) if fine else batch

    def _apply(self, y: Tensor) -> Tensor:
        if y.ndim < 2 or y.shape[1] != len(self._center):
            # The network will say what it expects.
            return y
        center, scale = (part.to(y.device).view(-1, *[1] * (y.ndim - 2)) for part in (self._center, self._scale))
        # In float64: what is left of a large target after the subtraction must be what was there before.
        return ((y.double() - center) / scale).to(_floating(y))


def rewind(batches: Batches | None) -> None:
    """Begin the sequence of shuffles anew, of `TensorBatches` or of a loader with a generator of its own."""
    for generator in _generators(batches):
        generator.manual_seed(generator.initial_seed())


@contextmanager
def kept_shuffles(batches: Batches) -> Iterator[None]:
    """Leave the sequence of shuffles where it was."""
    before = [(generator, generator.get_state()) for generator in _generators(batches)]
    yield
    for generator, state in before:
        generator.set_state(state)


def _generators(batches: Batches | None) -> list[torch.Generator]:
    if isinstance(batches, ScaledTargets):
        return _generators(batches.batches)
    if isinstance(batches, TensorBatches):
        return batches.generators
    owners = (batches, getattr(batches, "sampler", None))
    found = [getattr(owner, "generator", None) for owner in owners]
    return [generator for generator in found if isinstance(generator, torch.Generator)]


def on_device(batch: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """A batch on the device, with weights of one if it came without, and zeros for targets without weight."""
    if not isinstance(batch, Sequence) or len(batch) not in (2, 3):
        got = f"{len(batch)} parts" if isinstance(batch, Sequence) else type(batch).__name__
        raise ValueError(f"A batch must be (x, y) or (x, y, weight), got {got}.")
    for part in batch:
        if not isinstance(part, Tensor):
            raise ValueError(f"A batch must be (x, y) or (x, y, weight), each a tensor, got a {type(part).__name__}.")
    for weight in batch[2:]:
        _check_weights(weight)
    x, y, weight = _moved(batch, device)
    return x, y if len(batch) == 2 else _without_missing(y, weight), weight


def _moved(batch: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    x, y, *rest = batch
    weight = rest[0] if rest else torch.ones(len(x))
    dtype = _floating(y)
    return x.to(device), y.to(device, dtype), weight.to(device, dtype)


def _floating(y: Tensor) -> torch.dtype:
    """Type of floating-point numbers for targets and their weights."""
    dtype = y.dtype if y.is_floating_point() else torch.get_default_dtype()
    # Half precision cannot hold the sum of the weights of a few images.
    return torch.promote_types(dtype, torch.float32)


def reader(batches: Batches) -> Callable[[tuple[Tensor, ...], torch.device], tuple[Tensor, Tensor, Tensor]]:
    """What brings these batches to a device; those from memory have no targets to be replaced, and save the time."""
    return _moved if isinstance(batches, TensorBatches) else on_device


def _check_weights(weight: Tensor) -> None:
    # Those on a GPU are not looked at, as every step would have to wait for it.
    if weight.numel() and not weight.is_cuda:
        least, most = weight.aminmax()
        if not (least >= 0 and most < math.inf):
            raise ValueError(f"Weights must be at least 0 and finite, got {least.item()} to {most.item()}.")


def _without_missing(y: Tensor, weight: Tensor) -> Tensor:
    """Targets (batch, k, ...) with zeros where the weight, (batch,) or (batch, ...), is none.

    They may be NaN, which no weight of zero takes out of a sum, nor out of a gradient.
    """
    expected = (len(y), *y.shape[2:])
    if y.ndim < 2 or weight.shape not in (expected[:1], expected):
        # The network will say what it expects.
        return y
    return y.where(weight.reshape(len(y), 1, *(weight.shape[1:] or [1] * (y.ndim - 2))) != 0, 0.0)
