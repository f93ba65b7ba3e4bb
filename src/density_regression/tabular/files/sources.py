"""Bytes of files, decompressed as their first bytes ask for, and what is plainly no table refused."""

from __future__ import annotations

import codecs
import lzma
from pathlib import Path
from typing import Any, Final

from density_regression.io.extras import import_extra
from density_regression.tabular.files.errors import TableError

__all__ = ["PARQUET", "UTF_16", "damaged", "open_bytes", "read_head", "refuse_other_formats"]

PARQUET: Final = b"PAR1"
"""First bytes, and last, of a Parquet file."""

UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Marks at the beginning of text in UTF-16."""

_COMPRESSED: Final = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}

_OTHER_FORMATS: Final = {
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an Excel workbook or another document of Office",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"%PDF": "a PDF document",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "a file of numpy",
    b"SQLite format 3": "a SQLite database",
    b"ARROW1": "an Arrow (Feather) file",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"\x80\x02": "a pickle",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
}

_MARKUP: Final = {b"<!doctype": "HTML", b"<html": "HTML", b"<?xml": "XML", b"{": "JSON", b"[": "JSON"}


def open_bytes(path: Path) -> Any:
    """A stream of a file's bytes, decompressed: a binary file object."""
    arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
    with path.open("rb") as file:
        first = file.read(8)
    for start, codec in _COMPRESSED.items():
        if first.startswith(start):
            return lzma.open(path) if codec == "xz" else arrow.CompressedInputStream(str(path), codec)
    return arrow.OSFile(str(path))


def read_head(path: Path, size: int) -> bytes:
    """The first bytes of a file, decompressed."""
    try:
        with open_bytes(path) as stream:
            return bytes(stream.read(size))
    except (EOFError, OSError, lzma.LZMAError) as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> Exception:
    """A `TableError` for a compressed file that ends too early or is otherwise damaged; of a disk's error, itself."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return TableError(f"{path} is cut off or damaged ({error}): copy or download it again.")


def refuse_other_formats(path: Path, head: bytes) -> None:
    """Raise a `TableError` for what is plainly no text, or text but no table."""
    remedy = "give CSV, TSV or Parquet"
    what = next((what for start, what in _OTHER_FORMATS.items() if head.startswith(start)), None)
    if what is not None:
        raise TableError(f"{path} is {what}, not a table: {remedy}.")
    wide = head.startswith(UTF_16)
    # NUL and other control characters that no text has; UTF-16 is full of NULs.
    if not wide and (b"\0" in head or sum(head.count(code) for code in range(1, 9)) > len(head) / 100):
        raise TableError(f"{path} is binary, not a table: {remedy} (UTF-16 text without a mark: name its encoding).")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:20].lower()
    markup = next((what for mark, what in _MARKUP.items() if start.startswith(mark)), None)
    if markup is not None:
        raise TableError(f"{path} is {markup}, not a table: {remedy}.")
