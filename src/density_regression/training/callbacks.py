"""Callbacks: objects that are told the losses after each epoch of a fit."""

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

__all__ = ["CSVLogger", "Callback", "check_callbacks"]


class Callback(Protocol):
    """What a callback must have: one method, called after each epoch.

    Regressors, `fit_density_regression` and `fit_baseline` take `callbacks=[...]`. They are not saved with the model,
    and do not change the fit. If one raises, the fit fails, and the regressor is left as it was.

    Examples
    --------
    >>> from density_regression import DensityRegressor
    >>> from density_regression.datasets import make_cubic
    >>> class Printer:
    ...     def on_epoch(self, step, epoch, train_loss, held_out_loss):
    ...         if step == "pretrain":
    ...             print(f"epoch {epoch} of step {step}")
    >>> reg = DensityRegressor(epochs=2, random_state=0, callbacks=[Printer()]).fit(*make_cubic(n=50, random_state=0))
    epoch 1 of step pretrain
    epoch 2 of step pretrain
    """

    def on_epoch(self, step: str, epoch: int, train_loss: float, held_out_loss: float | None) -> None:
        """Receive the losses of an epoch.

        Parameters
        ----------
        step : str
            For Density-Regression "teach", if it has a teacher, "pretrain", and then, if it has none, "refit_head"
            (rounds of L-BFGS); "train" for the other methods; "member 1" and so on for an ensemble whose members cannot
            be trained at once.
        epoch : int
            Counted from 1 in each step.
        train_loss : float
            Mean training loss, for scaled targets: over batches, each before its step, and over members of an ensemble.
        held_out_loss : float or None
            Mean loss on the held-out rows after the epoch; None if there are none.
        """


class CSVLogger:
    """Write the losses to a CSV file: step, epoch, train_loss and held_out_loss, a line after each epoch.

    Each fit begins the file anew. Copies made by `clone`, as in a cross-validation, write to the same path.

    Parameters
    ----------
    path : path
        The file; folders that do not exist yet are made.

    Examples
    --------
    >>> from density_regression import CSVLogger, DensityRegressor
    >>> reg = DensityRegressor(callbacks=[CSVLogger("losses.csv")])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise ValueError(f'path must name a file, such as "losses.csv", got {path!r}.')
        self.path = path
        self._steps: set[str] = set()

    def on_epoch(self, step: str, epoch: int, train_loss: float, held_out_loss: float | None) -> None:
        """Write one line."""
        # A step that begins again is one of another fit.
        begins = not self._steps or (epoch == 1 and step in self._steps)
        if begins:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self._steps.clear()
        self._steps.add(step)
        # Opened each time: all is written when an epoch is over, and the logger can be copied.
        with open(self.path, "w" if begins else "a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if begins:
                writer.writerow(("step", "epoch", "train_loss", "held_out_loss"))
            writer.writerow((step, epoch, train_loss, "" if held_out_loss is None else held_out_loss))

    def __repr__(self) -> str:
        return f"CSVLogger({os.fspath(self.path)!r})"


def check_callbacks(callbacks: Iterable[Callback] | None) -> tuple[Callback, ...]:
    """Callbacks as a tuple; raises a ValueError for what is none."""
    remedy = "give a list of objects that have on_epoch(step, epoch, train_loss, held_out_loss)"
    if callbacks is None:
        return ()
    if isinstance(callbacks, str) or not isinstance(callbacks, Iterable):
        raise ValueError(f"callbacks must be a list, got {callbacks!r}: {remedy}.")
    given = tuple(callbacks)
    for callback in given:
        if isinstance(callback, type) or not callable(getattr(callback, "on_epoch", None)):
            raise ValueError(f"callbacks has {callback!r}, which is no callback: {remedy}.")
    return given
