"""What the rivals share: a loss on rows of features, one training step, and the estimator around it."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn

from density_regression._progress import StepProgress
from density_regression.base import DeepRegressor, Run
from density_regression.batches import Batches, TensorBatches
from density_regression.callbacks import Callback, Monitor
from density_regression.encoders import feature_width
from density_regression.loop import (
    TrainingOptions,
    TrainingReport,
    find_device,
    full_precision,
    may_draw,
    optimise,
    optimise_each,
    timed,
)
from density_regression.network import Network, Predictor, weighted_mean
from density_regression.persistence import Checkpoints
from density_regression.predicting import CHUNK
from density_regression.stacked import MappedLoss, StackedLoss, can_train
from density_regression.tables import Table
from density_regression.targets import learn_target_scale, with_scaled_targets

__all__ = ["Baseline", "BaselineRegressor", "Objective", "Rival", "fit_baseline", "fit_baselines_together"]


class Rival(Predictor):
    """A module that brings its own loss; train it with `fit_baseline`."""

    @abstractmethod
    def loss(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of a batch, in training; out of it, what early stopping looks at."""

    def begin(self, train: Batches) -> None:
        """Learn what must be known before the first step."""

    def fit(
        self, train: Batches, held_out: Batches | None, options: TrainingOptions, progress: StepProgress
    ) -> list[float]:
        """Minimise the loss; returns it after each epoch, on the held-out rows if there are any."""
        return optimise(Objective(self), train, held_out, options, progress, name="network")

    def finish(self, train: Batches, held_out: Batches) -> None:
        """Learn what the loss does not teach, once the weights are final."""

    @property
    def parts(self) -> int:
        """How many losses it has, each trained as if it were alone."""
        return 1

    @classmethod
    def stacked(cls, models: Sequence[Self]) -> StackedLoss | None:
        """The losses of several models of one shape as one computation; None if that cannot be."""
        return MappedLoss.of([Objective(model) for model in models])


class Baseline(Network, Rival):
    """A rival that reads the features of one encoder, row by row."""

    @abstractmethod
    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Loss (n,) of features `z` (n, features) with targets `y` (n, k)."""

    def penalty(self) -> Tensor | float:
        """What training adds to the mean loss."""
        return 0.0

    def loss(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of a batch, in training; out of it, what early stopping looks at."""
        rows = self.flat(x, y, weight)
        return weighted_mean(self.row_losses(rows.z, rows.y), rows.weight) + self.penalty()


