"""The report as one HTML page that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import re
from html import escape
from importlib import resources
from itertools import count
from string import Template
from typing import Final

from density_regression.experiments.report.document import (
    EMPTY,
    Drawing,
    Picture,
    Point,
    ResultTable,
    Section,
    TableCell,
)

__all__ = ["html"]

_MARKS: Final = {
    "good": '<span class="mark" aria-hidden="true">✓</span><span class="aloud">Good: </span>',
    "poor": '<span class="mark" aria-hidden="true">!</span><span class="aloud">Look at this: </span>',
}


def html(report: Section) -> str:
    """Page with a table of contents and sortable tables; its policy forbids to load anything from elsewhere."""
    contents: list[str] = []
    numbers = count(1)
    body = "\n".join(_section(section, 2, numbers, contents) for section in report.sections)
    return Template(_asset("page.html")).substitute(
        title=escape(report.title),
        style=_asset("page.css"),
        contents="".join(contents),
        body=body,
        script=_asset("page.js"),
    )


def _section(section: Section, level: int, numbers: count[int], contents: list[str]) -> str:
    """HTML of a section; an appendix, or a subsection with figures only, is collapsed. Extends `contents`."""
    anchor = f"s{next(numbers)}"
    folded = section.appendix or (level > 2 and section.pictures and not section.tables)
    inner: list[str] = []
    parts = [f"<p>{escape(text)}</p>" for text in section.text]
    parts += _list(section.points) + _drawings(section.drawings)
    parts += [_table(table) for table in section.tables]
    parts += [_figure(picture) for picture in section.pictures]
    parts += [_section(one, level + 1, numbers, inner) for one in section.sections]
    below = f"\n<ol>\n{''.join(inner)}</ol>\n" if inner and not section.appendix else ""
    contents.append(f'<li><a href="#{anchor}">{escape(section.title)}</a>{below}</li>\n')
    body = "\n".join(parts)
    if folded:
        return f'<details>\n<summary id="{anchor}">{escape(section.title)}</summary>\n{body}\n</details>'
    return f'<section>\n<h{level} id="{anchor}">{escape(section.title)}</h{level}>\n{body}\n</section>'


def _list(points: tuple[Point, ...]) -> list[str]:
    entries = []
    for point in points:
        topic = f"<strong>{escape(point.topic)}.</strong> " if point.topic else ""
        mark = _MARKS.get(point.mark, "")
        text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(point.text))
        entries.append(f"<li{_class(point.mark)}>{mark}{topic}{text}</li>")
    return ["\n".join(["<ul>", *entries, "</ul>"])] if entries else []


def _drawings(drawings: tuple[Drawing, ...]) -> list[str]:
    """Charts side by side where there is room, each with its table below, closed."""
    if not drawings:
        return []
    figures = "\n".join(
        f"<figure>\n<h3>{escape(one.title)}</h3>\n{one.svg}\n{one.legend}\n"
        f"<figcaption>{escape(one.caption)}</figcaption>\n<details>\n"
        f"<summary>{escape(one.table.title)} as a table</summary>\n{_table(one.table)}\n</details>\n</figure>"
        for one in drawings
    )
    return [f'<div class="charts">\n{figures}\n</div>']


def _table(table: ResultTable) -> str:
    columns = ([row[index] for row in table.rows] for index in range(len(table.header)))
    kinds = ["words" if _is_text(column) else "" for column in columns]
    heads = "".join(
        f'<th scope="col"{_class(kind)}><button type="button">{escape(name)}</button></th>'
        for name, kind in zip(table.header, kinds, strict=True)
    )
    rows = "\n".join(
        f'<tr><th scope="row">{escape(row[0].text)}</th>{"".join(map(_cell, row[1:], kinds[1:]))}</tr>'
        for row in table.rows
    )
    notes = f'<p class="notes">{escape(" ".join(table.notes))}</p>' if table.notes else ""
    # tabindex: only elements that can have the focus can be scrolled by keys.
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(table.title)}">\n'
        f"<table>\n<caption>{escape(table.title)}</caption>\n<thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n{notes}"
    )


def _is_text(column: list[TableCell]) -> bool:
    return all(cell.value is None for cell in column) and any(cell != EMPTY for cell in column)


def _cell(cell: TableCell, kind: str) -> str:
    value = "" if cell.value is None else f' data-value="{cell.value:.9g}"'
    paper = f"<small>paper: {escape(cell.paper)}</small>" if cell.paper else ""
    return f"<td{_class('strong' if cell.bold else kind)}{value}>{escape(cell.text)}{paper}</td>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _figure(picture: Picture) -> str:
    kind = "svg+xml" if picture.name.endswith(".svg") else "png"
    data = base64.b64encode(picture.content).decode()
    alt = escape(picture.alt)
    image = f'<img loading="lazy" alt="{alt}" src="data:image/{kind};base64,{data}">'
    return (
        f'<figure>\n<div class="wide" tabindex="0" role="region" aria-label="Figure">{image}</div>\n'
        f"<figcaption>{alt}</figcaption>\n</figure>"
    )


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
