"""`fit` of a table: read, check, train, save, and say how good the model is."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from density_regression.cli.errors import fail
from density_regression.cli.methods import METHODS, check_method
from density_regression.cli.outputs import check_folders, interrupted, refuse_other
from density_regression.cli.processes import is_first, is_launched, lost, run_in_processes
from density_regression.cli.tables import open_data

if TYPE_CHECKING:
    from density_regression.cli.training_rows import TrainingTable
    from density_regression.estimators.base import DeepRegressor

__all__ = ["fit_table"]

FOR_FILES = {
    "Left out of X:": "Left out:",
    " of X ": " ",
    ", by pandas.to_datetime for instance": ", to the form 2026-11-19",
    "convert them, by pandas.to_numeric(..., errors='coerce') for instance": "say what means a gap (--missing)",
}
"""Words of warnings that are meant for Python, and what they mean for files."""

MEMBERS = {"DensityRegressor": "members", "DeepEnsembleRegressor": "n_members"}
"""What a method calls its number of networks."""


def fit_table(
    data: Path,
    *,
    target: list[str],
    out: Path,
    method: str,
    law: str = "identity",
    drop: list[str] | None = None,
    time: str | None = None,
    group: str | None = None,
    weight: str | None = None,
    conformal: float | None = None,
    members: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    device: str = "cpu",
    devices: int = 1,
    num_nodes: int = 1,
    checkpoint_dir: Path | None = None,
    stream: bool | None = None,
    as_json: bool = False,
    **reading: Any,
) -> None:
    """Train a model on a table, and save it; the options are those of `fit`, `reading` those of `open_data`."""
    method = check_method(method)
    settings: dict[str, Any] = {"target": law, "random_state": seed, "n_threads": threads, "device": device}
    settings |= {} if epochs is None else {"epochs": epochs}
    settings |= {} if members is None else _members(method, members)
    if conformal is not None and not 0 < conformal < 1:
        raise typer.BadParameter("give a share of the rows, such as 0.1.", param_hint="--conformal")
    if time is not None and group is not None:
        raise typer.BadParameter("--time and --group both say which rows to hold out: leave one of them out.")
    if devices * num_nodes > 1 and method != METHODS[0]:
        raise typer.BadParameter(
            f"{method} is trained by one process; {METHODS[0]} by several.", param_hint="--devices"
        )
    refuse_other(out, checkpoint_dir)
    if devices * num_nodes > 1:
        settings |= {"devices": devices, "num_nodes": num_nodes, "verbose": is_first()}
        if not is_launched():
            run_in_processes(devices, num_nodes, checkpoint_dir, threads)
            return

    from density_regression.cli.fit_stream import fit_from_files, streams
    from density_regression.cli.fit_words import as_record, in_words
    from density_regression.cli.training_rows import Roles, read_training_table
    from density_regression.nn.processes import LostProcessError
    from density_regression.registry import estimators

    try:
        file = open_data(data, **{**dict.fromkeys(("separator", "decimal", "encoding", "missing")), **reading})
        roles = Roles(target, drop or [], time, group, weight)
        settings["checkpoint_dir"] = checkpoint_dir
        from_disk = streams(file, stream, data, as_json=as_json)
        rows = None if from_disk else read_training_table(file, roles, positive=law == "log")
        check_folders(out, checkpoint_dir)
        if rows is not None and not as_json and is_first():
            typer.echo(_read(data, rows, target))
        with _notes() as notes:
            if rows is None:
                regressor = estimators()[method](**settings)
                rows = fit_from_files(regressor, data, file, roles, conformal, **reading)
            else:
                regressor = _fitted(method, settings, rows, conformal)
        if not is_first():
            return
        regressor.save(out)
    except KeyboardInterrupt:
        interrupted(checkpoint_dir)
    except LostProcessError as error:
        lost(error)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        # Also raised if the memory of a GPU, or a disk, is too small.
        fail(str(error))
    record = as_record(rows, roles, data, out) | {"notes": notes}
    typer.echo(json.dumps(record, indent=2) if as_json else in_words(record))


def _members(method: str, members: int) -> dict[str, int]:
    if method not in MEMBERS:
        raise typer.BadParameter(f"{method} has no members; {', '.join(MEMBERS)} have.", param_hint="--members")
    return {MEMBERS[method]: members}


def _fitted(method: str, settings: dict[str, Any], rows: TrainingTable, conformal: float | None) -> DeepRegressor:
    from density_regression.cli.time_split import split_by_time
    from density_regression.registry import estimators

    regressor = estimators()[method](**settings)
    if rows.time is None:
        return regressor.fit(rows.x, rows.y, rows.weight, groups=rows.groups, conformal=conformal)
    aside = None
    if conformal is not None:
        # Kept aside are the last of all: nearest to those that the intervals are for.
        rows, aside = split_by_time(rows, conformal)
    train, held_out = split_by_time(rows, regressor.validation_fraction)
    regressor.fit(train.x, train.y, train.weight, held_out=(held_out.x, held_out.y))
    return regressor if aside is None else regressor.conformalize(aside.x, aside.y)


def _read(data: Path, rows: TrainingTable, target: list[str]) -> str:
    lines = [f"{data}: {rows.read:,} rows."]
    if rows.dropped:
        named = ", ".join(target)
        many = f"{rows.dropped:,} rows have" if rows.dropped > 1 else "1 row has"
        lines.append(f"Not used: {many} no {named}, the first is row {rows.first_dropped:,}.")
    return "\n".join(lines)


@contextmanager
def _notes() -> Iterator[list[str]]:
    """Show warnings on standard error as they come, a line each, and keep them; those of other packages are hidden."""
    notes: list[str] = []

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = str(message)
        for python, file in FOR_FILES.items():
            text = text.replace(python, file)
        if issubclass(category, UserWarning) and text not in notes and is_first():
            notes.append(text)
            typer.echo(f"Note: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield notes
