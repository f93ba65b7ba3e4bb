"""`predict`: predictions of a saved model for a table, or for images."""

from __future__ import annotations

import json
import os
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from density_regression.cli.engines import CLUSTER, Address, Engine, check_engine
from density_regression.cli.errors import fail
from density_regression.cli.fit import Task
from density_regression.cli.predict_ray import check_parquet_out, write_by_ray
from density_regression.cli.tables import Decimal, Encoding, Missing, Plugin, Separator, open_data

if TYPE_CHECKING:
    from density_regression.estimators.base import DeepRegressor
    from density_regression.tabular.files import TableFile

__all__ = ["predict"]

MANY = 0.05
"""Share of unfamiliar rows from which on a hint is given; of rows like those of training, one in a hundred is."""


def predict(
    model: Annotated[Path, typer.Argument(help="Folder that `fit` wrote.")],
    data: Annotated[
        list[Path],
        typer.Argument(help="Table: CSV, TSV, Parquet, or a folder of such files. For a model of images, image files."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write: .csv, .csv.gz, .tsv or .parquet; for images, a folder.",
            show_default="standard output, as CSV",
        ),
    ] = None,
    coverage: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Probability with which the target lies between low and high.")
    ] = 0.9,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    missing: Missing = None,
    plugin: Plugin = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say what was done in JSON.")] = False,
    task: Annotated[
        Task | None, typer.Option(help="What the model has learnt.", show_default="what the model says")
    ] = None,
    device: Annotated[str, typer.Option(help='Where to compute for images: "cpu", "cuda" or "auto".')] = "auto",
    engine: Engine = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes of the engine ray, of a processor each.", show_default="all", rich_help_panel=CLUSTER
        ),
    ] = None,
    address: Address = None,
) -> None:
    """Predict the rows of a table: its columns, and mean, std, low, high, familiarity and unfamiliar.

    Of images: depth and its standard deviation for every pixel, as PNGs of 16 bits (metres times 256), and a picture.
    """
    if task == "depth" or _is_of_images(model):
        from density_regression.cli.depth import predict_images

        if out is None:
            raise typer.BadParameter("Name a folder for the results.", param_hint="--out")
        predict_images(model, data, out, device)
        return
    if len(data) > 1:
        raise typer.BadParameter("Give one table, or a folder of files with the same columns.", param_hint="DATA")
    _check_out(data[0], out)
    check_engine(engine, address, workers)
    if engine == "ray":
        check_parquet_out(out)

    from density_regression import load

    try:
        table = open_data(data[0], separator, decimal, encoding, missing)
        read = partial(load, model.resolve(), plugin=plugin)
        with warnings.catch_warnings(record=True) as caught:
            if engine == "ray" and out is not None:
                rows, unfamiliar = write_by_ray(read, table, out, coverage, workers, address)
            else:
                rows, unfamiliar = _write(read(), table, out, coverage)
    except KeyboardInterrupt:
        typer.echo("Interrupted: nothing was written.", err=True)
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Whoever read standard output has gone; without this, Python would complain on leaving.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(141) from None
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        fail(str(error))
    for message in {(warning.filename, warning.lineno): str(warning.message) for warning in caught[::-1]}.values():
        typer.echo(f"Warning: {message}", err=True)
    _report(rows, unfamiliar, out, as_json)


def _is_of_images(model: Path) -> bool:
    """Whether a model says that it is one of images; `load` says what else may be wrong with it."""
    try:
        config = json.loads((model / "model.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("estimator") == "DepthRegressor"


def _check_out(data: Path, out: Path | None) -> None:
    """Refuse to write over the table, or among its parts."""
    if out is not None and data.resolve() in (out.resolve(), out.resolve().parent):
        raise typer.BadParameter("That is where the table is: name another place.", param_hint="--out")


def _write(regressor: DeepRegressor, table: TableFile, out: Path | None, coverage: float) -> tuple[int, int | None]:
    """Write the predictions; number of rows, and of unfamiliar ones if the method knows them."""
    from density_regression.estimators.streaming import predicted_columns, stream_predictions, with_columns
    from density_regression.io.progress import RowProgress
    from density_regression.tabular.files import TableWriter

    separator, decimal = (",", ".") if table.dialect is None else table.dialect[:2]
    as_text = out is None or out.suffix.lower() != ".parquet"
    rows, unfamiliar = 0, None
    shown = out is not None or not sys.stdout.isatty()
    with (
        TableWriter("-" if out is None else out, separator=separator, decimal=decimal) as writer,
        RowProgress("predict", table.rows, visible=shown) as progress,
    ):
        for batch, predicted in stream_predictions(regressor, table, coverage):
            # Text stays as it was; in Parquet, what the model read as numbers are numbers.
            added = predicted_columns(predicted)
            written = with_columns(batch.given if as_text else batch.table, added)
            writer.write(written)
            rows += len(written)
            if "unfamiliar" in added:
                unfamiliar = (unfamiliar or 0) + int(added["unfamiliar"].sum())
            progress.advance(len(written))
    return rows, unfamiliar


def _report(rows: int, unfamiliar: int | None, out: Path | None, as_json: bool) -> None:
    """Say what was done: on standard output, unless the table went there."""
    to_stderr = out is None
    if as_json:
        said = {"rows": rows, "unfamiliar": unfamiliar, "out": None if out is None else str(out)}
        typer.echo(json.dumps(said), err=to_stderr)
        return
    known = "" if unfamiliar is None else f", {unfamiliar:,} of them unfamiliar ({100 * unfamiliar / rows:.1f} %)"
    typer.echo(f"{rows:,} rows{known}{'' if out is None else f': {out}'}", err=to_stderr)
    if unfamiliar is not None and unfamiliar > MANY * rows:
        typer.echo(
            "So many unfamiliar rows are not like those the model was fitted to: their intervals are wide with reason. "
            "Look at what has changed, or fit to rows like these.",
            err=True,
        )
