"""Predictions of a Parquet table by several processes, on one machine or many: Ray Data with a pool of actors.

The table is divided into slices of row groups. An actor reads a slice, predicts its rows as `stream_predictions` does,
and writes them as one Parquet file: rows do not pass through Ray's object store, and a part that was lost with its
actor is written once more, by another, in the same place.
"""

from __future__ import annotations

import json
import logging
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from density_regression.estimators.streaming import predicted_columns, stream_predictions, with_columns
from density_regression.io.extras import import_extra
from density_regression.tabular.files import TableFile, TableWriter
from density_regression.tabular.files.slices import Slice, divided

if TYPE_CHECKING:
    from density_regression.estimators.base import DeepRegressor

__all__ = ["ScoredPart", "scored_parts"]

TRIES: Final = 4
"""Times that a slice is begun: Ray starts lost actors anew without end, and one slice may be what they all die of."""


class ScoredPart(NamedTuple):
    """Part `number`, which holds the rows of that slice; `unfamiliar` is None of a method without a density."""

    number: int
    rows: int
    unfamiliar: int | None
    path: Path


def scored_parts(
    ray: Any,
    load: Callable[[], DeepRegressor],
    table: TableFile,
    folder: Path,
    coverage: float,
    workers: int | None = None,
) -> Iterator[ScoredPart]:
    """Write the predictions of a table as parts of a folder; each as soon as it is done, which may be out of order.

    The rows of all parts, by their numbers, are those of `stream_predictions`, bit for bit if the machines have the
    same kind of processor.

    Parameters
    ----------
    ray : module
        Connected to a cluster, see `connected`.
    load : callable
        Called in every actor; gives the fitted regressor.
    table : TableFile
        Parquet, in files that every machine of the cluster sees by the same path.
    folder : Path
        Exists, and is seen by every machine as well.
    coverage : float
        Of the interval.
    workers : int, optional
        Most actors, of one processor each; by default as many as the cluster has processors.

    Raises
    ------
    ValueError
        If a value cannot be read or predicted; nobody removes the parts that were written before.
    RuntimeError
        If a slice is lost again and again.
    """
    data = _quiet_ray_data()
    slices = divided(table)
    processors = int(ray.cluster_resources().get("CPU", 1))
    most = min(workers or processors, len(slices))
    scorer = {
        "load": load,
        "slices": slices,
        "columns": table.columns,
        "missing": table.missing,
        "coverage": coverage,
        "schema": _schema(load(), table, coverage),
        "folder": folder,
    }
    numbers = data.from_items([{"slice": i} for i in range(len(slices))], override_num_blocks=len(slices))
    parts = numbers.map_batches(
        _Scorer,
        batch_size=1,
        batch_format="numpy",
        num_cpus=1,
        compute=data.ActorPoolStrategy(min_size=1, initial_size=min(most, processors), max_size=most),
        fn_constructor_kwargs=scorer,
    )
    try:
        for row in parts.iter_rows():
            yield _checked(row, folder)
    except ray.exceptions.RayError as error:
        raise RuntimeError(f"Ray gave up: {str(error).strip().splitlines()[-1]}") from error


def part_path(folder: Path, number: int) -> Path:
    """Path of a part; by their names parts are in order."""
    return folder / f"part-{number:06d}.parquet"


@dataclass
class _Scorer:
    """An actor: reads slices by their number, and writes their rows with predictions."""

    load: Callable[[], DeepRegressor]
    slices: Sequence[Slice]
    columns: Sequence[str]
    missing: Sequence[str]
    coverage: float
    schema: Any
    folder: Path

    def __post_init__(self) -> None:
        self.regressor: DeepRegressor | None = None
        torch.set_num_threads(1)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Write the part of one slice; what to say of it, one of each."""
        number = int(batch["slice"][0])
        rows, unfamiliar, problem = 0, -1, ""
        with warnings.catch_warnings(record=True) as caught:
            try:
                rows, unfamiliar = self._write(number)
            except (ImportError, OSError) as error:
                problem = f"On {platform.node()}: {error}"
            except (RuntimeError, ValueError) as error:
                # Not raised: Ray would print a traceback, and try again.
                problem = str(error)
        said = [[str(one.message), one.filename, one.lineno] for one in caught]
        counts = {"slice": number, "rows": rows, "unfamiliar": unfamiliar}
        return {name: np.array([count]) for name, count in counts.items()} | {
            name: np.array([text], dtype=object) for name, text in (("problem", problem), ("said", json.dumps(said)))
        }

    def _write(self, number: int) -> tuple[int, int]:
        if self.regressor is None:
            self.regressor = self.load()
        self._count_try(number)
        rows, unfamiliar = 0, -1
        table = self.slices[number].table(self.columns, self.missing)
        with TableWriter(part_path(self.folder, number), schema=self.schema) as writer:
            for batch, predicted in stream_predictions(self.regressor, table, self.coverage):
                added = predicted_columns(predicted)
                writer.write(with_columns(batch.table, added))
                rows += len(batch.table)
                if "unfamiliar" in added:
                    unfamiliar = max(unfamiliar, 0) + int(added["unfamiliar"].sum())
        return rows, unfamiliar

    def _count_try(self, number: int) -> None:
        """One byte more for each time that a slice is begun, in a file that outlives the actor."""
        with (self.folder / f".tries-{number}").open("ab") as tries:
            tries.write(b".")
            count = tries.tell()
        if count > TRIES:
            path, first, end, rows = self.slices[number]
            raise RuntimeError(
                f"{path}: row groups {first} to {end - 1} ({rows:,} rows) were begun {TRIES} times, and each time the "
                "process was lost. If it lacked memory, give it fewer workers on each machine (--workers)."
            )


def _quiet_ray_data() -> Any:
    """The module `ray.data`, which then says errors only; all else is in its log files."""
    data = import_extra("ray.data", needed_by='The engine "ray"', extra="ray")
    data.DataContext.get_current().enable_progress_bars = False
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.ERROR)
    return data


def _schema(regressor: DeepRegressor, table: TableFile, coverage: float) -> Any:
    """Types of all columns, as one process would write them: those of the first rows."""
    batch, predicted = next(stream_predictions(regressor, table, coverage, rows=1))
    return with_columns(batch.table, predicted_columns(predicted)).schema


def _checked(row: dict[str, Any], folder: Path) -> ScoredPart:
    """What an actor says of a part; its warnings are given here, and its error is raised."""
    for message, file, line in json.loads(row["said"]):
        warnings.warn_explicit(message, UserWarning, file, line)
    if row["problem"]:
        raise ValueError(row["problem"])
    unfamiliar = None if row["unfamiliar"] < 0 else row["unfamiliar"]
    return ScoredPart(row["slice"], row["rows"], unfamiliar, part_path(folder, row["slice"]))
