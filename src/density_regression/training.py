"""Algorithm 1 (`alg:algorithm`): pretrain, fit_density, refit_head, each a function of its own."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from density_regression._numeric import tame
from density_regression._progress import StepProgress
from density_regression.batches import Batches, TensorBatches, on_device, rewind
from density_regression.callbacks import Callback, Monitor
from density_regression.density import Density, Tempering
from density_regression.head import Head, Moments, gaussian_losses
from density_regression.loop import (
    TrainingOptions,
    TrainingReport,
    find_device,
    full_precision,
    may_draw,
    optimise,
    optimise_each,
    own_draws,
    timed,
)
from density_regression.model import DensityRegression
from density_regression.network import Features, weighted_mean
from density_regression.persistence import Checkpoints, checksum
from density_regression.stacked import MappedLoss, Stacked, StackedLoss, can_train, stack
from density_regression.targets import learn_target_scale, with_scaled_targets

__all__ = [
    "Batches",
    "Features",
    "TensorBatches",
    "TrainingOptions",
    "TrainingReport",
    "cache_features",
    "fit_density",
    "fit_density_regression",
    "fit_density_regressions_together",
    "mean_loss",
    "pretrain",
    "refit_head",
]

STEPS: Final = ("pretrain", "fit_density", "refit_head", "learn_reach")
"""The steps of Algorithm 1, and the one that learns the reach."""

MAX_CACHED_VALUES: Final = 2**25
"""Most feature values held in memory for steps 2 and 3 (128 MiB in float32)."""

MAX_CACHED_ROWS: Final = 20_000
"""Most rows of a table held for them: rows do not depend on each other, and so many tell all that a head can learn."""

REFIT_ROUNDS: Final = 10
REFIT_PATIENCE: Final = 3
"""Rounds of step 3; after each, the held-out rows say whether it was the best so far. So many without one end it."""


@full_precision()
def fit_density_regression(
    model: DensityRegression,
    train: Batches,
    held_out: Batches | None = None,
    *,
    unvaried: Batches | None = None,
    options: TrainingOptions | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    fingerprint: str = "",
    pretrained: bool = False,
    callbacks: Iterable[Callback] = (),
    scale_targets: bool = True,
    verbose: bool = True,
) -> TrainingReport:
    """Train a model by the three steps of `alg:algorithm`.

    Parameters
    ----------
    model : DensityRegression
        Trained in place, and left in eval mode. Step 1 is in train mode throughout: the statistics of a batch norm
        move, even if its parameters are frozen.
    train : iterable of batches
        (x, y) or (x, y, weight), with y of the shape the model predicts: (batch, k) or (batch, k, ...), and weight
        (batch,), or (batch, ...) for single positions; where it is zero, targets may be NaN. Weights count across
        batches for `TensorBatches`, elsewhere within each batch. A `torch.utils.data.DataLoader` will do; for
        steps 2 and 3 its shuffles begin anew, by `options.seed` if it has no generator of its own. Targets are in their
        own units, and so is what the model then predicts.
    held_out : iterable of batches, optional
        Rows for early stopping, for the density's choices and levels, and for the offset of step 3. Without them
        training rows serve, and the model will be too sure of itself.
    unvaried : iterable of batches, optional
        The training rows as they are, for steps 2 and 3, where `train` varies its inputs (cut, mirrored, of other
        colours): the density must know what predictions will be asked of.
    options : TrainingOptions, optional
        How to train.
    checkpoint_dir : path, optional
        Keep the state after each step there; a fit that was interrupted goes on from it. One folder for one fit.
    fingerprint : str
        Whatever else tells this fit from others; checkpoints with another one are ignored.
    pretrained : bool
        Skip step 1: the encoder is trained already. The head starts from a ridge regression on its features.
    callbacks : iterable of Callback
        Told the losses after each epoch of step 1 and each round of step 3.
    scale_targets : bool
        Learn mean and standard deviation of the targets first, in one more pass over the batches (over `unvaried`, if
        there are any, and over the first four million targets at most); the model keeps them and answers in the
        target's units. False takes targets as they are: they must then be of about unit scale.
    verbose : bool
        Show a progress bar, if there is a terminal to show it on.

    Returns
    -------
    TrainingReport
        Seconds of each step, and the training and held-out losses over epochs, those of the scaled targets.
    """
    options = options or TrainingOptions()
    progress = Monitor(verbose, callbacks, "pretrain")
    if checkpoint_dir is not None:
        _check_keepable(model)
        scaled = " scaled" if scale_targets else ""
        fingerprint = f"{fingerprint} {_fit_of(model, options, pretrained)}{scaled}"
    checkpoints = Checkpoints(checkpoint_dir, fingerprint)
    report = TrainingReport(dict.fromkeys(STEPS, 0.0))
    device = find_device(options.device)
    model.to(device)
    done, state = checkpoints.latest(steps=3)
    model.scale_targets(None, None)
    if state:
        model.load_state_dict(state)
        model.eval()
    elif scale_targets:
        learn_target_scale(model, train if unvaried is None else unvaried, options.seed)
    train, (held_out, unvaried) = with_scaled_targets(model, train, held_out, unvaried)
    with progress:
        with timed(report, "pretrain"):
            if done < 1 and not pretrained:
                report.history = pretrain(model, train, held_out, options, progress)
                (report.train_history,) = progress.train_histories()
                checkpoints.save(1, model.state_dict())
        if done == 3:
            return report
        seen = train if unvaried is None else unvaried
        if done < 2:
            with _from_the_start(model, options.seed, seen):
                model.learn_from_inputs(_Inputs(seen, device))
        with _from_the_start(model, options.seed, seen, held_out):
            features = cache_features(model, seen)
            held = cache_features(model, held_out) if held_out is not None else features
        if done < 1 and pretrained:
            model.head.start(*features)
        with timed(report, "fit_density"):
            if done < 2:
                progress.step("2/3 density", 1)
                fit_density(model, features, None if _same_rows(seen, held_out) else held, seed=options.seed)
                progress.advance()
                checkpoints.save(2, model.state_dict())
        with timed(report, "refit_head"):
            refit_head(model, features, held, progress)
            checkpoints.save(3, model.state_dict())
    return report


def fit_density_regressions_together(
    models: Sequence[DensityRegression],
    trains: Sequence[TensorBatches],
    held_outs: Sequence[TensorBatches],
    *,
    options: TrainingOptions,
    seeds: Sequence[int],
    refit: bool = True,
    verbose: bool = True,
) -> list[TrainingReport] | None:
    """Train models of one shape, each on rows of its own: step 1 as one computation; None if that cannot be.

    Each ends as it would by `fit_density_regression`, but for rounding.
    """
    report = TrainingReport(dict.fromkeys(STEPS, 0.0))
    with Monitor(verbose) as progress, timed(report, "pretrain"):
        for model in models:
            model.to(find_device(options.device))
            model.head.release()
        held_out = TensorBatches.side_by_side(held_outs, 1)
        ways = (_StackedLoss.of(models), MappedLoss.of([_NegativeLogLikelihood(model) for model in models]))
        together = next((way for way in ways if way is not None and can_train(way, held_out)), None)
        if together is None:
            return None
        train = TensorBatches.side_by_side(trains, 1)
        losses = optimise_each(together, train, held_out, options, progress, name="1/3 networks")
        together.unstack()
    for model, own, held, seed in zip(models, trains, held_outs, seeds, strict=True):
        model.eval()
        own.rewind()
        features, held_features = cache_features(model, own), cache_features(model, held)
        with timed(report, "fit_density"):
            fit_density(model, features, None if _same_rows(own, held) else held_features, seed=seed)
        with timed(report, "refit_head"):
            refit_head(model, features, held_features, rounds=REFIT_ROUNDS * refit)
    seconds = report.shared(len(models)).seconds
    both = zip(losses, progress.train_histories(), strict=True)
    return [TrainingReport(dict(seconds), own, train[: len(own)]) for own, train in both]


def pretrain(
    model: DensityRegression,
    train: Batches,
    held_out: Batches | None,
    options: TrainingOptions,
    progress: StepProgress | None = None,
) -> list[float]:
    """Step 1: encoder and head by maximum likelihood, without the density (`method:1st-optimization`).

    Returns the loss after each epoch, on the held-out rows if there are any. The best weights are kept.
    """
    model.head.release()
    history = optimise(_NegativeLogLikelihood(model), train, held_out, options, progress, name="1/3 network")
    model.eval()
    return history


def fit_density(model: DensityRegression, train: Features, held_out: Features | None, *, seed: int = 0) -> None:
    """Step 2: the density of the features, and the levels of its tempering; encoder and head stay as they are.

    Without held-out rows a fifth of the others is set aside: a density is highest at the very rows it was fitted to.
    """
    if model.density is None:
        return
    generator = torch.Generator().manual_seed(seed)
    if held_out is None:
        train, held_out = _set_aside(train, generator)
    model.density.fit(train.z, train.weight, held_out=held_out.z, generator=generator)
    with torch.no_grad():
        levels = model.density.log_prob(held_out.z)
        known = model.density.log_prob(train.z) if model.tempering.reads_training_rows else levels
        model.tempering.fit(known, levels, held_out_weight=held_out.weight)
    model.keep_levels(levels)


def refit_head(
    model: DensityRegression,
    train: Features,
    held_out: Features,
    progress: StepProgress | None = None,
    *,
    rounds: int = REFIT_ROUNDS,
) -> None:
    """Step 3: the head again, with the density in place (`method:2nd-optimization`); the rest stays as it is.

    Full-batch L-BFGS on cached features. The round with the best held-out loss is kept, the start among them: what
    the head learnt in step 1 is good unless the held-out rows say otherwise. Its log-precision is then bounded, and
    its offset fitted. With fewer rows than features there are no rounds: the likelihood has no maximum.
    """
    progress = progress or StepProgress(visible=False)
    rounds = rounds if len(train.z) > model.head.features else 0
    progress.step("3/3 head", rounds)
    with torch.no_grad():
        rows = _Rows(train, model.tempered(train.z)).by_columns().double()
        held = _Rows(held_out, model.tempered(held_out.z)).double()
    head = copy.deepcopy(model.head).double().requires_grad_()
    if rows.log_density is not None:
        # The density's level goes into the offset: as a change of s it would overflow the natural mean.
        head.offset.fill_(-(rows.features.weight @ rows.log_density) / rows.features.weight.sum())
    best, best_loss = _finished(head, rows, held)
    waited = 0
    for number, _ in enumerate(islice(_second_order(head, rows), rounds), start=1):
        candidate, loss = _finished(head, rows, held)
        progress.advance(loss)
        if isinstance(progress, Monitor) and progress.callbacks:
            progress.tell("refit_head", number, _loss_on(rows, candidate), None if held_out is train else loss)
        if loss < best_loss:
            best, best_loss, waited = candidate, loss, 0
        else:
            waited += 1
        if waited == REFIT_PATIENCE:
            break
    model.head.load_state_dict(best.state_dict())
    with torch.no_grad():
        moments = model.row_moments(held_out.z)
    if not (math.isfinite(best_loss) and all(part.isfinite().all() for part in moments)):
        raise ValueError("Training diverged: the head overflows. Scale the inputs and targets, or lower learning_rate.")


@torch.no_grad()
def cache_features(model: DensityRegression, batches: Batches) -> Features:
    """Run the encoder once over the data.

    Returns features of all rows and positions, in order; or, if they are more than `MAX_CACHED_VALUES`, or rows of a
    table in memory and more than `MAX_CACHED_ROWS`, those of a uniform sample of them.
    """
    model.eval()
    limit = max(MAX_CACHED_VALUES // model.features, 1)
    device = next(model.parameters()).device
    if isinstance(batches, TensorBatches) and batches.rows[1].ndim == 2:
        batches = batches.sample(min(MAX_CACHED_ROWS, limit))
    generator = torch.Generator().manual_seed(0)
    kept: list[Features] = []
    keys: list[Tensor] = []
    count = 0
    for batch in batches:
        x, y, weight = on_device(batch, device)
        model.refuse_missing(x, weight)
        part = model.flat(x, y, weight)
        if not (part.weight > 0).all():
            # Positions without a target, of which an image may have most.
            part = Features(*(values[part.weight > 0] for values in part))
        kept.append(part)
        keys.append(torch.rand(len(part.z), generator=generator).to(device))
        count += len(part.z)
        if count > 2 * limit:
            # Rows with the smallest keys are a uniform sample of all so far, whatever the order they came in.
            kept, keys, count = *_smallest(kept, keys, limit), limit
    if count == 0:
        raise ValueError("The batches have no rows, or none with weight.")
    if count > limit:
        kept, keys = _smallest(kept, keys, limit)
    features = Features(*(torch.cat(parts) for parts in zip(*kept, strict=True)))
    if not features.y.isfinite().all():
        raise ValueError("Targets are NaN or infinite. Give rows and positions without a target a weight of 0.")
    return features


def mean_loss(moments: Moments, rows: Features) -> Tensor:
    """Mean Gaussian negative log-likelihood of rows, in nats."""
    return weighted_mean(gaussian_losses(moments, rows.y), rows.weight)


class _Inputs:
    """The inputs of batches alone, on a device."""

    def __init__(self, batches: Batches, device: torch.device) -> None:
        self._batches = batches
        self._device = device

    def __iter__(self) -> Iterator[Tensor]:
        for batch in self._batches:
            yield batch[0].to(self._device)


class _NegativeLogLikelihood(nn.Module):
    """Mean Gaussian negative log-likelihood of a model, in nats."""

    def __init__(self, model: DensityRegression) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        rows = self.model.flat(x, y, weight)
        return mean_loss(self.model.head.free(rows.z), rows)


class _StackedLoss(StackedLoss):
    """Losses (M,) of models for tables whose layers are batched products: twice as fast as vmap."""

    def __init__(self, models: Sequence[DensityRegression], encoder: Stacked, linear: Stacked) -> None:
        super().__init__()
        # Not parts of this module: they get its weights at the end.
        self._models = tuple(models)
        self.encoder = encoder
        self.linear = linear
        self.head = copy.deepcopy(models[0].head)
        self.head.linear = linear  # type: ignore[assignment]
        for name, buffer in self.head.named_buffers():
            setattr(self.head, name, buffer.expand(len(models), 1, -1).clone())

    @classmethod
    def of(cls, models: Sequence[DensityRegression]) -> _StackedLoss | None:
        """The models as one; None if their layers are of another kind."""
        encoder = stack([model.encoder for model in models])
        linear = stack([model.head.linear for model in models])
        return cls(models, encoder, linear) if encoder is not None and linear is not None else None

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        rows = Features(tame(self.encoder(x)), y, weight)
        return mean_loss(self.head.free(rows.z), rows)

    def unstack(self) -> None:
        """Give the models what was learnt."""
        for i, model in enumerate(self._models):
            model.encoder.load_state_dict(self.encoder.member_state(i))
            model.head.linear.load_state_dict(self.linear.member_state(i))


class _Rows(NamedTuple):
    """Features and their tempered log-density (n,), as step 3 sees them."""

    features: Features
    log_density: Tensor | None

    def double(self) -> _Rows:
        log_density = None if self.log_density is None else self.log_density.double()
        return _Rows(Features(*(part.double() for part in self.features)), log_density)

    def by_columns(self) -> _Rows:
        """The same with each feature's values side by side in memory."""
        return self._replace(features=self.features._replace(z=self.features.z.T.contiguous().T))


