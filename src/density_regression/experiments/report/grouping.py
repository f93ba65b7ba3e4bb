"""Records grouped into tables, and scores paired by split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from density_regression.experiments.records import Record, latest
from density_regression.experiments.report.names import in_order
from density_regression.experiments.significance import FloatArray

__all__ = ["Group", "PairedScores", "groups_of", "results_of"]

Run = tuple[str, int]
"""Split and seed of a fit."""

RESAMPLED: Final = ("uci", "uci-shift", "shift", "wine", "compare")
"""Suites with overlapping training sets; in the others data are drawn anew, or only the seed of the fit differs."""


class PairedScores(NamedTuple):
    """Scores (splits,) of several methods on the same splits of a data set.

    `splits` is the number of splits that all methods have, `total` that of splits that any method has; `incomplete`
    methods lack some. `test_to_train` is n_test / n_train for the corrected t-test, 0 if training sets do not overlap.
    """

    values: dict[str, FloatArray]
    splits: int
    total: int
    incomplete: tuple[str, ...]
    test_to_train: float


@dataclass(frozen=True)
class Group:
    """Successful records of one suite, protocol, part ("gap", "tail") and test set."""

    suite: str
    protocol: str
    part: str
    test_set: str
    shifted: bool
    records: tuple[Record, ...]

    @cached_property
    def runs(self) -> dict[str, dict[str, dict[Run, Record]]]:
        """Records by data set, method, and split and seed, in the order of tables."""
        table: dict[str, dict[str, dict[Run, Record]]] = {}
        for dataset in in_order((record["dataset"] for record in self.records), "dataset"):
            own = [record for record in self.records if record["dataset"] == dataset]
            table[dataset] = {name: {} for name in in_order((record["method"] for record in own), "method")}
            for record in own:
                table[dataset][record["method"]][str(record["split"]), int(record["seed"])] = record
        return table

    @property
    def datasets(self) -> list[str]:
        """Names of the data sets, in order."""
        return list(self.runs)

    @property
    def methods(self) -> list[str]:
        """Names of the methods that have any record, in order."""
        return in_order((record["method"] for record in self.records), "method")

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that any record has, in order."""
        return in_order((name for record in self.records for name in self.entry(record)["metrics"]), "metric")

    def entry(self, record: Record) -> Record:
        """Part of a record about this group's test set."""
        entry: Record = record["tests"][self.test_set]
        return entry

    def scores(self, dataset: str, metric: str, methods: Sequence[str] | None = None) -> PairedScores:
        """Values of a metric, paired by split, for those of the methods (None: all) that have it."""
        return self.paired(dataset, lambda record: self.entry(record)["metrics"].get(metric), methods)

    def paired(
        self, dataset: str, measure: Callable[[Record], float | None], methods: Sequence[str] | None = None
    ) -> PairedScores:
        """Values of a measure on the splits that all methods with that measure have, averaged over seeds."""
        found = {
            method: values
            for method, runs in self.runs.get(dataset, {}).items()
            if methods is None or method in methods
            if (values := {run: value for run, record in runs.items() if (value := measure(record)) is not None})
        }
        every = set().union(*found.values())
        common = sorted(every.intersection(*found.values())) if found else []
        incomplete = tuple(method for method, values in found.items() if len(values) < len(every))
        splits = list(dict.fromkeys(split for split, _ in common))
        means = {
            method: np.array([np.mean([values[run] for run in common if run[0] == split]) for split in splits])
            for method, values in found.items()
        }
        total = len({split for split, _ in every})
        return PairedScores(means, len(splits), total, incomplete, self._test_to_train(dataset, common))

    def _test_to_train(self, dataset: str, runs: Sequence[Run]) -> float:
        """Mean n_test / n_train; always of the first test set, as it measures the overlap of training rows."""
        if self.suite not in RESAMPLED or not runs:
            return 0.0
        methods = self.runs[dataset].values()
        return float(np.mean([_ratio(next(own[run] for own in methods if run in own)) for run in runs]))


def results_of(records: Sequence[Record]) -> list[Record]:
    """One record of each fit, without those of a search for settings."""
    return [record for record in latest(records) if not record.get("search")]


def groups_of(records: Sequence[Record]) -> list[Group]:
    """Groups of one suite and protocol: each part, and in it each test set in the order of the records."""
    parts: dict[str, list[Record]] = {}
    for record in records:
        if "tests" in record:
            part = str(record["split"]).partition(":")[0] if record["suite"] == "uci-shift" else ""
            parts.setdefault(part, []).append(record)
            if part and record.get("genuine"):
                parts.setdefault(f"{part}, genuine only", []).append(record)
    groups = []
    for part, members in sorted(parts.items()):
        # Left out if every shift is genuine.
        if "," in part and len(members) == len(parts[part.partition(",")[0]]):
            continue
        for name in dict.fromkeys(name for record in members for name in record["tests"]):
            own = tuple(record for record in members if name in record["tests"])
            shifted = all(name != next(iter(record["tests"])) for record in own)
            groups.append(Group(own[0]["suite"], own[0]["protocol"], part, name, shifted, own))
    return groups


def _ratio(record: Record) -> float:
    first = next(iter(record["tests"].values()))
    train = sum(record["rows"].get(part) or 0 for part in ("train", "held_out"))
    return float(first["rows"] / train) if train else 0.0
