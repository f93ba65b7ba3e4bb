"""`fit` of a table that would not fit into memory: whether it would, and training from disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from density_regression.cli.training_rows import Roles, TrainingTable, check_names
from density_regression.tabular.files import TableError

if TYPE_CHECKING:
    from density_regression.estimators.base import DeepRegressor
    from density_regression.tabular.files import TableFile

__all__ = ["fit_from_files", "streams"]

COPIES: Final = 5
"""Bytes in memory for each byte of the table as float64: as read, checked, coded, scaled, and held by training."""

TEXT: Final = 3
"""The same for each byte of a text file."""


def streams(file: TableFile, stream: bool | None, data: Path, *, as_json: bool) -> bool:
    """Whether to train from disk: as the option says, or if the table would not fit into memory."""
    from density_regression.io.memory import available_memory

    if stream is not None:
        return stream
    needed, free = _needed(file), available_memory()
    if needed <= free:
        return False
    sizes = f"would take about {needed / 1e9:.1f} GB in memory, and {free / 1e9:.1f} GB are free"
    if file.dialect is not None:
        raise TableError(
            f'{data} {sizes}. Convert it to Parquet, which can be trained from disk (the guide "Larger than memory" '
            "has the lines), or try nevertheless: --no-stream."
        )
    typer.echo(f"{data} {sizes}: training from disk (--no-stream to read it nevertheless).", err=as_json)
    return True


def fit_from_files(
    regressor: DeepRegressor, data: Path, file: TableFile, roles: Roles, conformal: float | None, **reading: Any
) -> TrainingTable:
    """Fit to a table on disk; what was read of it."""
    given = {"--time": roles.time, "--group": roles.group, "--weight": roles.weight}
    given |= {f"--{name}": value for name, value in reading.items() if name in ("missing", "text")}
    if options := [option for option, value in given.items() if value]:
        raise TableError(f"{options[0]} is for a table in memory: leave it out, or read all of {data}, --no-stream.")
    check_names(file, roles)
    from density_regression.estimators.density import DensityRegressor
    from density_regression.estimators.from_disk import fit_from_disk

    if not isinstance(regressor, DensityRegressor):
        raise TableError(f"{type(regressor).__name__} is not trained from disk, as DensityRegressor is: --no-stream.")
    rows = fit_from_disk(regressor, data, roles.target, conformal=conformal, drop=roles.drop).rows_on_disk_
    without = {"dropped": rows.without_target, "first_dropped": rows.first_without_target}
    return TrainingTable(x=None, y=None, weight=None, groups=None, time=None, read=rows.read, **without)


def _needed(file: TableFile) -> int:
    """About the bytes of memory that a fit to the whole table takes."""
    if file.rows is None:
        return TEXT * sum(part.path.stat().st_size for part in file.parts)
    return COPIES * 8 * file.rows * len(file.columns)
