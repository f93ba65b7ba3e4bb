"""Rows of Arrow tables as lines of text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from density_regression.io.extras import import_extra
from density_regression.tabular.files.errors import TableError

__all__ = ["header", "lines"]


def header(names: Sequence[str], separator: str) -> bytes:
    """The line of column names."""
    line = io.StringIO()
    csv.writer(line, delimiter=separator, lineterminator="\n").writerow(names)
    return line.getvalue().encode()


def lines(table: Any, separator: str, decimal: str) -> Iterator[bytes]:
    """Blocks of lines, a line for each row: nothing for gaps, quotation marks where they are needed."""
    compute = import_extra("pyarrow.compute", needed_by="Writing tables", extra="data")
    arrow = import_extra("pyarrow", needed_by="Writing tables", extra="data")
    for batch in table.to_batches():
        texts = []
        for name, column in zip(table.column_names, batch.columns, strict=True):
            try:
                texts.append(_texts(column, separator, decimal))
            except arrow.ArrowException as error:
                raise TableError(
                    f"column {name!r} is of type {column.type}, which text cannot hold: write Parquet, or drop it."
                ) from error
        rows = compute.binary_join_element_wise(*texts, separator, null_handling="replace", null_replacement="")
        if len(texts) == 1:
            # A blank line would be no row.
            rows = compute.if_else(compute.equal(rows, ""), '""', rows)
        whole = arrow.ListArray.from_arrays([0, len(rows)], rows)
        yield compute.binary_join(whole, "\n")[0].as_buffer()
        yield b"\n"


def _texts(column: Any, separator: str, decimal: str) -> Any:
    arrow = import_extra("pyarrow", needed_by="Writing tables", extra="data")
    compute = import_extra("pyarrow.compute", needed_by="Writing tables", extra="data")
    types = arrow.types
    kind = column.type
    if types.is_floating(kind):
        column = compute.if_else(compute.is_nan(column), arrow.scalar(None, kind), column).cast(arrow.string())
        return compute.replace_substring(column, ".", ",") if decimal == "," else column
    if types.is_boolean(kind) or types.is_integer(kind):
        return column.cast(arrow.string())
    column = column.cast(arrow.string())
    content = _content(column)
    if not any(sign in content for sign in (b'"', b"\r", b"\n", separator.encode())):
        return column
    special = compute.match_substring_regex(column, f'["\r\n{re.escape(separator)}]')
    doubled = compute.replace_substring(column, '"', '""')
    quoted = compute.binary_join_element_wise('"', doubled, '"', "")
    return compute.if_else(special, quoted, column)


def _content(texts: Any) -> bytes:
    """All texts in a row, to look through them at once."""
    _, offsets, content = texts.buffers()
    if content is None or not len(texts):
        return b""
    start, end = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    return bytes(content.slice(int(start), int(end - start)))
