"""Plan of a comparison: which fits there are, and which of them a file of records lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from density_regression.experiments.compare.fits import run_fit
from density_regression.experiments.compare.table import OwnTable
from density_regression.experiments.engines import EngineName, engine
from density_regression.experiments.provenance import provenance
from density_regression.experiments.records import FitKey, Record, RecordFile

__all__ = ["SUITE", "Comparison"]

SUITE = "compare"
"""Name of comparisons in records."""


@dataclass(frozen=True)
class Comparison:
    """All `methods`, by their names in tables, on the same folds of a table, each fold `seeds` times.

    `target` is the law, "identity" or "log". Every process imports the module `plugin`, which registers methods.
    """

    table: OwnTable
    methods: Sequence[str]
    n_folds: int = 5
    seeds: int = 1
    target: str = "identity"
    device: str = "cpu"
    plugin: str | None = None

    def fits(self) -> list[FitKey]:
        """Every fit, fold by fold: methods can be compared early."""
        return [
            FitKey(SUITE, "default", self.table.name, str(fold), seed, method)
            for seed in range(self.seeds)
            for fold in range(self.n_folds)
            for method in self.methods
        ]

    def search_fits(self) -> list[FitKey]:
        """None: settings are each method's defaults."""
        return []

    def missing(self, keys: Sequence[FitKey], done: dict[FitKey, Record]) -> set[FitKey]:
        """Fits that are not done, or were done with other settings or on other rows."""
        data, settings = self.table.checksum, self._settings()
        return {
            key
            for key in keys
            if (record := done.get(key)) is None or record.get("settings") != settings or record.get("data") != data
        }

    def run(
        self, file: RecordFile, jobs: int, engine_name: EngineName = "local", address: str | None = None
    ) -> Iterator[Record]:
        """Run the fits that the file lacks; yield each record after it is in the file.

        The engine is one of `engine`, to which `jobs` and `address` go.
        """
        missing = self.missing(self.fits(), file.done())
        folds = self.table.folds(self.n_folds)
        origin = provenance() | {"device": self.device, "data": self.table.checksum}
        work = ({"key": key, "fold": folds[int(key.split)]} for key in self.fits() if key in missing)
        shared = {"table": self.table, "settings": self._settings(), "origin": origin, "plugin": self.plugin}
        with engine(engine_name, jobs, address, on_gpu=self.device.startswith("cuda")) as compute:
            for record in compute(run_fit, work, shared):
                file.append(record)
                yield record

    def records(self, file_records: Sequence[Record]) -> list[Record]:
        """Those of a file that belong to this comparison, the last of each fit that did not fail."""
        wanted, data, settings = set(self.fits()), self.table.checksum, self._settings()
        found: dict[FitKey, Record] = {}
        for record in file_records:
            key = FitKey.of(record)
            own = key in wanted and record.get("settings") == settings and record.get("data") == data
            if own and ("error" not in record or key not in found):
                found[key] = record
        return [found[key] for key in self.fits() if key in found]

    @property
    def divided(self) -> str:
        """By what folds are made: "rows" at random, whole "groups", or "time"."""
        return "groups" if self.table.groups is not None else "time" if self.table.time is not None else "rows"

    def _settings(self) -> dict[str, Any]:
        return {"target": self.target, "folds": self.n_folds, "divided": self.divided}
