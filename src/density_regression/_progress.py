"""A progress bar that names the step and shows the loss."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["StepProgress"]


class StepProgress:
    """One line on standard error for the step under way; nothing at all where nobody would see it.

    Parameters
    ----------
    visible : bool
        Whether to show anything. Even then, only on a terminal or in a notebook.
    """

    def __init__(self, visible: bool = True) -> None:
        console = Console(stderr=True)
        # FORCE_COLOR, which many a log collector sets, makes a terminal of any file to rich.
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
        """One part is done, and this is the loss now."""
        self._bar.update(self._task, advance=1, loss="" if loss is None else f"loss {loss:.4f}")

    def epoch(self, train_loss: Tensor, held_out_loss: Tensor | None, running: Tensor) -> None:
        """One epoch is over, with these mean losses, () or (M,) of M networks, of which some are still `running`."""
        self.advance((train_loss if held_out_loss is None else held_out_loss).mean().item())
