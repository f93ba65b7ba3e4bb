"""`evaluate`: how good a saved model is on rows with targets, in numbers, words and one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from density_regression.cli.errors import fail
from density_regression.cli.tables import Decimal, Encoding, Missing, Plugin, Separator, open_data

if TYPE_CHECKING:
    from density_regression.experiments.evaluation.evaluation import Evaluation

__all__ = ["evaluate"]


def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder that `fit` wrote.")],
    data: Annotated[
        Path, typer.Argument(help="Table with targets that the model has not seen: CSV, TSV, Parquet, or a folder.")
    ],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column with the targets.", show_default="the one that the model was fitted to"
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for evaluation.html and evaluation.json.")] = Path("evaluation"),
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    missing: Missing = None,
    plugin: Plugin = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the evaluation as one JSON object.")] = False,
) -> None:
    """Judge a model on rows with targets: metrics, calibration, errors, strange rows; one page that loads nothing.

    Rows are read once, some at a time; those without a target are left out.
    """
    from density_regression import load
    from density_regression.experiments.evaluation.page import write_evaluation
    from density_regression.experiments.evaluation.tables import evaluate_table, target_name
    from density_regression.io.progress import RowProgress
    from density_regression.io.store import check_writable

    try:
        check_writable(out)
        table = open_data(data, separator, decimal, encoding, missing)
        regressor = load(model, plugin=plugin)
        name = target_name(regressor, table, target)
        with RowProgress("evaluate", table.rows) as progress:
            found = evaluate_table(regressor, table, name, progress.advance)
        record, page = write_evaluation(found, out, str(model), str(data))
    except KeyboardInterrupt:
        typer.echo("Interrupted: nothing was written.", err=True)
        raise typer.Exit(130) from None
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        fail(str(error))
    if as_json:
        typer.echo(json.dumps({**json.loads(record.read_text(encoding="utf-8")), "page": str(page)}, indent=1))
        return
    _show(found, data)
    typer.echo(f"Page: {page}")


def _show(found: Evaluation, data: Path) -> None:
    """Print metrics, intervals and the verdict."""
    from density_regression.cli.rich_tables import printed, wrapped
    from density_regression.experiments.evaluation.page import interval_table, metric_table
    from density_regression.experiments.evaluation.verdict import verdict

    left_out = f" ({found.without_target:,} more have no target)" if found.without_target else ""
    typer.echo(f"{data}: {found.rows:,} rows with {found.model.target}{left_out}.")
    printed(metric_table(found), without=("Meaning",))
    printed(interval_table(found))
    marks = {"good": "+", "poor": "!", "note": " "}
    for point in verdict(found):
        typer.echo(wrapped(f"{point.topic}. {point.text}", f"{marks[point.mark]} "))
    for trait in () if found.familiarity is None else found.familiarity.traits[1:]:
        typer.echo(wrapped(trait.sentence(), "    - ", "      "))
