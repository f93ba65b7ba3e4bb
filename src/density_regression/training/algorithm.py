"""Algorithm 1 (`alg:algorithm`), step by step: pretrain or distil, fit_density, refit_head; then learn_reach."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from density_regression.nn.batch_norm import over_processes
from density_regression.nn.model import DensityRegression
from density_regression.nn.network import Features
from density_regression.nn.processes import Processes, join, lost_processes
from density_regression.nn.runtime import TrainingOptions, device_of, full_precision
from density_regression.nn.tempering import RobustTempering
from density_regression.training.batches import (
    Batches,
    Inputs,
    TensorBatches,
    cache_features,
    reproducible,
    same_rows,
    set_aside,
)
from density_regression.training.loop import TrainingReport, monitor_for, optimise, timed
from density_regression.training.pretraining import NegativeLogLikelihood, first_step, pretrain
from density_regression.training.reach import PROBES, PROBES_AT_ONCE, Hiding, choose_reach, hide_rows, probe_options
from density_regression.training.refit import REFIT_ROUNDS, refit_head
from density_regression.training.vectorised import MappedLoss, can_train, stacked_loss

if TYPE_CHECKING:
    from density_regression.tabular.stream import StreamBatches
    from density_regression.training.callbacks import Callback

__all__ = [
    "fit_density",
    "fit_density_regression",
    "fit_density_regressions_together",
    "learn_reach",
    "pretrain",
]

STEPS: Final = ("pretrain", "fit_density", "refit_head", "learn_reach")
"""Names of the steps."""


@full_precision()
def fit_density_regression(  # noqa: PLR0915 - the algorithm on one screen
    model: DensityRegression,
    train: Batches,
    held_out: Batches | None = None,
    *,
    unvaried: Batches | None = None,
    options: TrainingOptions | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    fingerprint: str = "",
    pretrained: bool = False,
    probes: Sequence[DensityRegression] = (),
    probe_learning_rate: float | None = None,
    members: int = 0,
    rows: StreamBatches | None = None,
    callbacks: Iterable[Callback] = (),
    scale_targets: bool = True,
    verbose: bool = True,
) -> TrainingReport:
    """Train a model by the steps of Algorithm 1.

    Parameters
    ----------
    model : DensityRegression
        Trained in place, and left in eval mode. The statistics of a batch norm move in step 1, even if it is frozen.
    train : iterable of batches
        (x, y) or (x, y, weight), such as a `DataLoader`: y (batch, k) or (batch, k, ...), as the model predicts, and
        weight (batch,), or (batch, ...) for single positions; where it is zero, targets may be NaN. Weights count
        across batches for `TensorBatches`, elsewhere within each batch. Targets are in their own units. For steps 2
        and 3 a loader's shuffles begin anew, by `options.seed` if it has no generator of its own.
    held_out : iterable of batches, optional
        Rows for early stopping, for the density's choices and levels, and for the offset of step 3. Without them
        training rows serve, and the model will be too sure of itself.
    unvaried : iterable of batches, optional
        The training rows without augmentation, for steps 2 and 3, if `train` augments its inputs.
    options : TrainingOptions, optional
        How to train. Several processes (`devices`, `num_nodes`) must be given the same batches: each computes its rows
        of every batch in step 1, and the first alone does the other steps, writes checkpoints and tells callbacks.
    checkpoint_dir, fingerprint : path and str, optional
        Folder for the state after each step, and every minute within step 1, from which an interrupted fit resumes; one
        folder for one fit. Checkpoints with another fingerprint, whatever tells this fit from others, are ignored.
    pretrained : bool
        Skip step 1: the encoder is trained already. The head starts from a ridge regression on its features.
    probes, probe_learning_rate : sequence of DensityRegression, and float, optional
        Untrained models of the same shape, for `learn_reach`, and their learning rate if it is not that of the model;
        none to keep the default reach. With them, `train` and `held_out` must be `TensorBatches`.
    members : int
        Number of networks that are trained first, and from which a model whose head has `disagreement` learns in
        step 1. Its encoder must be a plain network, and `train` and `held_out` must be `TensorBatches`.
    rows : StreamBatches, optional
        All training rows, if `train` is a sample of them: step 1 then goes on over these. Their targets are scaled.
    callbacks : iterable of Callback
        Told the losses after each epoch of step 1 and each round of step 3.
    scale_targets : bool
        Learn mean and standard deviation of the targets first, in one more pass over at most four million of them; the
        model keeps them and answers in the target's units. False: targets must be of about unit scale.
    verbose : bool
        Show a progress bar, if there is a terminal to show it on.

    Returns
    -------
    TrainingReport
        Seconds of each step, and the training and held-out losses over epochs, those of the scaled targets.

    Examples
    --------
    >>> import torch
    >>> from density_regression import DensityRegression, MLP, TrainingOptions
    >>> x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    >>> batches = list(zip(x.split(20), (x[:, :1] * 3).split(20), strict=True))
    >>> model = DensityRegression(MLP(2, (16,)), features=16)
    >>> report = fit_density_regression(model, batches[:4], batches[4:], options=TrainingOptions(epochs=2))
    >>> list(report.seconds)
    ['pretrain', 'fit_density', 'refit_head', 'learn_reach']
    """
    options = options or TrainingOptions()
    device = device_of(options)
    processes = join(options.devices, options.num_nodes, device.type)
    progress = monitor_for(verbose, callbacks, "pretrain") if processes.first else None
    checkpoints = None
    report = TrainingReport(dict.fromkeys(STEPS, 0.0))
    if checkpoint_dir is not None and processes.first:
        from density_regression.training.checkpoints import Checkpoints, fingerprint_of

        own = fingerprint_of(model, options, pretrained=pretrained, members=members)
        checkpoints = Checkpoints(checkpoint_dir, f"{fingerprint} {own}{' scaled' if scale_targets else ''}")

    def keep(step: int) -> None:
        if checkpoints:
            checkpoints.save(step, model.state_dict())

    with progress or nullcontext(), lost_processes(processes, checkpoint_dir):
        model.to(device)
        done, state = processes.from_first(lambda: checkpoints.latest(steps=3) if checkpoints else (0, {}))
        model.scale_targets(None, None)
        if state:
            model.load_state_dict(state)
            model.eval()
        if scale_targets:
            from density_regression.training.targets import learn_target_scale, with_scaled_targets

            if not state:
                learn_target_scale(model, train if unvaried is None else unvaried, options.seed)
            train, (held_out, unvaried) = with_scaled_targets(model, train, held_out, unvaried)
        seen = train if unvaried is None else unvaried
        if done < 1 and not pretrained:
            with timed(report, "pretrain"), over_processes(model, processes):
                losses = first_step(model, train, held_out, members, rows, options, progress, checkpoints, processes)
                report.history, report.train_history = losses
                keep(1)

        def rest() -> None:
            if done < 3:
                if done < 2:
                    with reproducible(model, options.seed, seen):
                        model.learn_from_inputs(Inputs(seen, device))
                with reproducible(model, options.seed, seen, held_out):
                    features = cache_features(model, seen)
                    held = cache_features(model, held_out) if held_out is not None else features
                if done < 1 and pretrained:
                    from density_regression.training.warm_start import start_head

                    start_head(model.head, features)
                if done < 2:
                    if progress is not None:
                        progress.step("2/3 density", 1)
                    with timed(report, "fit_density"):
                        fit_density(model, features, None if same_rows(seen, held_out) else held, seed=options.seed)
                        keep(2)
                with timed(report, "refit_head"):
                    refit_head(model, features, held, progress)
                    keep(3)
            if probes:
                if not (isinstance(train, TensorBatches) and isinstance(held_out, TensorBatches)):
                    message = "probes need train and held_out to be TensorBatches; leave them out, or give these."
                    raise ValueError(message)
                with timed(report, "learn_reach"):
                    rate = probe_learning_rate or options.learning_rate
                    own = replace(options, learning_rate=rate, devices=1, num_nodes=1)
                    learn_reach([model], [train], [held_out], [probes], own, [options.seed])

        processes.from_first(rest)
        if processes.size > 1:
            _tell(model, report, processes)
    return report


def _tell(model: DensityRegression, report: TrainingReport, processes: Processes) -> None:
    """Give all processes the model of the first, and its report."""

    def told() -> tuple[dict[str, Any], TrainingReport]:
        state = model.state_dict().items()
        return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in state}, report

    state, of_first = processes.from_first(told)
    if not processes.first:
        model.load_state_dict(state)
        model.eval()
        vars(report).update(vars(of_first))


def fit_density_regressions_together(
    models: Sequence[DensityRegression],
    trains: Sequence[TensorBatches],
    held_outs: Sequence[TensorBatches],
    *,
    options: TrainingOptions,
    seeds: Sequence[int],
    refit: bool = True,
    probes: Sequence[Sequence[DensityRegression]] = (),
    probe_learning_rate: float | None = None,
    verbose: bool = True,
) -> list[TrainingReport] | None:
    """Likewise for models of one shape, each on its own rows, with step 1 as one computation; None if it cannot be."""
    report = TrainingReport(dict.fromkeys(STEPS, 0.0))
    progress = monitor_for(verbose, (), "pretrain")
    with progress or nullcontext(), timed(report, "pretrain"):
        for model in models:
            model.to(device_of(options))
            model.head.reset()
        held_out = TensorBatches.side_by_side(held_outs, 1)
        ways = (stacked_loss(models), MappedLoss.of([NegativeLogLikelihood(model) for model in models]))
        together = next((way for way in ways if way is not None and can_train(way, held_out)), None)
        if together is None:
            return None
        train = TensorBatches.side_by_side(trains, 1)
        losses = optimise(together, train, held_out, options, progress, name="1/3 networks")
        together.unstack()
    for model, own, held, seed in zip(models, trains, held_outs, seeds, strict=True):
        model.eval()
        own.rewind()
        features, held_features = cache_features(model, own), cache_features(model, held)
        with timed(report, "fit_density"):
            fit_density(model, features, None if same_rows(own, held) else held_features, seed=seed)
        with timed(report, "refit_head"):
            refit_head(model, features, held_features, rounds=REFIT_ROUNDS * refit)
    if probes:
        with timed(report, "learn_reach"):
            options = replace(options, learning_rate=probe_learning_rate or options.learning_rate)
            learn_reach(models, trains, held_outs, probes, options, seeds)
    seconds = report.shared(len(models)).seconds
    return [TrainingReport(dict(seconds), *own) for own in losses]


def fit_density(model: DensityRegression, train: Features, held_out: Features | None, *, seed: int = 0) -> None:
    """Step 2: the density of the features, and the levels of its tempering; the encoder stays as it is.

    Of a head with disagreement the upper bound of log r may change, where the density alone is to grow. Without
    held-out rows a fifth of the others is set aside: a density is highest at the very rows it was fitted to.
    """
    if model.density is None:
        return
    generator = torch.Generator().manual_seed(seed)
    if held_out is None:
        train, held_out = set_aside(train, generator)
    model.density.fit(train.z, train.weight, held_out=held_out.z, generator=generator)
    with torch.no_grad():
        levels = model.density.log_prob(held_out.z)
        known = model.density.log_prob(train.z) if model.tempering.reads_training_rows else levels
        model.tempering.fit(known, levels, held_out_weight=held_out.weight)
    if model.head.disagreement and isinstance(model.tempering, RobustTempering):
        model.tempering.suit(model.density.dims)
        if model.tempering.grows_fast(model.density.dims):
            model.head.cap_ratio(train.z, train.weight)
    model.keep_levels(levels)


def learn_reach(
    models: Sequence[DensityRegression],
    trains: Sequence[TensorBatches],
    held_outs: Sequence[TensorBatches],
    probes: Sequence[Sequence[DensityRegression]],
    options: TrainingOptions,
    seeds: Sequence[int],
) -> None:
    """Step 4: the reach of each model's tempering, and how much to shrink its log-precision, from its rows alone.

    Rows at both ends of random directions of the features are hidden, and for each direction an untrained network, a
    probe, is trained on the others. The reach under which the hidden rows are most likely is taken.
    """
    given = zip(models, trains, held_outs, seeds, strict=True)
    hidings = [hide_rows(model, train.rows, held.rows, PROBES, seed) for model, train, held, seed in given]
    work = [
        (probe, hiding, seed + i)
        for own, several, seed in zip(probes, hidings, seeds, strict=True)
        for i, (probe, hiding) in enumerate(zip(own, several, strict=True))
    ]
    options = probe_options(options, len(hidings[0][0].train[0]))
    # A fit that was resumed has not drawn what an uninterrupted one has.
    with reproducible(models[0], seeds[0]):
        for start in range(0, len(work), PROBES_AT_ONCE):
            _train_probes(work[start : start + PROBES_AT_ONCE], options)
    for model, held_out, own, several in zip(models, held_outs, probes, hidings, strict=True):
        choose_reach(model, held_out.rows, own, several)


def _train_probes(work: Sequence[tuple[DensityRegression, Hiding, int]], options: TrainingOptions) -> None:
    """Train probes on the rows not hidden from them, each with its seed; together if that can be."""
    probes, _, seeds = zip(*work, strict=True)
    trains, held_outs = zip(*(hiding.batches(seed) for _, hiding, seed in work), strict=True)
    if fit_density_regressions_together(
        probes, trains, held_outs, options=options, seeds=seeds, refit=False, verbose=False
    ):
        return
    for probe, train, held_out, seed in zip(probes, trains, held_outs, seeds, strict=True):
        own = replace(options, seed=seed)
        fit_density_regression(probe, train, held_out, options=own, scale_targets=False, verbose=False)
