"""`watch`: an alarm over tables, in the order of their rows, by a saved model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from density_regression.cli.errors import fail
from density_regression.cli.tables import Decimal, Encoding, Missing, Plugin, Separator, open_data

if TYPE_CHECKING:
    from density_regression.serve.alarm import Alarm, AlarmReport
    from density_regression.tabular.files import TableFile

__all__ = ["watch"]

RANG = 3
"""Exit status if there was an alarm."""


def watch(
    model: Annotated[Path, typer.Argument(help="Folder that `fit` wrote.")],
    data: Annotated[
        list[Path],
        typer.Argument(help="Tables, in the order of time: CSV, TSV, Parquet, or folders of such files."),
    ],
    false_alarms_per: Annotated[
        float, typer.Option(metavar="ROWS", help="Rows in which there may be one false alarm on average.")
    ] = 100_000,
    direction: Annotated[
        Literal["unfamiliar", "changed"],
        typer.Option(help="Ring when inputs are less familiar than before; or when they are less or more so."),
    ] = "unfamiliar",
    every: Annotated[
        int, typer.Option(min=1, help="Let one row in so many count, if rows depend on their neighbours.")
    ] = 1,
    block: Annotated[int, typer.Option(min=1, help="Or let so many rows have one score, their mean.")] = 1,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Watch the errors for this target, too; it may have gaps.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="File that keeps the alarm's state, so that the next call goes on with the next tables."),
    ] = None,
    page: Annotated[Path | None, typer.Option(help="HTML page to write: evidence along the rows, and alarms.")] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    missing: Missing = None,
    plugin: Plugin = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each alarm, and the end.")] = False,
) -> None:
    """Ring an alarm when rows are no longer like those that the model knows: since when, which columns, by how much.

    Exit status 3 if there was an alarm, 0 if there was none. Tables that --state has seen are not read again.
    """
    from density_regression.registry import load
    from density_regression.serve.alarm import Alarm

    settings = {
        "false_alarms_per": false_alarms_per,
        "direction": direction,
        "every": every,
        "block": block,
        "targets": target is not None,
    }
    rang = 0
    unsaved: OSError | None = None
    try:
        regressor = load(model, plugin=plugin)
        alarm = _taken_up(state, regressor, settings) or Alarm.for_model(regressor, **settings)
        if not as_json:
            typer.echo(alarm.promise)
        for path in data:
            if _seen(alarm, path):
                typer.echo(f"{path} was watched before: passed over.", err=True)
                continue
            table = open_data(path, separator, decimal, encoding, missing)
            for report in _reports(alarm, table, target):
                rang += 1
                typer.echo(json.dumps({"alarm": report.to_json()}) if as_json else f"\n{report}")
            alarm.notes.setdefault("tables", {})[str(path.resolve())] = _size(path)
            unsaved = _save(alarm, state)
        if page is not None:
            _write_page(page, alarm, model)
    except KeyboardInterrupt:
        typer.echo("Interrupted. The tables that were finished are in --state." if state else "Interrupted.", err=True)
        raise typer.Exit(130) from None
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        fail(str(error))
    typer.echo(json.dumps(_summary(alarm, rang)) if as_json else _last_words(alarm, rang))
    if unsaved is not None:
        typer.echo(f"The state was not saved, so the same tables would be watched again: {unsaved}", err=True)
    if rang or unsaved is not None:
        raise typer.Exit(RANG if rang else 1)


def _taken_up(path: Path | None, regressor: Any, settings: dict[str, Any]) -> Alarm | None:
    """The alarm whose state is in a file, if there is one."""
    from density_regression.serve.alarm import Alarm

    if path is None or not path.exists():
        return None
    alarm = Alarm.load(path, regressor)
    for name, value in settings.items():
        if (kept := getattr(alarm.settings, name)) != value:
            raise ValueError(
                f"{path} was begun with {name}={kept}, now it is {value}: give the same options, or another --state."
            )
    return alarm


def _seen(alarm: Alarm, path: Path) -> bool:
    """Whether a table was watched before; a ValueError if it has changed since."""
    size = alarm.notes.get("tables", {}).get(str(path.resolve()))
    if size is not None and size != _size(path):
        raise ValueError(
            f"{path} was watched when it had {size:,} bytes, and has {_size(path):,} now: put new rows in a new file."
        )
    return size is not None


def _size(path: Path) -> int:
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _reports(alarm: Alarm, table: TableFile, target: str | None) -> Iterator[AlarmReport]:
    """Alarms in the rows of a table."""
    import numpy as np

    from density_regression.estimators.kinds import column_kinds

    named = hasattr(alarm.regressor, "feature_names_in_")
    kinds = column_kinds(alarm.regressor, [name for name in table.columns if name != target])
    asked = kinds if target is None else {**kinds, target: "number"}
    for batch in table.batches(asked):
        rows = batch.table.select(list(kinds))
        y = None if target is None else batch.table.column(target).to_numpy()
        # scikit-learn warns of names where an array was fitted.
        yield from alarm.update(rows if named else np.column_stack([part.to_numpy() for part in rows.columns]), y)


def _save(alarm: Alarm, path: Path | None) -> OSError | None:
    """Save the state; the error, if that failed: watching goes on."""
    if path is None:
        return None
    try:
        alarm.save(path)
    except OSError as error:
        return error
    return None


def _write_page(path: Path, alarm: Alarm, model: Path) -> None:
    from density_regression.io.files import write_whole
    from density_regression.serve.alarm.page import alarm_page

    write_whole(path, alarm_page(alarm, f"Alarm of {model.resolve().name}").encode())


def _summary(alarm: Alarm, rang: int) -> dict[str, Any]:
    return {
        "alarms": rang,
        "rows": alarm.rows,
        "evidence": alarm.evidence(),
        "neighbours_alike": alarm.neighbours_alike,
        "warming_up": list(alarm.warming_up),
        "promise": alarm.promise,
    }


def _last_words(alarm: Alarm, rang: int) -> str:
    lines = [f"\n{rang or 'No'} alarm{'s' * (rang != 1)} in these tables; {alarm.rows:,} rows so far."]
    lines += [
        f"What began with the alarm at row {report.row:,} rang again and again until row {report.until:,}."
        for report in alarm.reports[len(alarm.reports) - min(rang, len(alarm.reports)) :]
        if report.until > report.row
    ]
    if alarm.warming_up:
        lines.append(f"Not watched yet, as scores to compare with are still collected: {', '.join(alarm.warming_up)}.")
    if alarm.neighbours_alike:
        lines.append("Neighbouring rows are alike, so the stated rate does not hold: give --block or --every.")
    return "\n".join(lines)
