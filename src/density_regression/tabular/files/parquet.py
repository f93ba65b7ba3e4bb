"""Parquet files, read in batches of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from density_regression.io.extras import import_extra
from density_regression.tabular.files.errors import TableError
from density_regression.tabular.files.part import Part

__all__ = ["ParquetFile"]

BUFFER: Final = 1 << 20
"""Bytes of a column that are read at once: without it, all of the column in a row group."""

_PANDAS_INDEX: Final = re.compile(r"__index_level_[0-9]+__")


class ParquetFile(Part):
    """One Parquet file, or some consecutive row groups of it; `group_rows` has the number of rows of each."""

    def __init__(self, path: Path, groups: range | None = None) -> None:
        self.path = path
        self.dialect = None
        with self._opened() as file:
            counts = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
            names = file.schema_arrow.names
        self._groups = range(len(counts)) if groups is None else groups
        self._before = sum(counts[: self._groups.start])
        self.group_rows = tuple(counts[self._groups.start : self._groups.stop])
        self.rows = sum(self.group_rows)
        self.columns = tuple(name for name in names if not _PANDAS_INDEX.fullmatch(name))
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise TableError(f"{path} has several columns of the name {', '.join(map(repr, twice))}: rename them.")

    def chunks(self, rows: int, names: Sequence[str] | None = None) -> Iterator[Any]:
        """Arrow tables of so many rows, of columns of these names."""
        arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
        with self._opened() as file:
            try:
                # An iterator of a Dataset would keep what it has read.
                for batch in file.iter_batches(rows, self._groups, columns=names, use_threads=False):
                    yield arrow.Table.from_batches([batch])
            except (arrow.ArrowException, OSError) as error:
                raise self._damaged(error) from error

    def place(self, row: int) -> str:
        """A row (0 is the first) in words."""
        return f"row {self._before + row + 1}"

    def _opened(self) -> Any:
        arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
        parquet = import_extra("pyarrow.parquet", needed_by="Reading Parquet", extra="data")
        try:
            # What is read ahead (pre_buffer) would be kept until the end.
            return parquet.ParquetFile(self.path, buffer_size=BUFFER, pre_buffer=False)
        except (arrow.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> Exception:
        if isinstance(error, OSError) and error.errno is not None:
            return error
        return TableError(f"{self.path} is cut off, damaged or no Parquet file ({error}): copy or download it again.")
