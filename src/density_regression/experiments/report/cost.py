"""What methods cost: seconds and parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from density_regression.experiments.records import Record
from density_regression.experiments.report.document import EMPTY, Cell, Table
from density_regression.experiments.report.grouping import Column, Group
from density_regression.experiments.report.numbers import compact, mean_and_sd
from density_regression.experiments.report.tables import Cells, by_rows, split_notes

__all__ = ["cost_tables"]

UNIT: Final = "Gaussian"

_MEASURES: Final[dict[str, Callable[[Record], float | None]]] = {
    "Seconds to fit": lambda record: record.get("seconds", {}).get("fit"),
    "Seconds to predict": lambda record: record.get("seconds", {}).get("predict"),
    "Parameters": lambda record: record.get("parameters"),
}


def cost_tables(group: Group) -> tuple[Table, ...]:
    """Means over splits, and in brackets their ratio to the Gaussian network's."""
    columns = {
        title: {dataset: group.paired(dataset, measure) for dataset in group.datasets}
        for title, measure in _MEASURES.items()
    }
    if len(group.datasets) == 1:
        (dataset,) = group.datasets
        columns = {f"Cost on {dataset}": {title: column[dataset] for title, column in columns.items()}}
    return tuple(_table(title, column) for title, column in columns.items())


def _table(title: str, columns: dict[str, Column]) -> Table:
    cells = {
        label: _cells(column, whole=title == "Parameters" or label == "Parameters") for label, column in columns.items()
    }
    notes = [note for note in split_notes(columns) if "tested" not in note]
    return by_rows(title, cells, [*notes, f"In brackets: times the {UNIT} network's."])


def _cells(column: Column, *, whole: bool) -> Cells:
    if not column.splits:
        return dict.fromkeys(column.values, EMPTY)
    means = {method: mean_and_sd(values)[0] for method, values in column.values.items()}
    unit = means.get(UNIT)
    cells = {}
    for method, mean in means.items():
        text = f"{mean:,.0f}" if whole else compact(mean)
        cells[method] = Cell(f"{text} (× {_times(mean / unit)})" if unit else text, mean)
    return cells


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"
