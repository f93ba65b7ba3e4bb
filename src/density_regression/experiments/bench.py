"""The runner: every cell of a suite (data set, split, method) once, in parallel, kept as it comes."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from joblib import Parallel, delayed

from density_regression.base import DeepRegressor
from density_regression.datasets import Rows
from density_regression.experiments.protocols import Protocol, Settings, paper_settings, search_space
from density_regression.experiments.provenance import provenance
from density_regression.experiments.records import Cell, Record, RecordFile
from density_regression.experiments.scoring import held_out_scale, score
from density_regression.experiments.suites import SUITES, chosen
from density_regression.registry import import_plugin, methods
from density_regression.tables import split_rows
from density_regression.together import fit_together

__all__ = ["Bench", "check_extras", "estimators", "run_cells"]

HELD_OUT: Final = 0.15
"""Share of the training rows that every method holds out, the same ones."""

VALIDATION: Final = 0.2
"""Share of the training rows of a split that a search is judged by."""

ENOUGH: Final = 1000
MOST_SPLITS: Final = 5
"""A search is judged on as many splits as make so many rows to judge by, and no more than five."""

SEARCH_ROWS: Final = 4000
"""Most training rows that a search looks at."""

TOGETHER: Final = 20
"""Most fits of one shape that are computed as one; a run that is killed loses as many."""


def estimators() -> dict[str, type[DeepRegressor]]:
    """The classes of all methods, by the names that tables have."""
    return {method.name: method.estimator for method in methods()}


@dataclass(frozen=True)
class Bench:
    """What to run.

    Attributes
    ----------
    suite : str
        A name in `SUITES`.
    protocol : {"paper", "tuned"}
        The paper's settings, or the best of `budget` settings for each method and data set.
    methods : sequence of str
        Names as `density_regression.methods` has them.
    datasets : sequence of str or None
        Some of the suite's; None is all.
    splits : int or None
        How many splits (or seeds, where the suite has those) of each data set; None is as many as are usual.
    seeds : int
        Fits of each split, from different first weights and held-out rows.
    data_dir : path or None
        Folder with the data.
    budget : int
        Settings to try in a search.
    device : str
        Where networks are trained, as `DeepRegressor` has it.
    plugin : str or None
        Module that registers methods of one's own, which every process imports.
    """

    suite: str
    protocol: Protocol
    methods: Sequence[str]
    datasets: Sequence[str] | None = None
    splits: int | None = None
    seeds: int = 1
    data_dir: str | None = None
    budget: int = 12
    device: str = "cpu"
    plugin: str | None = None

    def cells(self) -> list[Cell]:
        """Every cell, in the order of the data sets, then splits; data that is missing is missed here."""
        suite = SUITES[self.suite]
        return [
            Cell(self.suite, self.protocol, dataset, split, seed, method)
            for dataset in chosen(suite, self.datasets or (), self.data_dir)
            for split in suite.splits(dataset, self.data_dir)[: self.splits or suite.usual(dataset)]
            for seed in range(self.seeds)
            for method in self.methods
        ]

    def searches(self) -> list[Cell]:
        """The cells of the search, one for each setting; none in the paper's protocol."""
        if self.protocol != "tuned":
            return []
        pairs = dict.fromkeys((cell.dataset, cell.method) for cell in self.cells())
        return [cell for pair in pairs for i in range(self.budget) for cell in self._search(*pair, i)]

    def _search(self, dataset: str, method: str, setting: int) -> list[Cell]:
        """The cells that judge one setting; what is a seed elsewhere numbers the splits here."""
        judges = len(search_splits(self.suite, dataset, self.data_dir))
        split = f"search {setting}"
        return [Cell(self.suite, self.protocol, dataset, split, seed, method) for seed in range(judges)]

    def run(self, file: RecordFile, jobs: int) -> Iterator[Record]:
        """Run what the file lacks, the search first; each record is in the file before it is yielded.

        Splits of one data set are fitted together, by one process. A cell that failed, or was run with other settings
        or on other rows, is run again.
        """
        done = file.done()
        for cells in (self.searches(), self.cells()):
            parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
            missing = self.missing(cells, done)
            # Whole groups, also if part of one is there: what a fit draws depends on its company.
            work = [
                delayed(run_cells)(
                    group, self._settings(group[0], done), self.data_dir, self._origin(group[0]), self.plugin
                )
                for group in groups_of(cells)
                if not missing.isdisjoint(group)
            ]
            for records in parallel(work):
                for record in records:
                    if Cell.of(record) in missing:
                        file.append(record)
                        done[Cell.of(record)] = record
                        yield record

    def missing(self, cells: Sequence[Cell], done: dict[Cell, Record]) -> set[Cell]:
        """Those of the cells that are not done yet, or were with other settings or on other rows."""
        groups = [(group, self._settings(group[0], done), self._origin(group[0])["data"]) for group in groups_of(cells)]
        return {
            cell for group, settings, data in groups for cell in group if not _is_done(done.get(cell), settings, data)
        }

    def _origin(self, cell: Cell) -> dict[str, Any]:
        data = SUITES[self.suite].checksum(cell.dataset, self.data_dir)
        return provenance() | {"device": self.device, "data": data}

    def _settings(self, cell: Cell, done: dict[Cell, Record]) -> Settings:
        if self.protocol == "paper":
            return paper_settings(cell.suite, cell.dataset)
        space = search_space(cell.method, cell.dataset, self.budget)
        if is_search(cell):
            return space[int(cell.split.split()[1])]
        judged = [self._search(cell.dataset, cell.method, i) for i in range(len(space))]
        losses = [np.mean([_validation_nll(done.get(part)) for part in cells]) for cells in judged]
        return space[int(np.argmin(losses))]