def _second_order(head: Head, rows: _Rows) -> Iterator[None]:
    optimizer = torch.optim.LBFGS(
        head.parameters(), max_iter=5, history_size=20, line_search_fn="strong_wolfe", tolerance_grad=1e-6
    )
    seen: Tensor | None = None
    loss = torch.tensor(math.inf)

    def closure() -> Tensor:
        nonlocal seen, loss
        here = nn.utils.parameters_to_vector(head.parameters()).detach()
        # A round begins where the last one ended: the loss is known, and the gradient still there.
        if seen is None or not torch.equal(here, seen):
            optimizer.zero_grad()
            loss = mean_loss(head.of_columns(rows.features.z.T, rows.log_density), rows.features)
            loss.backward()
            seen = here
        return loss

    while True:
        optimizer.step(closure)
        yield


@torch.no_grad()
def _finished(head: Head, rows: _Rows, held: _Rows) -> tuple[Head, float]:
    """A copy of the head with its bounds and offset set, and its held-out loss (infinite if it is not a number)."""
    head = copy.deepcopy(head)
    head.bound(rows.features.z, rows.features.weight)
    moments = head.calibrate(held.features.z, held.features.y, held.log_density, held.features.weight)
    loss = mean_loss(moments, held.features).item()
    return head, loss if math.isfinite(loss) else math.inf


