"""Columns of text as numbers and booleans: inferred from all values, or read as a kind that is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from density_regression.io.extras import import_extra

__all__ = ["GAPS", "Unreadable", "infer", "numbers", "without_gaps"]

GAPS: Final = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""Texts that always mean a gap."""

MOSTLY: Final = 0.9
"""Share of a column's values from which on it is taken to be meant as numbers."""

_NUMBER: Final = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity|nan)$"
_OTHER_NOTATION: Final = r"^[+-]?[0-9]{1,3}([., '’\x{a0}][0-9]{3})+([.,][0-9]+)?$|^[+-]?[0-9]+[.,][0-9]+$"


class Unreadable(NamedTuple):
    """The first value of a column that cannot be read: its row, and whether it is a number in another notation.

    `others` values of the column can be read.
    """

    row: int
    value: str
    other_notation: bool
    others: int


def without_gaps(texts: Any, missing: Sequence[str] = ()) -> Any:
    """Texts with null where they mean a gap."""
    arrow, compute = _arrow()
    gaps = compute.is_in(texts, value_set=arrow.array([*GAPS, *missing], texts.type))
    return compute.if_else(gaps, arrow.scalar(None, texts.type), texts)


def numbers(texts: Any, decimal: str, missing: Sequence[str] = ()) -> Any | Unreadable:
    """Texts as float64, null for gaps; true and false are 1 and 0."""
    arrow, compute = _arrow()
    texts = without_gaps(texts, missing)
    plain = _with_point(texts, decimal)
    try:
        return compute.cast(plain, arrow.float64())
    except arrow.ArrowInvalid:
        plain = without_gaps(compute.utf8_trim_whitespace(plain), missing)
    truth = _truth(plain)
    plain = compute.if_else(truth, compute.if_else(_is_true(plain), "1", "0"), plain)
    wrong = _wrong(plain)
    if (unreadable := _first(texts, wrong)) is not None:
        return unreadable
    return compute.cast(plain, arrow.float64())


def infer(texts: Any, decimal: str, missing: Sequence[str] = ()) -> Any | Unreadable:
    """Booleans, numbers or text, by all values; null for gaps."""
    arrow, compute = _arrow()
    texts = without_gaps(texts, missing)
    known = len(texts) - texts.null_count
    plain = _with_point(texts, decimal)
    try:
        # Of gaps alone nothing is known: numbers, as everywhere else.
        return compute.cast(plain, arrow.float64())
    except arrow.ArrowInvalid:
        plain = without_gaps(compute.utf8_trim_whitespace(plain), missing)
    if compute.all(compute.or_(_truth(plain), compute.is_null(plain))).as_py():
        return _is_true(plain)
    wrong = _wrong(plain)
    count = compute.sum(wrong).as_py() or 0
    if not count:
        return compute.cast(plain, arrow.float64())
    foreign = compute.and_(wrong, compute.match_substring_regex(compute.utf8_trim_whitespace(texts), _OTHER_NOTATION))
    strangers = count - (compute.sum(foreign).as_py() or 0)
    if strangers <= (1 - MOSTLY) * known and strangers < count:
        return _first(texts, foreign)
    return _first(texts, wrong) if count <= (1 - MOSTLY) * known else texts


def _with_point(texts: Any, decimal: str) -> Any:
    """Numbers with a decimal point instead of a comma; a point that is there already makes them no numbers."""
    _, compute = _arrow()
    if decimal == ".":
        return texts
    return compute.replace_substring(compute.replace_substring(texts, ".", "’"), ",", ".", max_replacements=1)


def _truth(texts: Any) -> Any:
    arrow, compute = _arrow()
    return compute.is_in(
        compute.utf8_lower(texts), value_set=arrow.array(["true", "false"], texts.type), skip_nulls=True
    )


def _is_true(texts: Any) -> Any:
    _, compute = _arrow()
    return compute.equal(compute.utf8_lower(texts), "true")


def _wrong(plain: Any) -> Any:
    """Which values are known and no numbers."""
    _, compute = _arrow()
    return compute.fill_null(compute.invert(compute.match_substring_regex(plain, _NUMBER)), False)


def _first(texts: Any, wrong: Any) -> Unreadable | None:
    _, compute = _arrow()
    index = compute.index(wrong, True).as_py()
    if index < 0:
        return None
    value = texts[index].as_py()
    foreign = compute.match_substring_regex(texts.slice(index, 1), _OTHER_NOTATION)[0].as_py()
    return Unreadable(index, value, foreign, len(texts) - texts.null_count - compute.sum(wrong).as_py())


def _arrow() -> tuple[Any, Any]:
    arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
    return arrow, import_extra("pyarrow.compute", needed_by="Reading tables", extra="data")
