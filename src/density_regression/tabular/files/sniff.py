"""Separator, decimal sign and encoding of a table of text, recognised from its beginning or set by the caller."""

from __future__ import annotations

import codecs
import csv
import io
import lzma
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from density_regression.tabular.files.errors import TableError
from density_regression.tabular.files.sources import UTF_16, damaged, open_bytes, read_head, refuse_other_formats

__all__ = ["Dialect", "Head", "fields_of_any_length", "sniff"]

HEAD: Final = 1 << 20
"""Bytes from which separator and decimal sign are recognised."""

LONGEST_HEAD: Final = 1 << 26
"""Bytes in which the line of names must end."""

LOOKED_AT: Final = 1000
"""Rows from which separator and decimal sign are recognised."""

SEPARATORS: Final = (",", ";", "\t", "|")

_WITH_COMMA: Final = re.compile(r"\s*[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?\s*")
_WITH_POINT: Final = re.compile(r"\s*[+-]?[0-9]*[.][0-9]+([eE][+-]?[0-9]+)?\s*")
_THOUSANDS: Final = re.compile(r"\s*[+-]?[0-9]{1,3}([.][0-9]{3})+\s*")


class Dialect(NamedTuple):
    """How values are written."""

    separator: str
    decimal: str
    encoding: str


class Head(NamedTuple):
    """The dialect, the names as they stand in the file, and whether a row follows them (None: not known yet)."""

    dialect: Dialect
    names: list[str]
    has_rows: bool | None


def sniff(path: Path, separator: str | None, decimal: str | None, encoding: str | None) -> Head:
    """Recognise what is None, and check what is not."""
    _check(separator, decimal)
    size = HEAD
    while True:
        head = read_head(path, size)
        if encoding is None:
            refuse_other_formats(path, head)
        whole = len(head) < size
        # Of a file that fits, the head is all there is to decode.
        known = _recognised(path, head, whole) if encoding is None else _codec(encoding, head)
        text = _decoded(path, head, known, whole)
        chosen = separator or _separator(text, whole, decimal)
        records = _records(text, chosen, whole)
        if records or whole or size >= LONGEST_HEAD:
            break
        size *= 8
    if not records:
        what = "is empty" if whole else f"has no line end in its first {size >> 20} MiB"
        raise TableError(f"{path} {what}: a table has a line of column names, and rows.")
    mark = decimal or _decimal(records[1:], chosen)
    return Head(Dialect(chosen, mark, known), records[0], len(records) > 1 or (None if not whole else False))


def _check(separator: str | None, decimal: str | None) -> None:
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        raise TableError(f"separator must be one character, such as ',' or ';', got {separator!r}.")
    if decimal not in (None, ".", ","):
        raise TableError(f"decimal must be '.' or ',', got {decimal!r}.")


def _codec(encoding: str, head: bytes) -> str:
    try:
        name = codecs.lookup(encoding).name
    except LookupError as error:
        raise TableError(f"encoding {encoding!r} is unknown: give one such as utf-8, cp1252 or utf-16.") from error
    if name == "utf-8-sig":
        return "utf-8"
    return "utf-16" if name.startswith("utf-16") and head.startswith(UTF_16) else name


def _recognised(path: Path, head: bytes, whole: bool) -> str:
    """By its mark, or the first of three encodings in which all of the file can be read."""
    if head.startswith(UTF_16):
        return "utf-16"
    for encoding in ("utf-8", "cp1252"):
        if _is_valid(head, encoding, whole) and (whole or _is_all_valid(path, encoding)):
            return encoding
    return "iso8859-1"


def _is_valid(head: bytes, encoding: str, whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(head, final=whole)
    except UnicodeDecodeError:
        return False
    return True


def _is_all_valid(path: Path, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with open_bytes(path) as stream:
            while block := stream.read(HEAD):
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    except (EOFError, OSError, lzma.LZMAError) as error:
        raise damaged(path, error) from error
    return True


def _decoded(path: Path, head: bytes, encoding: str, whole: bool) -> str:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head, final=whole)
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} is not in {encoding} ({error.reason} at byte {error.start}): "
            "name another, such as cp1252, or none."
        ) from error
    return text.removeprefix("\ufeff")


def _records(text: str, separator: str, whole: bool) -> list[list[str]]:
    """The first records, without blank lines; the last one only if it is known to be complete."""
    records: list[list[str]] = []
    with fields_of_any_length():
        for record in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            if record:
                records.append(record)
            if len(records) > LOOKED_AT:
                return records[:-1]
    return records if whole else records[:-1]


@contextmanager
def fields_of_any_length() -> Iterator[None]:
    """Let Python's reader of CSV take fields of any length."""
    before = csv.field_size_limit(LONGEST_HEAD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _separator(text: str, whole: bool, decimal: str | None) -> str:
    """The one by which most rows have as many fields as there are names, and of several the one with most names."""

    def score(separator: str) -> tuple[float, int]:
        records = _records(text, separator, whole)
        names = len(records[0]) if records else 0
        if names < 2:
            return (0.0, 0)
        return (sum(len(record) == names for record in records) / len(records), names)

    # A decimal comma may separate too, if numbers are quoted; but that is rare.
    found = max((separator for separator in SEPARATORS if separator != decimal), key=score)
    return "," if score(found) < score(",") and not score(found)[1] else found


def _decimal(records: list[list[str]], separator: str) -> str:
    """A comma, if more fields are numbers with a comma than with a point; never where commas separate."""
    if separator == ",":
        return "."
    fields = [field for record in records for field in record]
    commas = sum(_WITH_COMMA.fullmatch(field) is not None for field in fields)
    points = sum(_WITH_POINT.fullmatch(field) is not None and _THOUSANDS.fullmatch(field) is None for field in fields)
    return "," if commas > points else "."
