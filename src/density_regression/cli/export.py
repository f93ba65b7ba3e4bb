"""`export`: write a saved model as one ONNX graph."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from density_regression.cli.errors import fail
from density_regression.io.extras import import_extra

if TYPE_CHECKING:
    from density_regression.estimators.base import DeepRegressor

__all__ = ["export"]


def export(
    model: Annotated[Path, typer.Argument(help="Folder that `save` wrote.")],
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("model.onnx"),
    dtype: Annotated[Literal["float64", "float32"], typer.Option(help="Of inputs and results.")] = "float64",
    int8: Annotated[bool, typer.Option("--int8", help="Write the encoder's weights in eight bits.")] = False,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Table (.csv or .csv.gz, with names of columns) to compare file and model on: held-out rows."
        ),
    ] = None,
    plugin: Annotated[
        str | None, typer.Option(help="Python module to import first, which registers classes of your own.")
    ] = None,
) -> None:
    """Write a saved model as one ONNX graph: rows in their own units in, mean, std and log_density out."""
    from density_regression import load

    try:
        regressor = load(model, plugin=plugin)
        # An unreadable table is reported before the file is written.
        table = None if rows is None else _inputs(regressor, rows)
        difference = regressor.to_onnx(out, dtype=dtype, int8=int8)
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            # The model was fitted on named columns; these were selected by name and are a plain array.
            moved = regressor.check_onnx(out, table) if int8 or rows is not None else None
    except (ImportError, OSError, ValueError) as error:
        fail(str(error))
    typer.echo(f"{out}: {out.stat().st_size / 1024:.0f} KiB; differs from torch by {difference:.0e} at most, relative.")
    if moved is None:
        return
    where = f"On {rows}" if rows is not None else "On rows drawn at random by each column's mean and standard deviation"
    typer.echo(
        f"{where} a mean moves by {moved.mean:.2g} standard deviations at most, typically by {moved.typical:.2g}; "
        f"a standard deviation by {100 * moved.std:.2g} % at most."
    )
    if rows is None:
        typer.echo("Where the model is surer of itself, means move further: give --rows FILE with held-out rows.")


def _inputs(regressor: DeepRegressor, path: Path) -> Any:
    """Columns of a table that a regressor was fitted on: by name if it knows names, else the first ones."""
    from density_regression.datasets import read_table

    if regressor.columns_ is not None:
        pandas = import_extra("pandas", needed_by="A table with text, dates or gaps", extra="data")
        # In one piece: in several, the type of a column may differ from piece to piece.
        return pandas.read_csv(path, low_memory=False)
    names, values = read_table(path)
    known = getattr(regressor, "feature_names_in_", None)
    if known is None:
        return values[:, : regressor.n_features_in_]
    missing = [name for name in known if name not in names]
    if missing:
        raise ValueError(f"{path} lacks columns that the model was fitted on: {', '.join(missing)}.")
    return values[:, [names.index(name) for name in known]]
