"""Report of a benchmark: tables, significance tests and figures, made from its records alone."""

import os
from collections.abc import Sequence
from pathlib import Path

from density_regression.experiments.records import Record
from density_regression.experiments.report.comparison import ComparisonOptions, Rule
from density_regression.experiments.report.grouping import results_of
from density_regression.experiments.report.html import html
from density_regression.experiments.report.latex import latex
from density_regression.experiments.report.markdown import markdown
from density_regression.experiments.report.sections import build_report
from density_regression.experiments.significance import Test
from density_regression.io.files import write_whole

__all__ = ["write_report"]


def write_report(
    records: Sequence[Record],
    folder: str | os.PathLike[str],
    *,
    test: Test = "corrected",
    rule: Rule = "separate",
    level: float = 0.05,
) -> list[Path]:
    """Write ``report.md``, ``report.tex``, ``report.html`` and ``figures/*`` to a folder; returns their paths.

    The same records, as `read_records` returns them, give the same files, byte by byte; of several records of one fit
    the last that did not fail is used. `test`, `rule` and `level` are as in `ComparisonOptions`.
    """
    options = ComparisonOptions(test, rule, level)
    kept = results_of(records)
    if not kept:
        raise ValueError(f"records holds no results ({len(records)} records); run `density-regression bench` first.")
    report = build_report(kept, options)
    root = Path(folder)
    pages = {"report.md": markdown(report), "report.tex": latex(report), "report.html": html(report)}
    figures = {root / "figures" / picture.name: picture.content for picture in report.all_pictures()}
    files = {root / name: text.encode() for name, text in pages.items()}
    for path, content in (figures | files).items():
        write_whole(path, content)
    return [*files, *figures]
