"""Content of a report, independent of its format: sections, tables, pictures and short numbers."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from density_regression.experiments.report.names import in_order

__all__ = [
    "EMPTY",
    "Drawing",
    "Picture",
    "Point",
    "ResultTable",
    "Section",
    "TableCell",
    "compact",
    "plus_minus",
    "slug",
]


class TableCell(NamedTuple):
    """Text of a cell, a number to sort by, and the paper's result where there is one ("2.64 ± 0.26")."""

    text: str
    value: float | None = None
    bold: bool = False
    paper: str = ""


EMPTY = TableCell("–")


class ResultTable(NamedTuple):
    """Rows under a header of the same length; the first column names the row."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of_methods(cls, title: str, columns: dict[str, dict[str, TableCell]], notes: Iterable[str]) -> ResultTable:
        """Table with a row for each method; columns have its cells by method, and may lack some."""
        methods = in_order((method for column in columns.values() for method in column), "method")
        rows = ((TableCell(name), *(column.get(name, EMPTY) for column in columns.values())) for name in methods)
        return cls(title, ("Method", *columns), tuple(rows), tuple(notes))


class Picture(NamedTuple):
    """A figure: file name, content, and a description of what it shows."""

    name: str
    content: bytes
    alt: str


class Point(NamedTuple):
    """An entry of a list: text, with names in backticks, what it is about, and whether that is good or poor."""

    text: str
    topic: str = ""
    mark: Literal["good", "poor", "note", ""] = ""


class Drawing(NamedTuple):
    """A chart in HTML: its title, SVG, HTML of a legend, caption, and a table that says the same."""

    title: str
    svg: str
    legend: str
    caption: str
    table: ResultTable


@dataclass(frozen=True)
class Section:
    """A heading and its content; an `appendix`, and drawings, are in HTML alone."""

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[ResultTable, ...] = ()
    pictures: tuple[Picture, ...] = ()
    sections: tuple[Section, ...] = ()
    appendix: bool = False
    drawings: tuple[Drawing, ...] = ()
    points: tuple[Point, ...] = ()

    def all_pictures(self) -> list[Picture]:
        """Pictures of this section and of those in it."""
        return [*self.pictures, *(picture for section in self.sections for picture in section.all_pictures())]


def slug(*names: str) -> str:
    """File name made of any names; a hash keeps names apart that differ in replaced or cut characters."""
    text = "-".join(name for name in names if name)
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:150]
    return clean if clean == text else f"{clean}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def compact(value: float) -> str:
    """Three significant digits; 1.2e+05 where that would be long."""
    return f"{value:.{_decimals(value)}f}" if _is_plain(value) else f"{value:.1e}"


def plus_minus(mean: float, sd: float) -> str:
    """Mean and standard deviation with equally many decimals; the mean alone if sd is NaN."""
    if math.isnan(sd):
        return compact(mean)
    if not (_is_plain(mean) and _is_plain(sd)):
        return f"{compact(mean)} ± {compact(sd)}"
    decimals = _decimals(max(abs(mean), sd))
    return f"{mean:.{decimals}f} ± {sd:.{decimals}f}"


def _is_plain(value: float) -> bool:
    return value == 0 or 1e-3 <= abs(value) < 9_999.5


def _decimals(value: float) -> int:
    return 0 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
