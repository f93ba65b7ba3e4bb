"""Row groups of Parquet files, read in any order and from any row on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from density_regression.io.extras import import_extra
from density_regression.tabular.files import TableError, open_table

__all__ = ["CHUNK", "Group", "RowGroups", "is_on_disk"]

CHUNK: Final = 65_536
"""Rows that are decoded at a time."""

BUFFER: Final = 1 << 18
"""Bytes of a column that are read at once: without it, all of the column in a row group."""


class Group(NamedTuple):
    """A row group: the file it is in, its position there, and its number of rows."""

    file: int
    position: int
    rows: int


def is_on_disk(X: Any) -> bool:
    """Whether training data is a path, or a data set of Arrow, and not a table in memory."""
    return isinstance(X, str | os.PathLike) or _is_dataset(X)


def _is_dataset(X: Any) -> bool:
    return type(X).__module__.startswith("pyarrow") and hasattr(X, "get_fragments")


class RowGroups:
    """The row groups of one Parquet file, of a folder of them, or of a `pyarrow.dataset.Dataset`.

    Parameters
    ----------
    source : path or Dataset
        What to read.
    drop : sequence of str
        Columns not to read.

    Attributes
    ----------
    name : str
        How errors name the table.
    columns : tuple of str
        Names of the columns, in the order of the first file.
    groups : tuple of Group
        All that have rows, in the order of the files.
    rows : int
        Number of rows of all of them.
    """

    def __init__(self, source: Any, drop: Sequence[str] = ()) -> None:
        self._parquet = import_extra("pyarrow.parquet", needed_by="Training from disk", extra="data")
        self._arrow = import_extra("pyarrow", needed_by="Training from disk", extra="data")
        self.name, columns, self._files = _of_dataset(source) if _is_dataset(source) else _of_path(source)
        self.columns = tuple(name for name in columns if name not in drop)
        groups, schemas = [], []
        for index in range(len(self._files)):
            with self._opened(index) as file:
                metadata = file.metadata
                groups += [Group(index, i, metadata.row_group(i).num_rows) for i in range(metadata.num_row_groups)]
                schemas.append(self._of_columns(file.schema_arrow, index))
        self.groups = tuple(group for group in groups if group.rows)
        self.rows = sum(group.rows for group in self.groups)
        try:
            self._schema = self._arrow.unify_schemas(schemas, promote_options="permissive")
        except self._arrow.ArrowInvalid as error:
            raise TableError(f"The files of {self.name} have columns of different types: {error}") from error
        if not self.rows:
            raise TableError(f"{self.name} has column names, but no rows.")

    def read(self, groups: Sequence[Group], skip: int = 0) -> Iterator[Any]:
        """Arrow tables of at most `CHUNK` rows each, of some groups in their order, without the first `skip` rows."""
        for group in groups:
            if skip >= group.rows:
                skip -= group.rows
                continue
            with self._opened(group.file) as file:
                try:
                    chunks = file.iter_batches(CHUNK, [group.position], columns=list(self.columns), use_threads=False)
                    for chunk in chunks:
                        if skip < len(chunk):
                            table = self._arrow.Table.from_batches([chunk.slice(skip)])
                            yield table.select(self.columns).cast(self._schema)
                        skip = max(skip - len(chunk), 0)
                except (self._arrow.ArrowException, OSError) as error:
                    raise self._damaged(group.file, error) from error

    def place(self, group: Group, row: int) -> str:
        """A row of a group (0 is the first) in words."""
        with self._opened(group.file) as file:
            before = sum(file.metadata.row_group(i).num_rows for i in range(group.position))
        return f"{self._files[group.file][0]}: row {before + row + 1}"

    def _of_columns(self, schema: Any, index: int) -> Any:
        name = self._files[index][0]
        if lacking := [column for column in self.columns if column not in schema.names]:
            raise TableError(f"{name} lacks the column {lacking[0]!r}: the files of a table need the same ones.")
        return self._arrow.schema([schema.field(column) for column in self.columns])

    def _opened(self, index: int) -> Any:
        try:
            # What is read ahead (pre_buffer) would be kept until the end.
            return self._parquet.ParquetFile(self._files[index][1](), buffer_size=BUFFER, pre_buffer=False)
        except (self._arrow.ArrowException, OSError) as error:
            raise self._damaged(index, error) from error

    def _damaged(self, index: int, error: Exception) -> Exception:
        if isinstance(error, OSError) and error.errno is not None:
            return error
        name = self._files[index][0]
        return TableError(f"{name} is cut off, damaged or no Parquet file ({error}): copy or download it again.")


_Source = tuple[str, Sequence[str], Sequence[tuple[str, Callable[[], Any]]]]
"""How errors name a table, its columns, and the files with a function each that says what to open."""


def _of_path(source: str | os.PathLike[str]) -> _Source:
    table = open_table(source)
    if table.dialect is not None:
        raise TableError(
            f"{table.path} holds text, which can only be read from its beginning: training from disk needs Parquet. "
            'The guide "Larger than memory" has the lines that convert it.'
        )
    files = [(str(part.path), lambda path=part.path: Path(path)) for part in table.parts]
    return str(table.path), table.columns, files


def _of_dataset(dataset: Any) -> _Source:
    files = getattr(dataset, "files", None)
    if files is None or dataset.format.default_extname != "parquet":
        raise TableError("The data set is not one of Parquet files: give the folder, or pyarrow.dataset.dataset of it.")
    name = f"the data set of {files[0]} and {len(files) - 1} more" if len(files) > 1 else f"the data set of {files[0]}"
    system = dataset.filesystem
    return name, dataset.schema.names, [(file, lambda path=file: system.open_input_file(path)) for file in files]
