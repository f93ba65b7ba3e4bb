"""Tables of text: CSV and its kin, read by Arrow in batches of rows whose values are all text."""

from __future__ import annotations

import csv
import io
import lzma
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from density_regression.io.extras import import_extra
from density_regression.tabular.files.errors import TableError
from density_regression.tabular.files.part import Part
from density_regression.tabular.files.sniff import Dialect, fields_of_any_length, sniff
from density_regression.tabular.files.sources import damaged, open_bytes

__all__ = ["TextFile"]

BLOCK: Final = 1 << 22
"""Bytes that are parsed at once; no row may be longer."""


class TextFile(Part):
    """One file of text."""

    def __init__(self, path: Path, separator: str | None, decimal: str | None, encoding: str | None) -> None:
        head = sniff(path, separator, decimal, encoding)
        self.path = path
        self.dialect = self._dialect = head.dialect
        self.columns = tuple(name.strip() for name in head.names)
        self.rows = 0 if head.has_rows is False else None
        _check_names(path, self.columns, head.dialect)

    def chunks(self, rows: int, names: Sequence[str] | None = None) -> Iterator[Any]:
        """Arrow tables of so many rows, all columns text as it stands in the file."""
        arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
        names = self.columns if names is None else names
        kept: list[Any] = []
        count = 0
        for batch in self._batches():
            kept.append(batch.rename_columns(self.columns).select(names))
            count += len(batch)
            while count >= rows:
                table = arrow.Table.from_batches(kept)
                yield table.slice(0, rows)
                kept, count = table.slice(rows).to_batches(), count - rows
        if count:
            yield arrow.Table.from_batches(kept)

    def place(self, row: int) -> str:
        """A row (0 is the first) in words, with the line where it begins."""
        with suppress(csv.Error):
            for number, line, _ in self._records():
                if number == row + 1:
                    return f"row {number} (line {line})"
        return f"row {row + 1}"

    def _batches(self) -> Iterator[Any]:
        arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
        arrow_csv = import_extra("pyarrow.csv", needed_by="Reading tables", extra="data")
        separator, _, encoding = self._dialect
        try:
            with (
                open_bytes(self.path) as stream,
                arrow_csv.open_csv(
                    stream,
                    read_options=arrow_csv.ReadOptions(
                        block_size=BLOCK, encoding=encoding, use_threads=False, autogenerate_column_names=True
                    ),
                    parse_options=arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
                    convert_options=arrow_csv.ConvertOptions(
                        column_types={f"f{i}": arrow.string() for i in range(len(self.columns))},
                        strings_can_be_null=False,
                    ),
                ) as reader,
            ):
                # The names come as a row; Arrow need not agree with us on what they are.
                batch = next(reader)
                yield batch.slice(1)
                for batch in reader:
                    yield batch
            self._check_end(batch)
        except (arrow.ArrowInvalid, UnicodeDecodeError) as error:
            raise self._diagnosed(error) from error
        except (EOFError, OSError, lzma.LZMAError) as error:
            raise damaged(self.path, error) from error

    def _diagnosed(self, error: Exception) -> TableError:
        """What is wrong with a file that Arrow cannot parse."""
        if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
            return TableError(f"{self.path} is not in {self._dialect.encoding}: name its encoding, such as cp1252.")
        wanted = len(self.columns)
        with suppress(csv.Error):
            for number, line, fields in self._records():
                if len(fields) != wanted:
                    found = f"row {number} (line {line}) has {len(fields)} field{'s' * (len(fields) != 1)}"
                    return TableError(
                        f"{self.path}: {found}, but the line of names has {wanted}: put quotation marks around "
                        f"values that contain {self._dialect.separator!r}, or name another separator."
                    )
        return TableError(
            f"{self.path} cannot be read: {error}. Perhaps a quotation mark opens a value and is never closed."
        )

    def _check_end(self, batch: Any) -> None:
        """Raise a `TableError` if the last value was opened by a quotation mark, and closed by the end of the file."""
        last = batch.column(batch.num_columns - 1)[-1].as_py() if len(batch) else ""
        if "\n" not in last and "\r" not in last:
            # It needs no quotation marks, so it hardly had one.
            return
        end = b""
        with open_bytes(self.path) as stream:
            while block := stream.read(BLOCK):
                end = (end + block)[-1000:]
        if not end.rstrip(b"\0\r\n").endswith(b'"'):
            *_, (number, line, _) = self._records()
            raise TableError(
                f"{self.path}: row {number} (line {line}) has a quotation mark that opens a value and is never closed."
            )

    def _records(self) -> Iterator[tuple[int, int, list[str]]]:
        """Number and first line, both from 1, of each row, and its fields; by Python, for errors only."""
        encoding = "utf-8-sig" if self._dialect.encoding == "utf-8" else self._dialect.encoding
        with (
            closing(open_bytes(self.path)) as stream,
            io.TextIOWrapper(stream, encoding, errors="replace", newline="") as text,
            fields_of_any_length(),
        ):
            reader = csv.reader(text, delimiter=self._dialect.separator)
            number, end = -1, 0
            for fields in reader:
                number += bool(fields)
                if fields and number:
                    yield number, end + 1, fields
                end = reader.line_num


def _check_names(path: Path, names: tuple[str, ...], dialect: Dialect) -> None:
    """Raise a `TableError` if columns have no names, or share one."""
    unnamed = [str(i + 1) for i, name in enumerate(names) if not name]
    if unnamed:
        raise TableError(
            f"{path} has no name for column {', '.join(unnamed)}: name it in the first line, or remove it (an index "
            "that pandas wrote: to_csv(index=False))."
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"{path} has several columns of the name {', '.join(map(repr, twice))}: rename them.")
    numbers = [name for name in names if _is_fraction(name.replace(dialect.decimal, "."))]
    if numbers and all(_is_number(name.replace(dialect.decimal, ".")) for name in names):
        raise TableError(f"{path} has numbers, such as {numbers[0]}, for column names: give names in a first line.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_fraction(text: str) -> bool:
    return _is_number(text) and not text.isdecimal()
