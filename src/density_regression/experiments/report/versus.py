"""Density-Regression against one other method: data set by data set, when each has its variance rescaled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from density_regression.experiments.report.document import EMPTY, Cell, Table
from density_regression.experiments.report.grouping import Column, Group
from density_regression.experiments.report.names import metric
from density_regression.experiments.report.numbers import compact, mean_and_sd
from density_regression.experiments.report.ranking import OURS, RIVAL
from density_regression.experiments.report.tables import origin_notes, split_notes
from density_regression.experiments.significance import corrected_interval

__all__ = ["LEGEND", "MARGIN", "verdict", "versus_tables"]

MARGIN: Final = 0.05
"""Nats by which an NLL may be higher and still count as no worse."""

RIVALS: Final = {RIVAL: RIVAL, "Gaussian": "the Gaussian network"}
"""Methods with a table of their own, and what they are called in its title."""

_HEADER: Final = (
    "Data set",
    "NLL, ours",
    "NLL, theirs",
    "Difference (95 % interval)",
    "Verdict",
    *(f"{metric(name).label}, {whose}" for name in ("cal", "crps") for whose in ("ours", "theirs")),
)
LEGEND: Final = (
    f"In tables of {OURS} against one method “rescaled by its held-out rows”, each method's standard deviation is "
    "multiplied by the factor that suits its held-out rows best. The difference of the NLL is ours - theirs, and its "
    "interval is that of the corrected resampled t-test, for each data set by itself. Better: the interval lies below "
    f"0; worse: it lies above {MARGIN:g} nats; no worse: it ends at {MARGIN:g} or before; lower or higher: none of "
    "these, and the mean alone says so."
)
"""How to read the tables."""


class Duel(NamedTuple):
    """Mean difference of the NLL, ours - theirs, its interval as text ("" of one split), and what they say of ours."""

    difference: float
    interval: str
    verdict: str


def versus_tables(group: Group) -> list[Table]:
    """A table for each rival that shares a split with Density-Regression in some data set."""
    return [table for rival in RIVALS if (table := _table(group, rival)) is not None]


def verdict(difference: float, interval: tuple[float, float]) -> str:
    """What a mean difference, ours - theirs, and its interval say of ours; infinite ends leave it undecided."""
    low, high = interval
    if high < 0:
        return "better"
    if low > MARGIN:
        return "worse"
    if high <= MARGIN:
        return "no worse"
    return "equal" if difference == 0 else "lower" if difference < 0 else "higher"


def _table(group: Group, rival: str) -> Table | None:
    columns = {dataset: column for dataset in group.datasets if _is_pair(column := _pair(group, dataset, "nll", rival))}
    if not columns:
        return None
    duels = {dataset: _duel(column, rival) for dataset, column in columns.items()}
    rows = []
    for dataset, duel in duels.items():
        difference = Cell(f"{_nats(duel.difference)}{duel.interval}", duel.difference)
        cal, crps = (_means(_pair(group, dataset, name, rival), rival, compact) for name in ("cal", "crps"))
        nll = _means(columns[dataset], rival, _nats)
        rows.append((Cell(dataset), *nll, difference, Cell(duel.verdict), *cal, *crps))
    own = (record for record in group.records if record["method"] in (OURS, rival))
    notes = (*_counts(list(duels.values())), *split_notes(columns), *origin_notes(own))
    return Table(f"{OURS} against {RIVALS[rival]}, each rescaled by its held-out rows", _HEADER, tuple(rows), notes)


def _pair(group: Group, dataset: str, name: str, rival: str) -> Column:
    return group.scores(dataset, f"{name}_rescaled", (OURS, rival))


def _is_pair(column: Column) -> bool:
    return column.splits > 0 and len(column.values) == 2


def _duel(column: Column, rival: str) -> Duel:
    # Records hold nothing beyond 1e300, so the difference is a float.
    differences = column.values[OURS] - column.values[rival]
    mean = mean_and_sd(differences)[0]
    low, high = corrected_interval(differences, column.test_to_train)
    text = f" ({_nats(low)}, {_nats(high)})" if column.splits > 1 else ""
    return Duel(mean, text, verdict(mean, (low, high)))


def _means(column: Column, rival: str, form: Callable[[float], str]) -> list[Cell]:
    if not _is_pair(column):
        return [EMPTY, EMPTY]
    means = [mean_and_sd(column.values[method])[0] for method in (OURS, rival)]
    return [Cell(form(mean), mean) for mean in means]


def _counts(duels: list[Duel]) -> list[str]:
    if len(duels) < 2:
        return []
    lower, clearly = (sum(duel.difference < bound for duel in duels) for bound in (0, -MARGIN))
    better = sum(duel.verdict == "better" for duel in duels)
    largest = max(duel.difference for duel in duels)
    higher = f"higher by {_nats(largest)} at most" if largest > 0 else "higher in none"
    return [
        f"Of {len(duels)} data sets, our mean NLL is lower in {lower}, by more than {MARGIN:g} nats in {clearly}, "
        f"better in {better}, and {higher}."
    ]


def _nats(value: float) -> str:
    """Equally many decimals for a difference and the margin; + 0.0 as -0.000 would look odd."""
    return f"{round(value, 3) + 0.0:.3f}" if abs(value) < 9_999.5 else compact(value)
