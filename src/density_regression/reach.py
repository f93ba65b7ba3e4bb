"""How far from its training data a network can still be trusted, learnt from rows that others have not seen."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

import torch
from torch import Tensor

from density_regression.density import TYPICAL_REACH, RobustTempering
from density_regression.head import Moments, gaussian_losses
from density_regression.loop import TrainingOptions, may_draw, own_draws
from density_regression.model import DensityRegression
from density_regression.network import Features, weighted_mean
from density_regression.tables import Table
from density_regression.training import (
    cache_features,
    fit_density_regression,
    fit_density_regressions_together,
)

__all__ = ["can_learn_reach", "learn_reach"]

DIRECTIONS: Final = 4
"""Times that rows are hidden, each time along another random direction of the features."""

HIDDEN_SHARE: Final = 1 / 8
"""Share of the rows hidden at either end of a direction."""

HELD_OUT_SHARE: Final = 1 / 5
"""Share of the other rows that a network holds out."""

FEWEST_ROWS: Final = 100
"""Of fewer rows nothing is learnt."""

SAMPLE_SHARE: Final = 1 / 8
SAMPLE_SIZE: Final = (800, 3000)
"""Rows drawn at random to learn from: this share of them, but at least and at most so many."""

MOST_JUDGES: Final = 5000
"""Most held-out rows that have a say."""

STEPS: Final = 200
EPOCHS: Final = 50
PATIENCE: Final = 50
BATCH_SIZE: Final = 128
"""How the networks that do not see them are trained; a rough answer will do, and a quick one is wanted. As many epochs
as make so many steps, but no more than so many."""

TOGETHER: Final = 40
"""Most networks trained at once."""

CALIBRATIONS: Final = 3
"""Times that a scale is found, as it depends a little on where it was before."""

REACHES: Final = tuple(2.0**power for power in range(-3, 8))
DETAILS: Final = (0.5, 0.75, 1.0)
"""What is chosen among."""

TYPICAL: Final = (TYPICAL_REACH, 0.5)
"""Reach and detail where there is no evidence."""

EVIDENCE: Final = (20.0, 10.0)
"""Nats that hidden rows must gain, all together, for a reach of twice or half the typical one, and held-out rows for
such a detail; four times as many for four times or a quarter of it."""


class Hiding(NamedTuple):
    """Rows for a network to train on and to hold out, and rows that lie outside them."""

    train: Table
    held_out: Table
    hidden: Table


class Work(NamedTuple):
    """A fresh network, the rows it may see and those it may not, and its seed."""

    network: DensityRegression
    hiding: Hiding
    seed: int


def can_learn_reach(model: DensityRegression, rows: int) -> bool:
    """Whether a model has a reach to learn, and rows enough to learn it from."""
    tempering = model.tempering
    auto = isinstance(tempering, RobustTempering) and tempering.reach == "auto"
    return auto and model.density is not None and rows >= FEWEST_ROWS


def learn_reach(
    models: Sequence[DensityRegression],
    trains: Sequence[Table],
    held_outs: Sequence[Table],
    build: Callable[[], DensityRegression],
    options: TrainingOptions,
    seeds: Sequence[int],
) -> None:
    """Learn the reach of each model, and how much of its head's detail to keep, from its own rows alone.

    Four times the rows at both ends of a random direction of the features are hidden, and a fresh network with a
    density of its own is trained on the others. The reach under which the rows hidden along the two harder directions
    are most likely is the model's, together with the detail; held-out rows of the model itself have an equal say, so
    that what is wise outside does not spoil what is right inside. Where rows are few, both stay near the typical.

    Parameters
    ----------
    models : sequence of DensityRegression
        Trained ones, of one shape.
    trains, held_outs : sequences of Table
        The rows of each.
    build : callable
        Builds a fresh model of the same shape, drawing from torch's generator.
    options : TrainingOptions
        How the models were trained.
    seeds : sequence of int
        One for each model.
    """
    hidings = [_hide(*given) for given in zip(models, trains, held_outs, seeds, strict=True)]
    with ExitStack() as draws:
        draws.enter_context(own_draws())
        networks = []
        for several, seed in zip(hidings, seeds, strict=True):
            torch.manual_seed(seed)
            networks.append([build() for _ in several])
        if not may_draw(models[0]):
            draws.close()
        work = [
            Work(network, hiding, seed + i)
            for own, several, seed in zip(networks, hidings, seeds, strict=True)
            for i, (network, hiding) in enumerate(zip(own, several, strict=True))
        ]
        for start in range(0, len(work), TOGETHER):
            _train(work[start : start + TOGETHER], options)
    for model, held_out, own, hiding in zip(models, held_outs, networks, hidings, strict=True):
        _choose(model, held_out, own, hiding)


@torch.no_grad()
def _hide(model: DensityRegression, train: Table, held_out: Table, seed: int) -> list[Hiding]:
    generator = torch.Generator().manual_seed(seed)
    # Without rows of its own the held-out table is the other once more.
    tables = (train,) if held_out is train else (train, held_out)
    rows = Table(*(torch.cat(parts) for parts in zip(*tables, strict=True)))
    fewest, most = SAMPLE_SIZE
    size = min(max(int(SAMPLE_SHARE * len(rows.x)), fewest), most)
    rows = rows.take(torch.randperm(len(rows.x), generator=generator)[:size])
    assert model.density is not None
    z = model.encode(rows.x.to(next(model.parameters()).device))
    whitened = model.density.whitening(z)[0].cpu()
    aside = int(HIDDEN_SHARE * len(rows.x))
    hidings = []
    for _ in range(DIRECTIONS):
        direction = torch.randn(whitened.shape[1], generator=generator)
        order = (whitened @ direction).argsort(stable=True)
        ends, middle = torch.cat([order[:aside], order[-aside:]]), order[aside:-aside]
        middle = middle[torch.randperm(len(middle), generator=generator)]
        held = int(HELD_OUT_SHARE * len(middle))
        hidings.append(Hiding(rows.take(middle[held:]), rows.take(middle[:held]), rows.take(ends)))
    return hidings


def _train(work: Sequence[Work], options: TrainingOptions) -> None:
    patience = PATIENCE if options.patience is None else min(options.patience, PATIENCE)
    steps = math.ceil(len(work[0].hiding.train.x) / BATCH_SIZE)
    options = replace(options, epochs=min(options.epochs, EPOCHS, math.ceil(STEPS / steps)), patience=patience)
    networks = [part.network for part in work]
    trains = [part.hiding.train.batches(BATCH_SIZE, torch.Generator().manual_seed(part.seed)) for part in work]
    held_outs = [part.hiding.held_out.batches(len(part.hiding.held_out.x)) for part in work]
    seeds = [part.seed for part in work]
    if fit_density_regressions_together(
        networks, trains, held_outs, options=options, seeds=seeds, refit=False, verbose=False
    ):
        return
    for network, train, held_out, seed in zip(networks, trains, held_outs, seeds, strict=True):
        own = replace(options, seed=seed)
        fit_density_regression(network, train, held_out, options=own, scale_targets=False, verbose=False)


class _Judge:
    """Rows by which a reach is judged: a model's loss on them, calibrated on rows that it held out."""

    @torch.no_grad()
    def __init__(self, model: DensityRegression, held_out: Table, judging: Table) -> None:
        self.model = model
        assert model.density is not None
        self.parts: list[tuple[Features, Tensor]] = []
        for table in (held_out, judging):
            features = cache_features(model, table.batches(len(table.x)))
            self.parts.append((features, model.density(features.z)))

    @torch.no_grad()
    def losses(self, reaches: Sequence[float], details: Sequence[float]) -> list[float]:
        """Mean negative log-likelihood with each reach and its detail; all at once, and the model stays as it is."""
        tempering, head = copy.deepcopy(self.model.tempering), copy.deepcopy(self.model.head)
        assert isinstance(tempering, RobustTempering)
        (held_out, held_density), (judging, density) = self.parts
        head.blur(1.0, held_out.z, held_out.weight)
        # One more axis before the others: (choices, rows, targets).
        detail = torch.tensor(details).to(density)[:, None, None]
        tempering.learnt_reach = torch.tensor(reaches).to(density)[:, None]

        def moments(features: Features, log_density: Tensor) -> Moments:
            mean, log_std = head(features.z)
            # By how much s lies below its level: so much of it as is not kept is added to the log-precision.
            below = head.level + 2.0 * log_std + head.offset + math.log(2)
            return Moments(mean, log_std - 0.5 * ((1.0 - detail) * below + tempering(log_density)[..., None]))

        mean, log_std = moments(held_out, held_density)
        log_squared = 2.0 * ((held_out.y - mean).abs().clamp_min(1e-30).log() - log_std)
        log_total = (log_squared + held_out.weight.log()[:, None]).logsumexp(1, keepdim=True)
        scale = torch.zeros_like(log_total)
        for _ in range(CALIBRATIONS):
            scale = torch.logaddexp(log_total, scale) - torch.log1p(held_out.weight.sum())
        mean, log_std = moments(judging, density)
        losses = gaussian_losses(Moments(mean, log_std + 0.5 * scale), judging.y)
        found = weighted_mean(losses, judging.weight.expand_as(losses))
        return [loss if math.isfinite(loss) else math.inf for loss in found.tolist()]

    @torch.no_grad()
    def settle(self, reach: float, detail: float) -> None:
        """Give the model this reach and detail, calibrated."""
        tempering, head = self.model.tempering, self.model.head
        assert isinstance(tempering, RobustTempering)
        tempering.extend(reach)
        held_out, held_density = self.parts[0]
        head.blur(detail, held_out.z, held_out.weight)
        for _ in range(CALIBRATIONS):
            head.calibrate(held_out.z, held_out.y, tempering(held_density), held_out.weight)


