"""Mini-batches of a table on disk, shuffled, read ahead, and taken up at any of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from density_regression.tabular.stream.read_ahead import read_ahead
from density_regression.tabular.stream.row_groups import Group, RowGroups
from density_regression.tabular.stream.windows import Windows

__all__ = ["Encode", "StreamBatches"]

WINDOW: Final = 2**19
"""Most rows that are shuffled together."""

WINDOW_BYTES: Final = 2**28
"""Most bytes of them; of a table with many columns there are fewer rows."""

Encode = Callable[[Any], tuple[Tensor, ...]]
"""Scaled inputs and targets of those rows of an Arrow table that train."""


class StreamBatches:
    """Mini-batches (x, y, weight) of the rows on disk: x (n, c), y (n, k), weight (n,) of ones.

    Each time in another order, which depends on the seed and the epoch alone. A window of rows from several row groups
    is read and coded while the last one is used, then shuffled and divided into batches of nearly equal size. Rows that
    do not train make batches smaller, not fewer, so the row groups' numbers of rows say where a batch is.

    Parameters
    ----------
    groups : RowGroups
        The table.
    encode : callable
        From an Arrow table to tensors (x, y) of the rows that train.
    batch_size : int
        Rows of a batch, or fewer; the last ones of an epoch may have up to twice as many.
    seed : int
        Of the order.
    window : int
        Most rows that are shuffled together.
    on_rows : callable
        Told the number of rows that have been used, batch by batch, with those between them that do not train.
    """

    def __init__(
        self,
        groups: RowGroups,
        encode: Encode,
        batch_size: int,
        seed: int,
        *,
        window: int = WINDOW,
        on_rows: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.rows = groups.rows
        self.batch_size = batch_size
        self.on_rows = on_rows
        self._groups = groups
        self._encode = encode
        self._seed = seed
        self._window = window
        self._batches = math.ceil(groups.rows / batch_size)
        self._epoch, self._begin = 0, 0
        self._position = (0, 0)

    def __len__(self) -> int:
        return self._batches

    def position(self) -> dict[str, Tensor]:
        """Number of the epoch, and how many of its batches were handed out; after the last one the next epoch."""
        epoch, batch = self._position
        return {"epoch": torch.tensor(epoch), "batch": torch.tensor(batch)}

    def seek(self, position: dict[str, Tensor]) -> None:
        """Let the next iteration begin after a `position`, in the same epoch."""
        self._epoch, self._begin = int(position["epoch"]), int(position["batch"])
        self._position = (self._epoch, self._begin)
        self.on_rows(self._epoch * self.rows + self._rows_until(self._begin))

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        epoch, begin = self._epoch, self._begin
        self._epoch, self._begin = epoch + 1, 0
        windows = Windows.of(self._groups.groups, self._window, self._batches, (self._seed, epoch))
        first, skip = windows.of_batch(begin)
        self._position = (epoch, begin)
        with closing(read_ahead(self._read(windows, first))) as read:
            for number, (x, y) in enumerate(read, start=first):
                order = torch.from_numpy(np.random.default_rng((self._seed, epoch, number)).permutation(len(x)))
                for index in order.tensor_split(windows.batches[number])[skip:]:
                    self._position = (epoch, self._position[1] + 1)
                    yield x.index_select(0, index), y.index_select(0, index), torch.ones(len(index))
                    self.on_rows(self._rows_until(self._position[1]) - self._rows_until(self._position[1] - 1))
                skip = 0
                del x, y
        self._position = (epoch + 1, 0)

    def _rows_until(self, batch: int) -> int:
        """About the rows of an epoch's first batches."""
        return self.rows * batch // self._batches

    def _read(self, windows: Windows, first: int) -> Iterator[tuple[Tensor, ...]]:
        """Coded rows of the windows, from the first one on."""
        lanes = [_Lane(self._groups, lane, first * windows.rows) for lane in windows.lanes]
        last = len(windows.batches) - 1
        for number in range(first, last + 1):
            rows = self.rows if number == last else windows.rows
            parts = [self._encode(table) for lane in lanes for table in lane.take(rows)]
            yield tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))


class _Lane:
    """The rows of some row groups, in their order."""

    def __init__(self, groups: RowGroups, lane: Sequence[Group], skip: int) -> None:
        self._chunks = groups.read(lane, skip)
        self._rest: Any = None

    def take(self, rows: int) -> Iterator[Any]:
        """Arrow tables of the next rows, so many in all, or those that are left."""
        while rows:
            chunk = next(self._chunks, None) if self._rest is None else self._rest
            if chunk is None:
                return
            yield chunk.slice(0, rows)
            self._rest = chunk.slice(rows) if len(chunk) > rows else None
            rows -= min(rows, len(chunk))
