"""Rows as a request has them, checked column by column and made the inputs of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from density_regression.serve.bundle import Bundle
from density_regression.tabular.arrays import Floats
from density_regression.tabular.columns import Columns, Table, Values
from density_regression.tabular.columns.coders import DateColumn, NumberColumn
from density_regression.tabular.columns.dates import iso_texts
from density_regression.tabular.columns.values import of_objects

__all__ = ["ColumnReader", "Feeds"]

Feeds = dict[str, NDArray[Any]]
"""Inputs of a graph by name, each of shape (n,), or (n, c) where all columns are one."""

WHOLE: Final = "X"

NUMBERS: Final = {int, float, type(None)}


class ColumnReader:
    """Reads rows for one model, and refuses what `predict` refuses.

    A `ValueError` names the column, the row (from 0), the value and the remedy.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._labels = [f"column {part.name!r}" for part in bundle.inputs]
        self._coders: list[Any] = []
        if bundle.columns is not None:
            columns = Columns.from_json(bundle.columns)
            self._coders = [columns.coders[i] for i in columns.used]
        self._all_numbers = not self._coders or all(isinstance(coder, NumberColumn) for coder in self._coders)

    @property
    def takes_array(self) -> bool:
        """Whether rows may be an array (n, c): all columns are numbers."""
        return self._all_numbers

    def __call__(self, rows: Mapping[str, Any] | Sequence[Any] | NDArray[Any]) -> Feeds:
        """Inputs of the graph from columns by name, each (n,), or from rows of all columns, (n, c)."""
        if isinstance(rows, Mapping):
            return self._of_columns(rows)
        names = [part.name for part in self._bundle.inputs]
        if isinstance(rows, np.ndarray):
            if rows.ndim != 2 or rows.shape[1] != len(names):
                raise ValueError(f"Rows have shape {rows.shape}, but the model reads {len(names)} columns.")
            if not self._coders and rows.dtype.kind in "fiu" and len(rows) and np.isfinite(rows).all():
                return {WHOLE: np.ascontiguousarray(rows, dtype=np.float64)}
            return self._of_columns(dict(zip(names, rows.T, strict=True)))
        if not isinstance(rows, list) or set(map(type, rows)) - {list, tuple}:
            raise ValueError("Rows are not a list of lists of values.")
        if wrong := set(map(len, rows)) - {len(names)}:
            raise ValueError(f"A row has {min(wrong)} values, but the model reads {len(names)} columns.")
        if not self._coders and (array := _plain(rows)) is not None:
            return {WHOLE: array}
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        return self._of_columns(dict(zip(names, columns, strict=True)))

    def _of_columns(self, rows: Mapping[str, Any]) -> Feeds:
        inputs = self._bundle.inputs
        if missing := [part.name for part in inputs if part.name not in rows]:
            raise ValueError(
                f"The rows lack {_listed(missing)}, which the model reads: "
                f"add {'it' if len(missing) == 1 else 'them'}, null where a value is not known."
            )
        given = [rows[part.name] for part in inputs]
        if not self._coders and (array := _plain(given)) is not None:
            return {WHOLE: np.ascontiguousarray(array.T)}
        columns = [_values(part, label) for part, label in zip(given, self._labels, strict=True)]
        lengths = {len(column.values) for column in columns}
        if len(lengths) > 1:
            raise ValueError(f"Columns have different numbers of rows, {sorted(lengths)}: give as many values to each.")
        return self._feeds(columns)

    def _feeds(self, columns: list[Values]) -> Feeds:
        if not columns or not len(columns[0].values):
            raise ValueError("There are no rows: give at least one.")
        table = Table(tuple(self._labels), tuple(columns))
        table.refuse_infinity()
        if not self._coders:
            parts = [_plain_numbers(column, label) for column, label in zip(columns, self._labels, strict=True)]
        else:
            cases = zip(self._coders, columns, self._labels, strict=True)
            parts = [_coded(coder, column, coder.read(column, label)) for coder, column, label in cases]
        if self._bundle.as_one:
            return {WHOLE: np.column_stack(parts)}
        return {part.feed: values for part, values in zip(self._bundle.inputs, parts, strict=True)}


def _plain(lists: list[Any]) -> Floats | None:
    """Lists as an array of finite numbers, as nearly all are; None if something is to be looked at more closely."""
    if not lists or set(map(type, lists)) - {list, tuple} or len(set(map(len, lists))) > 1 or not lists[0]:
        return None
    if set(map(type, chain.from_iterable(lists))) - {int, float}:
        return None
    try:
        array = np.array(lists, dtype=np.float64)
    except OverflowError:
        return None
    return array if np.isfinite(array).all() else None


def _values(given: Any, label: str) -> Values:
    """One column as it was given, of any kind."""
    if isinstance(given, np.ndarray) and given.ndim == 1:
        if given.dtype.kind in "fiub":
            return Values("boolean" if given.dtype.kind == "b" else "number", given.astype(np.float64, copy=False))
        given = given.tolist() if given.dtype.kind != "M" else list(given)
    if not isinstance(given, list | tuple):
        raise ValueError(f"{label} is not a list of values, one for each row: give it such a list.")
    kinds = set(map(type, given))
    try:
        if kinds <= NUMBERS and kinds - {type(None)}:
            return Values("number", np.array(given, dtype=np.float64))
        return of_objects(given, label)
    except OverflowError:
        raise ValueError(f"{label} has a whole number that no float64 holds: give a smaller one.") from None


def _plain_numbers(column: Values, label: str) -> Floats:
    """Numbers without gaps."""
    gaps = column.gaps
    if gaps.any():
        raise ValueError(
            f"{label} is empty in row {int(np.flatnonzero(gaps)[0])}, and rows to fit to had no gaps: give a number."
        )
    if column.kind not in ("number", "boolean"):
        raise ValueError(f"{label} has {column.values[0]!r:.40} (row 0), but numbers in training: give numbers.")
    return column.values


def _coded(coder: Any, given: Values, values: NDArray[Any]) -> NDArray[Any]:
    """Values that were read as the graph reads them: numbers, or text with "" for gaps, dates in ISO form."""
    if isinstance(coder, NumberColumn):
        return np.asarray(values, dtype=np.float64)
    texts: Any = values
    if isinstance(coder, DateColumn):
        # Text that was read is in ISO form.
        texts = given.values if given.kind == "text" else iso_texts(values, coder.type)
    return np.array(["" if text is None else text for text in texts], dtype=object)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"column{'s' * (len(names) > 1)} {shown}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
