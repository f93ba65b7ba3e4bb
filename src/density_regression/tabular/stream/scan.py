"""One pass over a table on disk: counts, a uniform sample of its rows, and what no training should find too late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.io.extras import import_extra
from density_regression.tabular.arrays import Floats
from density_regression.tabular.columns.dates import is_date, is_time
from density_regression.tabular.files import TableError
from density_regression.tabular.stream.row_groups import Group, RowGroups
from density_regression.tabular.stream.row_hashes import row_shares

__all__ = ["Sampled", "Shares", "has_targets", "scan"]

DATES: Final = {"date": is_date, "time": is_time}


class Shares(NamedTuple):
    """Shares of the rows to hold out, and to keep aside for conformal intervals."""

    held_out: float
    aside: float = 0.0

    def train(self, table: Any) -> NDArray[np.bool_]:
        """Which rows of an Arrow table train, (n,)."""
        return row_shares(table) >= self.held_out + self.aside


class Sampled(NamedTuple):
    """What a pass over a table has seen.

    Attributes
    ----------
    train, held_out, aside : pyarrow.Table
        Uniform samples of the rows that train, of those held out, and of those kept aside, in random order. Of every
        column with gaps a row with a gap is among the first.
    rows : int
        Number of rows that train.
    without_target : int
        Number of rows without a target.
    first_without_target : int or None
        Number of the first of them in the order of the files; 1 is the first row.
    no_dates : dict
        For columns of text that begin with dates, or times: the first value that is none, in words, by column and kind.
    """

    train: Any
    held_out: Any
    aside: Any
    rows: int
    without_target: int
    first_without_target: int | None
    no_dates: dict[tuple[str, str], str]


def scan(
    groups: RowGroups,
    targets: Sequence[str],
    shares: Shares,
    most: tuple[int, int],
    *,
    positive: bool = False,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Sampled:
    """Read all rows once, in little memory.

    Parameters
    ----------
    groups : RowGroups
        The table.
    targets : sequence of str
        Columns to predict.
    shares : Shares
        How many rows to hold out, and to keep aside.
    most : (int, int)
        Most rows of the sample that trains, and of either of the others.
    positive : bool
        Whether targets must be above 0.
    on_rows : callable
        Told the number of rows of each part that has been read.

    Raises
    ------
    TableError
        For a value that cannot be: an infinite one, or a target that is no number or, if `positive`, not above 0.
    """
    own = _Pass(groups, targets, shares, most, positive)
    for group in groups.groups:
        start = 0
        for table in groups.read([group]):
            own.see(table, group, start)
            on_rows(len(table))
            start += len(table)
    return own.result()


def has_targets(table: Any, targets: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows of an Arrow table have a value of every target, (n,)."""
    return np.asarray(np.logical_and.reduce([~_gaps(table.column(name)) for name in targets]))


