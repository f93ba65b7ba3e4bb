"""Callbacks: objects that are told the losses after each epoch of a fit."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from density_regression._progress import StepProgress
from density_regression.loop import kept_draws

__all__ = ["CSVLogger", "Callback", "Monitor"]


class Callback(Protocol):
    """What a callback must have: one method, called after each epoch.

    Give callbacks to a regressor, or to `fit_density_regression` and `fit_baseline`, by `callbacks=[...]`. They are no
    part of the model: they are not saved, and a fit gives the same result with them as without. If one raises, the fit
    fails with its error, and the regressor is left as it was. `clone`, and so a search or a cross-validation, makes
    copies of them.

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
        """Take note of an epoch that is over.

        Parameters
        ----------
        step : str
            Of Density-Regression "pretrain", whose epochs train the network, then "refit_head", whose epochs are
            rounds of L-BFGS. Of the other methods "train"; of an ensemble whose members cannot be trained at once
            "member 1", "member 2" and so on.
        epoch : int
            Counted from 1 in each step.
        train_loss : float
            Mean loss on the training rows, in the units that the network is trained in: of targets that a regressor
            has scaled. In "pretrain" and "train" the mean over the batches of the epoch, each before its step; of an
            ensemble the mean over members, where one that stopped early stays where it was.
        held_out_loss : float or None
            Mean loss on the held-out rows after the epoch; None where no rows were given to hold out.
        """


class CSVLogger:
    """Write the losses to a CSV file: a header, and one line after each epoch, there as soon as the epoch is over.

    The columns are step, epoch, train_loss and held_out_loss (empty where no rows are held out). Each fit begins the
    file anew, also if there was one before: copies made by `clone`, as for a cross-validation, write to the same path,
    and the last fit remains.

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


class Monitor(StepProgress):
    """A progress bar that also records the training losses of a fit, and tells its callbacks of each epoch.

    Parameters
    ----------
    visible : bool
        Whether to show the bar.
    callbacks : iterable of Callback or None
        Whom to tell.
    step : str
        What callbacks are told as the step that trains the network.
    """

    def __init__(self, visible: bool = True, callbacks: Iterable[Callback] | None = (), step: str = "train") -> None:
        super().__init__(visible)
        self.callbacks = _checked(callbacks)
        self.name = step
        self._losses: list[list[tuple[Tensor, Tensor | None]]] = []

    def step(self, name: str, total: int) -> None:
        """Begin a step of `total` parts."""
        super().step(name, total)
        self._losses.append([])

    def epoch(self, train_loss: Tensor, held_out_loss: Tensor | None, running: Tensor) -> None:
        """Record losses, () or (M,) of M networks; of those that do not run any more, the ones they ended with."""
        super().epoch(train_loss, held_out_loss, running)
        losses = self._losses[-1]
        if losses:
            last_train, last_held_out = losses[-1]
            train_loss = torch.where(running, train_loss, last_train)
            if held_out_loss is not None and last_held_out is not None:
                held_out_loss = torch.where(running, held_out_loss, last_held_out)
        losses.append((train_loss, held_out_loss))
        # Numbers are asked of the device only if somebody wants them.
        if self.callbacks:
            held_out = None if held_out_loss is None else held_out_loss.mean().item()
            self.tell(self.name, len(losses), train_loss.mean().item(), held_out)

    def tell(self, step: str, epoch: int, train_loss: float, held_out_loss: float | None) -> None:
        """Call the callbacks; what they draw from torch's generator does not change the fit."""
        with kept_draws():
            for callback in self.callbacks:
                callback.on_epoch(step, epoch, train_loss, held_out_loss)

    def train_histories(self) -> list[list[float]]:
        """Training losses after each epoch, of each network in turn."""
        histories: list[list[float]] = []
        for losses in self._losses:
            histories += torch.stack([train.reshape(-1) for train, _ in losses], 1).tolist() if losses else [[]]
        return histories


def _checked(callbacks: Iterable[Callback] | None) -> tuple[Callback, ...]:
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
