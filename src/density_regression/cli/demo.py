"""`demo`: all methods on the cubic toy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

if TYPE_CHECKING:
    from density_regression.experiments.cubic import CubicResult

__all__ = ["demo"]


def demo(
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of data and networks.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
) -> None:
    """Fit the paper's cubic toy: by our method in three ways, then by all eleven; print tables, and draw both."""
    import numpy as np

    from density_regression.experiments.cubic import METHODS, TEMPERINGS, draw, run_cubic

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{out} cannot be made a folder: {error.strerror}.", param_hint="--out") from error
    console = Console(width=None if Console().is_terminal else 120)
    start = time.perf_counter()
    grid = np.linspace(-7, 7, 281)
    results: dict[str, CubicResult] = {}
    for method in (*TEMPERINGS, *METHODS):
        if method == "Density-Regression":
            # The same default settings were fitted already.
            results[method] = results["robust (default)"]._replace(method=method)
            continue
        console.print(f"fitting: {method} ...", style="dim")
        try:
            (results[method],) = run_cubic(method, [seed], grid)
        except ImportError as error:
            # The other methods do not need the missing extra.
            console.print(f"skipped: {error}", markup=False)
    pages = [[results[method] for method in page if method in results] for page in (TEMPERINGS, METHODS)]
    console.print(_temperings(pages[0]))
    console.print(_comparison(pages[1]))
    for path, page in zip((out / "cubic.png", out / "methods.png"), pages, strict=True):
        draw(page, grid, seed, path)
        console.print(f"Figure: {path}", soft_wrap=True)
    console.print(f"({time.perf_counter() - start:.0f} s in all)")


def _temperings(results: list[CubicResult]) -> Table:
    columns = (Column(result.method, justify="right") for result in results)
    table = Table("", *columns, title="Cubic toy: trained on |x| <= 4; inside = there, outside = 4 < |x| <= 7")
    for name in results[0].metrics:
        table.add_row(name, *(f"{result.metrics[name]:.3g}" for result in results))
    table.add_section()
    for step in results[0].seconds:
        table.add_row(f"seconds: {step}", *(f"{result.seconds[step]:.2f}" for result in results))
    return table


def _comparison(results: list[CubicResult]) -> Table:
    shown = [f"{metric} {where}" for metric in ("NLL", "RMSE", "coverage") for where in ("inside", "outside")]
    shown.append("std(7) / std(0)")
    columns = (Column(name.replace(" ", "\n", 1), justify="right") for name in (*shown, "seconds"))
    title = "The same toy, every method with its default settings"
    table = Table(Column("", no_wrap=True), *columns, title=title)
    for result in results:
        seconds = f"{sum(result.seconds.values()):.1f}"
        table.add_row(result.method, *(f"{result.metrics[name]:.3g}" for name in shown), seconds)
    return table
