"""Comparison of methods: which are best on a data set, their ranks over data sets, and wins against one another."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

import numpy as np

from density_regression.experiments import significance
from density_regression.experiments.records import Record
from density_regression.experiments.report.document import EMPTY, ResultTable, TableCell, compact
from density_regression.experiments.report.grouping import Group, PairedScores
from density_regression.experiments.report.names import OURS, RANKED, metric
from density_regression.experiments.significance import FloatArray, Test, mean_and_sd

__all__ = [
    "WIN_NOTE",
    "ComparisonOptions",
    "Ranks",
    "Rule",
    "best_or_tied",
    "outcome",
    "rank_table",
    "ranks_of",
    "win_cell",
    "win_table",
]

Rule = Literal["separate", "calibration-first"]

WIN_NOTE: Final = (
    "Wins / ties / losses over data sets; a difference counts if it is significant in the data set by itself."
)


@dataclass(frozen=True)
class ComparisonOptions:
    """How methods are compared; a p-value below `level` is significant.

    `test` is the t-test corrected for overlapping training sets, or the paper's ("plain"). By the `rule` "separate"
    sharpness is never bold, by "calibration-first" among methods tied in calibration, as in the paper's depth table.
    """

    test: Test = "corrected"
    rule: Rule = "separate"
    level: float = 0.05

    def __post_init__(self) -> None:
        """Raise a ValueError for values that are not allowed."""
        for name, allowed in (("test", get_args(Test)), ("rule", get_args(Rule))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}.")
        if not 0 < self.level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {self.level!r}; 0.05 is usual.")


def best_or_tied(group: Group, dataset: str, name: str, scores: PairedScores, options: ComparisonOptions) -> set[str]:
    """Methods that are best by a metric or tied with the best; none if there is nothing to compare."""
    known, values = metric(name), scores.values
    if scores.splits < 2 or len(values) < 2 or known.better == "unknown":
        return set()
    if known.better == "width":
        if options.rule == "separate":
            return set()
        calibrated = best_or_tied(group, dataset, "cal", group.scores(dataset, "cal"), options)
        values = {method: own for method, own in values.items() if method in calibrated}
    lower_is_better = {method: known.score(own) for method, own in values.items()}
    return significance.tied_with_best(lower_is_better, scores.test_to_train, options.level, options.test)


def outcome(ours: FloatArray, theirs: FloatArray, test_to_train: float, options: ComparisonOptions) -> int:
    """1 if our scores (lower is better) are significantly better, -1 if worse, else 0."""
    if significance.paired_p_value(ours, theirs, test_to_train, options.test) >= options.level:
        return 0
    # Halves, as the difference of two huge scores overflows.
    return -int(np.sign(np.mean((ours / 2 - theirs / 2) / len(ours))))


class Ranks(NamedTuple):
    """Mean ranks of methods over data sets, Friedman's p-value, and Nemenyi's critical difference.

    If `rescaled`, standard deviations of all methods but ours are rescaled by their held-out rows.
    """

    metric: str
    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    ranks: FloatArray
    p_value: float
    critical: float
    rescaled: bool = False


def ranks_of(
    group: Group, name: str, options: ComparisonOptions, measure: Callable[[Record], float | None] | None = None
) -> Ranks | None:
    """Ranks by a metric's mean over splits; None with fewer than two data sets or methods.

    `measure` takes the metric from a record in another way than by its name.
    If results are missing, either the incomplete methods or the incomplete data sets are left out, whichever leaves
    more results.
    """
    found = {
        dataset: group.scores(dataset, name) if measure is None else group.paired(dataset, measure)
        for dataset in group.datasets
    }
    scores = {dataset: own.values for dataset, own in found.items() if own.splits}
    methods = [method for method in group.methods if any(method in own for own in scores.values())]
    whole_methods = [method for method in methods if all(method in own for own in scores.values())]
    whole_sets = [dataset for dataset, own in scores.items() if len(own) == len(methods)]
    datasets = list(scores)
    if len(whole_sets) * len(methods) >= len(datasets) * len(whole_methods):
        datasets = whole_sets
    else:
        methods = whole_methods
    if len(datasets) < 2 or len(methods) < 2:
        return None
    score = metric(name).score
    table = [[mean_and_sd(score(scores[dataset][method]))[0] for method in methods] for dataset in datasets]
    critical = significance.nemenyi_critical_difference(len(methods), len(datasets), options.level)
    ranks, p_value = significance.mean_ranks(table), significance.friedman(table).p_value
    return Ranks(name, tuple(methods), tuple(datasets), ranks, p_value, critical)


def rank_table(ranked: list[Ranks]) -> ResultTable:
    """Mean ranks by several metrics, all rescaled or none."""
    columns, notes = {}, []
    for one in ranked:
        label = metric(one.metric).label
        columns[label] = {
            method: TableCell(f"{rank:.2f}", float(rank), bool(rank == one.ranks.min()))
            for method, rank in zip(one.methods, one.ranks, strict=True)
        }
        notes.append(
            f"{label}: {len(one.methods)} methods on {len(one.datasets)} data sets, those that have every cell; "
            f"Friedman p = {compact(one.p_value)}, critical difference {one.critical:.2f} (Nemenyi)."
        )
    title = "Mean rank over data sets" + (", the others rescaled" if any(one.rescaled for one in ranked) else "")
    return ResultTable.of_methods(title, columns, [*notes, "1 is best; bold is the lowest."])


def win_cell(group: Group, rival: str, name: str, options: ComparisonOptions) -> TableCell:
    """Number of data sets on which Density-Regression is significantly better, tied, and worse: "5 / 3 / 1"."""
    score, counts = metric(name).score, {1: 0, 0: 0, -1: 0}
    for dataset in group.datasets:
        scores = group.scores(dataset, name, (OURS, rival))
        # A single split does not even show a tie.
        if scores.splits > 1 and len(scores.values) == 2:
            ours, theirs = (score(scores.values[method]) for method in (OURS, rival))
            counts[outcome(ours, theirs, scores.test_to_train, options)] += 1
    if not any(counts.values()):
        return EMPTY
    return TableCell(f"{counts[1]} / {counts[0]} / {counts[-1]}", float(counts[1] - counts[-1]))


def win_table(group: Group, options: ComparisonOptions) -> ResultTable | None:
    """Density-Regression against every other method; None without one of the two."""
    rivals = [method for method in group.methods if method != OURS]
    if OURS not in group.methods or not rivals:
        return None
    columns = {metric(name).label: {one: win_cell(group, one, name, options) for one in rivals} for name in RANKED}
    return ResultTable.of_methods(f"{OURS} against each method", columns, [WIN_NOTE])
