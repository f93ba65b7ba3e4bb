"""`report`: tables and figures from the results of `bench`."""

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
    """Tables with significance tests, and figures, from results: in Markdown, LaTeX and one HTML page.

    The depth experiment has a page of its own, in the folder `depth` of the report.
    """
    from density_regression.experiments.records import read_records
    from density_regression.experiments.report import write_report

    try:
        records = read_records(results)
        paths = _depth_reports(results, out)
        cells = [record for record in records if record["suite"] != "depth"]
        if cells or not paths:
            folder = out or (results[0] if results[0].is_dir() else results[0].parent)
            paths += write_report(cells, folder, test=test, rule=rule, level=level)
    except (OSError, ValueError) as error:
        fail(str(error))
    for path in paths:
        typer.echo(path)


def _depth_reports(results: list[Path], out: Path | None) -> list[Path]:
    """Write the depth report of every folder that has `depth.jsonl`."""
    from density_regression.experiments.depth.report import write_depth_report

    files = [path / "depth.jsonl" if path.is_dir() else path for path in results]
    folders = list(dict.fromkeys(file.parent for file in files if file.name == "depth.jsonl" and file.exists()))
    if out is not None and len(folders) > 1:
        raise ValueError(f"--out has room for one depth report, not {len(folders)}; report these folders one by one.")
    return [path for folder in folders for path in write_depth_report(folder, (out or folder) / "depth")]
