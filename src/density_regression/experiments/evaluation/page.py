"""The page of an evaluation: verdict, metrics, figures with their tables, strange rows, and the model."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Final

from density_regression.experiments.evaluation import error_figures, figures
from density_regression.experiments.evaluation.evaluation import Evaluation, FamiliarityQuality
from density_regression.experiments.evaluation.totals import IntervalQuality
from density_regression.experiments.evaluation.verdict import verdict
from density_regression.experiments.evaluation.words import count, number, percent
from density_regression.experiments.report.document import EMPTY, Drawing, Point, ResultTable, Section, TableCell
from density_regression.experiments.report.html import html
from density_regression.io.files import write_whole

__all__ = ["build_page", "interval_table", "metric_table", "write_evaluation"]

MEANINGS: Final = {
    "nll": ("NLL", "negative log-likelihood of the method's own law, in nats for a row; lower is better"),
    "crps": ("CRPS", "distance of law and target, in the target's unit; lower is better"),
    "rmse": ("RMSE", "root mean squared error of the mean"),
    "mae": ("MAE", "mean absolute error"),
    "r2": ("R²", "share of the target's variance that the mean explains"),
    "bias": ("Mean error", "target less prediction: above 0, predictions are too low"),
    "calibration_error": (
        "Calibration error",
        "sum of squared distances of the calibration curve, 100 levels; 0 is best",
    ),
    "std_factor": ("Error / std", "errors in standard deviations, root mean square: 1 is best, above 1 too sure"),
    "sharpness": ("Sharpness", "root mean predicted variance"),
    "spearman": ("Spearman", "rank correlation of absolute error and standard deviation"),
}


def write_evaluation(of: Evaluation, folder: str | os.PathLike[str], model: str, data: str) -> list[Path]:
    """Write ``evaluation.json`` and ``evaluation.html`` to a folder, each whole or not at all; returns their paths.

    `model` and `data` are names for the title.
    """
    root = Path(folder)
    record = {"model_path": model, "data": data, **of.to_json()}
    files = {
        root / "evaluation.json": json.dumps(record, indent=1, allow_nan=False),
        root / "evaluation.html": html(build_page(of, model, data)),
    }
    for path, content in files.items():
        write_whole(path, content.encode())
    return list(files)


def build_page(of: Evaluation, model: str, data: str) -> Section:
    """All sections of the page."""
    left_out = f"; {count(of.without_target, 'row')} without a target left out" if of.without_target else ""
    head = f"{count(of.rows)} of {data}{left_out}. Target: {of.model.target or 'not named'}."
    law = "" if of.model.law == "Normal" else " The law is log-normal; errors are in the target's own units."
    sections = [
        Section("Verdict", (head,), points=tuple(verdict(of))),
        Section("Metrics", tables=(metric_table(of), interval_table(of))),
        Section("Calibration", drawings=_drawn(figures.calibration_figure(of), figures.pit_figure(of))),
        Section(
            "Errors", (law,) * bool(law), drawings=_drawn(figures.interval_figure(of), error_figures.std_figure(of))
        ),
    ]
    if of.familiarity is not None:
        sections.append(_familiarity_section(of, of.familiarity))
    sections.append(Section("Model", tables=(_model_table(of, model),)))
    return Section(f"Evaluation of {model}", sections=tuple(sections))


def metric_table(of: Evaluation) -> ResultTable:
    """Metrics here, and on the rows held out in training where the model knows them."""
    before = of.model.held_out
    known = any(name in before for name in MEANINGS)
    header = ("Metric", "Here", *(("Held out in training",) if known else ()), "Meaning")
    rows = []
    for name, (label, meaning) in MEANINGS.items():
        old = before.get(name)
        cells = [TableCell(label), _number(of.metrics[name])]
        cells += [EMPTY if old is None else _number(old)] if known else []
        rows.append((*cells, TableCell(meaning)))
    note = "Held-out rows have stopped the training and set the scale of the variance, which flatters a little."
    notes = (note,) * known
    return ResultTable("Quality on all rows", header, tuple(rows), notes)


def interval_table(of: Evaluation) -> ResultTable:
    """Share of targets in the intervals, and their mean width."""
    kinds = {"law": of.intervals, **({"conformal": of.conformal} if of.conformal else {})}
    names = list(kinds)
    header = ["Interval"]
    for name in names:
        kind = f", {name}" if len(names) > 1 else ""
        header += [f"Holds{kind}", f"Mean width{kind}"]
    by_level = {name: {one.level: one for one in found} for name, found in kinds.items()}
    rows = []
    for one in of.intervals:
        cells = [TableCell(f"{100 * one.level:g} %", one.level)]
        for name in names:
            cells += _interval_cells(by_level[name].get(one.level))
        rows.append(tuple(cells))
    notes = ("Conformal intervals are those that predict_interval gives.",) if of.conformal else ()
    return ResultTable("Intervals", tuple(header), tuple(rows), notes)


def _interval_cells(one: IntervalQuality | None) -> list[TableCell]:
    if one is None:
        return [EMPTY, EMPTY]
    return [TableCell(percent(one.coverage), one.coverage), _number(one.width)]


def _familiarity_section(of: Evaluation, found: FamiliarityQuality) -> Section:
    inner = []
    if found.traits:
        words = tuple(Point(trait.sentence()) for trait in found.traits)
        inner.append(Section("What the strange rows have in common", points=words))
    if found.unfamiliar:
        inner.append(Section("Every column", tables=(_column_table(found),)))
    drawings = _drawn(error_figures.familiarity_figure(of, found), error_figures.familiarity_error_figure(found))
    return Section("Familiarity", drawings=drawings, sections=tuple(inner))


def _column_table(found: FamiliarityQuality) -> ResultTable:
    rows = []
    for one in found.columns:
        rows.append(
            (
                TableCell(one.name),
                TableCell(one.kind),
                TableCell(one.training),
                _pair(one.never_strange, one.never_others),
                _pair(one.gaps_strange, one.gaps_others),
                TableCell(f"{one.usual_strange or '–'} / {one.usual_others or '–'}"),
                EMPTY if math.isnan(one.shift) else TableCell(f"{one.shift:+.2f} sd", one.shift),
            )
        )
    header = ("Column", "Kind", "Training had", "Never seen", "Gaps", "Mean, or most frequent", "Mean moved by")
    note = (
        "Strange rows / others. Never seen: values outside the range of training, and categories and gaps that it had "
        "not. The last column is in standard deviations of the others."
    )
    return ResultTable("Columns of the strange rows and of the others", header, tuple(rows), (note,))


def _pair(strange: float, others: float) -> TableCell:
    """Share of the strange rows, by which the table is sorted, and of the others."""
    value = None if math.isnan(strange) else strange
    return TableCell(f"{percent(strange)} / {percent(others)}", value)


def _model_table(of: Evaluation, name: str) -> ResultTable:
    model = of.model
    rows = {
        "Model": name,
        "Method": model.method,
        "Target": model.target or "not named",
        "Law": model.law,
        "Columns": str(model.columns),
        "Training rows": "not known" if model.training_rows is None else f"{model.training_rows:,}",
        "Conformal": f"by {count(model.conformal_rows)}" if model.conformal_rows else "no",
    }
    cells = tuple((TableCell(label), TableCell(text)) for label, text in rows.items())
    return ResultTable("The model", ("What", "Which"), cells)


def _number(value: float) -> TableCell:
    return TableCell(number(value, 4), value if math.isfinite(value) else None)


def _drawn(*drawings: Drawing | None) -> tuple[Drawing, ...]:
    return tuple(one for one in drawings if one is not None)
