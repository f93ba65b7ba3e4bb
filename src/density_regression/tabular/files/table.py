"""Tables of files: one file, or a folder of parts, read whole with inferred types or in batches of known ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from density_regression.io.extras import import_extra
from density_regression.tabular.files.convert import Unreadable, infer, without_gaps
from density_regression.tabular.files.errors import TableError
from density_regression.tabular.files.kinds import read_as, typed
from density_regression.tabular.files.parquet import ParquetFile
from density_regression.tabular.files.part import Part
from density_regression.tabular.files.sources import PARQUET, read_head
from density_regression.tabular.files.text import TextFile

__all__ = ["ROWS", "Batch", "TableFile", "open_table"]

ROWS: Final = 65_536
"""Rows of a batch."""


@dataclass(frozen=True)
class Batch:
    """Some rows of a table.

    Attributes
    ----------
    table : pyarrow.Table
        The rows, columns as the kinds say that were asked for, null for gaps; other columns as they are in the file.
    given : pyarrow.Table
        The same rows as the file has them: text, of a text file.
    first_row : int
        Position of the first of them in the whole table.
    """

    table: Any
    given: Any
    first_row: int
    part: Part
    part_row: int

    def error(self, column: str, index: int, problem: str) -> TableError:
        """An error about the value of a column in one of the rows of this batch (0 is the first)."""
        place = self.part.place(self.part_row + index)
        return TableError(f"{self.part.path}: column {column!r}, {place}, {problem}")


class TableFile:
    r"""A table in a file, or in several of one folder.

    Attributes
    ----------
    columns : tuple of str
        Names of the columns.
    rows : int or None
        Number of rows, if the files say.
    dialect : Dialect or None
        Separator, decimal sign and encoding; None of Parquet.
    missing : tuple of str
        Texts that mean a gap, besides the usual ones.

    Examples
    --------
    >>> from pathlib import Path
    >>> from density_regression.tabular.files import open_table
    >>> _ = Path("flats.csv").write_text("area,town\n60,Ulm\n82,Bern\n")
    >>> table = open_table("flats.csv")
    >>> [len(batch.table) for batch in table.batches({"area": "number", "town": "text"}, rows=1)]
    [1, 1]
    """

    def __init__(
        self,
        path: Path,
        parts: Sequence[Part],
        missing: Sequence[str],
        text: Sequence[str],
        columns: Sequence[str] | None = None,
    ) -> None:
        self.path = path
        self.parts = tuple(parts)
        self.missing = tuple(missing)
        # The same ones, maybe in another order.
        self.columns = parts[0].columns if columns is None else tuple(columns)
        self.dialect = parts[0].dialect
        counts = [part.rows for part in parts]
        self.rows = None if None in counts else sum(count for count in counts if count is not None)
        self._text = tuple(text)
        if self.rows == 0:
            raise TableError(f"{path} has column names, but no rows.")
        for part in parts[1:]:
            if set(part.columns) != set(self.columns):
                differ = sorted(set(part.columns) ^ set(self.columns))
                raise TableError(
                    f"{part.path} and {parts[0].path} have different columns ({', '.join(map(repr, differ))} in one "
                    "of them alone): the parts of a table need the same ones."
                )
        if unknown := [name for name in text if name not in self.columns]:
            raise TableError(f"{path} has no column {unknown[0]!r} to take as text: {', '.join(self.columns)}.")

    def read(self) -> Any:
        """All rows as one Arrow table; the types of columns of text are inferred from all rows, null for gaps."""
        arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
        names = list(self.columns)
        tables = [table.select(names) for part in self.parts for table in part.chunks(ROWS, names)]
        if not sum(map(len, tables)):
            raise TableError(f"{self.path} has column names, but no rows.")
        table = arrow.concat_tables(tables, promote_options="permissive")
        del tables
        columns = {}
        for name in names:
            # One after the other, so that a column's text goes when its numbers come.
            columns[name] = self._inferred(name, table.column(name))
            table = table.drop_columns([name])
        return arrow.table(columns)

    def batches(self, kinds: Mapping[str, str], rows: int = ROWS) -> Iterator[Batch]:
        """The rows, so many at a time, in little memory.

        Parameters
        ----------
        kinds : mapping of str to str
            What columns are to be read as: "number", "boolean", "text", "date" or "time". All others stay as they are.
        rows : int
            Rows of a batch; fewer at the end of a file.

        Raises
        ------
        TableError
            If a column is missing, or a value is not of its kind; the error says where.
        """
        if lacking := [name for name in kinds if name not in self.columns]:
            names, them = ", ".join(map(repr, lacking)), "them" if len(lacking) > 1 else "it"
            raise TableError(
                f"{self.path} lacks the column{'s' * (len(lacking) > 1)} {names}: add {them}, empty where a value is "
                "not known."
            )
        first = 0
        for part in self.parts:
            start = 0
            for given in part.chunks(rows, None if part.columns == self.columns else self.columns):
                batch = Batch(given, given, first, part, start)
                table = given
                for name, kind in kinds.items():
                    values = read_as(batch, name, kind, self.missing)
                    table = table.set_column(table.schema.get_field_index(name), name, values)
                yield Batch(table, given, first, part, start)
                first, start = first + len(given), start + len(given)
        if not first:
            raise TableError(f"{self.path} has column names, but no rows.")

    def _inferred(self, name: str, column: Any) -> Any:
        arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
        if self.dialect is None:
            column = typed(column, self.missing)
            return column.cast(arrow.string()) if name in self._text else column
        if name in self._text:
            return without_gaps(column, self.missing)
        values = infer(column, self.dialect.decimal, self.missing)
        if isinstance(values, Unreadable):
            raise self._mixed(name, values)
        return values

    def _mixed(self, name: str, unreadable: Unreadable) -> TableError:
        part, row = self._located(unreadable.row)
        place = f"{part.path}: column {name!r}, {part.place(row)}, has {unreadable.value!r}"
        if unreadable.other_notation:
            return TableError(
                f"{place}, which may be a number: thousands separators are not read; remove them, set the decimal sign "
                f"(--decimal), or take the column as text (--text {name})."
            )
        return TableError(
            f"{place}, but {unreadable.others} rows have numbers there: if it means a gap, say so "
            f"(--missing {unreadable.value!r}); if the column is text, too (--text {name})."
        )

    def _located(self, row: int) -> tuple[Part, int]:
        """The part with a row of the whole table, and its position there."""
        for part in self.parts[:-1]:
            # Text does not say how many rows it has.
            count = sum(map(len, part.chunks(ROWS))) if part.rows is None else part.rows
            if row < count:
                return part, row
            row -= count
        return self.parts[-1], row


def open_table(
    path: str | os.PathLike[str],
    *,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    missing: Sequence[str] = (),
    text: Sequence[str] = (),
) -> TableFile:
    r"""A table of a file: CSV, TSV and their kin, also compressed, Parquet, or a folder of either.

    Parameters
    ----------
    path : path
        File, or folder of files with the same columns, in the order of their names.
    separator, decimal, encoding : str, optional
        Of text files; None recognises them.
    missing : sequence of str
        Texts that mean a gap, besides "", NA, N/A, NaN, nan, null, NULL and None.
    text : sequence of str
        Columns that are text, though they may look like numbers: postal codes, say.

    Raises
    ------
    TableError
        If there is no such file, or it is no table.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("flats.csv").write_text("area,town\n60,Ulm\n82,Bern\n")
    >>> table = open_table("flats.csv")
    >>> table.columns
    ('area', 'town')
    >>> table.read().to_pydict()
    {'area': [60.0, 82.0], 'town': ['Ulm', 'Bern']}
    """
    place = Path(path)
    if not place.exists():
        raise TableError(f"There is no file {place}.")
    if not (place.is_file() or place.is_dir()):
        raise TableError(f"{place} is no file, but a stream, which cannot be read twice: write it to a file first.")
    files = _parts(place) if place.is_dir() else [place]
    parts = [_open(file, separator, decimal, encoding) for file in files]
    if len({part.dialect is None for part in parts}) > 1:
        raise TableError(f"{place} holds Parquet and text: keep the parts of a table in a folder of their own.")
    if len({part.dialect.decimal for part in parts if part.dialect is not None}) > 1:
        # In some of them no number has a fraction.
        parts = [_open(file, separator, ",", encoding) for file in files]
    return TableFile(place, parts, (missing,) if isinstance(missing, str) else missing, text)


def _open(file: Path, separator: str | None, decimal: str | None, encoding: str | None) -> Part:
    if file.suffix == ".parquet" or read_head(file, len(PARQUET)) == PARQUET:
        return ParquetFile(file)
    return TextFile(file, separator, decimal, encoding)


def _parts(folder: Path) -> list[Path]:
    """Files of a folder but for hidden ones and those with which other programs mark that they are done."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith((".", "_")))
    if not files:
        raise TableError(f"{folder} holds no files: give a table, or a folder of Parquet or CSV files.")
    return files
