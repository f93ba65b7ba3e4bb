"""Predictions for tables that do not fit into memory, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from density_regression.estimators.kinds import column_kinds
from density_regression.estimators.prediction import Predictions
from density_regression.io.extras import import_extra
from density_regression.tabular.files import Batch, TableFile
from density_regression.tabular.files.table import ROWS

if TYPE_CHECKING:
    from density_regression.estimators.base import DeepRegressor

__all__ = ["UNFAMILIAR", "inputs_of", "predicted_columns", "stream_predictions", "with_columns"]

UNFAMILIAR: Final = 0.01
"""Familiarity below which a row is called unfamiliar."""


def stream_predictions(
    regressor: DeepRegressor, table: TableFile, coverage: float, rows: int = ROWS
) -> Iterator[tuple[Batch, Predictions]]:
    r"""Predictions of a fitted regressor for so many rows at a time, and those rows.

    They are those of `predict`, `predict_interval` and `familiarity`, and the memory does not grow with the table.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from density_regression import DensityRegressor
    >>> from density_regression.tabular.files import open_table
    >>> _ = Path("rows.csv").write_text("area\n60\n82\n71\n")
    >>> frame = pd.DataFrame({"area": [50.0 + row for row in range(40)]})
    >>> reg = DensityRegressor(epochs=2, members=0, random_state=0).fit(frame, 10 * frame.area)
    >>> parts = stream_predictions(reg, open_table("rows.csv"), coverage=0.9, rows=2)
    >>> [len(predictions.mean) for batch, predictions in parts]
    [2, 1]
    """
    kinds = column_kinds(regressor, table.columns)
    for batch in table.batches(kinds, rows):
        yield batch, regressor._predict_all(inputs_of(regressor, batch, tuple(kinds)), coverage)


def predicted_columns(predicted: Predictions) -> dict[str, Any]:
    """Columns of predictions by their names, each (n,): of several targets mean_0, mean_1 and so on."""
    columns = {}
    for name in ("mean", "std", "low", "high"):
        part = getattr(predicted, name)
        if part.ndim == 1:
            columns[name] = part
        else:
            columns |= {f"{name}_{i}": column for i, column in enumerate(part.T)}
    if predicted.familiarity is not None:
        columns["familiarity"] = predicted.familiarity
        columns["unfamiliar"] = predicted.familiarity < UNFAMILIAR
    return columns


def with_columns(table: Any, columns: dict[str, Any]) -> Any:
    """An Arrow table with further columns; one whose name is taken gets "_predicted" at its end."""
    for name, values in columns.items():
        free = name
        while free in table.column_names:
            free += "_predicted"
        table = table.append_column(free, [values])
    return table


def inputs_of(regressor: DeepRegressor, batch: Batch, names: Sequence[str]) -> Any:
    """The columns of a batch that a regressor reads, as its `predict` takes them."""
    if regressor.columns_ is None:
        for name in names:
            _refuse_gaps(batch, name)
    if hasattr(regressor, "feature_names_in_"):
        return batch.table.select(list(names))
    columns = [batch.table.column(name) for name in names]
    X = np.empty((len(batch.table), len(names)))
    for i, column in enumerate(columns):
        X[:, i] = column.to_numpy()
    return X


def _refuse_gaps(batch: Batch, name: str) -> None:
    compute = import_extra("pyarrow.compute", needed_by="Reading tables", extra="data")
    gap = compute.index(compute.is_null(batch.table.column(name), nan_is_null=True), True).as_py()
    if gap >= 0:
        problem = "is empty, but the model was fitted to rows without gaps"
        raise batch.error(name, gap, f"{problem}: fill or drop it, or fit to rows of which some have gaps.")
