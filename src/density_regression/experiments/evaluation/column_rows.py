"""Columns of the strange rows beside those of the others, a line for each column."""

from __future__ import annotations

from typing import NamedTuple

from density_regression.experiments.evaluation.strange import (
    OTHERS,
    STRANGE,
    CategoryTally,
    NumberTally,
    StrangeRows,
    Tally,
)
from density_regression.experiments.evaluation.traits import as_text

__all__ = ["ColumnRow", "column_rows"]


class ColumnRow(NamedTuple):
    """One column: shares of the strange rows and of the others (NaN of no rows), and their usual values.

    `never_strange` and `never_others` are shares of rows with a value, or a gap, that training never had;
    `usual_strange` and `usual_others` the mean, or the most frequent value of text; `shift` is the difference of the
    means in the others' standard deviations (NaN of text).
    """

    name: str
    kind: str
    training: str
    never_strange: float
    never_others: float
    gaps_strange: float
    gaps_others: float
    usual_strange: str
    usual_others: str
    shift: float


def column_rows(found: StrangeRows) -> list[ColumnRow]:
    """A line for each column, in the order of the table."""
    return [_row(tally) for tally in found.tallies]


def _row(tally: Tally) -> ColumnRow:
    column = tally.column
    return ColumnRow(
        column.name,
        column.kind,
        _training(tally),
        tally.share(tally.never, STRANGE),
        tally.share(tally.never, OTHERS),
        tally.share(tally.gaps, STRANGE),
        tally.share(tally.gaps, OTHERS),
        _usual(tally, STRANGE),
        _usual(tally, OTHERS),
        tally.shift if isinstance(tally, NumberTally) else float("nan"),
    )


def _training(tally: Tally) -> str:
    """What training rows had: a range, or a number of values."""
    column = tally.column
    if column.is_text:
        return f"{len(column.values)} values"
    if column.cuts is None:
        return ""
    return f"{as_text(float(column.cuts[0]), column)} to {as_text(float(column.cuts[-1]), column)}"


def _usual(tally: Tally, group: int) -> str:
    if tally.rows[group] == tally.gaps[group]:
        return ""
    if isinstance(tally, NumberTally):
        return as_text(float(tally.mean[group]), tally.column, about=True)
    assert isinstance(tally, CategoryTally)
    ((value, count),) = (tally.known[group] + tally.new[group]).most_common(1)
    return f"{value} ({count / tally.rows[group]:.0%})"
