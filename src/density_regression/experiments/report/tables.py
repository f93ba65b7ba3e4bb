"""Tables of metrics and of cost: methods by data sets, or by metrics if there is one data set."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from density_regression.experiments.records import Record
from density_regression.experiments.report.comparison import ComparisonOptions, best_or_tied
from density_regression.experiments.report.document import EMPTY, ResultTable, TableCell, compact, plus_minus
from density_regression.experiments.report.grouping import Group, PairedScores
from density_regression.experiments.report.names import MAIN, metric
from density_regression.experiments.report.paper import paper_result
from density_regression.experiments.significance import mean_and_sd

__all__ = ["appendix_table", "commits_of", "cost_tables", "failure_table", "main_tables", "origin_notes", "split_notes"]

Column = dict[str, TableCell]
"""Cells of a column by method."""

REFERENCE: Final = "Gaussian"

_COSTS: Final[dict[str, Callable[[Record], float | None]]] = {
    "Seconds to fit": lambda record: record.get("seconds", {}).get("fit"),
    "Seconds to predict": lambda record: record.get("seconds", {}).get("predict"),
    "Parameters": lambda record: record.get("parameters"),
}

_UNTESTED: Final = "Over 1 split: nothing is tested, so nothing is bold."


def main_tables(group: Group, options: ComparisonOptions) -> list[ResultTable]:
    """A table for each main metric, with data sets as columns; for one data set, a single table of all metrics."""
    names = [name for name in group.metrics if name in MAIN]
    if len(group.datasets) > 1:
        return [
            _table(group, metric(name).label, {dataset: (dataset, name) for dataset in group.datasets}, options)
            for name in names
        ]
    return [
        _table(group, dataset, {metric(name).label: (dataset, name) for name in names}, options)
        for dataset in group.datasets
    ]


def _table(group: Group, title: str, places: dict[str, tuple[str, str]], options: ComparisonOptions) -> ResultTable:
    """Table whose columns, by their labels, are pairs of data set and metric."""
    scores = {label: group.scores(*place) for label, place in places.items()}
    columns = {label: _column(group, *place, scores[label], options) for label, place in places.items()}
    notes = [*split_notes(scores), *origin_notes(group.records)]
    if any(cell.paper for column in columns.values() for cell in column.values()):
        notes.append("The paper's figures stand below ours; its “Deterministic” is our Gaussian.")
        if "nll" in (name for _, name in places.values()):
            notes.append("The paper's NLL of EDL is that of EDL's own law, Student's t.")
    return ResultTable.of_methods(title, columns, notes)


def _column(group: Group, dataset: str, name: str, scores: PairedScores, options: ComparisonOptions) -> Column:
    if not scores.splits:
        return dict.fromkeys(scores.values, EMPTY)
    best = best_or_tied(group, dataset, name, scores, options)
    cells = {}
    for method, values in scores.values.items():
        mean, sd = mean_and_sd(values)
        paper = paper_result(group.suite, group.protocol, dataset, group.test_set, method, name)
        cells[method] = TableCell(plus_minus(mean, sd), mean, method in best, paper)
    return cells


def appendix_table(group: Group, options: ComparisonOptions) -> ResultTable:
    """All metrics that are not in the main tables, with a row for each data set and method."""
    names = [name for name in group.metrics if name not in MAIN]
    rows = []
    for dataset, methods in group.runs.items():
        columns = [_column(group, dataset, name, group.scores(dataset, name), options) for name in names]
        for method in methods:
            rows.append((TableCell(method), TableCell(dataset), *(column.get(method, EMPTY) for column in columns)))
    header = ("Method", "Data set", *(metric(name).label for name in names))
    return ResultTable("All other metrics", header, tuple(rows), origin_notes(group.records))


def split_notes(columns: dict[str, PairedScores]) -> list[str]:
    """Notes on the number of splits of each column, and on methods that lack some."""
    if len({(scores.splits, scores.incomplete) for scores in columns.values()}) == 1:
        first = next(iter(columns.values()))
        if not first.incomplete:
            return [f"Over {first.splits} splits." if first.splits > 1 else _UNTESTED]
    parts = [f"{name} {_split_count(scores)}" for name, scores in columns.items() if scores.total]
    notes = [f"Compared on the splits that all methods have: {', '.join(parts)}."] if parts else []
    return [*notes, _UNTESTED] if any(scores.splits == 1 for scores in columns.values()) else notes


def _split_count(scores: PairedScores) -> str:
    if not scores.incomplete:
        return f"{scores.splits}"
    what = "seeds missing" if scores.splits == scores.total else "missing"
    return f"{scores.splits} of {scores.total} ({what}: {', '.join(scores.incomplete)})"


def origin_notes(records: Iterable[Record]) -> tuple[str, ...]:
    """Warnings about records that differ in commit, in the rows of a data set, or in the settings of a method."""
    known = list(records)
    commits = commits_of(known)
    notes = [f"Records of several commits: {', '.join(commits)}."] if len(commits) > 1 else []
    changed = _ambiguous((record["dataset"], record["data"]) for record in known if record.get("data"))
    if changed:
        notes.append(f"Records of data that changed in between: {', '.join(changed)}.")
    mixed = _ambiguous((f"{record['method']} on {record['dataset']}", repr(record.get("settings"))) for record in known)
    if mixed:
        notes.append(f"Not all splits were fitted with the same settings: {', '.join(mixed)}.")
    return tuple(notes)


def _ambiguous(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Names that have more than one value."""
    return sorted(name for name, count in Counter(name for name, _ in set(pairs)).items() if count > 1)


