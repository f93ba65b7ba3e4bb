"""Progress bars: of a step with its loss, and of rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["RowProgress", "StepProgress"]


class _Bar:
    """One line on standard error, if `visible`, on a terminal or in a notebook only."""

    def __init__(self, *columns: ProgressColumn, visible: bool) -> None:
        console = Console(stderr=True)
        # With FORCE_COLOR, which log collectors set, rich takes any file for a terminal.
        terminal = console.is_terminal and console.file.isatty()
        self.shown = visible and (terminal or console.is_jupyter)
        shown = (TextColumn("{task.description}"), BarColumn(), *columns)
        self._bar = Progress(*shown, console=console, transient=True, disable=not self.shown)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal to another bar."""
        self._bar.stop()
        yield
        self._bar.start()


class StepProgress(_Bar):
    """The step under way."""

    def __init__(self, visible: bool = True) -> None:
        super().__init__(
            MofNCompleteColumn(), TextColumn("{task.fields[loss]}"), TimeRemainingColumn(), visible=visible
        )
        self._task = self._bar.add_task("", total=None, loss="", visible=False)

    def step(self, name: str, total: int) -> None:
        """Begin a step of `total` parts."""
        self._bar.reset(self._task, total=total, description=name, loss="", visible=True)

    def advance(self, loss: float | None = None) -> None:
        """Show that one part is done, and the loss now."""
        self._bar.update(self._task, advance=1, loss="" if loss is None else f"loss {loss:.4f}")


class _Rows(ProgressColumn):
    """Rows done, of all if their number is known, and how many in a second."""

    def render(self, task: Task) -> Text:
        """The text."""
        of = "" if task.total is None else f" of {task.total:,.0f}"
        speed = "" if task.speed is None else f", {task.speed:,.0f} a second"
        return Text(f"{task.completed:,.0f}{of} rows{speed}")


class RowProgress(_Bar):
    """Rows that are done, of so many if that is known."""

    def __init__(self, name: str, total: int | None, visible: bool = True) -> None:
        super().__init__(_Rows(), TimeRemainingColumn(), visible=visible)
        self._task = self._bar.add_task(name, total=total)

    def advance(self, rows: int) -> None:
        """Show that so many more rows are done."""
        self._bar.update(self._task, advance=rows)
