"""Rows of a table to train on: features, targets, weights and groups, and which rows are held out by time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from density_regression.io.extras import import_extra
from density_regression.tabular.files import TableError

if TYPE_CHECKING:
    from density_regression.tabular.files import TableFile
    from density_regression.tabular.table import Floats, Index

__all__ = ["Roles", "TrainingTable", "check_names", "read_training_table"]


@dataclass(frozen=True)
class Roles:
    """Columns that are not features alone, by name.

    Attributes
    ----------
    target : sequence of str
        To predict.
    drop : sequence of str
        Not used.
    time, group, weight : str or None
        By which rows are held out last, which rows belong together, and what each counts.
    """

    target: list[str]
    drop: list[str]
    time: str | None = None
    group: str | None = None
    weight: str | None = None

    def options(self) -> dict[str, list[str]]:
        """Names by the option that gave them."""
        single = {"--time": self.time, "--group": self.group, "--weight": self.weight}
        return {
            **{"--target": self.target, "--drop": self.drop},
            **{option: [] if name is None else [name] for option, name in single.items()},
        }


@dataclass(frozen=True)
class TrainingTable:
    """Rows with a target.

    Attributes
    ----------
    x, y : pyarrow.Table
        Features and targets.
    weight : array of shape (n,) or None
        Weights of the rows.
    groups : list or None
        Group of each row.
    time : array of shape (n,) or None
        A number for each row that grows with time.
    read, dropped : int
        Rows of the file, and how many of them have no target.
    first_dropped : int or None
        Number of the first of them, if there is one; 1 is the first row of the file.
    """

    x: Any
    y: Any
    weight: Floats | None
    groups: list[Any] | None
    time: Floats | None
    read: int
    dropped: int
    first_dropped: int | None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Index) -> TrainingTable:
        """Some of the rows, in this order."""
        return replace(
            self,
            x=self.x.take(rows),
            y=self.y.take(rows),
            weight=None if self.weight is None else self.weight[rows],
            groups=None if self.groups is None else [self.groups[row] for row in rows],
            time=None if self.time is None else self.time[rows],
        )


def read_training_table(file: TableFile, roles: Roles, *, positive: bool = False) -> TrainingTable:
    """Read and check a table to train on; a `TableError` names column, row, value and remedy."""
    check_names(file, roles)
    table, named = file.read(), ", ".join(map(repr, roles.target))
    rows = _Rows(file, np.arange(len(table)))
    targets = {name: _numbers(table, name, "the target", rows) for name in roles.target}
    missing = np.asarray(np.isnan(np.column_stack(list(targets.values()))).any(axis=1))
    if missing.all():
        raise TableError(f"{file.path}: no row has a value of {named}, so there is nothing to learn. Is it the column?")
    rows = _Rows(file, np.flatnonzero(~missing))
    if len(rows.kept) < 2:
        raise TableError(
            f"{file.path} has one row with a value of {named}: give 2 at least, and hundreds to be of use."
        )
    if missing.any():
        table, targets = table.take(rows.kept), {name: values[rows.kept] for name, values in targets.items()}
    if positive:
        _refuse_nonpositive(targets, rows)
    unused = {*roles.target, *roles.drop, roles.group, roles.weight}
    features = [name for name in table.column_names if name not in unused]
    if not features:
        raise TableError(f"{file.path} has no column to predict {named} from: all others are dropped, or have a role.")
    _refuse_infinity(table.select(features), rows)
    return TrainingTable(
        x=table.select(features),
        y=import_extra("pyarrow", needed_by="Reading tables", extra="data").table(targets),
        weight=None if roles.weight is None else _weights(table, roles.weight, rows),
        groups=None if roles.group is None else _groups(table, roles.group, rows),
        time=None if roles.time is None else _times(table, roles.time, rows),
        read=len(missing),
        dropped=int(missing.sum()),
        first_dropped=int(np.flatnonzero(missing)[0]) + 1 if missing.any() else None,
    )


class _Rows:
    """Which rows of a file are looked at, to name one as an editor counts them."""

    def __init__(self, file: TableFile, kept: Index) -> None:
        self.path, self.kept, self._file = file.path, kept, file

    def first(self, marked: Any) -> tuple[int, str]:
        """The first marked row: its index among those looked at, and its place in words."""
        index = int(np.flatnonzero(marked)[0])
        part, row = self._file._located(int(self.kept[index]))
        return index, f"{part.path}: {part.place(row)}"


def check_names(file: TableFile, roles: Roles) -> None:
    """Raise a `TableError` for columns that a table does not have, or that have two roles."""
    for option, names in roles.options().items():
        for name in names:
            if name not in file.columns:
                raise TableError(f"{file.path} has no column {name!r} ({option}): {_hint(name, file.columns)}")
    chosen = [name for names in roles.options().values() for name in names]
    # The time may be dropped: rows are then only ordered by it.
    twice = {name for name in chosen if chosen.count(name) > 1} - {*(set(roles.drop) & {roles.time})}
    if twice:
        raise TableError(f"Column {sorted(twice)[0]!r} is named twice: a column has one role.")


def _hint(name: str, columns: tuple[str, ...]) -> str:
    lower = {column.lower(): column for column in columns}
    near = get_close_matches(name.lower(), lower, n=1)
    if near:
        return f"did you mean {lower[near[0]]!r}?"
    shown = ", ".join(columns[:10]) + (f" and {len(columns) - 10} more" if len(columns) > 10 else "")
    return f"it has {shown}."


def _numbers(table: Any, name: str, what: str, rows: _Rows) -> Floats:
    """A column as float64, NaN for gaps."""
    arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
    column, types = table.column(name), arrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        values = np.asarray(column.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
        if np.isinf(values).any():
            _, place = rows.first(np.isinf(values))
            raise TableError(f"{place} has an infinite value in {name!r}, {what}: correct it, or leave it empty.")
        return values
    values = column.to_pylist()
    wrong = np.array([value is not None and not _is_number(value) for value in values])
    known = np.array([value is not None for value in values])
    index, place = rows.first(wrong if wrong.any() else known)
    value = str(values[index])
    remedy = f"if it means a gap, say so (--missing {value!r})" if wrong.mean() < 0.5 else "name a column of numbers"
    if types.is_boolean(kind):
        remedy = "write 1 and 0, if its mean is what you want to predict"
    raise TableError(f"{place} has {value!r:.60} in {name!r}, {what}, which is no number: {remedy}.")


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)


def _refuse_nonpositive(targets: dict[str, Floats], rows: _Rows) -> None:
    for name, values in targets.items():
        if not (values <= 0).any():
            continue
        index, place = rows.first(values <= 0)
        others = int((values <= 0).sum()) - 1
        more = f", and {others} more row{'s have' if others > 1 else ' has'} 0 or less" if others else ""
        raise TableError(
            f"{place} has {values[index]:g} in {name!r}{more}, but --positive (--law log) takes logarithms: remove "
            "these rows, or leave the option out."
        )


def _weights(table: Any, name: str, rows: _Rows) -> Floats:
    values = _numbers(table, name, "the weight", rows)
    if (wrong := ~(values >= 0)).any():
        index, place = rows.first(wrong)
        found = "no weight" if np.isnan(values[index]) else f"the weight {values[index]:g}"
        raise TableError(f"{place} has {found} (column {name!r}): weights are 0 or more, and have no gaps.")
    return values


def _groups(table: Any, name: str, rows: _Rows) -> list[Any]:
    labels: list[Any] = table.column(name).to_pylist()
    # Of gaps among numbers Parquet may have NaN.
    gaps = np.array([label is None or label != label for label in labels])  # noqa: PLR0124
    if gaps.any():
        _, place = rows.first(gaps)
        raise TableError(f"{place} has no value in {name!r}, by which rows are grouped: fill it, or remove the row.")
    if len(set(labels)) < 2:
        only = f"has one value only, {labels[0]!r}"
        raise TableError(f"{rows.path}: {name!r} {only}, and whole groups are held out: leave --group out.")
    return labels


def _times(table: Any, name: str, rows: _Rows) -> Floats:
    from density_regression.tabular.columns import read_frame
    from density_regression.tabular.columns.dates import parsed

    kind, values = read_frame(table.select([name])).columns[0]
    numbers = parsed(values) if kind == "text" else values
    if (wrong := np.isnan(numbers)).any():
        index, place = rows.first(wrong)
        gap = kind != "text" or values[index] is None
        found = "no value" if gap else f"{values[index]!r:.40}"
        remedy = "fill it, or remove the row" if gap else "give dates such as 2026-11-19, or numbers"
        raise TableError(f"{place} has {found} in {name!r}, by which rows are held out (--time): {remedy}.")
    return np.asarray(numbers, dtype=np.float64)


def _refuse_infinity(x: Any, rows: _Rows) -> None:
    types = import_extra("pyarrow", needed_by="Reading tables", extra="data").types
    for name, column in zip(x.column_names, x.columns, strict=True):
        if types.is_floating(column.type):
            wrong = np.isinf(column.to_numpy(zero_copy_only=False))
            if wrong.any():
                _, place = rows.first(wrong)
                raise TableError(f"{place} has an infinite value in {name!r}: leave it empty, or remove the row.")
