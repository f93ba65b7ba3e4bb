"""The command line."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["app"]

app = typer.Typer(
    name="density-regression",
    help="Deep regression with an honest predictive distribution in one forward pass.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
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


@app.command()
def demo(
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of data and networks.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
) -> None:
    """Fit the paper's cubic toy: print a table, and draw what each tempering makes of it."""
    import numpy as np

    from density_regression.experiments.cubic import METHODS, draw, run_cubic

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{out} cannot be made a folder: {error.strerror}.", param_hint="--out") from error
    console = Console(width=None if Console().is_terminal else 120)
    start = time.perf_counter()
    grid = np.linspace(-7, 7, 281)
    results = []
    for method in METHODS:
        console.print(f"fitting: {method} ...", style="dim")
        results.append(run_cubic(method, seed, grid))
    figures = Table(title="Cubic toy: trained on |x| <= 4; inside = there, outside = 4 < |x| <= 7")
    figures.add_column("")
    for result in results:
        figures.add_column(result.method, justify="right")
    for name in results[0].figures:
        figures.add_row(name, *(f"{result.figures[name]:.3g}" for result in results))
    figures.add_section()
    for step in results[0].seconds:
        figures.add_row(f"seconds: {step}", *(f"{result.seconds[step]:.2f}" for result in results))
    console.print(figures)
    path = out / "cubic.png"
    draw(results, grid, seed, path)
    console.print(f"Figure: {path}   ({time.perf_counter() - start:.0f} s in all)", soft_wrap=True)
