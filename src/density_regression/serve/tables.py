"""Rows as MLflow's scoring protocol has them: data frames as JSON, lists of rows, and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, Final

from density_regression.serve.bundle import Bundle, Input

__all__ = ["GAPS", "KEYS", "rows_of_csv", "rows_of_json"]

KEYS: Final = ("dataframe_split", "dataframe_records", "inputs", "instances")
"""Of which a request has one."""

GAPS: Final = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"})
"""Texts of a CSV file that stand for a missing value."""

TRUTHS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

Rows = dict[str, Any] | list[Any]
"""Columns by name, or a list of rows."""


def rows_of_json(given: Any, bundle: Bundle) -> Rows:
    """Rows of a request's JSON."""
    known = [key for key in KEYS if key in given] if isinstance(given, dict) else []
    if len(known) != 1:
        raise ValueError(f"The body must be an object with one of {', '.join(KEYS)}.")
    rows = given[known[0]]
    if known[0] == "dataframe_split":
        return _split(rows, bundle)
    if isinstance(rows, dict) and known[0] == "inputs":
        return rows
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{known[0]} is not a list of rows.")
    if isinstance(rows[0], dict):
        return _records(rows, bundle)
    if known[0] == "dataframe_records":
        raise ValueError("dataframe_records is not a list of objects, one for each row.")
    return rows


def rows_of_csv(body: bytes, bundle: Bundle) -> Rows:
    """Rows of a CSV file whose first line names the columns."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("The CSV is not UTF-8.") from None
    try:
        header, *rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row] or [[]]
    except csv.Error as error:
        raise ValueError(f"The CSV cannot be read: {error}.") from None
    if wrong := [i for i, row in enumerate(rows) if len(row) != len(header)]:
        got = len(rows[wrong[0]])
        raise ValueError(f"Row {wrong[0]} of the CSV has {got} values, but its first line {len(header)} names.")
    places = _places(header, bundle)
    return {
        part.name: [_parsed(rows[i][place], part, i) for i in range(len(rows))] for part, place in places if place >= 0
    }


def _split(given: Any, bundle: Bundle) -> Rows:
    data = given.get("data") if isinstance(given, dict) else None
    if not isinstance(data, list) or set(map(type, data)) - {list}:
        raise ValueError('dataframe_split is not {"columns": [...], "data": [[...], ...]}.')
    names = given.get("columns")
    if names is None:
        return data
    if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
        raise ValueError("The columns of dataframe_split are not a list of names.")
    if wrong := set(map(len, data)) - {len(names)}:
        raise ValueError(f"A row of dataframe_split has {min(wrong)} values, but there are {len(names)} columns.")
    places = _places([str(name) for name in names], bundle)
    return {part.name: [row[place] for row in data] for part, place in places if place >= 0}


def _records(rows: list[Any], bundle: Bundle) -> Rows:
    if set(map(type, rows)) - {dict}:
        raise ValueError("Some rows are objects, and others are not: give all as objects, column by name.")
    present = {name for row in rows for name in row}
    # What a row leaves out is a gap; what all leave out is a missing column.
    return {part.name: [row.get(part.name) for row in rows] for part in bundle.inputs if part.name in present}


def _places(header: Sequence[str], bundle: Bundle) -> list[tuple[Input, int]]:
    """Where each column that the model reads stands; -1 if it is missing."""
    if twice := [part.name for part in bundle.inputs if header.count(part.name) > 1]:
        raise ValueError(f"There are several columns named {twice[0]!r}: rename them.")
    if not bundle.named and len(header) == len(bundle.inputs):
        return [(part, place) for place, part in enumerate(bundle.inputs)]
    known = {name: place for place, name in enumerate(header)}
    return [(part, known.get(part.name, -1)) for part in bundle.inputs]


def _parsed(text: str, part: Input, row: int) -> Any:
    """A value of a CSV file as its column's kind."""
    text = text.strip() if part.kind in ("number", "boolean") else text
    if text in GAPS:
        return None
    if part.kind == "boolean" and text.lower() in TRUTHS:
        return TRUTHS[text.lower()]
    if part.kind in ("number", "boolean"):
        try:
            return float(text)
        except ValueError:
            message = f"column {part.name!r} has {text!r:.40} (row {row}), but {part.kind}s in training"
            raise ValueError(f"{message}: give {part.kind}s, or leave it empty.") from None
    return text
