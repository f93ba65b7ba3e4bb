"""Comparison over data sets, each of which counts once, by its mean over splits (Demšar, JMLR 2006)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from density_regression.experiments.records import Record
from density_regression.experiments.report import comparison
from density_regression.experiments.report.comparison import ComparisonOptions, Ranks
from density_regression.experiments.report.document import EMPTY, ResultTable, TableCell, compact
from density_regression.experiments.report.grouping import Group
from density_regression.experiments.report.names import OURS, metric
from density_regression.experiments.significance import Wilcoxon, holm, mean_and_sd, wilcoxon

__all__ = ["EXPLANATION", "MIN_DATASETS", "OverDatasets", "over_datasets"]

MIN_DATASETS: Final = 5
"""Fewest data sets that are compared this way: of five, even a unanimous result has p = 0.06."""

COMPARED: Final = ("nll", "crps", "cal", "rmse", "auroc_std")
RESCALABLE: Final = ("nll", "crps", "cal")
IN_UNITS: Final = ("crps", "rmse")
"""Metrics in the target's unit, whose differences are comparable between data sets only if they are relative."""

EXPLANATION: Final = (
    "Each data set counts once, by its mean over splits, and stands for others like it. Cells give the number of data "
    f"sets on which {OURS} is better, and the two-sided p-value of Wilcoxon's signed-rank test (exact; data sets with "
    "equal means are left out of it). Units differ, so a difference of CRPS or RMSE is divided by the sum of the two. "
    "Bold is significantly better, “worse” significantly worse, with Holm's correction over the methods of a column. "
    "Where the others are rescaled, the standard deviation of each is multiplied by the factor that suits its held-out "
    f"rows best, while {OURS} stays as it comes. Ranks are compared by Friedman's and Nemenyi's tests."
)
"""Explanation of these tables in the report."""


class OverDatasets(NamedTuple):
    """Tables, and the ranks for critical-difference diagrams."""

    tables: list[ResultTable]
    ranks: list[Ranks]


def over_datasets(group: Group, options: ComparisonOptions) -> OverDatasets | None:
    """Wins, ranks and means over data sets; None if they are fewer than `MIN_DATASETS`."""
    if len(group.datasets) < MIN_DATASETS:
        return None
    tables, ranks = [], []
    for rescaled, names in ((False, COMPARED), (True, RESCALABLE)):
        wins = _win_table(group, names, rescaled, options)
        measures = {name: _measure(group, name, rescaled) for name in names}
        found = [comparison.ranks_of(group, name, options, measure) for name, measure in measures.items()]
        ranked = [one._replace(rescaled=rescaled) for one in found if one is not None]
        tables += [wins] if wins is not None else []
        tables += [comparison.rank_table(ranked)] if ranked else []
        ranks += ranked
    return OverDatasets([*tables, *_mean_tables(group)], ranks)


def _measure(group: Group, name: str, rescaled: bool) -> Callable[[Record], float | None]:
    """Metric of a record; if `rescaled`, that with rescaled standard deviations for all methods but ours."""

    def measure(record: Record) -> float | None:
        own = f"{name}_rescaled" if rescaled and record["method"] != OURS else name
        value: float | None = group.entry(record)["metrics"].get(own)
        return value

    return measure


def _win_table(group: Group, names: tuple[str, ...], rescaled: bool, options: ComparisonOptions) -> ResultTable | None:
    rivals = [method for method in group.methods if method != OURS]
    columns = {
        metric(name).label: cells
        for name in names
        if (cells := _win_column(group, name, rescaled, rivals, options.level))
    }
    if not columns:
        return None
    title = f"Data sets on which {OURS} is better than each method{', the others rescaled' if rescaled else ''}"
    return ResultTable.of_methods(title, columns, [])


def _win_column(group: Group, name: str, rescaled: bool, rivals: list[str], level: float) -> dict[str, TableCell]:
    found = {rival: differences for rival in rivals if (differences := _differences(group, name, rescaled, rival))}
    tests = {rival: wilcoxon(differences) for rival, differences in found.items()}
    adjusted = holm([test.p_value for test in tests.values()])
    return {
        rival: _win_cell(differences, tests[rival], bool(p < level))
        for (rival, differences), p in zip(found.items(), adjusted, strict=True)
    }


def _win_cell(differences: list[float], test: Wilcoxon, significant: bool) -> TableCell:
    better = sum(difference < 0 for difference in differences)
    worse = significant and test.statistic > 0
    text = f"{better} of {len(differences)}, p = {compact(test.p_value)}{', worse' if worse else ''}"
    return TableCell(text, better / len(differences), significant and not worse)


def _differences(group: Group, name: str, rescaled: bool, rival: str) -> list[float]:
    """Our mean less the rival's on each data set that both have; lower is better."""
    found = []
    for dataset in group.datasets:
        scores = group.paired(dataset, _measure(group, name, rescaled), (OURS, rival))
        if scores.splits and len(scores.values) == 2:
            ours, theirs = (mean_and_sd(metric(name).score(scores.values[method]))[0] for method in (OURS, rival))
            total = ours + theirs if name in IN_UNITS else 1.0
            found.append((ours - theirs) / (total or 1.0))
    return found


def _mean_tables(group: Group) -> list[ResultTable]:
    """Metrics without a unit, averaged over the data sets that a method has."""
    names = [name for name in ("auroc_std", "auroc_score", "coverage_95", "std_factor") if name in group.metrics]
    if not names:
        return []
    columns = {
        metric(name).label: {method: _mean_cell(group, name, method) for method in group.methods} for name in names
    }
    notes = ["Means over the data sets that a method has."]
    if "std_factor" in names:
        notes.append(
            "The standard-deviation factor (geometric mean) is what standard deviations would have to be multiplied by "
            "to suit these test rows: above 1 they are too small."
        )
    return [ResultTable.of_methods("Mean over data sets", columns, notes)]


def _mean_cell(group: Group, name: str, method: str) -> TableCell:
    scores = (group.scores(dataset, name, (method,)) for dataset in group.datasets)
    means = [mean_and_sd(own.values[method])[0] for own in scores if own.splits]
    if not means:
        return EMPTY
    value = float(np.exp(np.mean(np.log(means))) if name == "std_factor" else np.mean(means))
    return TableCell(compact(value), value)
