"""A CSV file that comes back with predictions: the form for it, and how it is read and written."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from email.parser import BytesHeaderParser
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final, NamedTuple

import numpy as np

from density_regression.serve.bundle import Bundle
from density_regression.serve.page.explain import UNFAMILIAR
from density_regression.serve.page.markup import Markup, tag
from density_regression.serve.page.view import View
from density_regression.serve.scorer import Results
from density_regression.serve.tables import rows_of_csv

__all__ = ["OUTPUTS", "CsvFile", "file_of_form", "read_csv", "upload_section", "with_results"]

OUTPUTS: Final = ("mean", "std", "low", "high", "familiarity")
"""Results that become columns."""


MOST_NAMES: Final = 12
"""Most columns that are named."""


class CsvFile(NamedTuple):
    """A CSV file as it was given: its lines, and how they were written."""

    header: list[str]
    rows: list[list[str]]
    separator: str
    decimal: str
    encoding: str


def upload_section(view: View) -> Markup:
    """The form for a file."""
    box = tag("input", id="file", type="file", name="file", accept=".csv,.tsv,.txt,text/csv", required=True)
    return tag(
        "section",
        tag("h2", "A whole table", id="table-heading"),
        tag(
            "p",
            "Choose a CSV file, or drop it here. It comes back with columns added: mean, std, the interval's low and "
            f"high, familiarity and unfamiliar. {_needed(view)}",
            id="file-hint",
        ),
        tag(
            "form",
            tag("label", "CSV file", for_="file", class_="name"),
            tag("div", box, " ", tag("button", "Score it", type="submit"), class_="line"),
            id="upload",
            action=f"/page/score?model={view.asked.model}&coverage={view.asked.coverage:g}",
            method="post",
            enctype="multipart/form-data",
            aria_describedby="file-hint",
        ),
        tag("p", id="upload-status", role="status"),
        aria_labelledby="table-heading",
        class_="table",
    )


def file_of_form(body: bytes, content_type: str) -> tuple[str, bytes]:
    """Name and content of the file in the body of a form, `multipart/form-data`; a `ValueError` if there is none."""
    about = BytesHeaderParser().parsebytes(b"Content-Type: " + content_type.encode("latin-1", "replace") + b"\r\n\r\n")
    boundary = about.get_boundary()
    if not boundary:
        raise ValueError("The form was not sent as it should be: choose the file once more.")
    for part in body.split(b"--" + boundary.encode("latin-1", "replace")):
        head, found, content = part.partition(b"\r\n\r\n")
        headers = BytesHeaderParser().parsebytes(head.lstrip(b"\r\n") + b"\r\n\r\n")
        if found and headers.get_param("name", header="content-disposition") == "file":
            return headers.get_filename() or "", content.removesuffix(b"\r\n")
    raise ValueError("The form holds no file: choose one.")


def read_csv(content: bytes, bundle: Bundle) -> tuple[CsvFile, Any]:
    """A CSV file, and its rows as the scorer takes them. The separator is a comma, a semicolon or a tabulator."""
    encoding = "utf-8-sig" if content.startswith(b"\xef\xbb\xbf") else "utf-8"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = content.decode(encoding, "replace")
    if not text.strip():
        raise ValueError("The file is empty: give a CSV file whose first line names the columns.")
    if "\0" in text:
        raise ValueError("The file is not text: save the table as CSV first.")
    first = text.lstrip("\r\n").partition("\n")[0]
    separator = max(",;\t", key=first.count)
    header, *rows = _lines(text, separator)
    header = [name.strip() for name in header]
    if not rows:
        raise ValueError("The file has no rows below its first line.")
    numbers = [
        i for i, name in enumerate(header) if name in {part.name for part in bundle.inputs if part.kind == "number"}
    ]
    decimal = "," if separator != "," and _has_commas(rows, numbers) else "."
    return CsvFile(header, rows, separator, decimal, encoding), rows_of_csv(
        _usual(header, rows, numbers, decimal), bundle
    )


def with_results(file: CsvFile, results: Results) -> bytes:
    """The file with a column for each result, written as it was."""
    names, columns = [], []
    for name, values in results.items():
        several = values.ndim > 1
        for i, column in enumerate(values.T if several else [values]):
            names.append(f"{name}_{i}" if several else name)
            columns.append([repr(value).replace(".", file.decimal) for value in column.tolist()])
    if "familiarity" in results:
        names.append("unfamiliar")
        columns.append(["true" if each else "false" for each in results["familiarity"] < UNFAMILIAR])
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=file.separator)
    writer.writerow([*file.header, *(_free(name, file.header) for name in names)])
    writer.writerows([*row, *added] for row, added in zip(file.rows, zip(*columns, strict=True), strict=True))
    return out.getvalue().encode(file.encoding, "replace")


def scored_name(name: str) -> str:
    """The name of the file that comes back."""
    stem = PurePosixPath(PureWindowsPath(name).name).stem if name else "table"
    safe = "".join(letter if letter.isalnum() or letter in " ._-" else "_" for letter in stem).strip(". ")[:80]
    return f"{safe or 'table'}_scored.csv"


def count_unfamiliar(results: Results) -> int | None:
    """How many rows are unfamiliar; None if the method does not know."""
    return int(np.sum(results["familiarity"] < UNFAMILIAR)) if "familiarity" in results else None


def _needed(view: View) -> str:
    """Which columns the file must have."""
    if not view.bundle.named:
        return f"It needs {len(view.fields)} columns, in the order of training."
    names = ", ".join(part.name for part in view.fields[:MOST_NAMES])
    more = f" and {len(view.fields) - MOST_NAMES} more" if len(view.fields) > MOST_NAMES else ""
    return f"It needs the columns {names}{more}; others are kept as they are."


def _lines(text: str, separator: str) -> list[list[str]]:
    """The lines of a CSV file that are not empty, each of as many values as the first."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row and rows and len(row) != len(rows[0]):
                problem = f"Line {reader.line_num} has {len(row)} values, but the first line {len(rows[0])} names"
                raise ValueError(f"{problem}: is there a separator too few or too many?")
            if row:
                rows.append(row)
    except csv.Error as error:
        raise ValueError(f"The file cannot be read as CSV, in line {reader.line_num}: {error}.") from None
    return rows


def _has_commas(rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> bool:
    """Whether numbers have decimal commas."""
    return any("," in row[i] for row in rows for i in numbers if i < len(row))


def _usual(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int], decimal: str) -> bytes:
    """The table with commas between values and points in numbers."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(header)
    if decimal == ",":
        commas = set(numbers)
        rows = [[_with_point(cell) if i in commas else cell for i, cell in enumerate(row)] for row in rows]
    writer.writerows(rows)
    return out.getvalue().encode()


def _with_point(text: str) -> str:
    return text.replace(".", "").replace(",", ".")


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_predicted"
    return name
