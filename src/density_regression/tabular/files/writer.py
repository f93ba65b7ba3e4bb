"""Tables written as they come, whole or not at all."""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from density_regression.io.extras import import_extra
from density_regression.tabular.files.errors import TableError
from density_regression.tabular.files.lines import header, lines

__all__ = ["TableWriter"]

FORMATS: Final = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


class TableWriter:
    """Write Arrow tables of one schema to a file, or to standard output if the path is "-".

    By the name CSV (.csv), tab-separated (.tsv), either of them compressed (.gz), or Parquet (.parquet). What is
    written stands in a temporary file of the same folder, which takes the path's name on leaving the context, and is
    removed if an exception leaves it.

    Parameters
    ----------
    path : path
        File to write; its folder is made if missing.
    separator, decimal : str
        Of text; a .tsv always has tabs.
    schema : pyarrow.Schema, optional
        Of Parquet: types of the columns, in place of those of the first table written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> with TableWriter("flats.csv") as writer:
    ...     writer.write(pa.table({"area": [60, 82], "town": ["Ulm", "Bern"]}))
    >>> print(open("flats.csv").read(), end="")
    area,town
    60,Ulm
    82,Bern
    """

    def __init__(
        self, path: str | os.PathLike[str], *, separator: str = ",", decimal: str = ".", schema: Any = None
    ) -> None:
        self.path = Path(path)
        self._is_stdout = os.fspath(path) == "-"
        name = self.path.name.lower()
        if not self._is_stdout and not name.endswith(FORMATS):
            raise TableError(f"{path} does not say in what format to write: name it {', '.join(FORMATS)}.")
        self._is_parquet = name.endswith(".parquet")
        self._separator = "\t" if name.endswith((".tsv", ".tsv.gz")) else separator
        self._decimal = decimal
        self._temporary: str | None = None
        self._file: IO[bytes] | None = None
        self._stream: Any = None
        self._schema: Any = None
        self._given_schema = schema

    def __enter__(self) -> Self:
        if self._is_stdout:
            self._stream = sys.stdout.buffer
            return self
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, self._temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        self._file = os.fdopen(descriptor, "wb", buffering=1 << 20)
        # Of a compressed file, without a time: equal tables are equal files.
        zipped = self.path.name.lower().endswith(".gz")
        self._stream = gzip.GzipFile("", "wb", 6, self._file, mtime=0) if zipped else self._file
        return self

    def write(self, table: Any) -> None:
        """Append the rows of an Arrow table; its columns become of the types that they had in the first one."""
        try:
            if self._is_parquet:
                self._write_parquet(table)
            else:
                self._write_lines(table)
        except OSError as error:
            raise self._named(error) from error

    def _write_lines(self, table: Any) -> None:
        if self._schema is None:
            self._stream.write(header(table.column_names, self._separator))
            self._schema = table.schema
        for block in lines(table, self._separator, self._decimal):
            self._stream.write(block)

    def _write_parquet(self, table: Any) -> None:
        arrow = import_extra("pyarrow", needed_by="Writing tables", extra="data")
        parquet = import_extra("pyarrow.parquet", needed_by="Writing Parquet", extra="data")
        if self._schema is None:
            # Metadata of pandas describe columns that are no longer all.
            given = self._given_schema
            self._schema = (table.schema if given is None else given).remove_metadata()
            # Numbers hardly ever repeat.
            texts = [field.name for field in self._schema if not arrow.types.is_floating(field.type)]
            self._stream = parquet.ParquetWriter(self._file, self._schema, use_dictionary=texts)
        try:
            self._stream.write_table(table.cast(self._schema))
        except arrow.ArrowInvalid as error:
            raise TableError(
                f"A part has other types than rows before it, so {self.path} is not written: {error}"
            ) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_stdout:
            if kind is None:
                self._stream.flush()
            return
        assert self._file is not None
        assert self._temporary is not None
        try:
            if kind is None:
                self._finish()
        except OSError as failed:
            raise self._named(failed) from failed
        finally:
            Path(self._temporary).unlink(missing_ok=True)
            self._close()

    def _finish(self) -> None:
        assert self._file is not None
        assert self._temporary is not None
        if self._stream is not self._file:
            self._stream.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        # mkstemp makes files that only their owner can read; use the usual permissions.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(self._temporary, 0o666 & ~umask)
        os.replace(self._temporary, self.path)

    def _close(self) -> None:
        """Close what a failure left open: what could not be written cannot be written now either."""
        assert self._file is not None
        for stream in (self._stream, self._file):
            with suppress(OSError, ValueError):
                stream.close()

    def _named(self, error: OSError) -> OSError:
        """The error with the path; that of a full disk names no file."""
        if error.errno is not None and (error.filename is None or error.filename == self._temporary):
            error.filename = os.fspath(self.path)
        return error