def groups_of(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that can be fitted together: one method and data set, and tables of one length."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        # A search tries settings of many shapes; gaps and tails are not of one length.
        kind = cell.split if is_search(cell) else cell.split.partition(":")[0] if ":" in cell.split else ""
        groups.setdefault((cell.dataset, cell.method, kind), []).append(cell)
    return [group[i : i + TOGETHER] for group in groups.values() for i in range(0, len(group), TOGETHER)]


@lru_cache(maxsize=64)
def search_splits(suite: str, dataset: str, data_dir: str | None) -> list[str]:
    """The splits on whose training rows settings are judged: the first few of one kind, few where rows are many."""
    splits = SUITES[suite].splits(dataset, data_dir)
    task = SUITES[suite].load(dataset, splits[0], data_dir)
    if task.held_out is not None:
        # A series: its splits differ by their seed alone.
        return splits[:1]
    number = min(math.ceil(ENOUGH / (VALIDATION * len(task.train.y))), MOST_SPLITS)
    kind = splits[0].partition(":")[0] if ":" in splits[0] else ""
    return [split for split in splits if split.startswith(kind)][:number]


def _is_done(record: Record | None, settings: Settings, data: str | None) -> bool:
    if record is None:
        return False
    # Settings as JSON: a tuple has become a list. Old records do not say which rows they are of.
    return record.get("settings") == json.loads(json.dumps(settings)) and record.get("data", data) == data


def is_search(cell: Cell) -> bool:
    """Whether a cell is one of a search for settings."""
    return cell.split.startswith("search ")


def check_extras(names: Sequence[str]) -> None:
    """Say now, not after an hour, that a method needs an extra which is not installed."""
    X = np.arange(8.0)[:, None]
    for name in names:
        estimators()[name](epochs=1, n_threads=1, verbose=False).fit(X, X[:, 0])


def run_cells(
    cells: Sequence[Cell],
    settings: Settings,
    data_dir: str | None,
    provenance: dict[str, Any],
    plugin: str | None = None,
) -> list[Record]:
    """Fit one method to some splits, together, and score each; an error is recorded, not raised.

    `provenance` is part of each record; its device is where the fits are made. A process that has not imported the
    `plugin` yet does so first.
    """
    if plugin is not None:
        import_plugin(plugin)
    records: list[Record] = [{**cell._asdict(), **provenance, "settings": settings} for cell in cells]
    for record in records:
        if is_search(Cell.of(record)):
            record["search"] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = _fit_and_score(cells, settings | {"device": provenance.get("device", "cpu")}, data_dir)
        except Exception as error:  # one cell in thousands must not end the others
            if len(cells) > 1:
                alone = (run_cells([cell], settings, data_dir, provenance, plugin) for cell in cells)
                return [record for part in alone for record in part]
            results = [{"error": f"{type(error).__name__}: {error}"}]
    return [record | result for record, result in zip(records, results, strict=True)]


def _fit_and_score(cells: Sequence[Cell], settings: Settings, data_dir: str | None) -> list[Record]:
    estimator = estimators()[cells[0].method]
    works = [_work(cell, data_dir) for cell in cells]
    regressors = [estimator(**settings, random_state=work.seed, n_threads=1, verbose=False) for work in works]
    start = time.perf_counter()
    fit_together(regressors, [work.train for work in works], [work.held_out for work in works])
    seconds = (time.perf_counter() - start) / len(works)
    return [_scored(regressor, work, len(works), seconds) for regressor, work in zip(regressors, works, strict=True)]


class Work(NamedTuple):
    """What one cell asks for: rows, seed, and how to score it."""

    train: Rows
    held_out: Rows
    tests: dict[str, Rows]
    seed: int
    levels: int
    sample: str | None
    facts: dict[str, Any]


def _work(cell: Cell, data_dir: str | None) -> Work:
    suite, search = SUITES[cell.suite], is_search(cell)
    splits = suite.splits(cell.dataset, data_dir)
    split = search_splits(cell.suite, cell.dataset, data_dir)[cell.seed] if search else cell.split
    index = splits.index(split)
    task = suite.load(cell.dataset, splits[index], data_dir)
    seed = index if search else 1000 * cell.seed + index
    train, tests = task.train, task.tests
    held_out = task.held_out
    if search and held_out is not None:
        # Rows in time order: of those set aside some weeks judge, as hours drawn from the others would lie among them.
        held_out, validation = _alternate(held_out)
        tests = {"validation": validation}
    elif search:
        train, validation = _part(train, VALIDATION, seed)
        tests = {"validation": validation}
    if held_out is None:
        # The same rows for every method, as they depend on the split alone.
        train, held_out = _part(train, HELD_OUT, seed)
    if search and len(train.y) > SEARCH_ROWS:
        train = _part(train, 1 - SEARCH_ROWS / len(train.y), seed)[0]
    sample = suite.sample if seed == 0 and not search else None
    return Work(train, held_out, tests, seed, suite.levels, sample, {} if search else task.facts)


def _scored(regressor: DeepRegressor, work: Work, together: int, seconds: float) -> Record:
    scale = held_out_scale(regressor, work.held_out)
    target_sd = float(work.train.y.std()) or 1.0
    tests, predict_seconds = score(
        regressor, work.tests, levels=work.levels, scale=scale, target_sd=target_sd, sample=work.sample
    )
    return {
        "tests": tests,
        "rows": {"train": len(work.train.y), "held_out": len(work.held_out.y)},
        "scale": scale,
        "target_sd": target_sd,
        "epochs": len(regressor.report_.history),
        "seconds": {"fit": round(seconds, 4), "predict": round(predict_seconds, 5)},
        "together": together,
        "parameters": sum(parameter.numel() for parameter in regressor.model_.parameters()),
        **work.facts,
    }


def _part(rows: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    kept, apart = split_rows(len(rows.y), share, seed)
    return Rows(rows.X[kept], rows.y[kept]), Rows(rows.X[apart], rows.y[apart])


def _alternate(rows: Rows, blocks: int = 8) -> tuple[Rows, Rows]:
    """Every other block of rows, and the blocks between."""
    block = np.arange(len(rows.y)) * blocks // len(rows.y) % 2 == 0
    return Rows(rows.X[block], rows.y[block]), Rows(rows.X[~block], rows.y[~block])


def _validation_nll(record: Record | None) -> float:
    if record is None or "tests" not in record:
        return float("inf")
    return float(record["tests"]["validation"]["metrics"]["nll"])
