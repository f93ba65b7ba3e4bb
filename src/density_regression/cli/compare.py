"""`compare`: all methods, cross-validated on one's own table."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from density_regression.cli.engines import Address, Engine, check_engine
from density_regression.cli.errors import fail
from density_regression.cli.resumable import check_methods, resumable, split_names
from density_regression.cli.tables import Decimal, Encoding, Missing, Plugin, Separator, Text, open_data

if TYPE_CHECKING:
    from density_regression.experiments.compare.plan import Comparison
    from density_regression.experiments.compare.summary import Summary
    from density_regression.experiments.compare.table import OwnTable
    from density_regression.experiments.engines import EngineName
    from density_regression.experiments.records import Record, RecordFile

__all__ = ["compare"]

ROWS, RUNNING = "Which columns, which rows", "Fits"


def compare(
    data: Annotated[
        Path, typer.Argument(help="Table: CSV, TSV or Parquet, also compressed, or a folder of such files.")
    ],
    target: Annotated[str, typer.Option(metavar="COLUMN", help="Column to predict.", rich_help_panel=ROWS)],
    methods: Annotated[
        str, typer.Option(help="Names, separated by commas; all if left out.", rich_help_panel=RUNNING)
    ] = "",
    folds: Annotated[int, typer.Option(min=2, max=100, help="Parts of the rows, each tested once.")] = 5,
    seeds: Annotated[int, typer.Option(min=1, help="Fits of each fold, from other initial weights.")] = 1,
    rows: Annotated[
        int, typer.Option(min=20, help="Most rows to use, drawn at random.", rich_help_panel=ROWS)
    ] = 20_000,
    positive: Annotated[
        bool,
        typer.Option(
            "--positive",
            help="The target is above 0, as a price is: every method learns its logarithm.",
            rich_help_panel=ROWS,
        ),
    ] = False,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column not to use; may be given several times.", rich_help_panel=ROWS),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Test on whole groups of rows that are alike, such as all of a patient. It is not used otherwise.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Test on what comes after the rows that train. It is used as others are, unless dropped.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for records and report.")] = Path("comparison"),
    jobs: Annotated[int, typer.Option(help="Processes; -1 is one for each core.", rich_help_panel=RUNNING)] = -1,
    device: Annotated[
        str, typer.Option(help='Where networks are trained: "cpu", "cuda" or "auto".', rich_help_panel=RUNNING)
    ] = "cpu",
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    missing: Missing = None,
    text: Text = None,
    plugin: Plugin = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
    engine: Engine = "local",
    address: Address = None,
) -> None:
    """Fit all methods to the same parts of a table, and say which predict the rest best, and what they cost.

    Interrupt it as you like: what is there already is not run again.
    """
    if group is not None and time is not None:
        raise typer.BadParameter("--group and --time both say how rows are divided: leave one of them out.")
    if jobs == 0:
        raise typer.BadParameter("0 processes do nothing; -1 is one for each core.", param_hint="--jobs")
    check_engine(engine, address)

    from density_regression.cli.training_rows import Roles
    from density_regression.experiments.compare.plan import Comparison
    from density_regression.experiments.records import RecordFile
    from density_regression.nn.runtime import find_device

    reading = {"separator": separator, "decimal": decimal, "encoding": encoding, "missing": missing, "text": text}
    console = Console(stderr=True, markup=False, highlight=False)
    try:
        names = _methods(split_names(methods), plugin, console)
        find_device(device)
        table = _read(data, Roles([target], drop or [], time, group), rows, positive, reading, console)
        table.folds(folds)
        law = "log" if positive else "identity"
        plan = Comparison(table, names, folds, seeds, law, device, plugin)
        file = RecordFile(out / f"{table.name}.jsonl")
    except (ImportError, OSError, ValueError) as error:
        fail(str(error))
    records = _run(plan, file, console, jobs, engine, address)
    _report(plan, records, out, as_json)


def _methods(given: list[str], plugin: str | None, console: Console) -> list[str]:
    """Names of methods; without DUE, if its module is missing and it was not asked for."""
    from density_regression.experiments.bench import EXTRAS, check_extras
    from density_regression.experiments.fitting import estimators_by_method
    from density_regression.registry import import_plugin

    if plugin is not None:
        try:
            import_plugin(plugin)
        except Exception as error:  # a module may fail in any way
            raise typer.BadParameter(str(error), param_hint="--plugin") from error
    known = estimators_by_method()
    if given:
        # Also by the names that `fit --method` takes.
        classes = {kind.__name__.lower(): name for name, kind in known.items() if isinstance(kind, type)}
        names = {**{name.lower(): name for name in known}, **classes}
        names |= {kind.removesuffix("regressor"): name for kind, name in classes.items()}
        given = list(dict.fromkeys(names.get(name.lower(), name) for name in given))
        check_methods(given, known)
        check_extras(given)
        return given
    lacking = {name: extra for name, (module, extra) in EXTRAS.items() if find_spec(module) is None}
    for name, extra in lacking.items():
        console.print(f"{name} is left out: it needs density-regression[{extra}].", soft_wrap=True)
    return [name for name in known if name not in lacking]


def _read(data: Path, roles: Any, rows: int, positive: bool, reading: dict[str, Any], console: Console) -> OwnTable:
    """The table, and what of it is used in words."""
    from density_regression.cli.training_rows import read_training_table
    from density_regression.experiments.compare.table import OwnTable

    found = read_training_table(open_data(data, **reading), roles, positive=positive)
    whole = OwnTable(
        data.name.partition(".")[0] or "table", found.x, found.y.column(0).to_numpy(), found.groups, found.time
    )
    table = whole.sampled(rows)
    said = [f"{data}: {found.read:,} rows"]
    if found.dropped:
        said.append(f"{found.dropped:,} of them without {roles.target[0]}, which are left out")
    if len(table.y) < len(whole.y):
        said.append(f"{len(table.y):,} used, at random (--rows)")
    console.print(f"{'; '.join(said)}.", soft_wrap=True)
    return table


def _run(
    plan: Comparison, file: RecordFile, console: Console, jobs: int, engine: EngineName, address: str | None
) -> list[Record]:
    """Run what is missing, and return the records of this comparison."""
    from density_regression.experiments.progress import BenchProgress

    found = list(file.records)
    with resumable(file, to_stderr=True), BenchProgress(plan, file, console) as progress:
        for record in plan.run(file, jobs, engine, address):
            progress.update(record)
            found.append(record)
    return plan.records(found)


def _report(plan: Comparison, records: list[Record], out: Path, as_json: bool) -> None:
    from density_regression.cli.rich_tables import printed, wrapped
    from density_regression.experiments.compare.page import write_comparison
    from density_regression.experiments.compare.summary import summarise
    from density_regression.experiments.compare.verdict import verdict

    try:
        summary = summarise(records)
        page, _ = write_comparison(plan, summary, records, out)
    except (OSError, ValueError) as error:
        fail(str(error))
    sentences = verdict(summary)
    if as_json:
        typer.echo(json.dumps(_as_json(plan, summary, records, sentences, page), indent=1))
    else:
        printed(summary.table)
        for sentence in sentences:
            typer.echo(wrapped(sentence))
        typer.echo(f"Page: {page}")
    if failed := sum("error" in record for record in records):
        fail(f"{failed} fits failed; the same command tries them again.")


def _as_json(
    plan: Comparison, summary: Summary, records: list[Record], sentences: list[str], page: Path
) -> dict[str, Any]:
    return {
        "rows": len(plan.table.y),
        "folds": summary.splits,
        "seeds": plan.seeds,
        "law": plan.target,
        "best": summary.best,
        "methods": {
            name: {metric: values[name] for metric, values in summary.means.items()}
            for name in summary.means["nll_own"]
        },
        "above_best": [one._asdict() | {"worse": one.is_worse} for one in summary.others],
        "failed": sorted({record["method"] for record in records if "error" in record}),
        "verdict": sentences,
        "page": str(page),
    }
