"""Write a report: figures first, then the pages that show them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from density_regression._files import write_whole
from density_regression.experiments.records import Record
from density_regression.experiments.report.chapters import build
from density_regression.experiments.report.grouping import results_of
from density_regression.experiments.report.html import html
from density_regression.experiments.report.judging import Options, Rule
from density_regression.experiments.report.latex import latex
from density_regression.experiments.report.markdown import markdown
from density_regression.experiments.significance import Test

__all__ = ["write_report"]


def write_report(
    records: Sequence[Record],
    folder: str | os.PathLike[str],
    *,
    test: Test = "corrected",
    rule: Rule = "separate",
    level: float = 0.05,
) -> list[Path]:
    """Write ``report.md``, ``report.tex`` and ``report.html``, and the figures that the first shows.

    The same records give the same files, byte by byte. Of a cell the last record counts that is not of a failure.

    Parameters
    ----------
    records : list of dict
        As `read_records` returns them.
    folder : path
        Made if it is not there; figures go to ``figures`` in it.
    test : {"corrected", "plain"}
        The resampled t-test that allows for overlapping training sets, or the paper's.
    rule : {"separate", "calibration-first"}
        Sharpness is never bold, or bold among methods tied in calibration, as in the paper's depth table.
    level : float, default=0.05
        A p-value below it is significant.

    Returns
    -------
    list of Path
        What was written, the three pages first.

    Raises
    ------
    ValueError
        If there is no result among the records, or an option is unknown.
    """
    options = Options(test, rule, level)
    kept = results_of(records)
    if not kept:
        raise ValueError(f"records holds no results ({len(records)} records); run `density-regression bench` first.")
    report = build(kept, options)
    root = Path(folder)
    files = {root / "figures" / picture.name: picture.content for picture in report.all_pictures()}
    pages = {"report.md": markdown(report), "report.tex": latex(report), "report.html": html(report)}
    files |= {root / name: text.encode() for name, text in pages.items()}
    for path, content in files.items():
        write_whole(path, content)
    return [*(root / name for name in pages), *(path for path in files if path.parent != root)]
