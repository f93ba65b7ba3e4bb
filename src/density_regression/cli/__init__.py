"""The command line."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any, Final, NamedTuple

import typer

from density_regression.cli.bench import bench
from density_regression.cli.compare import compare
from density_regression.cli.demo import demo
from density_regression.cli.evaluate import evaluate
from density_regression.cli.export import export
from density_regression.cli.fit import fit
from density_regression.cli.info import info
from density_regression.cli.predict import predict
from density_regression.cli.report import report
from density_regression.cli.serve import serve
from density_regression.cli.watch import watch

__all__ = ["app"]


class Command(NamedTuple):
    """A command, under which heading the help lists it, and an example."""

    function: Callable[..., Any]
    heading: str
    example: str


MODELS, COMPARISONS = "From a table to predictions", "Methods compared"

COMMANDS: Final = (
    Command(fit, MODELS, "density-regression fit flats.csv --target price --positive"),
    Command(info, MODELS, "density-regression info model --card card.md"),
    Command(predict, MODELS, "density-regression predict model new.csv --out predictions.csv"),
    Command(evaluate, MODELS, "density-regression evaluate model new.csv"),
    Command(watch, MODELS, "density-regression watch model monday.csv tuesday.csv --state alarm.json"),
    Command(serve, MODELS, "density-regression serve model --port 8000 --token-file token"),
    Command(export, MODELS, "density-regression export model --out model.onnx --rows held_out.csv"),
    Command(compare, COMPARISONS, "density-regression compare flats.csv --target price --rows 2000"),
    Command(demo, COMPARISONS, "density-regression demo --out figures"),
    Command(bench, COMPARISONS, "density-regression bench cubic --out results"),
    Command(report, COMPARISONS, "density-regression report results"),
)

app = typer.Typer(
    name="density-regression", no_args_is_help=True, pretty_exceptions_show_locals=False, rich_markup_mode="markdown"
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("density-regression"))
        raise typer.Exit


@app.callback(epilog="Each command has a help of its own, with an example: density-regression fit --help")
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Predict a number for each row of a table, how far off it may be, and whether the row is too strange to tell.

    All you need is a table, such as a CSV file, and the name of the column to predict:

    density-regression fit flats.csv --target price

    density-regression predict model new.csv --out predictions.csv
    """


for command in COMMANDS:
    app.command(epilog=f"Example: {command.example}", rich_help_panel=command.heading)(command.function)