class _Sample:
    """A uniform sample of at most so many rows, by random keys."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._highest = np.inf
        self._tables: list[Any] = []
        self._keys: list[Floats] = []
        self.rows = 0

    def add(self, table: Any, own: NDArray[np.bool_], keys: Floats) -> None:
        """See some rows of an Arrow table, with uniform keys (n,)."""
        self.rows += int(own.sum())
        chosen = np.flatnonzero(own & (keys < self._highest))
        if len(chosen):
            self._tables.append(table.take(chosen))
            self._keys.append(keys[chosen])
        if sum(map(len, self._keys)) > 2 * self._most:
            self.result()

    def result(self) -> Any:
        """The rows with the lowest keys, in the order of these."""
        if not self._tables:
            return None
        arrow = import_extra("pyarrow", needed_by="Training from disk", extra="data")
        keys = np.concatenate(self._keys)
        order = np.argsort(keys, kind="stable")[: self._most]
        self._tables, self._keys = [arrow.concat_tables(self._tables).take(order).combine_chunks()], [keys[order]]
        if len(order) == self._most:
            self._highest = float(keys[order[-1]])
        return self._tables[0]


class _Pass:
    def __init__(
        self, groups: RowGroups, targets: Sequence[str], shares: Shares, most: tuple[int, int], positive: bool
    ) -> None:
        self._groups = groups
        self._targets = targets
        self._shares = shares
        self._positive = positive
        self._samples = [_Sample(most[0]), _Sample(most[1]), _Sample(most[1])]
        self._keys = np.random.default_rng(0)
        self._with_gap: dict[str, Any] = {}
        self._dates: dict[tuple[str, str], str | None] | None = None
        self._rows = self._without = 0
        self._first: int | None = None

    def see(self, table: Any, group: Group, start: int) -> None:
        """See some rows of a group, from one on."""
        self._refuse(table, group, start)
        known = has_targets(table, self._targets)
        if not known.all():
            if self._first is None:
                self._first = self._rows + int(np.argmin(known)) + 1
            self._without += int((~known).sum())
        self._rows += len(table)
        shares, keys = row_shares(table), self._keys.random(len(table))
        held_out, train = shares < self._shares.held_out, shares >= sum(self._shares)
        for sample, own in zip(self._samples, (train, held_out, ~(train | held_out)), strict=True):
            sample.add(table, own & known, keys)
        self._look_for_gaps(table, train & known)
        self._look_for_dates(table, group, start)

    def result(self) -> Sampled:
        """What was seen."""
        arrow = import_extra("pyarrow", needed_by="Training from disk", extra="data")
        train, held_out, aside = (sample.result() for sample in self._samples)
        if train is None:
            raise TableError(
                f"{self._groups.name}: no row has a value of {', '.join(self._targets)}. Is it the column?"
            )
        for name, row in self._with_gap.items():
            if not _gaps(train.column(name)).any():
                # The code of a column with gaps is another one.
                train = arrow.concat_tables([row, train]).combine_chunks()
        held_out, aside = (None if part is None else self._like_train(part) for part in (held_out, aside))
        dates = {key: value for key, value in (self._dates or {}).items() if value is not None}
        rows = self._samples[0].rows
        return Sampled(train, held_out, aside, rows, self._without, self._first, dates)

    def _like_train(self, table: Any) -> Any:
        """Rows without gaps in columns that have none in training: nothing could be learnt about such a row."""
        without = [name for name in self._features(table) if name not in self._with_gap]
        known = np.logical_and.reduce([~_gaps(table.column(name)) for name in without] or [np.full(len(table), True)])
        return table if known.all() else table.filter(known)

    def _features(self, table: Any) -> list[str]:
        return [name for name in table.column_names if name not in self._targets]

    def _refuse(self, table: Any, group: Group, start: int) -> None:
        types = import_extra("pyarrow", needed_by="Training from disk", extra="data").types
        for name, column in zip(table.column_names, table.columns, strict=True):
            if name in self._targets and not (
                types.is_integer(column.type) or types.is_floating(column.type) or types.is_decimal(column.type)
            ):
                raise TableError(
                    f"{self._groups.name}: column {name!r}, the target, is of type {column.type}, which is no number: "
                    "name a column of numbers."
                )
            if types.is_floating(column.type) and np.isinf(values := _numbers(column)).any():
                place = self._groups.place(group, start + int(np.argmax(np.isinf(values))))
                raise TableError(f"{place} has an infinite value in {name!r}: leave it empty, or remove the row.")
            if self._positive and name in self._targets and ((values := _numbers(column)) <= 0).any():
                row = int(np.argmax(values <= 0))
                place = self._groups.place(group, start + row)
                raise TableError(
                    f'{place} has {values[row]:g} in {name!r}, but target="log" (--law log) takes logarithms: remove '
                    'the row, or set target="identity".'
                )

    def _look_for_gaps(self, table: Any, train: NDArray[np.bool_]) -> None:
        for name in self._features(table):
            if name not in self._with_gap and (gaps := _gaps(table.column(name)) & train).any():
                self._with_gap[name] = table.take([int(np.argmax(gaps))])

    def _look_for_dates(self, table: Any, group: Group, start: int) -> None:
        compute = import_extra("pyarrow.compute", needed_by="Training from disk", extra="data")
        types = import_extra("pyarrow", needed_by="Training from disk", extra="data").types
        if self._dates is None:
            texts = [field.name for field in table.schema if types.is_string(field.type)]
            self._dates = {(name, kind): None for name in texts for kind in DATES}
        for (name, kind), wrong in tuple(self._dates.items()):
            if wrong is not None:
                continue
            column = table.column(name)
            values = [value for value in compute.unique(column).to_pylist() if value and not DATES[kind](value)]
            if values:
                row = compute.index(column, values[0]).as_py()
                place = self._groups.place(group, start + row)
                self._dates[name, kind] = f"{place} has {values[0]!r:.40} in {name!r}"


def _gaps(column: Any) -> NDArray[np.bool_]:
    compute = import_extra("pyarrow.compute", needed_by="Training from disk", extra="data")
    types = import_extra("pyarrow", needed_by="Training from disk", extra="data").types
    if not column.null_count and not types.is_floating(column.type):
        return np.zeros(len(column), np.bool_)
    return np.asarray(compute.is_null(column, nan_is_null=True).to_numpy())


def _numbers(column: Any) -> Floats:
    """Values as float64 (n,), NaN for gaps."""
    arrow = import_extra("pyarrow", needed_by="Training from disk", extra="data")
    return np.asarray(column.cast(arrow.float64(), safe=False).to_numpy())
