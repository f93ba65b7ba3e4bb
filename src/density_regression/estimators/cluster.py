"""Predictions of a Parquet table by several processes, on one machine or many, by tasks of Ray.

The table is divided into slices of row groups. A task reads a slice, predicts its rows as `stream_predictions` does,
and writes them as one Parquet file: rows do not pass through Ray, and a part that was lost with its process is written
once more, by another, in the same place.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from density_regression.estimators.streaming import predicted_columns, stream_predictions, with_columns
from density_regression.io.cluster import results
from density_regression.tabular.files import TableFile, TableWriter
from density_regression.tabular.files.slices import Slice, divided

if TYPE_CHECKING:
    from density_regression.estimators.base import DeepRegressor

__all__ = ["ScoredPart", "scored_parts"]


class ScoredPart(NamedTuple):
    """Part `number`, which holds the rows of that slice.

    `unfamiliar` is None of a method without a density; `said` are the warnings: text, file and line.
    """

    number: int
    rows: int
    unfamiliar: int | None
    path: Path
    said: list[tuple[str, str, int]]


def scored_parts(
    ray: Any,
    load: Callable[[], DeepRegressor],
    table: TableFile,
    folder: Path,
    coverage: float,
    workers: int | None = None,
) -> Generator[ScoredPart, None, None]:
    """Write the predictions of a table as parts of a folder; each as soon as it is done, which may be out of order.

    The rows of all parts, by their numbers, are those of `stream_predictions`, bit for bit if the machines have the
    same kind of processor.

    Parameters
    ----------
    ray : module
        As `connected` gives it.
    load : callable
        Called once in every process; gives the fitted regressor.
    table : TableFile
        Parquet, in files that every machine of the cluster sees by the same path.
    folder : Path
        Exists, is empty, and is seen by every machine as well.
    coverage : float
        Of the interval.
    workers : int, optional
        Most slices at once; by default one for each processor of the cluster.

    Raises
    ------
    ValueError
        If a value cannot be read or predicted; nobody removes the parts that were written before.
    RuntimeError
        If a slice was lost again and again, or a machine does not see a file.
    """
    shared = {
        "load": load,
        "folder": folder,
        "columns": table.columns,
        "missing": table.missing,
        "coverage": coverage,
        "schema": _schema(load(), table, coverage),
    }
    calls = ({"number": i, "part": part} for i, part in enumerate(divided(table)))
    with closing(results(ray, write_part, calls, shared, workers)) as parts:
        for scored in parts:
            for message, file, line in scored.said:
                warnings.warn_explicit(message, UserWarning, file, line)
            yield scored


_LOADED: dict[Path, DeepRegressor] = {}
"""The regressor of the job that writes to a folder: a process of Ray is used for many tasks."""


def write_part(
    number: int,
    part: Slice,
    *,
    load: Callable[[], DeepRegressor],
    folder: Path,
    columns: Sequence[str],
    missing: Sequence[str],
    coverage: float,
    schema: Any,
) -> ScoredPart:
    """Write the predictions of one slice."""
    torch.set_num_threads(1)
    path = folder / f"part-{number:06d}.parquet"
    rows, unfamiliar = 0, None
    with warnings.catch_warnings(record=True) as caught:
        try:
            regressor = _loaded(folder, load)
            with TableWriter(path, schema=schema) as writer:
                for batch, predicted in stream_predictions(regressor, part.table(columns, missing), coverage):
                    added = predicted_columns(predicted)
                    writer.write(with_columns(batch.table, added))
                    rows += len(batch.table)
                    if "unfamiliar" in added:
                        unfamiliar = (unfamiliar or 0) + int(added["unfamiliar"].sum())
        except (ImportError, OSError) as error:
            # What one machine sees or has installed, another may not.
            raise RuntimeError(f"On {platform.node()}: {error}") from error
    said = [(str(one.message), one.filename, one.lineno) for one in caught]
    return ScoredPart(number, rows, unfamiliar, path, said)


def _loaded(folder: Path, load: Callable[[], DeepRegressor]) -> DeepRegressor:
    if folder not in _LOADED:
        _LOADED.clear()
        _LOADED[folder] = load()
    return _LOADED[folder]


def _schema(regressor: DeepRegressor, table: TableFile, coverage: float) -> Any:
    """Types of all columns, as one process would write them: those of the first rows."""
    batch, predicted = next(stream_predictions(regressor, table, coverage, rows=1))
    return with_columns(batch.table, predicted_columns(predicted)).schema
