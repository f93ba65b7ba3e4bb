"""`report`: tables and figures from results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from density_regression.cli.errors import fail

__all__ = ["report"]


def report(
    results: Annotated[list[Path], typer.Argument(help="Folders or .jsonl files that `bench` wrote.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the report; that of the results if left out.")] = None,
    test: Annotated[
        Literal["corrected", "plain"], typer.Option(help="Paired t-test: Nadeau and Bengio's, or the paper's.")
    ] = "corrected",
    rule: Annotated[
        Literal["separate", "calibration-first"],
        typer.Option(help="Each metric apart; or sharpness only between equals in calibration."),
    ] = "separate",
    level: Annotated[float, typer.Option(min=1e-6, max=0.5, help="Level of the tests, with Holm's correction.")] = 0.05,
) -> None:
    """Tables with significance tests, and figures, from results: in Markdown, LaTeX and one HTML page."""
    from density_regression.experiments.records import read_records
    from density_regression.experiments.report import write_report

    try:
        records = read_records(results)
        folder = out or (results[0] if results[0].is_dir() else results[0].parent)
        paths = write_report(records, folder, test=test, rule=rule, level=level)
    except (OSError, ValueError) as error:
        fail(str(error))
    for path in paths:
        typer.echo(path)
