"""Evaluation on a table of files, in constant memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from density_regression.estimators.base import DeepRegressor
from density_regression.estimators.kinds import column_kinds
from density_regression.estimators.streaming import inputs_of
from density_regression.experiments.evaluation.evaluation import Evaluation, Evaluator
from density_regression.io.extras import import_extra
from density_regression.tabular.files import Batch, TableFile
from density_regression.tabular.table import Floats

__all__ = ["evaluate_table", "target_name"]

ROWS: Final = 16_384
"""Rows of a batch: of learnt quantiles there are two hundred for each."""


def target_name(regressor: DeepRegressor, table: TableFile, given: str | None = None) -> str:
    """The column of the table with the targets: the one `given`, or that which the model was fitted to."""
    profile = regressor.profile_
    name = given or (None if profile is None else profile.target.name)
    if name is None or name not in table.columns:
        what = "does not say what its target is called" if name is None else f"has no column {name!r}, the target"
        whose = "The model" if name is None else str(table.path)
        shown = ", ".join(table.columns[:10]) + (" ..." if len(table.columns) > 10 else "")
        raise ValueError(f"{whose} {what}: name the column with the targets, --target COLUMN, of {shown}.")
    return name


def evaluate_table(
    regressor: DeepRegressor, table: TableFile, target: str, advance: Callable[[int], None] | None = None
) -> Evaluation:
    """Evaluate a regressor on the rows of a table that have a target.

    `advance` is told the number of rows after each batch. A `ValueError` says where the table is not as the model needs
    it.
    """
    features = column_kinds(regressor, [name for name in table.columns if name != target])
    if target in features:
        raise ValueError(f"The model reads {target!r}, so it cannot be the target too: name another, --target COLUMN.")
    evaluator = Evaluator(regressor, target)
    for batch in table.batches({**features, target: "number"}, ROWS):
        y = _targets(batch, target)
        known = ~np.isnan(y)
        evaluator.skip(int(np.count_nonzero(~known)))
        if known.any():
            X = inputs_of(regressor, batch, tuple(features))
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                # Columns were found by their names, and are an array.
                evaluator.update(X if known.all() else _chosen(X, known), y[known])
        if advance is not None:
            advance(len(y))
    return evaluator.result()


def _targets(batch: Batch, target: str) -> Floats:
    """Targets of a batch (n,), NaN for gaps."""
    y = np.asarray(batch.table.column(target).to_numpy(), dtype=np.float64)
    if (infinite := np.isinf(y)).any():
        problem = "is infinite, and targets are numbers: correct it, or leave it empty."
        raise batch.error(target, int(np.flatnonzero(infinite)[0]), problem)
    return y


def _chosen(X: Any, rows: NDArray[np.bool_]) -> Any:
    """Some rows of an array or of an Arrow table, by mask."""
    if isinstance(X, np.ndarray):
        return X[rows]
    arrow = import_extra("pyarrow", needed_by="Reading tables", extra="data")
    return X.filter(arrow.array(rows))
