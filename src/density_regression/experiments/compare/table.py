"""One's own table, and its folds: rows at random, whole groups, or what comes later."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from density_regression.io.extras import import_extra
from density_regression.tabular.groups import group_codes, split_groups
from density_regression.tabular.table import Floats, Index, held_count, split_rows

__all__ = ["Fold", "OwnTable"]

HELD_OUT_FRACTION: Final = 0.15
"""Share of the training rows of a fold that is held out, the same rows for every method."""

FEWEST_ROWS: Final = 4
"""Fewest rows of a fold."""


class Fold(NamedTuple):
    """Rows to train on, to hold out and to test, as positions."""

    train: Index
    held_out: Index
    test: Index


@dataclass(frozen=True)
class OwnTable:
    """A table to compare methods on.

    Attributes
    ----------
    name : str
        For tables and file names.
    X : pyarrow.Table
        Features.
    y : array of shape (n,)
        Targets.
    groups : sequence or None
        Label of the group of each row: folds are whole groups.
    time : array of shape (n,) or None
        A number that grows with time: each fold trains on what came before it.
    """

    name: str
    X: Any
    y: Floats
    groups: Sequence[Any] | None = None
    time: Floats | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be: two ways to divide the rows."""
        if self.groups is not None and self.time is not None:
            raise ValueError("groups and time both say how rows are divided: leave one of them out.")

    def sampled(self, rows: int) -> OwnTable:
        """At most so many rows at random, always the same ones, in their order."""
        if len(self.y) <= rows:
            return self
        return self.take(np.sort(np.random.default_rng(0).choice(len(self.y), rows, replace=False)))

    def take(self, rows: Index) -> OwnTable:
        """Some of the rows."""
        return replace(
            self,
            X=self.X.take(rows),
            y=self.y[rows],
            groups=None if self.groups is None else [self.groups[row] for row in rows],
            time=None if self.time is None else self.time[rows],
        )

    @cached_property
    def checksum(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of all values, groups and times."""
        arrow = import_extra("pyarrow", needed_by="A comparison", extra="data")
        digest = hashlib.sha256()
        sink = arrow.BufferOutputStream()
        # In one piece: how a table came in pieces is no difference.
        with arrow.ipc.new_stream(sink, self.X.schema) as writer:
            writer.write_table(self.X.combine_chunks())
        for part in (sink.getvalue(), self.y.tobytes(), repr(self.groups).encode()):
            digest.update(part)
        if self.time is not None:
            digest.update(self.time.tobytes())
        return digest.hexdigest()[:16]

    def folds(self, number: int) -> list[Fold]:
        """So many folds, always the same ones."""
        if number < 2:
            raise ValueError(f"folds must be 2 or more, got {number}.")
        if len(self.y) < FEWEST_ROWS * (number + 1):
            raise ValueError(
                f"{len(self.y)} rows are too few for {number} folds: give {FEWEST_ROWS * (number + 1)} or more, or "
                "fewer folds."
            )
        if self.time is not None:
            return self._forward_chained(number, self.time)
        codes = None if self.groups is None else group_codes(self.groups, len(self.y))
        places = self._random_places(number) if codes is None else _group_places(codes, number)
        folds = []
        for fold in range(number):
            rows, test = np.flatnonzero(places != fold), np.flatnonzero(places == fold)
            if codes is None:
                train, held_out = split_rows(len(rows), HELD_OUT_FRACTION, fold)
            else:
                train, held_out = split_groups(codes[rows], HELD_OUT_FRACTION, fold)
            folds.append(Fold(rows[train], rows[held_out], test))
        return folds

    def _random_places(self, number: int) -> Index:
        """Fold of each row (n,), of equal size but for one."""
        n = len(self.y)
        places = np.empty(n, dtype=np.intp)
        places[np.random.default_rng(0).permutation(n)] = np.arange(n) % number
        return places

    def _forward_chained(self, number: int, time: Floats) -> list[Fold]:
        """Blocks of time of about equal size: each but the first is tested by what came before; none parts a moment."""
        order = np.argsort(time, kind="stable")
        n = len(order)
        # Where a later moment begins.
        starts = np.flatnonzero(np.diff(time[order]) > 0) + 1
        wanted = [round(n * (block + 1) / (number + 1)) for block in range(number)]
        cuts = sorted({int(starts[np.argmin(np.abs(starts - cut))]) for cut in wanted}) if len(starts) else []
        if len(cuts) < number:
            raise ValueError(
                f"time has {len(starts) + 1} different values, too few or too unevenly spread for {number} folds: ask "
                "for fewer, or divide the rows in another way."
            )
        folds = []
        for cut, end in zip(cuts, [*cuts[1:], n], strict=True):
            # The last rows before the cut are held out, as what is predicted comes later too.
            inner = cut - held_count(cut, HELD_OUT_FRACTION)
            before = starts[starts < cut]
            if len(before):
                inner = int(before[np.argmin(np.abs(before - inner))])
            folds.append(Fold(order[:inner], order[inner:cut], order[cut:end]))
        return folds


def _group_places(codes: Index, number: int) -> Index:
    """Fold of each row (n,): whole groups, the largest first, each into the smallest fold so far."""
    sizes = np.bincount(codes)
    if len(sizes) < number + 1:
        raise ValueError(
            f"There are {len(sizes)} groups, too few for {number} folds and one to hold out: ask for fewer folds, or "
            "divide the rows in another way."
        )
    shuffled = np.random.default_rng(0).permutation(len(sizes))
    filled, fold_of = np.zeros(number, dtype=np.intp), np.empty(len(sizes), dtype=np.intp)
    for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        fold_of[group] = np.argmin(filled)
        filled[fold_of[group]] += sizes[group]
    return np.asarray(fold_of[codes])
