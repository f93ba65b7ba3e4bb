"""How far a benchmark is: a live table on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from density_regression.experiments.bench import Bench
from density_regression.experiments.records import Cell, Record, RecordFile

__all__ = ["BenchProgress"]

LINES: Final = 20
"""Lines that a log gets in all, besides the first and the last."""


class BenchProgress:
    """Cells done of all, by data set and method.

    Parameters
    ----------
    work : Bench
        What is run.
    file : RecordFile
        What is there already.
    console : Console
        Where to show it.
    """

    def __init__(self, work: Bench, file: RecordFile, console: Console) -> None:
        self._order = work.searches() + work.cells()
        self._cells = set(self._order)
        done = file.done()
        self._done = self._cells - work.missing(work.searches(), done) - work.missing(work.cells(), done)
        self._failed: set[Cell] = set()
        self._start, self._fresh, self._told = time.monotonic(), 0, -1
        self._console = console
        self._live = Live(get_renderable=self._table, console=console, refresh_per_second=2, transient=True)
        self._every = max(len(self._cells) // LINES, 1)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._tell()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live.is_started:
            self._live.stop()
        self._tell()

    def see(self, record: Record) -> None:
        """One more cell was run."""
        cell = Cell.of(record)
        self._done.add(cell)
        self._fresh += 1
        if "error" in record:
            self._failed.add(cell)
            where = f"{record['dataset']}, split {record['split']}, {record['method']}"
            self._console.print(f"{where}: {record['error']}", markup=False, soft_wrap=True)
        if not self._console.is_terminal and len(self._done) % self._every == 0:
            self._tell()

    def _tell(self) -> None:
        """Print a line, unless nothing was run since the last one."""
        if self._told != self._fresh:
            self._console.print(self._line())
            self._told = self._fresh

    def _line(self) -> str:
        left = len(self._cells) - len(self._done)
        passed = time.monotonic() - self._start
        parts = [f"{len(self._done)} of {len(self._cells)} fits", f"{passed / 60:.1f} min"]
        if left and self._fresh:
            parts.append(f"about {passed / self._fresh * left / 60:.0f} min left")
        if self._failed:
            parts.append(f"{len(self._failed)} failed")
        return ", ".join(parts)

    def _table(self) -> RenderableType:
        counts = [
            Counter((cell.dataset, cell.method) for cell in cells) for cells in (self._done, self._cells, self._failed)
        ]
        names = list(dict.fromkeys(cell.method for cell in self._order))
        table = Table()
        table.add_column("")
        for name in names:
            table.add_column(name.replace(" ", "\n").replace("-", "-\n"), justify="right")
        for dataset in dict.fromkeys(cell.dataset for cell in self._order):
            table.add_row(Text(dataset), *(_entry(*(count[dataset, name] for count in counts)) for name in names))
        return Group(table, self._line())


def _entry(done: int, every: int, failed: int) -> Text:
    if failed:
        return Text(f"{done}/{every} !{failed}", style="red")
    return Text(f"{done}/{every}", style="green" if done == every else "")
