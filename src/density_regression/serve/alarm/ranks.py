"""Sequential ranks: p-values that are independent and uniform as long as scores are exchangeable."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MOST_EDGES", "Floats", "SequentialRanks", "coarse", "draws_from_json", "draws_to_json"]

Floats = NDArray[np.float64]

MOST_EDGES: Final = 1001
"""Most edges between the cells in which scores are counted."""

CHUNK: Final = 256
"""Scores that are compared with each other at once."""

BITS: Final = 12
"""Bits to which scores are rounded."""

LARGEST: Final = 1e30
"""Bound on scores, so that sums of them stay finite."""


def coarse(scores: ArrayLike) -> Floats:
    """Scores (n,) rounded to 12 bits, one part in 4,096.

    The same row may get log-densities that differ in their last digits, from a batch of another size or from another
    runtime. Rounded, they are equal, so that repeated rows are ties. Any function of a score is a score.
    """
    mantissa, exponent = np.frexp(np.clip(np.asarray(scores, dtype=np.float64), -LARGEST, LARGEST))
    return np.asarray(np.ldexp(np.rint(mantissa * 2.0**BITS), exponent - BITS))


class SequentialRanks:
    """Rank of each score among all before it and a reference, ties broken at random, in constant memory.

    The n-th score, the reference counted in, has ``p = (#{i : s_i < s} + U #{i : s_i = s}) / n``, itself counted in,
    with U uniform. If reference and scores are exchangeable, the p-values are independent and uniform on (0, 1)
    (Vovk, Gammerman & Shafer, 2022, Section 8.2).

    Scores are counted in cells: the edges, which are order statistics of the reference, and the open intervals between
    them. Those of one cell are taken as equal. That changes nothing in the law of the p-values: given the edges and the
    counts, all orders within a cell are equally likely.

    Parameters
    ----------
    reference : array-like of shape (m,)
        Scores to begin with, one at least.
    seed : int
        Of the draws U.
    """

    def __init__(self, reference: ArrayLike, *, seed: int = 0) -> None:
        ordered = np.sort(coarse(reference))
        if not len(ordered):
            raise ValueError("reference is empty: give one score at least.")
        places = np.linspace(0, len(ordered) - 1, min(len(ordered), MOST_EDGES)).round().astype(np.intp)
        self.edges: Floats = np.unique(ordered[places])
        self.counts = np.bincount(self._cells(ordered), minlength=2 * len(self.edges) + 1)
        self._draws = np.random.default_rng(seed)

    @property
    def total(self) -> int:
        """Number of scores counted, the reference among them."""
        return int(self.counts.sum())

    def update(self, scores: ArrayLike) -> Floats:
        """P-values (n,) of the next scores (n,), in their order."""
        cells = self._cells(coarse(scores))
        chunks = [cells[start : start + CHUNK] for start in range(0, len(cells), CHUNK)]
        return np.concatenate([np.empty(0), *map(self._ranked, chunks)])

    def _cells(self, scores: Floats) -> NDArray[np.intp]:
        """Cells (n,) of scores: 2 i + 1 is the edge i, 2 i the interval below it."""
        return np.searchsorted(self.edges, scores, "left") + np.searchsorted(self.edges, scores, "right")

    def _ranked(self, cells: NDArray[np.intp]) -> Floats:
        earlier = np.tri(len(cells), k=-1, dtype=np.bool_)
        lower = (np.cumsum(self.counts) - self.counts)[cells] + (earlier & (cells[:, None] > cells)).sum(axis=1)
        same = self.counts[cells] + (earlier & (cells[:, None] == cells)).sum(axis=1) + 1
        numbers = self.total + 1 + np.arange(len(cells))
        self.counts = self.counts + np.bincount(cells, minlength=len(self.counts))
        return np.asarray((lower + self._draws.random(len(cells)) * same) / numbers)

    def to_json(self) -> dict[str, Any]:
        """All that later p-values depend on."""
        return {
            "edges": self.edges.tolist(),
            "counts": self.counts.tolist(),
            "draws": draws_to_json(self._draws),
        }

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """Undo `to_json`."""
        self = cls(saved["edges"])
        counts = np.array(saved["counts"])
        if counts.shape != self.counts.shape or counts.dtype.kind != "i" or (counts < 0).any():
            raise ValueError("the counts of scores do not fit their edges")
        self.counts, self._draws = counts, draws_from_json(saved["draws"])
        return self


def draws_to_json(draws: np.random.Generator) -> dict[str, str]:
    """State of a generator of random numbers; its numbers of 128 bits as text, as most readers of JSON have 53."""
    state: Any = draws.bit_generator.state
    return {name: str(value) for name, value in state["state"].items()}


def draws_from_json(saved: dict[str, str]) -> np.random.Generator:
    """Undo `draws_to_json`."""
    bits: Any = np.random.PCG64()
    bits.state = bits.state | {"state": {name: int(saved[name]) for name in ("state", "inc")}}
    return np.random.Generator(bits)
