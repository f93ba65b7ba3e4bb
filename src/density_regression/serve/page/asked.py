"""What a person asks: the model, a row, and how to show it, as the query of an address has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from density_regression.serve.page.fields import Field, Value
from density_regression.serve.page.values import form_text, parse

__all__ = ["COVERAGES", "GAP", "VALUE", "Asked", "read_query"]

COVERAGES: Final = (0.5, 0.8, 0.9, 0.95)
USUAL: Final = 0.9
"""Coverages of the interval that one can choose from, and the one at first."""

VALUE, GAP = "x.", "gap."
"""What stands before a column's name in the query: its value, and whether it is missing."""


@dataclass(frozen=True)
class Asked:
    """A question.

    Attributes
    ----------
    model : str
        Name of the model.
    row : dict
        Value of each column.
    kept : dict
        What the form shows beside "missing": the value that a column would have otherwise.
    coverage : float
        Of the interval, one of `COVERAGES`.
    target : int
        Which of several targets.
    problems : dict
        What could not be read, by column; the typical value stands in its place.
    """

    model: str
    row: dict[str, Value]
    kept: dict[str, Value]
    coverage: float = USUAL
    target: int = 0
    problems: dict[str, str] = field(default_factory=dict)

    def address(self, fields: Sequence[Field], instead: Mapping[str, Value]) -> str:
        """Address of the page with this row, but for the columns that have other values instead."""
        query = [("model", self.model), ("coverage", f"{self.coverage:g}")]
        if self.target:
            query.append(("target", str(self.target)))
        for part in fields:
            value = instead.get(part.name, self.row[part.name])
            query.append((GAP + part.name, "1") if value is None else (VALUE + part.name, form_text(part, value)))
        return f"/?{urlencode(query)}"


def read_query(
    query: Mapping[str, str], model: str, fields: Sequence[Field], targets: int = 1, known: Sequence[float] = COVERAGES
) -> Asked:
    """The question that a query asks of a model with so many targets, and with intervals of the `known` coverages.

    Columns that the query leaves out have their typical values.
    """
    row: dict[str, Value] = {}
    kept: dict[str, Value] = {}
    problems = {}
    for part in fields:
        try:
            row[part.name] = _value(query, part)
        except ValueError as error:
            problems[part.name] = str(error)
            row[part.name] = part.typical
        value = row[part.name]
        kept[part.name] = value
        if query.get(GAP + part.name) and part.takes_gaps:
            row[part.name] = None
        if value is None and part.on_a_line:
            kept[part.name] = part.typical
    usual = USUAL if USUAL in known or not known else max(known)
    coverage = next((share for share in known if query.get("coverage") == f"{share:g}"), usual)
    place = query.get("target", "0")
    target = int(place) if place.isdecimal() and len(place) < 6 else 0
    return Asked(model, row, kept, coverage, min(target, targets - 1), problems)


def _value(query: Mapping[str, str], part: Field) -> Value:
    if (text := query.get(VALUE + part.name)) is None:
        return part.typical
    value = parse(part, text)
    if value is None and not part.takes_gaps:
        raise ValueError("The model needs a value: training rows had no gaps.")
    return value
