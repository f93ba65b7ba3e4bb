"""Table of a comparison: each method's scores over the folds, and which are not told apart from the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from density_regression.experiments.compare.plan import SUITE
from density_regression.experiments.records import Record
from density_regression.experiments.report.document import ResultTable, TableCell, plus_minus
from density_regression.experiments.report.grouping import PairedScores, groups_of
from density_regression.experiments.report.names import metric
from density_regression.experiments.significance import (
    FloatArray,
    corrected_interval,
    holm,
    mean_and_sd,
    paired_p_value,
    tied_with_best,
)

__all__ = ["LEVEL", "Difference", "Summary", "summarise"]

LEVEL: Final = 0.05
"""Level of the tests, with Holm's correction over the methods."""

TESTED: Final = ("nll_own", "crps", "rmse", "cal", "coverage_90")
"""Metrics of the table, in its order."""

LABELS: Final = {
    "nll_own": "NLL",
    "crps": "CRPS",
    "rmse": "RMSE",
    "cal": "Calibration error",
    "coverage_90": "In 90 % intervals",
    "fit": "Fit, s",
    "predict": "1,000 rows, ms",
}


class Difference(NamedTuple):
    """How much higher a method's NLL is than the best one's.

    `p_value` is that of the corrected resampled t-test, by Holm's method for all methods; `half_width` that of the 95 %
    interval of the difference.
    """

    method: str
    mean: float
    p_value: float
    half_width: float

    @property
    def is_worse(self) -> bool:
        """Whether it is told apart from the best."""
        return self.p_value < LEVEL


class Summary(NamedTuple):
    """What a comparison found.

    `best` has the lowest NLL, and `others` are the other methods, from the second best on; `means` are the means over
    folds by metric and method, and `table` shows them; `by_fold` are the NLL of each fold, the best method first.
    `splits` is the number of folds that all methods have.
    """

    best: str
    others: tuple[Difference, ...]
    means: dict[str, dict[str, float]]
    splits: int
    by_fold: dict[str, FloatArray]
    table: ResultTable


def summarise(records: Sequence[Record]) -> Summary:
    """Summary of the records of one comparison, of which at least one did not fail."""
    good = [record for record in records if "tests" in record]
    if not good:
        raise ValueError("No fit has come to an end, so there is nothing to compare.")
    (group,) = groups_of(good)
    assert group.suite == SUITE
    (dataset,) = group.datasets
    scores = {name: group.scores(dataset, name) for name in TESTED}
    for name, measure in _COSTS.items():
        scores[name] = group.paired(dataset, measure)
    means = {
        name: {method: mean_and_sd(values)[0] for method, values in own.values.items()} for name, own in scores.items()
    }
    ranked = sorted(means["nll_own"], key=means["nll_own"].__getitem__)
    return Summary(
        ranked[0],
        _differences(scores["nll_own"], ranked),
        means,
        scores["nll_own"].splits,
        {method: scores["nll_own"].values[method] for method in ranked},
        _table(scores, ranked),
    )


_COSTS: Final[dict[str, Callable[[Record], float | None]]] = {
    "fit": lambda record: float(record["seconds"]["fit"]),
    "predict": lambda record: 1e3 * float(record["seconds"]["predict"]),
}
"""Seconds of a fit, and milliseconds to predict 1,000 rows."""


def _differences(scores: PairedScores, ranked: list[str]) -> tuple[Difference, ...]:
    """Each method's NLL less that of the first, with tests."""
    best, others = ranked[0], ranked[1:]
    ratio = scores.test_to_train
    p_values = [paired_p_value(scores.values[name], scores.values[best], ratio) for name in others]
    found = []
    for name, p_value in zip(others, holm(p_values), strict=True):
        differences = scores.values[name] - scores.values[best]
        low, high = corrected_interval(differences, ratio)
        found.append(Difference(name, float(np.mean(differences)), float(p_value), (high - low) / 2))
    return tuple(found)


def _table(scores: dict[str, PairedScores], ranked: list[str]) -> ResultTable:
    bold = {name: _tied(own, name) for name, own in scores.items() if name in TESTED}
    rows = []
    for method in ranked:
        cells = [TableCell(method)]
        for name, own in scores.items():
            mean, sd = mean_and_sd(own.values[method])
            text = _percents(mean, sd) if name == "coverage_90" else plus_minus(mean, sd)
            cells.append(TableCell(text, mean, method in bold.get(name, ())))
        rows.append(tuple(cells))
    splits = scores["nll_own"].splits
    notes = (
        f"Mean ± standard deviation over {splits} folds. Marked: the best, and those not told apart from it (corrected "
        f"resampled t-test, level {LEVEL:g}, Holm); of intervals, the nearest to 90 %.",
    )
    if splits < 2:
        notes = ("Over 1 fold: nothing is tested.",)
    return ResultTable("Methods by NLL", ("Method", *(LABELS[name] for name in scores)), tuple(rows), notes)


def _tied(own: PairedScores, name: str) -> set[str]:
    """Methods that are best by a metric, or not told apart from the best."""
    if own.splits < 2 or len(own.values) < 2:
        return set()
    # Near its level a coverage is good; the others are good if low.
    score = metric(name).score
    return tied_with_best({method: score(values) for method, values in own.values.items()}, own.test_to_train, LEVEL)


def _percents(mean: float, sd: float) -> str:
    return f"{100 * mean:.1f}" + ("" if math.isnan(sd) else f" ± {100 * sd:.1f}") + " %"
