"""Tables of metrics: methods by data sets, or by metrics where there is one data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from density_regression.experiments.records import Record
from density_regression.experiments.report.document import EMPTY, Cell, Table
from density_regression.experiments.report.grouping import Column, Group
from density_regression.experiments.report.judging import Options, bold
from density_regression.experiments.report.names import MAIN, in_order, metric
from density_regression.experiments.report.numbers import mean_and_sd, plus_minus
from density_regression.experiments.report.paper import paper_figure

__all__ = ["appendix_table", "by_rows", "commits_of", "failures", "main_tables", "origin_notes", "split_notes"]

Cells = dict[str, Cell]


def main_tables(group: Group, options: Options) -> tuple[Table, ...]:
    """Tables of the main metrics of a group."""
    names = [name for name in group.metrics if name in MAIN]
    if len(group.datasets) > 1:
        return tuple(_table(group, metric(name).label, group.datasets, [name], options) for name in names)
    return tuple(_table(group, dataset, [dataset], names, options) for dataset in group.datasets)


def appendix_table(group: Group, options: Options) -> Table:
    """All other metrics of a group in one table, a row for each data set and method."""
    names = [name for name in group.metrics if name not in MAIN]
    rows = []
    for dataset in group.datasets:
        columns = [_cells(group, dataset, name, group.scores(dataset, name), options) for name in names]
        for method in group.cells[dataset]:
            start = (Cell(method), Cell(dataset))
            rows.append((*start, *(column.get(method, EMPTY) for column in columns)))
    header = ("Method", "Data set", *(metric(name).label for name in names))
    return Table("All other metrics", header, tuple(rows), origin_notes(group.records))


def by_rows(title: str, columns: dict[str, Cells], notes: Iterable[str]) -> Table:
    """A table of columns; methods that none of them has are left out."""
    methods = in_order((method for column in columns.values() for method in column), "method")
    rows = tuple((Cell(method), *(column.get(method, EMPTY) for column in columns.values())) for method in methods)
    return Table(title, ("Method", *columns), rows, tuple(notes))


def split_notes(columns: dict[str, Column]) -> list[str]:
    """On how many splits methods were compared, and who lacks some."""
    if len({(column.splits, column.scarce) for column in columns.values()}) == 1:
        first = next(iter(columns.values()))
        if not first.scarce:
            return [f"Over {_count(first.splits)}."] if first.splits > 1 else [_UNTESTED]
    parts = [f"{name} {_share(column)}" for name, column in columns.items() if column.most]
    notes = [f"Compared on the splits that all methods have: {', '.join(parts)}."] if parts else []
    return [*notes, _UNTESTED] if any(column.splits == 1 for column in columns.values()) else notes


_UNTESTED = "Over 1 split: nothing is tested, so nothing is bold."


def origin_notes(records: Iterable[Record]) -> tuple[str, ...]:
    """Warnings where records are of several commits, or of one data set's several rows, or one method's settings."""
    known = list(records)
    commits = commits_of(known)
    notes = [f"Records of several commits: {', '.join(commits)}."] if len(commits) > 1 else []
    changed = _several((record["dataset"], record["data"]) for record in known if record.get("data"))
    if changed:
        notes.append(f"Records of data that changed in between: {', '.join(changed)}.")
    mixed = _several((f"{record['method']} on {record['dataset']}", repr(record.get("settings"))) for record in known)
    if mixed:
        notes.append(f"Not all splits were fitted with the same settings: {', '.join(mixed)}.")
    return tuple(notes)


def _several(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Names that come with more than one value."""
    times = Counter(name for name, _ in set(pairs))
    return sorted(name for name in times if times[name] > 1)


def commits_of(records: Iterable[Record]) -> list[str]:
    """The commits that made the records."""
    return sorted({record.get("commit") or "an unknown commit" for record in records})


def failures(records: Iterable[Record]) -> Table | None:
    """Cells that failed, those with the same message in one row."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for record in records:
        if "error" in record:
            message = " ".join(str(record["error"]).split()) or "no message"
            short = message if len(message) <= 160 else f"{message[:159]}…"
            found.setdefault((record["method"], record["dataset"], short), []).append(str(record["split"]))
    if not found:
        return None
    rows = tuple(
        (Cell(method), Cell(dataset), Cell(", ".join(sorted(splits)), len(splits)), Cell(message))
        for (method, dataset, message), splits in sorted(found.items())
    )
    return Table("Failed cells", ("Method", "Data set", "Splits", "Message"), rows)


def _table(group: Group, title: str, datasets: list[str], names: list[str], options: Options) -> Table:
    """Columns are data sets, or the metrics of one."""
    scores, columns = {}, {}
    for dataset in datasets:
        for name in names:
            label = dataset if len(names) == 1 and len(datasets) > 1 else metric(name).label
            scores[label] = group.scores(dataset, name)
            columns[label] = _cells(group, dataset, name, scores[label], options)
    notes = [*split_notes(scores), *origin_notes(group.records), *_paper_notes(columns, names)]
    return by_rows(title, columns, notes)


def _cells(group: Group, dataset: str, name: str, column: Column, options: Options) -> Cells:
    if not column.splits:
        return dict.fromkeys(column.values, EMPTY)
    best = bold(group, dataset, name, column, options)
    cells = {}
    for method, values in column.values.items():
        mean, sd = mean_and_sd(values)
        figure = paper_figure(group.suite, group.protocol, dataset, group.test_set, method, name)
        cells[method] = Cell(plus_minus(mean, sd), mean, method in best, figure)
    return cells


def _paper_notes(columns: dict[str, Cells], names: list[str]) -> list[str]:
    if not any(cell.paper for column in columns.values() for cell in column.values()):
        return []
    notes = ["The paper's figures stand below ours; its “Deterministic” is our Gaussian."]
    if "nll" in names:
        notes.append("The paper's NLL of EDL is that of EDL's own law, Student's t.")
    return notes


def _share(column: Column) -> str:
    if not column.scarce:
        return f"{column.splits}"
    what = "seeds missing" if column.splits == column.most else "missing"
    return f"{column.splits} of {column.most} ({what}: {', '.join(column.scarce)})"


def _count(splits: int) -> str:
    return f"{splits} split" if splits == 1 else f"{splits} splits"
