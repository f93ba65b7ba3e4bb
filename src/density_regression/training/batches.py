"""What training iterates over: batches from tables in memory, or from any loader, and the way to their device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from density_regression.nn.network import Features, Network, missing_features
from density_regression.nn.runtime import may_draw, own_draws

MAX_CACHED_VALUES: Final = 2**25
"""Most feature values held in memory for steps 2 and 3 (128 MiB in float32)."""

MAX_CACHED_ROWS: Final = 20_000
"""Most rows of a table held for them."""

__all__ = [
    "Batches",
    "Inputs",
    "ScaledTargets",
    "Seekable",
    "TensorBatches",
    "cache_features",
    "kept_shuffles",
    "on_device",
    "reader",
    "refuse_missing",
    "reproducible",
    "rewind",
    "same_rows",
    "set_aside",
]


class Batches(Protocol):
    """What training iterates over: batches (x, y) or (x, y, weight); a `DataLoader` is one."""

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]: ...


@runtime_checkable
class Seekable(Protocol):
    """Batches that can be continued within an epoch."""

    def position(self) -> dict[str, Tensor]:
        """Where they stand: after the last batch handed out, or, once an epoch is over, before the next one."""

    def seek(self, position: dict[str, Tensor]) -> None:
        """Go there: the next `iter` yields what follows in that epoch, which is nothing after its last batch."""


class TensorBatches:
    """Batches from tensors in memory, of nearly equal size, shuffled anew each time if a generator is given.

    Several times faster than a `DataLoader` over rows. With a list of M generators each batch holds M batches, one for
    each member of an ensemble: x (M, batch, ...), y (M, batch, ...), weight (M, batch). Targets without weight may be
    NaN.
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
        self._given = 0
        self._before: Tensor | None = None
        self._resumed: list[Tensor | None] = []

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
    def several(self) -> bool:
        """Whether a batch holds one for each member of an ensemble."""
        return self._begins is not None or isinstance(self._generator, Sequence)

    @property
    def generators(self) -> list[torch.Generator]:
        """Where the shuffles come from; none if there are none."""
        return [self._generator] if isinstance(self._generator, torch.Generator) else list(self._generator or [])

    def rewind(self) -> None:
        """Begin the sequence of shuffles anew."""
        rewind(self)

    def position(self) -> dict[str, Tensor]:
        """Batches handed out in this epoch, and the states of the generators, now and before this epoch's shuffle."""
        now = _states(self.generators)
        return {"given": torch.tensor(self._given), "now": now, "before": now if self._before is None else self._before}

    def seek(self, position: dict[str, Tensor]) -> None:
        """Go to a position; the same rows are shuffled as they were."""
        self._given = int(position["given"])
        _set_states(self.generators, position["before"])
        self._before = position["before"]
        # Drawn now: others may draw from the same generators before the next batch.
        self._resumed = [self._order()] if self._given else []
        _set_states(self.generators, position["now"])

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        if not self._resumed:
            self._given, self._before = 0, _states(self.generators)
        order = self._resumed.pop() if self._resumed else self._order()
        for batch in self._in_order(order, self._given):
            self._given += 1
            yield batch
        self._given, self._before = 0, None

    def _in_order(self, order: Tensor | None, first: int) -> Iterator[tuple[Tensor, ...]]:
        if order is None:
            yield from zip(*(part.tensor_split(self._batches)[first:] for part in self.rows), strict=True)
            return
        for index in order.to(self.rows[0].device).tensor_split(self._batches, dim=-1)[first:]:
            # Faster than indexing by it.
            yield tuple(part.index_select(0, index.flatten()).unflatten(0, index.shape) for part in self.rows)

    def _order(self) -> Tensor | None:
        """Rows of an epoch, (n,) or (M, n), as drawn; None for those of the table as they are."""
        if isinstance(self._generator, torch.Generator):
            return torch.randperm(self._length, generator=self._generator)
        if self._generator is None:
            return None if self._begins is None else torch.arange(self._length) + self._begins
        order = torch.stack([torch.randperm(self._length, generator=generator) for generator in self._generator])
        return order if self._begins is None else order + self._begins


def _states(generators: Sequence[torch.Generator]) -> Tensor:
    """States (M, bytes) of M generators."""
    return torch.stack([generator.get_state() for generator in generators]) if generators else torch.empty(0, 0)


def _set_states(generators: Sequence[torch.Generator], states: Tensor) -> None:
    for generator, state in zip(generators, states, strict=True):
        # A copy: torch reads a row of a matrix from where the matrix begins.
        generator.set_state(state.clone())


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
    for generator in generators_of(batches):
        generator.manual_seed(generator.initial_seed())


@contextmanager
def kept_shuffles(batches: Batches) -> Iterator[None]:
    """Leave the sequence of shuffles where it was."""
    before = [(generator, generator.get_state()) for generator in generators_of(batches)]
    yield
    for generator, state in before:
        generator.set_state(state)


def generators_of(batches: Batches | None) -> list[torch.Generator]:
    if isinstance(batches, ScaledTargets):
        return generators_of(batches.batches)
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
    """The function that brings these batches to a device; `TensorBatches` are checked already."""
    return _moved if isinstance(batches, TensorBatches) else on_device


