"""A progress bar of a fit that tells callbacks of each epoch."""

from collections.abc import Iterable

from torch import Tensor

from density_regression.io.progress import StepProgress
from density_regression.nn.runtime import kept_draws
from density_regression.training.callbacks import Callback, check_callbacks

__all__ = ["Monitor"]


class Monitor(StepProgress):
    """A progress bar that tells callbacks of each epoch; `step` is the name by which they know the first step."""

    def __init__(self, visible: bool = True, callbacks: Iterable[Callback] | None = (), step: str = "train") -> None:
        super().__init__(visible)
        self.callbacks = check_callbacks(callbacks)
        self.name = step
        self._epochs = 0

    def step(self, name: str, total: int) -> None:
        """Begin a step of `total` parts."""
        super().step(name, total)
        self._epochs = 0

    def epoch(self, train_loss: Tensor, held_out_loss: Tensor | None) -> None:
        """Show and tell the mean losses of an epoch, () or (M,) of M networks."""
        self._epochs += 1
        shown = (train_loss if held_out_loss is None else held_out_loss).mean().item()
        self.advance(shown)
        self._tell(self.name, self._epochs, train_loss, None if held_out_loss is None else shown)

    def round(self, step: str, number: int, train_loss: Tensor, held_out_loss: float | None, shown: float) -> None:
        """Show and tell the losses of a round of another step."""
        self.advance(shown)
        self._tell(step, number, train_loss, held_out_loss)

    def _tell(self, step: str, epoch: int, train_loss: Tensor, held_out_loss: float | None) -> None:
        # Random numbers that callbacks draw do not change the fit.
        with kept_draws():
            for callback in self.callbacks:
                callback.on_epoch(step, epoch, train_loss.mean().item(), held_out_loss)
