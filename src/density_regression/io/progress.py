"""A progress bar that names the step and shows the loss."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["StepProgress"]


class StepProgress:
    """One line on standard error for the step under way, if `visible`, on a terminal or in a notebook only."""

    def __init__(self, visible: bool = True) -> None:
        console = Console(stderr=True)
        # With FORCE_COLOR, which log collectors set, rich takes any file for a terminal.
        terminal = console.is_terminal and console.file.isatty()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (visible and (terminal or console.is_jupyter)),
        )
        self._task = self._bar.add_task("", total=None, loss="", visible=False)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def step(self, name: str, total: int) -> None:
        """Begin a step of `total` parts."""
        self._bar.reset(self._task, total=total, description=name, loss="", visible=True)

    def advance(self, loss: float | None = None) -> None:
        """Show that one part is done, and the loss now."""
        self._bar.update(self._task, advance=1, loss="" if loss is None else f"loss {loss:.4f}")
