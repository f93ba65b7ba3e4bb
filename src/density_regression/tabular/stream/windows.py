"""The order in which an epoch reads a table on disk: which rows of which groups are shuffled together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from density_regression.tabular.stream.row_groups import Group

__all__ = ["LANES", "Windows"]

LANES: Final = 4
"""Row groups from which the rows of a window come: one place of a table that has an order is not like the others."""


@dataclass(frozen=True)
class Windows:
    """Windows of rows, each shuffled in memory, of one epoch.

    The row groups, in random order, are dealt into lanes of about equal length. A window has the next `rows` rows of
    each lane, and the last one all that are left, so the numbers of rows alone say where a window begins.

    Attributes
    ----------
    lanes : tuple of sequences of Group
        The row groups of each lane.
    rows : int
        Rows that a window takes from each lane.
    batches : tuple of int
        Number of mini-batches of each window.
    """

    lanes: tuple[tuple[Group, ...], ...]
    rows: int
    batches: tuple[int, ...]

    @classmethod
    def of(cls, groups: Sequence[Group], rows: int, batches: int, seed: Sequence[int]) -> Self:
        """Windows of about so many rows, with so many mini-batches in all, in the order that a seed gives.

        A lane alone has the rows of a mini-batch, so that every window has one.
        """
        lanes: list[list[Group]] = [[] for _ in range(min(LANES, len(groups)))]
        lengths = [0] * len(lanes)
        for place in np.random.default_rng(seed).permutation(len(groups)):
            shortest = int(np.argmin(lengths))
            lanes[shortest].append(groups[place])
            lengths[shortest] += groups[place].rows
        share = max(rows // len(lanes), -(-sum(lengths) // batches))
        ends = np.arange(1, -(-max(lengths) // share) + 1)[:, None] * share
        # In proportion to the rows up to the end of each window: all together are always as many.
        done = -(-batches * np.minimum(ends, lengths).sum(axis=1) // sum(lengths))
        each = np.diff(done, prepend=0)
        # The last rows may be too few.
        return cls(tuple(map(tuple, lanes)), share, tuple(each[: np.flatnonzero(each)[-1] + 1].tolist()))

    def of_batch(self, batch: int) -> tuple[int, int]:
        """The window with a mini-batch of the epoch (0 is the first), and its position there."""
        ends = np.cumsum(self.batches)
        window = int(np.searchsorted(ends, batch, side="right"))
        return window, batch - int(ends[window - 1] if window else 0)
