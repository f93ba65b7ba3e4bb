"""The report as one HTML page that loads nothing from elsewhere."""

from __future__ import annotations

import base64
from html import escape
from importlib import resources
from itertools import count

from density_regression.experiments.report.document import EMPTY, Cell, Picture, Section, Table

__all__ = ["html"]

# Nothing may be fetched, whatever a record has as its name.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def html(report: Section) -> str:
    """The page: its sections, a table of contents, and tables that can be sorted."""
    numbers = count(1)
    contents: list[str] = []
    body = "\n".join(_section(section, 2, numbers, contents) for section in report.sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(report.title)}</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
<header>
<h1>{escape(report.title)}</h1>
</header>
<nav aria-label="Contents">
<details open>
<summary>Contents</summary>
<ol>
{"".join(contents)}</ol>
</details>
</nav>
<main>
{body}
</main>
<script>
{_asset("page.js")}</script>
</body>
</html>
"""


def _section(section: Section, level: int, numbers: count[int], contents: list[str]) -> str:
    """A section; what has only figures, or is an appendix, is folded away until somebody opens it."""
    anchor = f"s{next(numbers)}"
    folded = section.appendix or (level > 2 and section.pictures and not section.tables)
    inner: list[str] = []
    parts = [f"<p>{escape(text)}</p>" for text in section.text]
    parts += [_table(table) for table in section.tables]
    parts += [_figure(picture) for picture in section.pictures]
    parts += [_section(one, level + 1, numbers, inner) for one in section.sections]
    below = f"\n<ol>\n{''.join(inner)}</ol>\n" if inner and not section.appendix else ""
    contents.append(f'<li><a href="#{anchor}">{escape(section.title)}</a>{below}</li>\n')
    body = "\n".join(parts)
    if folded:
        return f'<details>\n<summary id="{anchor}">{escape(section.title)}</summary>\n{body}\n</details>'
    return f'<section>\n<h{level} id="{anchor}">{escape(section.title)}</h{level}>\n{body}\n</section>'


def _table(table: Table) -> str:
    kinds = ["words" if _has_words(table, index) else "" for index in range(len(table.header))]
    heads = "".join(
        f'<th scope="col"{_class(kind)}><button type="button">{escape(name)}</button></th>'
        for name, kind in zip(table.header, kinds, strict=True)
    )
    rows = "\n".join(_row(row, kinds) for row in table.rows)
    notes = f'<p class="notes">{escape(" ".join(table.notes))}</p>' if table.notes else ""
    # Only what can have the focus can be scrolled by keys.
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(table.title)}">\n'
        f"<table>\n<caption>{escape(table.title)}</caption>\n<thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n{notes}"
    )


def _has_words(table: Table, index: int) -> bool:
    return all(row[index].value is None for row in table.rows) and any(row[index] != EMPTY for row in table.rows)


def _row(row: tuple[Cell, ...], kinds: list[str]) -> str:
    cells = "".join(_cell(cell, kind) for cell, kind in zip(row[1:], kinds[1:], strict=True))
    return f'<tr><th scope="row">{escape(row[0].text)}</th>{cells}</tr>'


def _cell(cell: Cell, kind: str) -> str:
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
