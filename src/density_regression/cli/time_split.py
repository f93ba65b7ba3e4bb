"""Rows held out by time: the last ones, where a model is to predict what comes later."""

from __future__ import annotations

import numpy as np

from density_regression.cli.training_rows import TrainingTable
from density_regression.tabular.table import held_count

__all__ = ["split_by_time"]


def split_by_time(rows: TrainingTable, share: float) -> tuple[TrainingTable, TrainingTable]:
    """Earlier rows and about this share of last ones, in order of time; rows of the same time are never divided."""
    assert rows.time is not None
    order, n = np.argsort(rows.time, kind="stable"), len(rows)
    starts = np.flatnonzero(np.diff(rows.time[order]) > 0) + 1
    starts = starts[starts >= 2]
    if not len(starts):
        raise ValueError(
            f"--time is to hold out the last of {n} rows, but there are no two times among them with at least 2 rows "
            "before the later one: leave it out."
        )
    cut = int(starts[np.argmin(np.abs(starts - (n - held_count(n, share))))])
    return rows.take(order[:cut]), rows.take(order[cut:])
