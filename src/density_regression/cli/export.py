"""`export`: a saved model as one ONNX graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from density_regression.cli.errors import fail

__all__ = ["export"]


def export(
    model: Annotated[Path, typer.Argument(help="Folder that `save` wrote.")],
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("model.onnx"),
    dtype: Annotated[Literal["float64", "float32"], typer.Option(help="Of inputs and results.")] = "float64",
    int8: Annotated[bool, typer.Option("--int8", help="Write the encoder's weights in eight bits.")] = False,
) -> None:
    """Write a saved model as one ONNX graph: rows in their own units in, mean, std and log_density out."""
    from density_regression import load

    try:
        difference = load(model).to_onnx(out, dtype=dtype, int8=int8)
    except (ImportError, OSError, ValueError) as error:
        fail(str(error))
    typer.echo(f"{out}: {out.stat().st_size / 1024:.0f} KiB; differs from torch by {difference:.0e} at most, relative.")