def _check_weights(weight: Tensor) -> None:
    # Those on a GPU are not looked at, as every step would have to wait for it.
    if weight.numel() and not weight.is_cuda:
        least, most = weight.aminmax()
        if not (least >= 0 and most < math.inf):
            raise ValueError(f"Weights must be at least 0 and finite, got {least.item()} to {most.item()}.")


def _without_missing(y: Tensor, weight: Tensor) -> Tensor:
    """Targets (batch, k, ...) with zeros where the weight, (batch,) or (batch, ...), is 0: 0 times NaN is NaN."""
    expected = (len(y), *y.shape[2:])
    if y.ndim < 2 or weight.shape not in (expected[:1], expected):
        # The network will say what it expects.
        return y
    return y.where(weight.reshape(len(y), 1, *(weight.shape[1:] or [1] * (y.ndim - 2))) != 0, 0.0)


class Inputs:
    """The inputs of batches alone, on a device."""

    def __init__(self, batches: Batches, device: torch.device) -> None:
        self._batches = batches
        self._device = device

    def __iter__(self) -> Iterator[Tensor]:
        for batch in self._batches:
            yield batch[0].to(self._device)


@contextmanager
def reproducible(model: nn.Module, seed: int, *several: Batches | None) -> Iterator[None]:
    """Shuffle and augment batches by a seed, whatever was drawn before: a fit may have been resumed."""
    in_memory = all(batches is None or isinstance(batches, TensorBatches) for batches in several)
    with nullcontext() if in_memory and not may_draw(model) else own_draws():
        if not in_memory or may_draw(model):
            torch.manual_seed(seed)
        for batches in several:
            rewind(batches)
        yield


@torch.no_grad()
def cache_features(model: Network, batches: Batches) -> Features:
    """Features of all rows and positions, in order, or of a uniform sample of at most `MAX_CACHED_VALUES` values.

    Of `TensorBatches` at most `MAX_CACHED_ROWS` rows are sampled.
    """
    model.eval()
    limit = max(MAX_CACHED_VALUES // model.features, 1)
    device = next(model.parameters()).device
    if isinstance(batches, TensorBatches) and batches.rows[1].ndim == 2:
        batches = batches.sample(min(MAX_CACHED_ROWS, limit))
    generator = torch.Generator().manual_seed(0)
    kept: list[Features] = []
    keys: list[Tensor] = []
    count = 0
    for batch in batches:
        x, y, weight = on_device(batch, device)
        refuse_missing(model, x, weight)
        part = model.flat(x, y, weight)
        if not (part.weight > 0).all():
            # Positions without a target, of which an image may have most.
            part = Features(*(values[part.weight > 0] for values in part))
        kept.append(part)
        keys.append(torch.rand(len(part.z), generator=generator).to(device))
        count += len(part.z)
        if count > 2 * limit:
            # Rows with the smallest random keys are a uniform sample of all so far.
            kept, keys, count = *_smallest(kept, keys, limit), limit
    if count == 0:
        raise ValueError("The batches have no rows, or none with weight.")
    if count > limit:
        kept, keys = _smallest(kept, keys, limit)
    features = Features(*(torch.cat(parts) for parts in zip(*kept, strict=True)))
    if not features.y.isfinite().all():
        raise ValueError("Targets are NaN or infinite. Give rows and positions without a target a weight of 0.")
    return features


def _smallest(kept: list[Features], keys: list[Tensor], limit: int) -> tuple[list[Features], list[Tensor]]:
    key = torch.cat(keys)
    index = key.topk(limit, largest=False).indices
    return [Features(*(torch.cat(parts)[index] for parts in zip(*kept, strict=True)))], [key[index]]


def same_rows(train: Batches, held_out: Batches | None) -> bool:
    """Whether no rows are held out, and those of training serve in their place."""
    if isinstance(train, TensorBatches) and isinstance(held_out, TensorBatches):
        return held_out.rows[0] is train.rows[0]
    return held_out is None or held_out is train


def set_aside(rows: Features, generator: torch.Generator) -> tuple[Features, Features]:
    """Four fifths of the rows, at random, and the rest."""
    if len(rows.z) < 2:
        return rows, rows
    order = torch.randperm(len(rows.z), generator=generator).to(rows.z.device)
    aside = max(len(order) // 5, 1)
    return Features(*(part[order[aside:]] for part in rows)), Features(*(part[order[:aside]] for part in rows))


@torch.no_grad()
def refuse_missing(model: Network, x: Tensor, weight: Tensor) -> None:
    """Raise a ValueError for rows with weight whose NaN inputs make their features NaN."""
    if not (x.is_floating_point() and x.isnan().any()):
        return
    lost = missing_features(model.raw_features(x), x)
    if lost is not None and (lost.flatten(1).any(1) & (weight.reshape(len(x), -1) > 0).any(1)).any():
        raise ValueError(
            "Inputs are NaN, and so are the features that the encoder makes of them. Fill or drop such rows, or "
            "take an encoder that masks what is missing."
        )
