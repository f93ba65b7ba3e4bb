"""Profiles of the columns of training rows: of numbers as they are, and of tables that have a code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from density_regression.tabular.columns.coders import CategoryColumn, Coder, DateColumn, NumberColumn
from density_regression.tabular.columns.dates import iso_texts
from density_regression.tabular.columns.values import Table, Values
from density_regression.tabular.profile import ColumnProfile, quantiles
from density_regression.tabular.table import Floats, Index

__all__ = ["number_profiles", "table_profiles"]


def number_profiles(x: Floats, rows: Index, names: Sequence[str], kinds: Sequence[str]) -> tuple[ColumnProfile, ...]:
    """Profiles of some rows of numbers (n, c) without gaps; columns of kind "boolean" have 0 and 1 alone."""
    # One column at a time: a copy of all rows may be large.
    columns = zip(names, kinds, x.T, strict=True)
    return tuple(_of_numbers(name, kind == "boolean", values[rows]) for name, kind, values in columns)


def table_profiles(table: Table, coders: Sequence[Coder]) -> tuple[ColumnProfile, ...]:
    """Profiles of the columns of a table, each read as its code reads it."""
    columns = zip(table.columns, table.labels, coders, strict=True)
    return tuple(_of_column(column, label, coder) for column, label, coder in columns)


def _of_column(column: Values, label: str, coder: Coder) -> ColumnProfile:
    if isinstance(coder, NumberColumn):
        return _of_numbers(coder.name, coder.type == "boolean", coder.read(column, label))
    if isinstance(coder, DateColumn):
        days = coder.read(column, label)
        known = days[~np.isnan(days)]
        texts = _short(iso_texts(np.array(quantiles(known)), coder.type)) if len(known) else ()
        return ColumnProfile(coder.name, coder.type, _gaps(len(known), len(days)), texts)
    if not isinstance(coder, CategoryColumn):
        return ColumnProfile(coder.name, "left out", float(column.gaps.mean()))
    counts = Counter(coder.read(column, label).tolist())
    shares = tuple(counts[value] / len(column.values) for value in coder.values)
    return ColumnProfile(coder.name, "category", counts[None] / len(column.values), (), coder.values, shares)


def _of_numbers(name: str, boolean: bool, values: Floats) -> ColumnProfile:
    known = values[~np.isnan(values)]
    gaps = _gaps(len(known), len(values))
    ends = quantiles(known) if len(known) else ()
    if not boolean or not {*ends} <= {0.0, 1.0}:
        return ColumnProfile(name, "number", gaps, ends)
    true = float((values == 1.0).mean())
    return ColumnProfile(name, "boolean", gaps, ends, ("True", "False"), (true, max(0.0, 1.0 - gaps - true)))


def _gaps(known: int, rows: int) -> float:
    return (rows - known) / rows


def _short(texts: Sequence[str | None]) -> tuple[str, ...]:
    """ISO texts without the parts of the clock that are 0 in all of them."""
    result = [str(text) for text in texts]
    for zero in (".000000", "T00:00:00"):
        if all(text.endswith(zero) for text in result):
            result = [text.removesuffix(zero) for text in result]
    return tuple(result)