class Objective(nn.Module):
    """The loss of a rival, as `optimise` wants it."""

    def __init__(self, model: Rival) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of a batch."""
        return self.model.loss(x, y, weight)


@full_precision()
def fit_baseline(
    model: Rival,
    train: Batches,
    held_out: Batches | None = None,
    *,
    options: TrainingOptions | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    fingerprint: str = "",
    callbacks: Iterable[Callback] = (),
    scale_targets: bool = True,
    verbose: bool = True,
) -> TrainingReport:
    """Train a rival; batches and options are those of `fit_density_regression`.

    Parameters
    ----------
    model : Rival
        Trained in place.
    train : iterable of batches
        (x, y) or (x, y, weight), with y of the shape the model predicts, (batch, k) or (batch, k, ...), and in units of
        its own.
    held_out : iterable of batches, optional
        Rows for early stopping. Without them training rows serve.
    options : TrainingOptions, optional
        How to train.
    checkpoint_dir : path, optional
        Keep the trained state there; the same fit run again takes it up. One folder for one fit.
    fingerprint : str
        Whatever else tells this fit from others; a checkpoint with another one is ignored.
    callbacks : iterable of Callback
        Told the losses after each epoch.
    scale_targets : bool
        Learn mean and standard deviation of the targets first, so that the model answers in their units; False takes
        them as they are. See `fit_density_regression`.
    verbose : bool
        Show a progress bar, if there is a terminal to show it on.

    Returns
    -------
    TrainingReport
        Seconds, and the training and held-out losses over epochs.
    """
    options = options or TrainingOptions()
    progress = Monitor(verbose, callbacks, "train")
    scaled = " scaled" if scale_targets else ""
    fit_of = f"{fingerprint} {model} {_settings(model)} {replace(options, device='')}{scaled}"
    checkpoints = Checkpoints(checkpoint_dir, fit_of)
    report = TrainingReport({"train": 0.0})
    model.to(find_device(options.device))
    done, state = checkpoints.latest(steps=1)
    if done:
        model.load_state_dict(state)
        model.eval()
        return report
    model.scale_targets(None, None)
    if scale_targets:
        learn_target_scale(model, train, options.seed)
    train, (held_out,) = with_scaled_targets(model, train, held_out)
    with progress, timed(report, "train"):
        model.begin(train)
        report.history = model.fit(train, held_out, options, progress)
        report.train_history = mean_history(progress.train_histories())
        model.eval()
        model.finish(train, train if held_out is None else held_out)
        checkpoints.save(1, model.state_dict())
    return report


def fit_baselines_together(
    models: Sequence[Rival],
    trains: Sequence[TensorBatches],
    held_outs: Sequence[TensorBatches],
    *,
    options: TrainingOptions,
    draws: Sequence[Tensor],
    verbose: bool = True,
) -> list[TrainingReport] | None:
    """Train rivals of one kind, each on rows of its own, as one computation; None if that cannot be.

    Each ends as it would by `fit_baseline`, but for rounding, and for what is drawn while training. One that draws
    begins with torch's generator in the state that `draws` has for it.
    """
    report = TrainingReport({"train": 0.0})
    with Monitor(verbose) as progress, timed(report, "train"):
        for model, train, draw in zip(models, trains, draws, strict=True):
            if may_draw(model):
                torch.set_rng_state(draw)
            model.to(find_device(options.device))
            model.begin(train)
        parts = models[0].parts
        together = models[0].stacked(models) if len({repr(_settings(model)) for model in models}) == 1 else None
        held_out = TensorBatches.side_by_side(held_outs, parts)
        if together is None or not can_train(together, held_out):
            return None
        train = TensorBatches.side_by_side(trains, parts)
        losses = optimise_each(together, train, held_out, options, progress, name=f"{len(models)} networks")
        together.unstack()
        for model, own, held in zip(models, trains, held_outs, strict=True):
            model.eval()
            model.finish(own, held)
    train_losses = [train[: len(own)] for own, train in zip(losses, progress.train_histories(), strict=True)]
    seconds = report.shared(len(models)).seconds
    members = [slice(i, i + parts) for i in range(0, len(losses), parts)]
    return [
        TrainingReport(dict(seconds), mean_history(losses[own]), mean_history(train_losses[own])) for own in members
    ]


def mean_history(histories: Sequence[list[float]]) -> list[float]:
    """Mean over members after each epoch; one that stopped early stays where it was."""
    epochs = max((len(history) for history in histories), default=0)
    padded = [history + history[-1:] * (epochs - len(history)) for history in histories]
    return [sum(losses) / len(losses) for losses in zip(*padded, strict=True)]


def _settings(model: nn.Module) -> list[dict[str, object]]:
    """Numbers and names that a module and its parts were made with, which its `repr` may not show."""
    kinds = (bool, int, float, str, tuple)
    return [
        {name: value for name, value in vars(part).items() if isinstance(value, kinds) and name != "training"}
        for part in model.modules()
    ]


class BaselineRegressor(DeepRegressor):
    """Skeleton of a rival as a scikit-learn regressor: one module, one training step.

    A subclass names its module in `_network`.
    """

    model_: Rival

    @abstractmethod
    def _network(self, encoder: nn.Module, features: int, targets: int) -> Rival:
        """The untrained module around an encoder with so many features."""

    def _build(self, encoder: nn.Module, table: Table) -> Rival:
        return self._network(encoder, feature_width(encoder, table.x[:2]), table.y.shape[1])

    def _train(self, model: Rival, train: Table, held_out: Table, run: Run) -> TrainingReport:
        return fit_baseline(
            model,
            train.batches(self._batch_size(len(train.x)), self._shuffles(run.seed)),
            held_out.batches(CHUNK),
            options=self._options(run.seed, train.x.shape[1]),
            checkpoint_dir=self.checkpoint_dir,
            fingerprint=run.fingerprint,
            callbacks=self.callbacks or (),
            scale_targets=False,
            verbose=self.verbose,
        )

    def _train_together(
        self,
        models: Sequence[Rival],
        trains: Sequence[Table],
        held_outs: Sequence[Table],
        runs: Sequence[Run],
        draws: Sequence[Tensor],
    ) -> list[TrainingReport] | None:
        size = self._batch_size(len(trains[0].x))
        return fit_baselines_together(
            models,
            [train.batches(size, self._shuffles(run.seed)) for train, run in zip(trains, runs, strict=True)],
            [held_out.batches(CHUNK) for held_out in held_outs],
            options=self._options(runs[0].seed, trains[0].x.shape[1]),
            draws=draws,
            verbose=self.verbose,
        )

    def _shuffles(self, seed: int) -> torch.Generator | list[torch.Generator]:
        """Where the order of the training rows comes from."""
        return torch.Generator().manual_seed(seed)
