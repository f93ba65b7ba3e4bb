"""Page of a comparison: verdict, table, each fold, figures, and how it was done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from density_regression.experiments.compare.plan import Comparison
from density_regression.experiments.compare.summary import Summary
from density_regression.experiments.compare.verdict import verdict
from density_regression.experiments.records import Record
from density_regression.experiments.report.document import Picture, Point, ResultTable, Section, TableCell, compact
from density_regression.experiments.report.figures import calibration_picture, error_picture
from density_regression.experiments.report.grouping import groups_of
from density_regression.experiments.report.html import html
from density_regression.experiments.report.markdown import markdown
from density_regression.experiments.report.tables import commits_of, failure_table
from density_regression.io.files import write_whole

__all__ = ["write_comparison"]

DIVISIONS = {
    "rows": "rows at random",
    "groups": "whole groups",
    "time": "blocks of time, each tested by what came before it",
}


def write_comparison(
    plan: Comparison, of: Summary, records: Sequence[Record], folder: str | os.PathLike[str]
) -> list[Path]:
    """Write ``comparison.html``, ``comparison.md`` and figures to a folder, each whole; returns the first two paths."""
    page = _build(plan, of, records)
    root = Path(folder)
    files = {root / "comparison.html": html(page).encode(), root / "comparison.md": markdown(page).encode()}
    figures = {root / "figures" / picture.name: picture.content for picture in page.all_pictures()}
    for path, content in (figures | files).items():
        write_whole(path, content)
    return list(files)


def _build(plan: Comparison, of: Summary, records: Sequence[Record]) -> Section:
    (group,) = groups_of(records)
    name = plan.table.name
    drawn = (calibration_picture(group, name), error_picture(group, name))
    pictures: tuple[Picture, ...] = tuple(picture for picture in drawn if picture is not None)
    sections = [
        Section("Verdict", points=tuple(Point(sentence) for sentence in verdict(of))),
        Section("Methods", tables=(of.table,)),
        Section("Fold by fold", tables=(_folds(of),)),
        Section("Calibration and errors", pictures=pictures),
        Section("How it was done", _how(plan, records)),
    ]
    if (failed := failure_table(records)) is not None:
        sections.append(Section("Failed fits", tables=(failed,)))
    return Section(f"Methods compared on {name}", sections=tuple(sections))


def _folds(of: Summary) -> ResultTable:
    """NLL of each fold, the best method first."""
    rows = tuple(
        (TableCell(method), *(TableCell(compact(float(value)), float(value)) for value in values))
        for method, values in of.by_fold.items()
    )
    return ResultTable("NLL of each fold", ("Method", *(f"Fold {i + 1}" for i in range(of.splits))), rows)


def _how(plan: Comparison, records: Sequence[Record]) -> tuple[str, ...]:
    table = plan.table
    divided = DIVISIONS[plan.divided]
    law = "log-normal" if plan.target == "log" else "Normal"
    left_out = sorted({name for record in records for name in record.get("left_out", ())})
    fits = "one fit" if plan.seeds == 1 else f"{plan.seeds} fits"
    text = [
        f"{len(table.y):,} rows, {table.X.num_columns} columns. {plan.n_folds} folds: {divided}; {fits} of each by "
        "every method, with its default settings. For every method the same rows train, stop the training and test. "
        f"Law: {law}.",
        "NLL is the negative log-likelihood of a method's own law. CRPS and intervals are those of the Normal or "
        "log-normal law with its mean and standard deviation; of Quantile the intervals are the learnt ones. The "
        "calibration error is the sum of squared distances of the calibration curve at 100 levels.",
        "Seconds are of this machine, one thread for each fit; other fits may have run beside it.",
        f"Code: {', '.join(commits_of(records))}.",
    ]
    if left_out:
        text.insert(1, f"Left out, as nearly every row has a text of its own: {', '.join(left_out)}.")
    return tuple(text)
