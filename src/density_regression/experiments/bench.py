"""Benchmark runner: fits each method to each split of a suite, in parallel, and appends a record of each fit."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from density_regression.experiments.engines import EngineName, engine
from density_regression.experiments.fitting import run_fits, search_splits
from density_regression.experiments.protocols import (
    Hyperparameters,
    Protocol,
    check_protocol,
    paper_settings,
    search_space,
)
from density_regression.experiments.provenance import provenance
from density_regression.experiments.records import FitKey, Record, RecordFile
from density_regression.experiments.suites import Suite, find_suite, shift_kind
from density_regression.io.extras import import_extra

__all__ = ["Bench", "check_extras"]

MAX_JOINT_FITS: Final = 20
"""Most fits of one shape that are computed as one batch; a run that is killed loses as many."""

EXTRAS: Final = {"DUE": ("gpytorch", "gp")}
"""Methods that need an optional module, and the extra that installs it."""


def check_extras(names: Sequence[str]) -> None:
    """Raise an ImportError if a method needs an optional module that is not installed."""
    for name, (module, extra) in EXTRAS.items():
        if name in names and find_spec(module) is None:
            import_extra(module, needed_by=name, extra=extra)


@dataclass(frozen=True)
class Bench:
    """What to run: `methods` on the `datasets` of a suite (None: its default ones), with the settings of a protocol.

    The first `splits` splits of each data set are fitted (None: the suite's default number), each `seeds` times from
    other initial weights and held-out rows. The tuned protocol tries `budget` settings for each method and data set.
    Every process imports the module `plugin`, which registers the user's own methods. `own_suite` takes the place of
    the suite of that name.
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
    own_suite: Suite | None = None

    def __post_init__(self) -> None:
        """Raise a ValueError for a protocol that the suite does not have."""
        check_protocol(self.suite, self.protocol)

    def fits(self) -> list[FitKey]:
        """Every fit, ordered by data set, then split. Raises if data are missing."""
        suite = find_suite(self.suite, self.own_suite)
        return [
            FitKey(self.suite, self.protocol, dataset, split, seed, method)
            for dataset in suite.select(self.datasets or (), self.data_dir)
            for split in suite.splits(dataset, self.data_dir)[: self.splits or suite.default_splits(dataset)]
            for seed in range(self.seeds)
            for method in self.methods
        ]

    def search_fits(self) -> list[FitKey]:
        """Every fit of the search for settings; none but in the tuned protocol."""
        if self.protocol != "tuned":
            return []
        pairs = dict.fromkeys((key.dataset, key.method) for key in self.fits())
        return [key for pair in pairs for i in range(self.budget) for key in self._trial(*pair, i)]

    def _trial(self, dataset: str, method: str, index: int) -> list[FitKey]:
        """Fits of setting number `index`; their `seed` numbers the splits of `search_splits`."""
        n_splits = len(search_splits(self.suite, dataset, self.data_dir, self.own_suite))
        return [FitKey(self.suite, self.protocol, dataset, f"search {index}", i, method) for i in range(n_splits)]

    def run(
        self, file: RecordFile, jobs: int, engine_name: EngineName = "local", address: str | None = None
    ) -> Iterator[Record]:
        """Run the fits that the file lacks, those of the search first; yield each record after it is in the file.

        Splits of one data set are fitted together by one process. A fit that failed, or was made with other settings
        or on other rows, is repeated. The engine is one of `engine`, to which `jobs` and `address` go.
        """
        done = file.done()
        with engine(engine_name, jobs, address, on_gpu=self.device.startswith("cuda")) as compute:
            for keys in (self.search_fits(), self.fits()):
                missing = self.missing(keys, done)
                # Whole groups, even if only part of one is missing: random draws depend on the other fits of the batch.
                work = [
                    {"keys": group, "settings": self._settings(group[0], done), "provenance": self._origin(group[0])}
                    for group in joint_fits(keys)
                    if not missing.isdisjoint(group)
                ]
                shared = {"data_dir": self.data_dir, "plugin": self.plugin, "own_suite": self.own_suite}
                for record in (record for records in compute(run_fits, work, shared) for record in records):
                    key = FitKey.of(record)
                    if key in missing:
                        file.append(record)
                        done[key] = record
                        yield record

    def missing(self, keys: Sequence[FitKey], done: dict[FitKey, Record]) -> set[FitKey]:
        """Fits that are not done, or were done with other settings or on other rows."""
        missing = set()
        for group in joint_fits(keys):
            # As JSON, as in the records: a tuple has become a list.
            settings = json.loads(json.dumps(self._settings(group[0], done)))
            data = self._origin(group[0])["data"]
            for key in group:
                record = done.get(key, {})
                # Old records have no checksum of their data.
                if record.get("settings") != settings or record.get("data", data) != data:
                    missing.add(key)
        return missing

    def _origin(self, key: FitKey) -> dict[str, Any]:
        data = find_suite(self.suite, self.own_suite).checksum(key.dataset, self.data_dir)
        return provenance() | {"device": self.device, "data": data}

    def _settings(self, key: FitKey, done: dict[FitKey, Record]) -> Hyperparameters:
        if self.protocol == "paper":
            return paper_settings(key.suite, key.dataset, key.method)
        if self.protocol == "default":
            return {}
        space = search_space(key.method, key.dataset, self.budget)
        if key.is_search:
            return space[int(key.split.split()[1])]
        trials = [self._trial(key.dataset, key.method, i) for i in range(len(space))]
        losses = [np.mean([_validation_nll(done.get(fit)) for fit in trial]) for trial in trials]
        return space[int(np.argmin(losses))]


def joint_fits(keys: Sequence[FitKey]) -> list[list[FitKey]]:
    """Groups of fits that can be computed as one batch: one method and data set, tables of one length."""
    groups: dict[tuple[str, ...], list[FitKey]] = {}
    for key in keys:
        # Settings of a search differ in shape; gaps and tails differ in length.
        kind = key.split if key.is_search else shift_kind(key.split)
        groups.setdefault((key.dataset, key.method, kind), []).append(key)
    return [group[i : i + MAX_JOINT_FITS] for group in groups.values() for i in range(0, len(group), MAX_JOINT_FITS)]


def _validation_nll(record: Record | None) -> float:
    if record is None or "tests" not in record:
        return float("inf")
    return float(record["tests"]["validation"]["metrics"]["nll"])
