"""Tables and sentences of reports on the terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from density_regression.experiments.report.document import ResultTable

__all__ = ["printed", "wrapped"]

WIDTH: Final = 100
GLUED: Final = "\u00a0"
"""A space at which no line is broken."""


def printed(table: ResultTable, without: tuple[str, ...] = ()) -> None:
    """Print a table, but for some columns; marked cells are bold, and have a star where there are no colours."""
    # As wide as it needs to be where nobody looks: in a file or a pipe.
    console = Console(width=None if Console().is_terminal else 160)
    places = [i for i, name in enumerate(table.header) if name not in without]
    headers = [Column(table.header[i], justify="right" if i else "left") for i in places]
    shown = Table(*headers, box=SIMPLE_HEAD, pad_edge=False)
    for row in table.rows:
        cells = [row[i] for i in places]
        shown.add_row(*(Text(f"{cell.text} *", style="bold") if cell.bold else Text(cell.text) for cell in cells))
    console.print(shown)
    for note in table.notes:
        console.print(Text(note), style="dim", soft_wrap=True)


def wrapped(text: str, first: str = "", later: str = "  ") -> str:
    """Text in lines of a hundred characters, with these indents; a percentage stays in one."""
    lines = textwrap.fill(text.replace(" %", f"{GLUED}%"), WIDTH, initial_indent=first, subsequent_indent=later)
    return lines.replace(GLUED, " ")
