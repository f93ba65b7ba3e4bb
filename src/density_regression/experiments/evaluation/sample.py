"""Random sample of rows that come batch by batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from density_regression.tabular.table import Floats

__all__ = ["RowSample"]


class RowSample:
    """At most `size` rows drawn at random without replacement, the same ones however the rows are divided into batches.

    Each row draws a number, and those with the lowest are kept: reservoir sampling by keys. Memory is that of one batch
    and the sample.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self._size = size
        self._draws = np.random.default_rng(seed)
        self._keys = np.empty(0)
        self._columns: dict[str, Floats] = {}

    def update(self, **columns: Floats) -> None:
        """Add a batch of rows: arrays (n,), of the same names each time."""
        (n,) = {len(values) for values in columns.values()}
        keys = np.concatenate([self._keys, self._draws.random(n)])
        kept = self._lowest(keys)
        self._columns = {
            name: np.concatenate([self._columns.get(name, np.empty(0)), values])[kept]
            for name, values in columns.items()
        }
        self._keys = keys[kept]

    def columns(self) -> dict[str, Floats]:
        """Columns of the sample, in the order of the rows."""
        return dict(self._columns)

    def _lowest(self, keys: Floats) -> NDArray[np.intp]:
        """Places of the lowest keys, in the order of the rows."""
        if len(keys) <= self._size:
            return np.arange(len(keys))
        return np.sort(np.argpartition(keys, self._size)[: self._size])
