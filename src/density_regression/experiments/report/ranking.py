"""Methods over all data sets of a group: mean ranks, and wins against one another."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from density_regression.experiments.report.document import EMPTY, Cell, Table
from density_regression.experiments.report.grouping import Column, FloatArray, Group
from density_regression.experiments.report.judging import Options, outcome
from density_regression.experiments.report.names import RANKED, metric
from density_regression.experiments.report.numbers import compact, mean_and_sd
from density_regression.experiments.report.tables import by_rows
from density_regression.experiments.significance import friedman, mean_ranks, nemenyi_critical_difference

__all__ = ["OURS", "RIVAL", "Ranks", "rank_table", "ranks_of", "win_table", "wins"]

OURS: Final = "Density-Regression"
RIVAL: Final = "Deep Ensembles"


class Ranks(NamedTuple):
    """Mean ranks of methods over data sets, Friedman's p-value, and Nemenyi's critical difference."""

    metric: str
    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    ranks: FloatArray
    p_value: float
    critical: float


def ranks_of(group: Group, name: str, options: Options) -> Ranks | None:
    """Ranks by a metric's mean over splits; None with fewer than two data sets or methods.

    Where a cell is missing, either the methods with gaps or the data sets with gaps are left out,
    whichever leaves more cells.
    """
    scores = {dataset: column.values for dataset in group.datasets if (column := group.scores(dataset, name)).splits}
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
    critical = nemenyi_critical_difference(len(methods), len(datasets), options.level)
    return Ranks(name, tuple(methods), tuple(datasets), mean_ranks(table), friedman(table).p_value, critical)


def rank_table(ranked: list[Ranks]) -> Table:
    """Mean ranks by several metrics."""
    columns = {
        metric(one.metric).label: {
            method: Cell(f"{rank:.2f}", float(rank), bool(rank == one.ranks.min()))
            for method, rank in zip(one.methods, one.ranks, strict=True)
        }
        for one in ranked
    }
    notes = [
        f"{metric(one.metric).label}: {len(one.methods)} methods on {len(one.datasets)} data sets, those that have "
        f"every cell; Friedman p = {compact(one.p_value)}, critical difference {one.critical:.2f} (Nemenyi)."
        for one in ranked
    ]
    return by_rows("Mean rank over data sets", columns, [*notes, "1 is best; bold is the lowest."])


def wins(group: Group, method: str, name: str, options: Options) -> Cell:
    """Data sets on which Density-Regression is significantly better, tied, and worse: "5 / 3 / 1"."""
    counts = {1: 0, 0: 0, -1: 0}
    for dataset in group.datasets:
        column = group.scores(dataset, name, (OURS, method))
        # Of a single split nothing can be said, not even that it is a tie.
        if column.splits > 1 and len(column.values) == 2:
            counts[_outcome(column, method, name, options)] += 1
    if not any(counts.values()):
        return EMPTY
    return Cell(f"{counts[1]} / {counts[0]} / {counts[-1]}", float(counts[1] - counts[-1]))


def win_table(group: Group, options: Options) -> Table | None:
    """Density-Regression against every other method; None where it has no rival."""
    others = [method for method in group.methods if method != OURS]
    if OURS not in group.methods or not others:
        return None
    columns = {metric(name).label: {method: wins(group, method, name, options) for method in others} for name in RANKED}
    note = "Wins / ties / losses over data sets; a difference counts if it is significant in the data set by itself."
    return by_rows(f"{OURS} against each method", columns, [note])


def _outcome(column: Column, method: str, name: str, options: Options) -> int:
    score = metric(name).score
    ours, theirs = (np.asarray(score(column.values[one])) for one in (OURS, method))
    return outcome(ours, theirs, column.test_to_train, options)
