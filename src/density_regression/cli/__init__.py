"""The command line."""

from importlib.metadata import version
from typing import Annotated

import typer

from density_regression.cli.bench import bench
from density_regression.cli.demo import demo
from density_regression.cli.export import export
from density_regression.cli.fit import fit
from density_regression.cli.predict import predict
from density_regression.cli.report import report

__all__ = ["app"]

app = typer.Typer(
    name="density-regression", no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("density-regression"))
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Deep regression with an honest predictive distribution in one forward pass."""


for command in (demo, fit, predict, export, bench, report):
    app.command()(command)
