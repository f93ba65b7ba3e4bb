"""How far a benchmark is: a live table on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

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
        cells = work.searches() + work.cells()
        done = file.done()
        self._all = Counter(_place(cell) for cell in cells)
        self._done = Counter(_place(cell) for cell in cells if cell in done)
        self._failed: Counter[tuple[str, str]] = Counter()
        self._start, self._fresh = time.monotonic(), 0
        self._console = console
        self._live = Live(get_renderable=self._table, console=console, refresh_per_second=2, transient=True)
        self._every = max(len(cells) // LINES, 1)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._console.print(self._line())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live.is_started:
            self._live.stop()
        self._console.print(self._line())

    def see(self, record: Record) -> None:
        """One more cell was run."""
        place = _place(Cell.of(record))
        self._done[place] += 1
        self._fresh += 1
        if "error" in record:
            self._failed[place] += 1
            where = f"{record['dataset']}, split {record['split']}, {record['method']}"
            self._console.print(f"{where}: {record['error']}", markup=False, soft_wrap=True)
        if not self._console.is_terminal and self._done.total() % self._every == 0:
            self._console.print(self._line())

    def _line(self) -> str:
        left = self._all.total() - self._done.total()
        passed = time.monotonic() - self._start
        parts = [f"{self._done.total()} of {self._all.total()} fits", f"{passed / 60:.1f} min"]
        if left and self._fresh:
            parts.append(f"about {passed / self._fresh * left / 60:.0f} min left")
        if self._failed:
            parts.append(f"{self._failed.total()} failed")
        return ", ".join(parts)

    def _table(self) -> RenderableType:
        names = list(dict.fromkeys(method for _, method in self._all))
        table = Table()
        table.add_column("")
        for name in names:
            table.add_column(name.replace(" ", "\n").replace("-", "-\n"), justify="right")
        for dataset in dict.fromkeys(dataset for dataset, _ in self._all):
            table.add_row(dataset, *(self._entry((dataset, name)) for name in names))
        return Group(table, self._line())

    def _entry(self, place: tuple[str, str]) -> str:
        text = f"{self._done[place]}/{self._all[place]}"
        if self._failed[place]:
            return f"[red]{text} !{self._failed[place]}[/red]"
        return f"[green]{text}[/green]" if self._done[place] == self._all[place] else text


def _place(cell: Cell) -> tuple[str, str]:
    return cell.dataset, cell.method
