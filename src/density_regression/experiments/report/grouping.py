"""Records sorted into groups that share a table, and scores paired by split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.experiments.records import Record, latest
from density_regression.experiments.report.names import in_order

__all__ = ["Column", "Group", "groups_of", "results_of", "split_groups"]

FloatArray = NDArray[np.float64]
Fit = tuple[str, int]

RESAMPLED: Final = ("uci", "uci-shift", "wine")
"""Suites whose training sets overlap; in the others data are drawn anew, or only the seed of a fit differs."""


class Column(NamedTuple):
    """One score of several methods on the same splits of a data set.

    Attributes
    ----------
    values : dict from method to array of shape (splits,)
    splits, most : int
        Splits that all methods have, and that any has.
    scarce : tuple of str
        Methods that lack some.
    test_to_train : float
        For the corrected test; 0 where training sets do not overlap.
    """

    values: dict[str, FloatArray]
    splits: int
    most: int
    scarce: tuple[str, ...]
    test_to_train: float


@dataclass(frozen=True)
class Group:
    """Records of one suite, protocol, part (gap, tail) and set of test rows, failed ones left out."""

    suite: str
    protocol: str
    part: str
    test_set: str
    shifted: bool
    records: tuple[Record, ...]

    @cached_property
    def cells(self) -> dict[str, dict[str, dict[Fit, Record]]]:
        """Records by data set, method, and split and seed, in the order of tables."""
        table: dict[str, dict[str, dict[Fit, Record]]] = {}
        for dataset in in_order((record["dataset"] for record in self.records), "dataset"):
            own = [record for record in self.records if record["dataset"] == dataset]
            table[dataset] = {name: {} for name in in_order((record["method"] for record in own), "method")}
            for record in own:
                table[dataset][record["method"]][str(record["split"]), int(record["seed"])] = record
        return table

    @property
    def datasets(self) -> list[str]:
        """Names, in order."""
        return list(self.cells)

    @property
    def methods(self) -> list[str]:
        """Names of the methods that have any cell."""
        return in_order((record["method"] for record in self.records), "method")

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that any record has."""
        return in_order((name for record in self.records for name in self.entry(record)["metrics"]), "metric")

    def entry(self, record: Record) -> Record:
        """What a record says of this group's test rows."""
        entry: Record = record["tests"][self.test_set]
        return entry

    def scores(self, dataset: str, metric: str, methods: Sequence[str] | None = None) -> Column:
        """A metric of those of the methods (all, if left out) that have it, paired by split."""
        return self.paired(dataset, lambda record: self.entry(record)["metrics"].get(metric), methods)

    def paired(
        self, dataset: str, measure: Callable[[Record], float | None], methods: Sequence[str] | None = None
    ) -> Column:
        """A measure of each method on the splits that all methods with that measure have.

        Fits of one split from several seeds are no further splits: their mean counts.
        """
        chosen = self.cells.get(dataset, {})
        found = {
            method: {run: value for run, record in runs.items() if (value := measure(record)) is not None}
            for method, runs in chosen.items()
            if methods is None or method in methods
        }
        found = {method: values for method, values in found.items() if values}
        every = set().union(*found.values())
        common = sorted(every.intersection(*found.values())) if found else []
        scarce = tuple(method for method, values in found.items() if len(values) < len(every))
        splits = list(dict.fromkeys(split for split, _ in common))
        values = {
            method: np.array([np.mean([values[run] for run in common if run[0] == split]) for split in splits])
            for method, values in found.items()
        }
        most = len({split for split, _ in every})
        return Column(values, len(splits), most, scarce, self._test_to_train(dataset, common))

    def _test_to_train(self, dataset: str, fits: Sequence[Fit]) -> float:
        """What overlap does depends on how training rows were drawn, so the first test set counts for all."""
        if self.suite not in RESAMPLED or not fits:
            return 0.0
        methods = self.cells[dataset].values()
        return float(np.mean([_ratio(next(runs[fit] for runs in methods if fit in runs)) for fit in fits]))


def results_of(records: Sequence[Record]) -> list[Record]:
    """One record of each cell; those of a search for settings are no results."""
    return [record for record in latest(records) if not record.get("search")]


def split_groups(record: Record) -> list[str]:
    """Parts that a record counts for: of uci-shift "gap" or "tail", and again if the shift is genuine."""
    if record["suite"] != "uci-shift":
        return [""]
    part = str(record["split"]).partition(":")[0]
    return [part, f"{part}, genuine only"] if record.get("genuine") else [part]


def groups_of(records: Sequence[Record]) -> list[Group]:
    """Groups of one suite and protocol: each part, and in it each set of test rows in the order of the records."""
    done = [record for record in records if "tests" in record]
    parts: dict[str, list[Record]] = {}
    for record in done:
        for part in split_groups(record):
            parts.setdefault(part, []).append(record)
    groups = []
    for part in sorted(parts):
        whole = parts.get(part.partition(",")[0], [])
        if "," in part and len(parts[part]) == len(whole):
            continue
        names = dict.fromkeys(name for record in parts[part] for name in record["tests"])
        for name in names:
            own = tuple(record for record in parts[part] if name in record["tests"])
            shifted = all(name != next(iter(record["tests"])) for record in own)
            groups.append(Group(own[0]["suite"], own[0]["protocol"], part, name, shifted, own))
    return groups


def _ratio(record: Record) -> float:
    first = next(iter(record["tests"].values()))
    train = sum(record["rows"].get(part) or 0 for part in ("train", "held_out"))
    return float(first["rows"] / train) if train else 0.0
