"""Tables beside figures, and the rows that are drawn."""

from __future__ import annotations

from typing import Final

import numpy as np

from density_regression.experiments.evaluation.evaluation import Evaluation
from density_regression.experiments.evaluation.words import percent
from density_regression.experiments.report.document import ResultTable, TableCell
from density_regression.tabular.table import Floats

__all__ = ["LARGEST", "drawable", "name_cell", "share_cell", "table"]

LARGEST: Final = 1e100
"""Larger values are not drawn."""


def drawable(of: Evaluation, size: int) -> dict[str, Floats]:
    """Columns of at most so many rows of the sample at random, of those with values that can be drawn."""
    columns = {name: of.sample[name] for name in ("y", "mean", "std", "low", "high")}
    small = np.all([np.abs(values) < LARGEST for values in columns.values()], axis=0)
    kept = np.random.default_rng(0).permutation(np.flatnonzero(small))[:size]
    return {name: values[kept] for name, values in columns.items()}


def table(title: str, header: tuple[str, ...], rows: list[list[TableCell]]) -> ResultTable:
    """A table of lists of cells."""
    return ResultTable(title, header, tuple(map(tuple, rows)))


def name_cell(text: str) -> TableCell:
    """A cell of text."""
    return TableCell(text)


def share_cell(share: float) -> TableCell:
    """A share as a percentage."""
    return TableCell(percent(share), share)
