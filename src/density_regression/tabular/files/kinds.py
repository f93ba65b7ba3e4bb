"""Columns of a batch as a known kind: numbers, booleans, text, dates or times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from density_regression.io.extras import import_extra
from density_regression.tabular.columns.dates import parsed
from density_regression.tabular.files.convert import Unreadable, numbers, without_gaps

if TYPE_CHECKING:
    from density_regression.tabular.files.table import Batch

__all__ = ["read_as", "typed"]


def read_as(batch: Batch, name: str, kind: str, missing: Sequence[str]) -> Any:
    """A column of a batch, read as a kind."""
    column, dialect = batch.given.column(name), batch.part.dialect
    if kind in ("number", "boolean"):
        return _numbers(batch, name, typed(column, missing) if dialect is None else column, missing)
    column = typed(column, missing) if dialect is None else without_gaps(column, missing)
    if kind in ("date", "time") and _is_text(column.type):
        _check_dates(batch, name, column, kind)
    return column


def typed(column: Any, missing: Sequence[str]) -> Any:
    """A column that has a type, null for values that mean a gap."""
    arrow, compute = _arrow()
    kind = column.type.value_type if arrow.types.is_dictionary(column.type) else column.type
    if not missing or not (_is_text(kind) or _is_number(kind)):
        return column
    column = column.cast(kind)
    if _is_text(kind):
        gaps = compute.is_in(column, value_set=arrow.array(list(missing), kind))
    else:
        read = [numbers(arrow.array([text], arrow.string()), ".") for text in missing]
        known = [value[0].as_py() for value in read if not isinstance(value, Unreadable)]
        gaps = compute.is_in(
            column.cast(arrow.float64(), safe=False), value_set=arrow.array(known, arrow.float64()), skip_nulls=True
        )
    return compute.if_else(gaps, arrow.scalar(None, kind), column)


def _numbers(batch: Batch, name: str, column: Any, missing: Sequence[str]) -> Any:
    arrow, compute = _arrow()
    types = arrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column.type):
        values = numbers(column, "." if batch.part.dialect is None else batch.part.dialect.decimal, missing)
        if isinstance(values, Unreadable):
            hint = ": thousands separators are not read, and the decimal sign can be set (--decimal)"
            problem = f"has {values.value!r}, which is no number{hint * values.other_notation}"
            raise batch.error(name, values.row, f"{problem}; if it means a gap, say so (--missing {values.value!r}).")
        column = values
    elif types.is_duration(column.type):
        # As seconds, which is how rows to fit to were read.
        microseconds = (
            column.cast(arrow.duration("us"), safe=False).cast(arrow.int64()).cast(arrow.float64(), safe=False)
        )
        column = compute.divide(microseconds, 1e6)
    elif _is_number(column.type) or types.is_boolean(column.type):
        column = column.cast(arrow.float64(), safe=False)
    else:
        raise batch.error(name, 0, f"is of type {column.type}, but numbers in training: give numbers.")
    infinite = compute.index(compute.is_inf(column), True).as_py()
    if infinite >= 0:
        raise batch.error(name, infinite, "is infinite: leave it empty, or drop the row.")
    return column


def _check_dates(batch: Batch, name: str, column: Any, kind: str) -> None:
    arrow, compute = _arrow()
    texts = [text for text in compute.unique(column).to_pylist() if text]
    wrong = [text for text, unknown in zip(texts, np.isnan(parsed(texts, kind)), strict=True) if unknown]
    if wrong:
        row = compute.index(compute.is_in(column, value_set=arrow.array(wrong, column.type)), True).as_py()
        such = '"22:20"' if kind == "time" else '"2026-11-19" or "2026-11-19T22:20"'
        problem = f"has {column[row].as_py()!r}, but {kind}s in training"
        raise batch.error(name, row, f"{problem}: give {such}, or leave it empty.")


def _is_text(kind: Any) -> bool:
    types = _arrow()[0].types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_number(kind: Any) -> bool:
    types = _arrow()[0].types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind))


def _arrow() -> tuple[Any, Any]:
    arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
    return arrow, import_extra("pyarrow.compute", needed_by="Reading tables", extra="data")
