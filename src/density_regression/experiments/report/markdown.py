"""The report as Markdown."""

import re

from density_regression.experiments.report.document import Point, ResultTable, Section, TableCell

__all__ = ["markdown"]


def markdown(section: Section, level: int = 1) -> str:
    """Section with a heading of a level, and those in it, without appendices; figures are files in ``figures/``."""
    parts = [f"{'#' * level} {_escape(section.title)}", *map(_escape, section.text)]
    parts += ["\n".join(f"- {_point(point)}" for point in section.points)] * bool(section.points)
    parts += [_table(table) for table in section.tables]
    parts += [f"![{_escape(picture.alt)}](figures/{picture.name})" for picture in section.pictures]
    parts += [markdown(inner, level + 1).rstrip("\n") for inner in section.sections if not inner.appendix]
    return "\n\n".join(parts) + "\n"


def _point(point: Point) -> str:
    # Names in backticks stay as they are.
    text = "`".join(part if i % 2 else _escape(part) for i, part in enumerate(point.text.split("`")))
    return f"**{_escape(point.topic)}.** {text}" if point.topic else text


def _table(table: ResultTable) -> str:
    lines = [f"**{_escape(table.title)}**", "", _row([_escape(name) for name in table.header])]
    lines.append(_row(["---", *["---:"] * (len(table.header) - 1)]))
    lines += [_row([_cell(cell) for cell in row]) for row in table.rows]
    if table.notes:
        lines += ["", _escape(" ".join(table.notes))]
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: TableCell) -> str:
    text = _escape(cell.text)
    text = f"**{text}**" if cell.bold else text
    return f"{text}<br><small>paper: {_escape(cell.paper)}</small>" if cell.paper else text


def _escape(text: str) -> str:
    flat = " ".join(text.split())
    flat = re.sub(r"([\\`*_\[\]|$~])", r"\\\1", flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    # At the start of a line these would begin a heading or a list.
    return re.sub(r"^(#|[+-] )", r"\\\1", flat)
