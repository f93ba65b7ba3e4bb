"""What is usual in the columns of a model: by its profile, or learnt from a stream's first rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from density_regression.serve.alarm.columns import UsualColumn, of_profile, of_rows, usual_from_json
from density_regression.serve.alarm.rows import columns_of
from density_regression.tabular.columns.values import Values
from density_regression.tabular.profile import Profile

__all__ = ["UsualColumns"]

FIRST_ROWS: Final = 200
"""Rows of a stream from which it is learnt what is usual, without a profile."""

Cells = list[NDArray[np.intp]]


class UsualColumns:
    """Columns that are watched, and what is usual in them.

    Parameters
    ----------
    profile : Profile or None
        Of the model. None: the first 200 rows tell.
    names : sequence of str or None
        Names of all columns that the model was fitted to, in their order.

    Attributes
    ----------
    columns : list of UsualColumn or None
        None as long as nothing is known.
    rows : int
        Number of rows that the profile comes from; 0 without one.
    """

    def __init__(self, profile: Profile | None = None, names: Sequence[str] | None = None) -> None:
        given = None if names is None else [str(name) for name in names]
        if profile is not None and given is not None:
            profile = _named(profile, given)
        self.columns: list[UsualColumn] | None = None if profile is None else of_profile(profile)
        self.rows = 0 if profile is None else profile.rows
        self.names = [column.name for column in profile.columns] if given is None and profile is not None else given
        self._first: dict[str, Values] = {}

    def read(self, X: Any, rows: int) -> dict[str, Values]:
        """The columns of the next so many rows; empty where X is None."""
        table = {} if X is None else columns_of(X, self.names)
        if wrong := [name for name, values in table.items() if len(values.values) != rows]:
            count = len(table[wrong[0]].values)
            raise ValueError(
                f"columns has {count} rows ({wrong[0]!r}), but there are {rows} scores: give one for each."
            )
        return table

    def cells(self, table: dict[str, Values], rows: int) -> Cells:
        """Cells (n,) of each column of the next rows; none where rows, or what is usual, are not known."""
        if self.columns is None:
            return []
        if not table:
            return [np.empty(0, np.intp) for _ in self.columns]
        missing = Values("number", np.full(rows, np.nan))
        return [column.cells(table.get(column.name, missing)) for column in self.columns]

    def learn(self, table: dict[str, Values], rows: int) -> Cells | None:
        """Learn from the next rows of a stream; the cells of all rows before them, once there are enough."""
        if self.columns is not None or not table:
            return None
        joined = {name: _joined(self._first.get(name), values) for name, values in table.items()}
        # A column that is not in all batches, or of another kind in some, is not watched.
        self._first = {
            name: values for name, values in joined.items() if values and (name in self._first or not self._first)
        }
        count = max((len(values.values) for values in self._first.values()), default=0)
        if count < FIRST_ROWS:
            return None
        self.columns = of_rows(
            {name: Values(kind, values[:FIRST_ROWS]) for name, (kind, values) in self._first.items()}
        )
        cells = [column.cells(self._first[column.name])[: count - rows] for column in self.columns]
        self._first = {}
        return cells

    def to_json(self) -> dict[str, Any]:
        """All that is known, and the first rows as long as nothing is."""
        first = {
            name: [kind, [None if gap else value for value, gap in zip(values.tolist(), column.gaps, strict=True)]]
            for name, column in self._first.items()
            for kind, values in [column]
        }
        columns = None if self.columns is None else [asdict(column) for column in self.columns]
        return {"columns": columns, "rows": self.rows, "names": self.names, "first": first}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> UsualColumns:
        """Undo `to_json`."""
        self = cls(None, saved["names"])
        self.columns = None if saved["columns"] is None else [usual_from_json(part) for part in saved["columns"]]
        self.rows = int(saved["rows"])
        self._first = {name: _values(kind, values) for name, (kind, values) in saved["first"].items()}
        return self


def _named(profile: Profile, names: Sequence[str]) -> Profile:
    """A profile whose columns have names in place of positions, if there are as many."""
    columns = profile.columns
    if len(columns) != len(names) or [column.name for column in columns] != [str(i) for i in range(len(columns))]:
        return profile
    return replace(
        profile, columns=tuple(replace(column, name=name) for column, name in zip(columns, names, strict=True))
    )


def _joined(earlier: Values | None, later: Values) -> Values | None:
    """A column of two batches; None if they are of different kinds, but for one of gaps alone."""
    if earlier is None:
        return later
    if earlier.kind != later.kind and not (earlier.gaps.all() or later.gaps.all()):
        return None
    kind = later.kind if earlier.gaps.all() else earlier.kind
    parts = [part if part.kind == kind else _values(kind, [None] * len(part.values)) for part in (earlier, later)]
    return Values(kind, np.concatenate([part.values for part in parts]))


def _values(kind: Any, values: list[Any]) -> Values:
    if kind == "text":
        return Values(kind, np.array(values, dtype=object))
    return Values(kind, np.array([np.nan if value is None else value for value in values], dtype=np.float64))
