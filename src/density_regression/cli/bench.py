"""`bench`: fit every method to every split of a suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from density_regression.cli.engines import Address, Engine, check_engine
from density_regression.cli.errors import fail
from density_regression.cli.resumable import check_methods, resumable, split_names

if TYPE_CHECKING:
    from density_regression.experiments.bench import Bench
    from density_regression.experiments.engines import EngineName
    from density_regression.experiments.records import RecordFile
    from density_regression.experiments.suites import NaturalShifts

__all__ = ["bench"]


def bench(
    suite: Annotated[
        Literal["cubic", "uci", "uci-shift", "shift", "wine", "weather", "stations", "depth"],
        typer.Argument(help="What to run."),
    ],
    protocol: Annotated[
        Literal["paper", "default", "tuned"] | None,
        typer.Option(
            help="The paper's settings, each method's defaults, or an equal search for every method. Of shift default, "
            "else paper, if left out."
        ),
    ] = None,
    methods: Annotated[str, typer.Option(help="Names, separated by commas; all if left out.")] = "",
    datasets: Annotated[
        str, typer.Option(help="Data sets of the suite, separated by commas; of shift also one CSV file.")
    ] = "",
    splits: Annotated[
        int | None, typer.Option(min=1, help="Splits of each data set; or seeds, where it has none.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Fits of each split: 1, of depth 3, if left out.")] = None,
    budget: Annotated[int, typer.Option(min=1, max=19, help="Settings to try for each method, if tuned.")] = 12,
    data_dir: Annotated[
        str | None, typer.Option(envvar="DENSITY_REGRESSION_DATA", help="Folder with the data.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Of a CSV file (shift): the column to predict.")] = None,
    train: Annotated[
        str | None, typer.Option(help='Of a CSV file (shift): training rows, as a query of pandas: "year < 2015".')
    ] = None,
    test: Annotated[str | None, typer.Option(help="Of a CSV file (shift): shifted rows, likewise.")] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Of a CSV file (shift): a column not to use; may be given several times.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=20, help="Most training rows of shift: 5000 if left out.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("results"),
    jobs: Annotated[int, typer.Option(help="Processes; -1 is one for each core.")] = -1,
    device: Annotated[str, typer.Option(help='Where networks are trained: "cpu", "cuda" or "auto".')] = "cpu",
    plugin: Annotated[
        str | None, typer.Option(help="Python module to import first, which registers methods of your own.")
    ] = None,
    engine: Engine = "local",
    address: Address = None,
) -> None:
    """Fit every method to every split of a suite. What is there already is not run again: interrupt it as you like."""
    own_options = {"--target": target, "--train": train, "--test": test, "--drop": drop, "--rows": rows}
    if suite != "shift" and (given := [name for name, value in own_options.items() if value is not None]):
        raise typer.BadParameter(f"{suite} has no {', '.join(given)}; the suite shift has.")
    check_engine(engine, address)
    if suite == "depth":
        if engine != "local":
            raise typer.BadParameter("depth runs in one process: leave --engine out.", param_hint="--engine")
        if protocol not in (None, "paper") or datasets or splits or plugin:
            raise typer.BadParameter(
                "depth has no --protocol, --datasets or --splits, and no --plugin; it has --seeds."
            )
        _run_depth(split_names(methods), seeds or 3, data_dir, out, device)
        return
    from density_regression.experiments.protocols import check_protocol, usual_protocol
    from density_regression.experiments.suites import find_suite

    chosen = protocol or usual_protocol(suite)
    try:
        check_protocol(suite, chosen)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--protocol") from error
    if jobs == 0:
        raise typer.BadParameter("0 processes do nothing; -1 is one for each core.", param_hint="--jobs")
    wanted = split_names(datasets)
    own_suite = None
    if suite == "shift":
        own_suite = _natural_shifts(datasets, train, test, target, drop, rows)
        wanted = wanted if own_suite.table is None else [own_suite.table.name]
    found = find_suite(suite, own_suite)
    try:
        # Missing data are reported before anything slow is imported or fitted.
        for dataset in found.select(wanted, data_dir):
            found.load(dataset, found.splits(dataset, data_dir)[0], data_dir)
    except (OSError, ImportError, ValueError) as error:
        fail(str(error))

    from density_regression.experiments.bench import Bench, check_extras
    from density_regression.experiments.fitting import estimators_by_method
    from density_regression.experiments.records import RecordFile
    from density_regression.nn.runtime import find_device
    from density_regression.registry import import_plugin

    if plugin is not None:
        try:
            import_plugin(plugin)
        except Exception as error:  # a module may fail in any way
            raise typer.BadParameter(str(error), param_hint="--plugin") from error
    names = split_names(methods) or list(estimators_by_method())
    check_methods(names, estimators_by_method())
    try:
        find_device(device)
        check_extras(names)
        file = RecordFile(out / f"{suite}-{chosen}.jsonl")
    except (ImportError, OSError, ValueError) as error:
        fail(str(error))
    plan = Bench(suite, chosen, names, wanted or None, splits, seeds or 1, data_dir, budget, device, plugin, own_suite)
    _run(plan, file, jobs, engine, address)


def _natural_shifts(
    datasets: str, train: str | None, test: str | None, target: str | None, drop: list[str] | None, rows: int | None
) -> NaturalShifts:
    """Suite of the tables in the data folder or, if asked for, of one file."""
    from density_regression.datasets.natural import MAX_TRAIN_ROWS, ShiftTable
    from density_regression.experiments.suites import NaturalShifts

    path, max_rows = Path(datasets.strip()).expanduser(), rows or MAX_TRAIN_ROWS
    if not (train or test or target or drop or path.name.endswith((".csv", ".csv.gz"))):
        return NaturalShifts(max_rows=max_rows)
    needed = {"--datasets": datasets.strip(), "--target": target, "--train": train, "--test": test}
    if missing := [name for name, value in needed.items() if not value]:
        raise typer.BadParameter(f"a CSV file of your own needs {', '.join(needed)}; {', '.join(missing)} is missing.")
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    table = ShiftTable(name, str(path), train or "", test or "", target or "", tuple(drop or ()))
    return NaturalShifts(table, max_rows)


def _run(plan: Bench, file: RecordFile, jobs: int, engine: EngineName, address: str | None) -> None:
    from density_regression.experiments.progress import BenchProgress

    console = Console(stderr=True, markup=False)
    if file.dropped:
        console.print(f"{file.path}: {file.dropped} half-written line(s) removed.", soft_wrap=True)
    failed = 0
    with resumable(file), BenchProgress(plan, file, console) as progress:
        for record in plan.run(file, jobs, engine, address):
            progress.update(record)
            failed += "error" in record
    if failed:
        fail(f"{failed} fits failed; the same command tries them again.")


def _run_depth(methods: list[str], seeds: int, data_dir: str | None, out: Path, device: str) -> None:
    from density_regression.experiments.depth.bench import DepthBench, depth_folders
    from density_regression.experiments.depth.methods import KNOWN, METHODS
    from density_regression.experiments.records import RecordFile
    from density_regression.nn.runtime import find_device

    check_methods(methods, KNOWN)
    try:
        depth_folders(data_dir)
        find_device(device)
        file = RecordFile(out / "depth.jsonl")
    except (OSError, ValueError) as error:
        fail(str(error))
    with resumable(file):
        for record in DepthBench(data_dir, methods or METHODS, seeds, device).run(file, out / "panels"):
            typer.echo(f"{record['method']}, seed {record['seed']}: fitted in {record['seconds']:.0f} s")
