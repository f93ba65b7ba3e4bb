"""Counts of one process: requests, rows, models."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from density_regression.serve.models import Models
from density_regression.serve.scorer import Results

__all__ = ["Family", "Metrics", "Sample"]

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the bins of latencies, in seconds."""

UNFAMILIAR: Final = 0.01
"""Familiarity below which a row counts as unfamiliar."""

Labels = dict[str, str]


class Sample(NamedTuple):
    """A value with its labels; `suffix` is that of a histogram's series."""

    value: float
    labels: Labels = {}  # noqa: RUF012 - never changed
    suffix: str = ""


class Family(NamedTuple):
    """Samples of one metric: name without the prefix, type ("counter", "gauge" or "histogram") and meaning."""

    name: str
    type: str
    help: str
    samples: Sequence[Sample]


class Metrics:
    """Counts of one process since its start.

    Attributes
    ----------
    more : list of callables
        Each returns further families, such as the state of an alarm.
    """

    def __init__(self, models: Models) -> None:
        self._models = models
        self._start = time.time()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._bins: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._unfamiliar: Counter[str] = Counter()
        self.more: list[Callable[[], Iterable[Family]]] = []

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count one request that was answered."""
        self._requests[route, status] += 1
        bins = self._bins.setdefault(route, [0] * (len(BOUNDS) + 1))
        bins[bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def count_rows(self, model: str, results: Results) -> None:
        """Count rows that were scored, and those that are unfamiliar."""
        self._rows[model] += len(next(iter(results.values())))
        if "familiarity" in results:
            self._unfamiliar[model] += int((results["familiarity"] < UNFAMILIAR).sum())

    @property
    def families(self) -> list[Family]:
        """All that this process knows."""
        return [*self._families(), *(family for more in self.more for family in more())]

    def _families(self) -> list[Family]:
        models, names = self._models, [served.name for served in self._models.all]
        requests = [Sample(n, {"route": route, "status": str(status)}) for (route, status), n in self._requests.items()]
        info = [
            Sample(1, {"model": served.name, "version": served.version, "method": served.scorer.bundle.method})
            for served in models.all
        ]
        loaded = [Sample(served.since, {"model": served.name}) for served in models.all]
        return [
            Family("requests_total", "counter", "Requests by route and status.", requests),
            Family("request_seconds", "histogram", "From headers to the end of the answer.", self._latencies()),
            Family("rows_total", "counter", "Rows scored.", _by_model(self._rows, names)),
            Family(
                "unfamiliar_rows_total",
                "counter",
                f"Rows less familiar than {1 - UNFAMILIAR:.0%} of the rows held out in training.",
                _by_model(self._unfamiliar, names),
            ),
            Family("model_info", "gauge", "The version that is served.", info),
            Family("model_loaded_timestamp_seconds", "gauge", "When it was taken up.", loaded),
            Family("models_taken_up_total", "counter", "New models taken up.", _by_model(models.taken_up, names)),
            Family("models_refused_total", "counter", "New models refused.", _by_model(models.refused, names)),
            Family("start_timestamp_seconds", "gauge", "When the process started.", [Sample(self._start)]),
            Family("resident_memory_bytes", "gauge", "Memory of the process.", [Sample(_resident())]),
        ]

    def _latencies(self) -> list[Sample]:
        samples = []
        for route, bins in self._bins.items():
            total = 0
            for bound, count in zip([*map(str, BOUNDS), "+Inf"], bins, strict=True):
                total += count
                samples.append(Sample(total, {"route": route, "le": bound}, "_bucket"))
            samples.append(Sample(self._seconds[route], {"route": route}, "_sum"))
            samples.append(Sample(total, {"route": route}, "_count"))
        return samples


def _by_model(counts: Counter[str], names: list[str]) -> list[Sample]:
    return [Sample(counts[name], {"model": name}) for name in names]


def _resident() -> float:
    """Memory of this process in bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return 0.0
