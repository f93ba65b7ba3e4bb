"""How familiar a row is, in words, and which columns make it strange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from density_regression.serve.page.asked import Asked
from density_regression.serve.page.fields import Field, Value
from density_regression.serve.page.outlook import Outlook
from density_regression.serve.page.values import in_words
from density_regression.serve.page.words import number, of_hundred

__all__ = ["UNFAMILIAR", "Reason", "Verdict", "note", "reasons", "rise_in_words", "verdict"]

UNFAMILIAR: Final = 0.01
UNUSUAL: Final = 0.05
"""Familiarity below which a row is called unfamiliar, or unusual."""

MOST_REASONS: Final = 3
LEAST_RISE: Final = 1.0
"""Rise of the log-density, in nats, that makes a column worth naming."""

FINE: Final = 10.0
"""Rises below this are told with a decimal."""

RARE: Final = 0.05
"""Share of the training rows below which a category, or a gap, is called rare."""


class Verdict(NamedTuple):
    """How familiar a row is: one of "unfamiliar", "unusual" and "familiar", and a sentence."""

    level: str
    sentence: str


class Reason(NamedTuple):
    """A column that makes a row strange: why, and by how much the log-density would rise without."""

    field: Field
    words: str
    rise: float


def verdict(familiarity: float) -> Verdict:
    """A familiarity, the share of held-out training rows that are no more familiar, in words."""
    if familiarity < UNFAMILIAR:
        return Verdict("unfamiliar", "Unlike 99 of 100 training rows: treat with caution.")
    if familiarity < UNUSUAL:
        return Verdict("unusual", f"Stranger than {100 - round(100 * familiarity)} of 100 training rows.")
    less = round(100 * min(familiarity, 0.99))
    return Verdict("familiar", f"Like the training rows: {less} of 100 are less familiar.")


def reasons(fields: Sequence[Field], asked: Asked, outlook: Outlook) -> list[Reason]:
    """The columns whose typical values would raise the log-density most, at most three."""
    ordered = sorted(outlook.rises.items(), key=lambda pair: -pair[1])
    by_name = {part.name: part for part in fields}
    return [
        Reason(by_name[name], _why(by_name[name], asked.row[name]), rise)
        for name, rise in ordered[:MOST_REASONS]
        if rise >= LEAST_RISE
    ]


def note(part: Field, value: Value) -> str | None:
    """What is strange about a value by itself; None if nothing is."""
    share = part.share(value)
    rare = share if share is not None and share < RARE else None
    if value is None:
        return None if rare is None else _note_of_gap(rare)
    if part.is_beyond(value):
        return "beyond the training range"
    if part.is_new(value):
        return "no training row had this value"
    if part.rare_ends is not None and isinstance(value, float) and not part.rare_ends[0] <= value <= part.rare_ends[1]:
        return f"among the {'lowest' if value < part.rare_ends[0] else 'highest'} 1 % of the training rows"
    return None if rare is None else f"rare: {of_hundred(rare)} training rows"


def _note_of_gap(share: float) -> str:
    return f"missing in {of_hundred(share)} training rows" if share else "no training row lacked it"


def _why(part: Field, value: Value) -> str:
    said = in_words(part, value)
    if part.is_beyond(value) and part.ends is not None:
        low, high = (in_words(part, end) for end in part.ends)
        return f"= {said} is beyond the training range {low} to {high}"
    strange = note(part, value)
    if value is None:
        return f"is missing; {strange}" if strange else "is missing"
    if strange is not None:
        return f"= {said}: {strange}"
    if part.on_a_line and part.ends is None:
        return f"= {said}, which is far from what training rows had"
    return f"= {said} is usual by itself, but not together with the other values"


def rise_in_words(reason: Reason) -> str:
    """What the typical value would do."""
    typical = in_words(reason.field, reason.field.typical)
    rise = number(reason.rise, 0.1 if reason.rise < FINE else 1.0)
    return f"With the typical {typical} the log-density would be {rise} higher."
