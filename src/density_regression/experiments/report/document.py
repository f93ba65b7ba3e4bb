"""What a report says, before it is written in any format."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["EMPTY", "Cell", "Picture", "Section", "Table", "slug"]


class Cell(NamedTuple):
    """One cell: its text, a number to sort by, and the paper's figure where it has one, "2.64 ± 0.26"."""

    text: str
    value: float | None = None
    bold: bool = False
    paper: str = ""


EMPTY = Cell("–")


class Table(NamedTuple):
    """Rows under a header, each as long as it; the first column names the row."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


class Picture(NamedTuple):
    """A figure: file name, content, and what it shows."""

    name: str
    content: bytes
    alt: str


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it.

    Attributes
    ----------
    appendix : bool
        Too long for Markdown and LaTeX.
    """

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    sections: tuple[Section, ...] = ()
    appendix: bool = False

    def all_pictures(self) -> list[Picture]:
        """Its own and those of the sections in it."""
        return [*self.pictures, *(picture for section in self.sections for picture in section.all_pictures())]


def slug(*names: str) -> str:
    """A file name of any names; where a letter had to go, or it was long, a hash keeps different names apart."""
    text = "-".join(name for name in names if name)
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:150]
    return clean if clean == text else f"{clean}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