def _choose(
    model: DensityRegression, held_out: Table, networks: Sequence[DensityRegression], hidings: Sequence[Hiding]
) -> None:
    some = held_out.take(torch.arange(0, len(held_out.x), math.ceil(len(held_out.x) / MOST_JUDGES)))
    inside = _Judge(model, some, some)
    outside = [_Judge(network, part.held_out, part.hidden) for network, part in zip(networks, hidings, strict=True)]
    rows = (sum(len(part.hidden.x) for part in hidings), len(some.x))

    def best(choices: Sequence[tuple[float, float]]) -> tuple[float, float]:
        reaches, details = zip(*choices, strict=True)
        every = [judge.losses(reaches, details) for judge in (inside, *outside)]
        losses = []
        for choice, mine, *others in zip(choices, *every, strict=True):
            doubt = sum(
                evidence / number * math.log2(part / typical) ** 2
                for part, typical, evidence, number in zip(choice, TYPICAL, EVIDENCE, rows, strict=True)
            )
            harder = sorted(others)[len(others) // 2 :]
            losses.append(mine + sum(harder) / len(harder) + doubt)
        return choices[losses.index(min(losses))]

    reach, detail = best(list(product(REACHES, DETAILS)))
    reach, detail = best([(reach * step, detail) for step in (1.0, 0.5**0.5, 2.0**0.5)])
    _Judge(model, held_out, some).settle(reach, detail)
