"""`export`: write a saved model as one ONNX graph."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from density_regression.cli.errors import fail
from density_regression.cli.tables import Decimal, Encoding, Missing, Plugin, Separator, open_data

if TYPE_CHECKING:
    from density_regression.estimators.base import DeepRegressor
    from density_regression.inference.onnx.write import OnnxDifference
    from density_regression.tabular.files import TableFile

__all__ = ["export"]


def export(
    model: Annotated[Path, typer.Argument(help="Folder that `fit` wrote.")],
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("model.onnx"),
    dtype: Annotated[Literal["float64", "float32"], typer.Option(help="Of inputs and results.")] = "float64",
    int8: Annotated[bool, typer.Option("--int8", help="Write the encoder's weights in eight bits.")] = False,
    coverage: Annotated[
        float | None,
        typer.Option(help="Of the outputs low and high, of a model with conformal intervals; 0.95 if left out."),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(help="Table to compare file and model on, of any kind that `fit` reads: held-out rows."),
    ] = None,
    plugin: Plugin = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    missing: Missing = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")] = False,
) -> None:
    """Write a saved model as one ONNX graph, which needs neither torch nor this package to run.

    Columns in their own units in, mean, std and log_density out; text, dates and gaps as they are, familiarity, and low
    and high where the model has conformal intervals.
    """
    from density_regression import load

    try:
        regressor = load(model, plugin=plugin)
        # An unreadable table is reported before the file is written.
        table = None if rows is None else _inputs(regressor, open_data(rows, separator, decimal, encoding, missing))
        difference = regressor.to_onnx(out, dtype=dtype, int8=int8, coverage=coverage)
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            # A model may have been fitted to a table without names, and these columns have some.
            moved = regressor.check_onnx(out, table) if int8 or rows is not None else None
    except (ImportError, OSError, ValueError) as error:
        fail(str(error))
    if as_json:
        size = {"out": str(out), "bytes": out.stat().st_size, "difference": difference}
        typer.echo(json.dumps({**size, "moved": None if moved is None else moved._asdict()}))
        return
    typer.echo(f"{out}: {out.stat().st_size / 1024:.0f} KiB; differs from torch by {difference:.0e} at most, relative.")
    if moved is not None:
        _compare(moved, rows)


def _compare(moved: OnnxDifference, rows: Path | None) -> None:
    where = f"On {rows}" if rows is not None else "On rows drawn at random by each column's mean and standard deviation"
    typer.echo(
        f"{where} a mean moves by {moved.mean:.2g} standard deviations at most, typically by {moved.typical:.2g}; "
        f"a standard deviation by {100 * moved.std:.2g} % at most."
    )
    if rows is None:
        typer.echo("Where the model is surer of itself, means move further: give --rows FILE with held-out rows.")


def _inputs(regressor: DeepRegressor, file: TableFile) -> Any:
    """Columns of a table that a regressor was fitted to: by name if it knows names, else the first ones."""
    import numpy as np
    import pyarrow

    from density_regression.estimators.kinds import column_kinds

    kinds = column_kinds(regressor, file.columns)
    missing = [name for name in kinds if name not in file.columns]
    if missing and regressor.columns_ is None:
        raise ValueError(f"{file.path} lacks columns that the model was fitted on: {', '.join(missing)}.")
    kinds = {name: kind for name, kind in kinds.items() if name not in missing}
    table = pyarrow.concat_tables(batch.table.select(list(kinds)) for batch in file.batches(kinds))
    if regressor.columns_ is not None and hasattr(regressor, "feature_names_in_"):
        return table
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in table.columns])
