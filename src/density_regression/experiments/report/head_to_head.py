"""Density-Regression against one other method on each data set, with the standard deviations of both rescaled."""

from collections.abc import Callable
from typing import Final

from density_regression.experiments.report.document import EMPTY, ResultTable, TableCell, compact
from density_regression.experiments.report.grouping import Group, PairedScores
from density_regression.experiments.report.names import OURS, metric
from density_regression.experiments.report.tables import origin_notes, split_notes
from density_regression.experiments.significance import corrected_interval, mean_and_sd

__all__ = ["LEGEND", "MAIN_RIVAL", "MARGIN", "head_to_head_tables", "verdict"]

MARGIN: Final = 0.05
"""Nats by which an NLL may be higher and still count as no worse."""

MAIN_RIVAL: Final = "Deep Ensembles"
RIVALS: Final = {MAIN_RIVAL: MAIN_RIVAL, "Gaussian": "the Gaussian network"}
"""Methods with a table of their own, and their names in its title."""

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
"""Explanation of the tables in the report."""


def head_to_head_tables(group: Group) -> list[ResultTable]:
    """A table for each rival that shares a split with Density-Regression in some data set."""
    return [table for rival in RIVALS if (table := _table(group, rival)) is not None]


def verdict(difference: float, interval: tuple[float, float]) -> str:
    """Judgement of a mean difference of the NLL, ours - theirs, and its confidence interval."""
    low, high = interval
    if high < 0:
        return "better"
    if low > MARGIN:
        return "worse"
    if high <= MARGIN:
        return "no worse"
    return "equal" if difference == 0 else "lower" if difference < 0 else "higher"


def _table(group: Group, rival: str) -> ResultTable | None:
    def scores(dataset: str, name: str) -> PairedScores | None:
        own = group.scores(dataset, f"{name}_rescaled", (OURS, rival))
        return own if own.splits and len(own.values) == 2 else None

    columns = {dataset: nll for dataset in group.datasets if (nll := scores(dataset, "nll")) is not None}
    if not columns:
        return None
    rows, differences, verdicts = [], [], []
    for dataset, nll in columns.items():
        # Records hold nothing beyond 1e300, so the difference does not overflow.
        paired = nll.values[OURS] - nll.values[rival]
        difference, interval = mean_and_sd(paired)[0], corrected_interval(paired, nll.test_to_train)
        differences.append(difference)
        verdicts.append(verdict(difference, interval))
        text = _nats(difference) + (f" ({_nats(interval[0])}, {_nats(interval[1])})" if nll.splits > 1 else "")
        others = (cell for name in ("cal", "crps") for cell in _means(scores(dataset, name), rival, compact))
        middle = (TableCell(text, difference), TableCell(verdicts[-1]))
        rows.append((TableCell(dataset), *_means(nll, rival, _nats), *middle, *others))
    own = (record for record in group.records if record["method"] in (OURS, rival))
    notes = (*_summary(differences, verdicts.count("better")), *split_notes(columns), *origin_notes(own))
    title = f"{OURS} against {RIVALS[rival]}, each rescaled by its held-out rows"
    return ResultTable(title, _HEADER, tuple(rows), notes)


def _means(scores: PairedScores | None, rival: str, form: Callable[[float], str]) -> list[TableCell]:
    if scores is None:
        return [EMPTY, EMPTY]
    means = [mean_and_sd(scores.values[method])[0] for method in (OURS, rival)]
    return [TableCell(form(mean), mean) for mean in means]


def _summary(differences: list[float], better: int) -> list[str]:
    if len(differences) < 2:
        return []
    lower, clearly = (sum(difference < bound for difference in differences) for bound in (0, -MARGIN))
    largest = max(differences)
    higher = f"higher by {_nats(largest)} at most" if largest > 0 else "higher in none"
    return [
        f"Of {len(differences)} data sets, our mean NLL is lower in {lower}, by more than {MARGIN:g} nats in "
        f"{clearly}, better in {better}, and {higher}."
    ]


def _nats(value: float) -> str:
    """Three decimals; adding 0.0 avoids "-0.000"."""
    return f"{round(value, 3) + 0.0:.3f}" if abs(value) < 9_999.5 else compact(value)