@torch.no_grad()
def _loss_on(rows: _Rows, head: Head) -> float:
    return mean_loss(head(rows.features.z, rows.log_density), rows.features).item()


@contextmanager
def _from_the_start(model: nn.Module, seed: int, *several: Batches | None) -> Iterator[None]:
    """Shuffle and vary batches by our seed, whatever was drawn before.

    What steps 2 and 3 see must not depend on how many epochs of step 1 this process has seen.
    """
    with ExitStack() as draws:
        if may_draw(model) or not all(batches is None or isinstance(batches, TensorBatches) for batches in several):
            draws.enter_context(own_draws())
            torch.manual_seed(seed)
        for batches in several:
            rewind(batches)
        yield


def _same_rows(train: Batches, held_out: Batches | None) -> bool:
    """Whether no rows are held out, and those of training serve in their place."""
    if isinstance(train, TensorBatches) and isinstance(held_out, TensorBatches):
        return held_out.rows[0] is train.rows[0]
    return held_out is None or held_out is train


def _set_aside(rows: Features, generator: torch.Generator) -> tuple[Features, Features]:
    """Four fifths of the rows, at random, and the rest."""
    if len(rows.z) < 2:
        return rows, rows
    order = torch.randperm(len(rows.z), generator=generator).to(rows.z.device)
    aside = max(len(order) // 5, 1)
    return Features(*(part[order[aside:]] for part in rows)), Features(*(part[order[:aside]] for part in rows))


def _smallest(kept: list[Features], keys: list[Tensor], limit: int) -> tuple[list[Features], list[Tensor]]:
    key = torch.cat(keys)
    index = key.topk(limit, largest=False).indices
    return [Features(*(torch.cat(parts)[index] for parts in zip(*kept, strict=True)))], [key[index]]


def _check_keepable(model: DensityRegression) -> None:
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"checkpoint_dir keeps tensors, but {name} of the model is a {type(value).__name__}: fit without it."
            )


def _fit_of(model: DensityRegression, options: TrainingOptions, pretrained: bool) -> str:
    """All that tells one fit from another but its data; what a fit computes, not where."""
    # Also those within others: of a scene, and of its pixels.
    parts = [(type(p).__name__, p.config()) for p in model.modules() if isinstance(p, Density | Tempering)]
    weights = checksum(model.encoder.state_dict()) if pretrained else ""
    return f"{model.encoder} {model.head} {parts} {replace(options, device='')} {pretrained} {weights}"
