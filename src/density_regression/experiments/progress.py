"""Progress of a benchmark: a live table on a terminal, a line now and then in a log."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from density_regression.experiments.records import FitKey, Record, RecordFile

__all__ = ["BenchProgress", "Plan"]

LOG_LINES: Final = 20
"""Lines printed to a log in all, besides the first and the last."""


class Plan(Protocol):
    """Fits of a benchmark or a comparison."""

    def fits(self) -> list[FitKey]:
        """Every fit."""

    def search_fits(self) -> list[FitKey]:
        """Every fit of a search for settings."""

    def missing(self, keys: Sequence[FitKey], done: dict[FitKey, Record]) -> set[FitKey]:
        """Fits that are not done, or otherwise."""


class BenchProgress:
    """Context manager that shows the numbers of fits done, of all and failed, by data set and method."""

    def __init__(self, bench: Plan, file: RecordFile, console: Console) -> None:
        self._order = bench.search_fits() + bench.fits()
        self._fits = set(self._order)
        done = file.done()
        self._done = self._fits - bench.missing(bench.search_fits(), done) - bench.missing(bench.fits(), done)
        self._failed: set[FitKey] = set()
        self._start, self._n_new, self._n_printed = time.monotonic(), 0, -1
        self._console = console
        self._live = Live(get_renderable=self._table, console=console, refresh_per_second=2, transient=True)
        self._interval = max(len(self._fits) // LOG_LINES, 1)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._print_line()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live.is_started:
            self._live.stop()
        self._print_line()

    def update(self, record: Record) -> None:
        """Count one more fit, and print its error if it failed."""
        key = FitKey.of(record)
        self._done.add(key)
        self._n_new += 1
        if "error" in record:
            self._failed.add(key)
            message = f"{key.dataset}, split {key.split}, {key.method}: {record['error']}"
            self._console.print(message, markup=False, soft_wrap=True)
        if not self._console.is_terminal and len(self._done) % self._interval == 0:
            self._print_line()

    def _print_line(self) -> None:
        """Print a line, unless nothing was run since the last one."""
        if self._n_printed != self._n_new:
            self._console.print(self._line())
            self._n_printed = self._n_new

    def _line(self) -> str:
        left = len(self._fits) - len(self._done)
        passed = time.monotonic() - self._start
        parts = [f"{len(self._done)} of {len(self._fits)} fits", f"{passed / 60:.1f} min"]
        if left and self._n_new:
            parts.append(f"about {passed / self._n_new * left / 60:.0f} min left")
        if self._failed:
            parts.append(f"{len(self._failed)} failed")
        return ", ".join(parts)

    def _table(self) -> RenderableType:
        counts = [Counter((key.dataset, key.method) for key in keys) for keys in (self._done, self._fits, self._failed)]
        methods = dict.fromkeys(key.method for key in self._order)
        headers = (name.replace(" ", "\n").replace("-", "-\n") for name in methods)
        table = Table("", *(Column(header, justify="right") for header in headers))
        for dataset in dict.fromkeys(key.dataset for key in self._order):
            table.add_row(Text(dataset), *(_entry(*(count[dataset, name] for count in counts)) for name in methods))
        return Group(table, self._line())


def _entry(done: int, total: int, failed: int) -> Text:
    if failed:
        return Text(f"{done}/{total} !{failed}", style="red")
    return Text(f"{done}/{total}", style="green" if done == total else "")
