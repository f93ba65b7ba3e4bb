"""Rows of Arrow tables as lines of text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from density_regression.io.extras import import_extra

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
        texts = [_texts(column, separator, decimal) for column in batch.columns]
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
    special = compute.match_substring_regex(column, f'["\r\n{"|".join([])}]|{_escaped(separator)}')
    if not compute.any(special).as_py():
        return column
    doubled = compute.replace_substring(column, '"', '""')
    quoted = compute.binary_join_element_wise('"', doubled, '"', "")
    return compute.if_else(special, quoted, column)


def _escaped(separator: str) -> str:
    return "\\" + separator if not separator.isalnum() and separator != "\t" else separator