def commits_of(records: Iterable[Record]) -> list[str]:
    """Commits that made the records."""
    return sorted({record.get("commit") or "an unknown commit" for record in records})


def failure_table(records: Iterable[Record]) -> ResultTable | None:
    """Failed fits, with one row for each method, data set and message; None if there are none."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for record in records:
        if "error" in record:
            message = " ".join(str(record["error"]).split()) or "no message"
            short = message if len(message) <= 160 else f"{message[:159]}…"
            found.setdefault((record["method"], record["dataset"], short), []).append(str(record["split"]))
    rows = tuple(
        (TableCell(method), TableCell(dataset), TableCell(", ".join(sorted(splits)), len(splits)), TableCell(message))
        for (method, dataset, message), splits in sorted(found.items())
    )
    return ResultTable("Failed cells", ("Method", "Data set", "Splits", "Message"), rows) if rows else None


def cost_tables(group: Group) -> tuple[ResultTable, ...]:
    """Means over splits, and in brackets their ratio to those of the Gaussian network."""
    tables = {
        title: {dataset: group.paired(dataset, measure) for dataset in group.datasets}
        for title, measure in _COSTS.items()
    }
    if len(group.datasets) == 1:
        (dataset,) = group.datasets
        tables = {f"Cost on {dataset}": {title: columns[dataset] for title, columns in tables.items()}}
    return tuple(_cost_table(title, columns) for title, columns in tables.items())


def _cost_table(title: str, scores: dict[str, PairedScores]) -> ResultTable:
    columns = {label: _cost_column(own, "Parameters" in (title, label)) for label, own in scores.items()}
    notes = [note for note in split_notes(scores) if "tested" not in note]
    return ResultTable.of_methods(title, columns, [*notes, f"In brackets: times the {REFERENCE} network's."])


def _cost_column(scores: PairedScores, is_count: bool) -> Column:
    if not scores.splits:
        return dict.fromkeys(scores.values, EMPTY)
    means = {method: mean_and_sd(values)[0] for method, values in scores.values.items()}
    reference = means.get(REFERENCE)
    cells = {}
    for method, mean in means.items():
        text = f"{mean:,.0f}" if is_count else compact(mean)
        if reference:
            ratio = mean / reference
            text += f" (× {ratio:.2f})" if ratio < 10 else f" (× {ratio:,.0f})"
        cells[method] = TableCell(text, mean)
    return cells
