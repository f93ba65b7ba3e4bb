"""Base classes of the baselines: a module with its own loss, its training, and the regressor around it."""

import inspect
import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from density_regression.estimators.base import DeepRegressor
from density_regression.estimators.hooks import Run
from density_regression.estimators.prediction import PREDICTED_ROWS
from density_regression.nn.encoders import feature_width
from density_regression.nn.heads import weighted_mean
from density_regression.nn.network import Network, Predictor
from density_regression.nn.runtime import TrainingOptions, find_device, full_precision, may_draw
from density_regression.tabular.table import TrainingRows
from density_regression.training.batches import Batches, TensorBatches
from density_regression.training.callbacks import Callback
from density_regression.training.checkpoints import Checkpoints
from density_regression.training.loop import Losses, TrainingReport, monitor_for, optimise, timed
from density_regression.training.progress import Monitor
from density_regression.training.targets import learn_target_scale, with_scaled_targets
from density_regression.training.vectorised import MappedLoss, StackedLoss, can_train

__all__ = ["Baseline", "BaselineModule", "BaselineRegressor", "Objective", "fit_baseline", "fit_baselines_together"]


class BaselineModule(Predictor):
    """A module with its own loss, for `fit_baseline`."""

    @abstractmethod
    def loss(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of a batch in train mode; in eval mode, the loss that early stopping compares."""

    def begin(self, train: Batches) -> None:
        """Initialise from the training rows, before the first step."""

    def fit(
        self, train: Batches, held_out: Batches | None, options: TrainingOptions, progress: Monitor | None
    ) -> Losses:
        """Minimise the loss; returns it after each epoch."""
        (losses,) = optimise(Objective(self), train, held_out, options, progress, name="network")
        return losses

    def finish(self, train: Batches, held_out: Batches) -> None:
        """Estimate what is not learnt by gradient descent, once the weights are final."""

    @property
    def n_losses(self) -> int:
        """Number of losses, each minimised independently of the others."""
        return 1

    @classmethod
    def stacked_loss(cls, models: Sequence[Self]) -> StackedLoss | None:
        """Losses of several models of one shape as one computation; None if they cannot be stacked."""
        return MappedLoss.of([Objective(model) for model in models])


class Baseline(Network, BaselineModule):
    """A baseline with one encoder, whose loss is a mean over rows of features.

    Examples
    --------
    >>> from density_regression import MLP
    >>> from density_regression.baselines import GaussianNetwork
    >>> issubclass(GaussianNetwork, Baseline), isinstance(GaussianNetwork(MLP(1, (8,)), features=8), Baseline)
    (True, True)
    """

    @abstractmethod
    def row_losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Loss (n,) of features `z` (n, features) with targets `y` (n, k)."""

    def penalty(self) -> Tensor | float:
        """Term added to the mean loss of every batch."""
        return 0.0

    def loss(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean of `row_losses` by weight, plus the `penalty`."""
        rows = self.flat(x, y, weight)
        return weighted_mean(self.row_losses(rows.z, rows.y), rows.weight) + self.penalty()


class Objective(nn.Module):
    """The loss of a baseline as a module, for `optimise`."""

    def __init__(self, model: BaselineModule) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of a batch."""
        return self.model.loss(x, y, weight)


@full_precision()
def fit_baseline(
    model: BaselineModule,
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
    """Train a baseline in place; arguments and result are described in `fit_density_regression`.

    Held-out rows serve for early stopping. There is one checkpoint, of the trained module.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP, TrainingOptions
    >>> from density_regression.baselines import GaussianNetwork
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> batches = list(zip(x.split(10), (2 * x).split(10), strict=True))
    >>> model = GaussianNetwork(MLP(1, (8,)), features=8)
    >>> report = fit_baseline(model, batches[:3], batches[3:], options=TrainingOptions(epochs=2))
    >>> len(report.history)
    2
    """
    options = options or TrainingOptions()
    progress = monitor_for(verbose, callbacks, "train")
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
    with progress or nullcontext(), timed(report, "train"):
        model.begin(train)
        report.history, report.train_history = model.fit(train, held_out, options, progress)
        model.eval()
        model.finish(train, train if held_out is None else held_out)
        checkpoints.save(1, model.state_dict())
    return report


def fit_baselines_together(
    models: Sequence[BaselineModule],
    trains: Sequence[TensorBatches],
    held_outs: Sequence[TensorBatches],
    *,
    options: TrainingOptions,
    draws: Sequence[Tensor],
    verbose: bool = True,
) -> list[TrainingReport] | None:
    """Train baselines of one class, each on its own rows, as one computation; None if they cannot be stacked.

    Results are those of `fit_baseline`, up to rounding and to the random numbers of training (dropout, say). `draws`
    holds the state of torch's generator with which each model starts.
    """
    report = TrainingReport({"train": 0.0})
    progress = monitor_for(verbose, (), "train")
    with progress or nullcontext(), timed(report, "train"):
        for model, train, draw in zip(models, trains, draws, strict=True):
            if may_draw(model):
                torch.set_rng_state(draw)
            model.to(find_device(options.device))
            model.begin(train)
        losses_each = models[0].n_losses
        together = models[0].stacked_loss(models)
        held_out = TensorBatches.side_by_side(held_outs, losses_each)
        if together is None or not can_train(together, held_out):
            return None
        train = TensorBatches.side_by_side(trains, losses_each)
        losses = optimise(together, train, held_out, options, progress, name=f"{len(models)} networks")
        together.unstack()
        for model, own, held in zip(models, trains, held_outs, strict=True):
            model.eval()
            model.finish(own, held)
    seconds = report.shared(len(models)).seconds
    members = [slice(i, i + losses_each) for i in range(0, len(losses), losses_each)]
    return [TrainingReport(dict(seconds), *mean_losses(losses[own])) for own in members]


def mean_losses(several: Sequence[Losses]) -> Losses:
    """Mean over members after each epoch; a member that stopped early keeps its last value."""
    means = []
    for histories in zip(*several, strict=True):
        epochs = max(len(history) for history in histories)
        padded = [history + history[-1:] * (epochs - len(history)) for history in histories]
        means.append([sum(losses) / len(losses) for losses in zip(*padded, strict=True)])
    return Losses(*means)


def _settings(model: nn.Module) -> list[dict[str, object]]:
    """Numbers and strings that a module and its submodules hold, which `repr` may not show."""
    kinds = (bool, int, float, str, tuple)
    return [
        {name: value for name, value in vars(part).items() if isinstance(value, kinds) and name != "training"}
        for part in model.modules()
    ]


class BaselineRegressor(DeepRegressor):
    """Scikit-learn regressor around a baseline, trained in one step.

    A subclass sets `network_class`; the keyword-only arguments of that class are parameters of the regressor.
    """

    network_class: ClassVar[type[Baseline]]
    model_: BaselineModule

    def _network(self, encoder: nn.Module, features: int, targets: int, **given: Any) -> Any:
        """The untrained module around an encoder; arguments that are not given are the parameters of that name."""
        names = inspect.getfullargspec(self.network_class).kwonlyargs
        arguments = {name: getattr(self, name) for name in names} | given
        return self.network_class(encoder, features, targets, **arguments)

    def _build(self, encoder: nn.Module, rows: TrainingRows) -> Any:
        return self._network(encoder, feature_width(encoder, rows.x[:2]), rows.y.shape[1])

    def _train(self, model: BaselineModule, train: TrainingRows, held_out: TrainingRows, run: Run) -> TrainingReport:
        return fit_baseline(
            model,
            TensorBatches(*train, self._batch_size(len(train.x)), self._shuffles(run.seed)),
            TensorBatches(*held_out, PREDICTED_ROWS),
            options=self._options(run.seed, train.x.shape[1]),
            checkpoint_dir=self.checkpoint_dir,
            fingerprint=run.fingerprint,
            callbacks=self.callbacks or (),
            scale_targets=False,
            verbose=self.verbose,
        )

    def _train_together(
        self,
        models: Sequence[BaselineModule],
        trains: Sequence[TrainingRows],
        held_outs: Sequence[TrainingRows],
        runs: Sequence[Run],
        draws: Sequence[Tensor],
    ) -> list[TrainingReport] | None:
        size = self._batch_size(len(trains[0].x))
        return fit_baselines_together(
            models,
            [TensorBatches(*train, size, self._shuffles(run.seed)) for train, run in zip(trains, runs, strict=True)],
            [TensorBatches(*held_out, PREDICTED_ROWS) for held_out in held_outs],
            options=self._options(runs[0].seed, trains[0].x.shape[1]),
            draws=draws,
            verbose=self.verbose,
        )

    def _shuffles(self, seed: int) -> torch.Generator | list[torch.Generator]:
        """Generators of the order of the training rows."""
        return torch.Generator().manual_seed(seed)
