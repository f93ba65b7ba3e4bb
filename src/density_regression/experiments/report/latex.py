r"""The report's tables as LaTeX, to be read with ``\input``."""

import re
from typing import Final

from density_regression.experiments.report.document import ResultTable, Section, TableCell

__all__ = ["latex"]

COLUMNS_PER_PAGE: Final = 4
"""Columns beside the first that fit the width of a page."""

_HEADINGS: Final = ("section*", "subsection*", "subsubsection*", "paragraph*")
_SPECIAL: Final = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    # After a line break these would be its options.
    "[": "{[}",
    "*": "{*}",
    "“": "``",
    "”": "''",
    "–": "--",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "²": r"$^2$",
    **{letter: f"\\{letter}" for letter in "#$%&_"},
}
_FLOAT: Final = r"-?[\d.]+(e[+-]\d+)?"
_NUMBER: Final = re.compile(rf"{_FLOAT}( ± {_FLOAT})?( \({_FLOAT}, {_FLOAT}\))?")


def latex(section: Section) -> str:
    """Text and tables of a section and of those in it; appendices and figures are left out."""
    start = "% Needs \\usepackage{booktabs} and, for quotation marks, \\usepackage[T1]{fontenc}. UTF-8.\n"
    return start + _section(section, 0)


def _section(section: Section, depth: int) -> str:
    heading = _HEADINGS[min(depth, len(_HEADINGS) - 1)]
    inner = [_section(one, depth + 1) for one in section.sections if not one.appendix]
    if not (section.text or section.tables or any(inner)):
        return ""
    parts = [f"\\{heading}{{{_escape(section.title)}}}", *map(_escape, section.text)]
    parts += [
        _tabular(table, start) for table in section.tables for start in range(1, len(table.header), COLUMNS_PER_PAGE)
    ]
    return "\n\n".join([*parts, *filter(None, inner)]) + "\n"


def _tabular(table: ResultTable, start: int) -> str:
    """The first column and up to `COLUMNS_PER_PAGE` others from `start`; a wide table becomes several."""
    chosen = [0, *range(start, min(start + COLUMNS_PER_PAGE, len(table.header)))]
    message = table.header[-1] == "Message"
    columns = "l" + ("llp{0.4\\linewidth}" if message else "r" * (len(chosen) - 1))
    title = _escape(table.title) + (" (continued)" if start > 1 else "")
    lines = [
        "\\begin{center}\\footnotesize",
        f"\\textbf{{{title}}}\\\\[2pt]",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        " & ".join(_escape(table.header[index]) for index in chosen) + " \\\\",
        "\\midrule",
    ]
    for row in table.rows:
        lines += _rows([row[index] for index in chosen])
    lines += ["\\bottomrule", "\\end{tabular}"]
    if table.notes and chosen[-1] == len(table.header) - 1:
        lines += ["", f"\\scriptsize {_escape(' '.join(table.notes))}"]
    return "\n".join([*lines, "\\end{center}"])


def _rows(cells: list[TableCell]) -> list[str]:
    lines = [" & ".join(map(_cell, cells)) + " \\\\"]
    if any(cell.paper for cell in cells):
        figures = [f"\\scriptsize paper: {_number(cell.paper)}" if cell.paper else "" for cell in cells]
        lines.append(" & ".join(figures) + " \\\\")
    return lines


def _cell(cell: TableCell) -> str:
    text = _number(cell.text) if _NUMBER.fullmatch(cell.text) else _escape(cell.text)
    # \textbf alone does not affect mathematics.
    return f"{{\\boldmath\\textbf{{{text}}}}}" if cell.bold else text


def _number(text: str) -> str:
    shown = re.sub(r"e([+-])(\d+)", r"\\mathrm{e}{\1}\2", text).replace("±", r"\pm").replace(" (", r"\ (")
    return f"${shown}$"


def _escape(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))
