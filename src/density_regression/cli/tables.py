"""Options of commands that read tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from density_regression.tabular.files import TableFile

__all__ = ["Decimal", "Encoding", "Missing", "Plugin", "Separator", "Text", "open_data"]

TABLES = "Reading tables"

Separator = Annotated[
    str | None,
    typer.Option(
        help='Between the fields of a text file, "tab" for a tab; recognised if left out.', rich_help_panel=TABLES
    ),
]
Decimal = Annotated[
    Literal[".", ","] | None,
    typer.Option(help="Decimal sign of a text file; recognised if left out.", rich_help_panel=TABLES),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="Of a text file, such as utf-8 or cp1252; recognised if left out.", rich_help_panel=TABLES),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VALUE",
        help="A value that means a gap, besides the empty one, NA, NaN and null; may be given several times.",
        rich_help_panel=TABLES,
    ),
]
Text = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="A column to take as text, though it looks like numbers; may be given several times.",
        rich_help_panel=TABLES,
    ),
]
Plugin = Annotated[str | None, typer.Option(help="Python module to import first, which registers classes of your own.")]


def open_data(
    path: Path,
    separator: str | None,
    decimal: str | None,
    encoding: str | None,
    missing: list[str] | None,
    text: list[str] | None = None,
) -> TableFile:
    """Open a table as these options say."""
    from density_regression.tabular.files import open_table

    return open_table(
        path,
        separator="\t" if separator in ("tab", r"\t") else separator,
        decimal=decimal,
        encoding=encoding,
        missing=missing or (),
        text=text or (),
    )
