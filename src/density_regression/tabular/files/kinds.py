"""Columns of a batch as a known kind: numbers, booleans, text, dates or times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from density_regression.io.extras import import_extra
from density_regression.tabular.columns.dates import is_date, is_time
from density_regression.tabular.files.convert import Trouble, numbers, without_gaps

if TYPE_CHECKING:
    from density_regression.tabular.files.table import Batch

__all__ = ["as_texts", "read_as", "typed"]


def read_as(batch: Batch, name: str, kind: str, missing: Sequence[str]) -> Any:
    """A column of a batch, read as a kind."""
    column, dialect = batch.given.column(name), batch.part.dialect
    if kind in ("number", "boolean"):
        return _numbers(batch, name, column, "." if dialect is None else dialect.decimal, missing)
    column = typed(column, missing) if dialect is None else without_gaps(column, missing)
    if kind in ("date", "time") and _is_text(column.type):
        _check_dates(batch, name, column, kind)
    return column


def typed(column: Any, missing: Sequence[str]) -> Any:
    """A column that has a type, null for what means a gap."""
    arrow, compute = _arrow()
    if not missing:
        return column
    kind = column.type.value_type if arrow.types.is_dictionary(column.type) else column.type
    if _is_text(kind):
        column = column.cast(kind)
        values = arrow.array(list(missing), kind)
    elif arrow.types.is_integer(kind) or arrow.types.is_floating(kind):
        codes = numbers(arrow.array(list(missing), arrow.string()), ".")
        if isinstance(codes, Trouble):
            readable = [numbers(arrow.array([text]), ".") for text in missing]
            codes = arrow.concat_arrays(
                [code for code in readable if not isinstance(code, Trouble)] or [arrow.nulls(0, arrow.float64())]
            )
        column = column.cast(kind)
        values = codes.drop_null()
        return compute.if_else(
            compute.is_in(column.cast(arrow.float64(), safe=False), value_set=values), arrow.scalar(None, kind), column
        )
    else:
        return column
    return compute.if_else(compute.is_in(column, value_set=values), arrow.scalar(None, kind), column)


def as_texts(column: Any) -> Any:
    """A typed column as text."""
    arrow, _ = _arrow()
    return column.cast(arrow.string())


def _numbers(batch: Batch, name: str, column: Any, decimal: str, missing: Sequence[str]) -> Any:
    arrow, compute = _arrow()
    types = arrow.types
    if batch.part.dialect is None:
        column = typed(column, missing)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column.type):
        values = numbers(column, decimal, missing)
        if isinstance(values, Trouble):
            hint = ": thousands separators are not read, and the decimal sign can be set (--decimal)"
            remedy = f"; if it means a gap, say so (--missing {values.value!r})"
            raise batch.error(
                name, values.row, f"has {values.value!r}, which is no number{hint * values.other_notation}{remedy}."
            )
        column = values
    elif types.is_duration(column.type) or types.is_boolean(column.type):
        return column
    elif (
        types.is_null(column.type)
        or types.is_integer(column.type)
        or types.is_floating(column.type)
        or types.is_decimal(column.type)
    ):
        column = column.cast(arrow.float64(), safe=False)
    else:
        raise batch.error(name, 0, f"is of type {column.type}, but numbers in training: give numbers.")
    infinite = compute.index(compute.is_inf(column), True).as_py()
    if infinite >= 0:
        raise batch.error(name, infinite, "is infinite: leave it empty, or drop the row.")
    return column


def _check_dates(batch: Batch, name: str, column: Any, kind: str) -> None:
    _, compute = _arrow()
    fits = is_time if kind == "time" else is_date
    wrong = [text for text in compute.unique(column).to_pylist() if text is not None and not fits(text)]
    if wrong:
        index = min(compute.index(column, text).as_py() for text in wrong)
        such = '"22:20"' if kind == "time" else '"2026-11-19" or "2026-11-19T22:20"'
        value = column[index].as_py()
        raise batch.error(
            name, index, f"has {value!r}, but {kind}s in training: give {kind}s such as {such}, or leave it empty."
        )


def _is_text(kind: Any) -> bool:
    arrow, _ = _arrow()
    return bool(arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_string_view(kind))


def _arrow() -> tuple[Any, Any]:
    arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
    return arrow, import_extra("pyarrow.compute", needed_by="Reading tables", extra="data")
