"""A Parquet table divided into slices of whole row groups, each of which is a table of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from density_regression.tabular.files.errors import TableError
from density_regression.tabular.files.parquet import ParquetFile
from density_regression.tabular.files.table import ROWS, TableFile

__all__ = ["SLICE_ROWS", "Slice", "divided"]

SLICE_ROWS: Final = 4 * ROWS
"""Rows of a slice, unless a row group has more: a second or so of work."""


class Slice(NamedTuple):
    """Consecutive row groups of one file: those from `first` to before `end`, with so many rows."""

    path: Path
    first: int
    end: int
    rows: int

    def table(self, columns: Sequence[str], missing: Sequence[str] = ()) -> TableFile:
        """The slice as a table, with its columns in this order; errors count rows as the file does."""
        part = ParquetFile(self.path, range(self.first, self.end))
        return TableFile(self.path, [part], missing, (), columns)


def divided(table: TableFile, rows: int = SLICE_ROWS) -> list[Slice]:
    """Slices of a Parquet table in the order of its rows, each of so many rows if row groups are small enough.

    Raises
    ------
    TableError
        If the table is text, whose rows cannot be found without reading those before.
    """
    slices = []
    for part in table.parts:
        path = part.path.resolve()
        if not isinstance(part, ParquetFile):
            raise TableError(f"{part.path} is text: only Parquet can be read by several processes. Convert it first.")
        first, found = 0, 0
        for i, count in enumerate(part.group_rows):
            if found and found + count > rows:
                slices.append(Slice(path, first, i, found))
                first, found = i, 0
            found += count
        if found:
            slices.append(Slice(path, first, len(part.group_rows), found))
    return slices
