"""The reach, the length scale on which the variance grows with distance, learnt from hidden rows."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

import torch
from torch import Tensor

from density_regression.nn.heads import Moments, gaussian_losses, squared_error_scale, weighted_mean
from density_regression.nn.model import DensityRegression
from density_regression.nn.network import Features
from density_regression.nn.runtime import TrainingOptions
from density_regression.nn.tempering import DEFAULT_REACH, RobustTempering
from density_regression.training.batches import TensorBatches, cache_features

__all__ = ["PROBES", "PROBES_AT_ONCE", "Hiding", "can_learn_reach", "choose_reach", "hide_rows", "probe_options"]

PROBES: Final = 4
"""Networks for which rows are hidden, each along another random direction of the features."""

HIDDEN_SHARE: Final = 1 / 8
"""Share of the rows hidden at either end of a direction."""

HELD_OUT_SHARE: Final = 1 / 5
"""Share of the other rows that a network holds out."""

FEWEST_ROWS: Final = 100
"""With fewer rows the reach is not learnt."""

SAMPLE_SHARE: Final = 1 / 8
SAMPLE_SIZE: Final = (800, 3000)
"""Share of the rows drawn to learn from, and their least and largest number."""

MOST_HELD_OUT: Final = 5000
"""Most held-out rows of the model that are evaluated."""

CALIBRATIONS: Final = 3
"""Iterations of the scale, whose prior depends on its last value."""

REACHES: Final = tuple(2.0**power for power in range(-3, 8))
DETAILS: Final = (0.5, 0.75, 1.0)
"""The grid of reaches, and of shares of the log-precision that are kept."""

PRIOR: Final = (DEFAULT_REACH, 0.5)
PRIOR_STRENGTH: Final = (20.0, 10.0)
"""Centre of the prior on reach and detail, and its strength: nats for a factor of two, four times as many for four."""

PROBE_STEPS: Final = 200
PROBE_EPOCHS: Final = 50
PROBE_PATIENCE: Final = 50
PROBE_BATCH_SIZE: Final = 128
PROBES_AT_ONCE: Final = 40
"""How probes are trained: about so many steps, but no more than so many epochs; and so many networks at once."""

Rows = tuple[Tensor, Tensor, Tensor]
"""Inputs (n, c), targets (n, k) and weights (n,)."""


class Hiding(NamedTuple):
    """Rows for a network to train on and to hold out, and rows that lie outside them."""

    train: Rows
    held_out: Rows
    hidden: Rows

    def batches(self, seed: int) -> tuple[TensorBatches, TensorBatches]:
        """Batches to train on, shuffled, and those to hold out."""
        train = TensorBatches(*self.train, PROBE_BATCH_SIZE, torch.Generator().manual_seed(seed))
        return train, TensorBatches(*self.held_out, len(self.held_out[0]))


def probe_options(options: TrainingOptions, rows: int) -> TrainingOptions:
    """Options for probes with so many training rows: few epochs, as a rough answer will do."""
    patience = PROBE_PATIENCE if options.patience is None else min(options.patience, PROBE_PATIENCE)
    steps = math.ceil(rows / PROBE_BATCH_SIZE)
    return replace(options, epochs=min(options.epochs, PROBE_EPOCHS, math.ceil(PROBE_STEPS / steps)), patience=patience)


def can_learn_reach(model: DensityRegression, rows: int) -> bool:
    """Whether a model has a reach to learn, and enough rows to learn it from; where networks disagree it is fixed."""
    tempering = model.tempering
    auto = isinstance(tempering, RobustTempering) and tempering.reach == "auto"
    return auto and model.density is not None and rows >= FEWEST_ROWS and not model.head.disagreement


@torch.no_grad()
def hide_rows(model: DensityRegression, train: Rows, held_out: Rows, count: int, seed: int) -> list[Hiding]:
    """Hide the rows at both ends of `count` random directions of the whitened features, each time others."""
    generator = torch.Generator().manual_seed(seed)
    # Without rows of its own, `held_out` is `train` again.
    rows = train if held_out[0] is train[0] else _joined(train, held_out)
    fewest, most = SAMPLE_SIZE
    size = min(max(int(SAMPLE_SHARE * len(rows[0])), fewest), most)
    rows = _take(rows, torch.randperm(len(rows[0]), generator=generator)[:size])
    assert model.density is not None
    z = model.encode(rows[0].to(next(model.parameters()).device))
    whitened = model.density.whitening(z)[0].cpu()
    aside = int(HIDDEN_SHARE * len(whitened))
    hidings = []
    for _ in range(count):
        direction = torch.randn(whitened.shape[1], generator=generator)
        order = (whitened @ direction).argsort(stable=True)
        ends, middle = torch.cat([order[:aside], order[-aside:]]), order[aside:-aside]
        middle = middle[torch.randperm(len(middle), generator=generator)]
        held = int(HELD_OUT_SHARE * len(middle))
        hidings.append(Hiding(_take(rows, middle[held:]), _take(rows, middle[:held]), _take(rows, ends)))
    return hidings


def choose_reach(
    model: DensityRegression, held_out: Rows, probes: Sequence[DensityRegression], hidings: Sequence[Hiding]
) -> None:
    """Give a model the reach and detail of the lowest loss on hidden rows and on its own held-out rows.

    Of the probes, which were trained without the hidden rows, the half with the larger losses counts. The model's
    held-out rows count as much, so that a choice that suits rows outside does not spoil the fit inside. A prior keeps
    both near their defaults where rows are few.
    """
    rows = len(held_out[0])
    some = _take(held_out, torch.arange(0, rows, math.ceil(rows / MOST_HELD_OUT)))
    inside = _Evaluation(model, some, some)
    outside = [_Evaluation(probe, part.held_out, part.hidden) for probe, part in zip(probes, hidings, strict=True)]
    counts = (sum(len(part.hidden[0]) for part in hidings), len(some[0]))

    def best(choices: Sequence[tuple[float, float]]) -> tuple[float, float]:
        reaches, details = zip(*choices, strict=True)
        every = [part.losses(reaches, details) for part in (inside, *outside)]
        losses = []
        for choice, mine, *others in zip(choices, *every, strict=True):
            penalty = sum(
                strength / count * math.log2(value / center) ** 2
                for value, center, strength, count in zip(choice, PRIOR, PRIOR_STRENGTH, counts, strict=True)
            )
            harder = sorted(others)[len(others) // 2 :]
            losses.append(mine + sum(harder) / len(harder) + penalty)
        return choices[losses.index(min(losses))]

    reach, detail = best(list(product(REACHES, DETAILS)))
    reach, detail = best([(reach * step, detail) for step in (1.0, 0.5**0.5, 2.0**0.5)])
    _Evaluation(model, held_out, some).apply(reach, detail)


class _Evaluation:
    """Losses of a model on some rows under any reach and detail, its scale calibrated on rows that it held out."""

    @torch.no_grad()
    def __init__(self, model: DensityRegression, held_out: Rows, evaluated: Rows) -> None:
        self.model = model
        assert model.density is not None
        self.parts: list[tuple[Features, Tensor]] = []
        for rows in (held_out, evaluated):
            features = cache_features(model, TensorBatches(*rows, len(rows[0])))
            self.parts.append((features, model.density(features.z)))

    @torch.no_grad()
    def losses(self, reaches: Sequence[float], details: Sequence[float]) -> list[float]:
        """Mean negative log-likelihood with each reach and its detail; the model stays as it is."""
        tempering, head = copy.deepcopy(self.model.tempering), copy.deepcopy(self.model.head)
        assert isinstance(tempering, RobustTempering)
        (held_out, held_density), (evaluated, density) = self.parts
        head.shrink_log_precision(1.0, held_out.z, held_out.weight)
        # One more axis before the others: (choices, rows, targets).
        detail = torch.tensor(details).to(density)[:, None, None]
        tempering.learnt_reach = torch.tensor(reaches).to(density)[:, None]

        def moments(features: Features, log_density: Tensor) -> Moments:
            mean, log_std = head(features.z)
            # By how much s lies below its level: the share of it that is not kept is added to the log-precision.
            below = head.level + 2.0 * log_std + head.offset + math.log(2)
            return Moments(mean, log_std - 0.5 * ((1.0 - detail) * below + tempering(log_density)[..., None]))

        before = moments(held_out, held_density)
        scale: Tensor | float = 0.0
        for _ in range(CALIBRATIONS):
            scale = squared_error_scale(before, held_out.y, held_out.weight, scale)
        mean, log_std = moments(evaluated, density)
        losses = gaussian_losses(Moments(mean, log_std + 0.5 * scale), evaluated.y)
        found = weighted_mean(losses, evaluated.weight.expand_as(losses))
        return [loss if math.isfinite(loss) else math.inf for loss in found.tolist()]

    @torch.no_grad()
    def apply(self, reach: float, detail: float) -> None:
        """Give the model this reach and detail, calibrated."""
        tempering, head = self.model.tempering, self.model.head
        assert isinstance(tempering, RobustTempering)
        tempering.set_reach(reach)
        held_out, held_density = self.parts[0]
        head.shrink_log_precision(detail, held_out.z, held_out.weight)
        for _ in range(CALIBRATIONS):
            head.calibrate(held_out.z, held_out.y, tempering(held_density), held_out.weight)


def _take(rows: Rows, index: Tensor) -> Rows:
    x, y, weight = (part[index] for part in rows)
    return x, y, weight


def _joined(*several: Rows) -> Rows:
    x, y, weight = (torch.cat(parts) for parts in zip(*several, strict=True))
    return x, y, weight
