"""One network that learns from several: their mean, noise and disagreement, on training and made-up rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.nn.density.base import weighted_quantiles
from density_regression.nn.heads import Moments, gaussian_losses, weighted_mean
from density_regression.nn.runtime import TrainingOptions, device_of
from density_regression.training.batches import TensorBatches
from density_regression.training.loop import Losses, optimise
from density_regression.training.state import inside
from density_regression.training.teacher import EPOCH_SHARE, MOST_ROWS, Lesson, Teacher, part_of

if TYPE_CHECKING:
    from density_regression.nn.model import DensityRegression
    from density_regression.training.checkpoints import Unfinished
    from density_regression.training.progress import Monitor

__all__ = ["Lessons", "distil", "epoch_share", "lesson_losses", "made_up_rows", "ratio_losses"]

LIKELIHOOD_WEIGHT: Final = 0.3
"""Weight of the likelihood of the targets beside the lesson."""

NOISE_WEIGHT: Final = 0.5
RATIO_WEIGHT: Final = 0.3
"""Weights of the noise alone and of log r alone beside mean and total variance."""

STEEPEST: Final = 2.0
"""Gap of log r up to which its loss grows like an exponential; beyond it linearly, as a teacher may differ by more."""

BOUNDS: Final = (0.02, 0.999)
"""Quantiles of log r to which it is bounded: the lower one on training rows, the upper one on all."""

EXTRAPOLATED: Final = 0.5
"""How far beyond either of two rows a mixture of them may lie, relative to their distance."""

JITTER: Final = 0.5
"""Median standard deviation of the noise that is added to some columns of made-up rows."""

COPIES: Final = 4
MOST_MADE_UP: Final = 80_000
"""Made-up rows for each training row, and most of them in all."""

MOST_AT_ONCE: Final = 20_000
"""Most made-up rows in an epoch: as many as there are training rows, up to this."""


def distil(
    model: DensityRegression,
    teacher: Teacher,
    train: TensorBatches,
    held_out: TensorBatches | None,
    options: TrainingOptions,
    progress: Monitor | None = None,
    unfinished: Unfinished | None = None,
) -> Losses:
    """Step 1 with a teacher: encoder and head learn what it says of training rows and of made-up ones.

    The loss is the divergence from the teacher's Gaussian to the network's, with a share for the noise alone and one
    for the likelihood of the targets. The last weights are kept: the teacher is smooth enough not to be overfitted,
    and held-out rows that choose nothing tell the scale of the variance better.
    """
    model.head.reset()
    lessons = Lessons(teacher, train, options.seed, device_of(options))
    model.head.bound_ratio(*lessons.bounds)
    (losses,) = optimise(
        _LessonLoss(model),
        lessons,
        held_out,
        part_of(options, epoch_share(len(train.rows[0]))),
        progress,
        name="1/3 network",
        keep_last=True,
        unfinished=unfinished,
    )
    model.eval()
    return losses


def epoch_share(rows: int) -> float:
    """Share of a fit's epochs in which the network learns: all that the teacher leaves, but fewer of many rows."""
    return max(EPOCH_SHARE, (1.0 - EPOCH_SHARE) * min(1.0, MOST_ROWS / rows))


class Lessons:
    """Batches of training rows and made-up ones, with what the teacher says of them.

    A batch is (x, y, weight): x (n, c); y (n, 4 k + 1) has the targets, the parts of the `Lesson` and the weight of
    the targets, 0 for made-up rows; weight (n,).
    """

    def __init__(self, teacher: Teacher, train: TensorBatches, seed: int, device: torch.device) -> None:
        x, y, weight = (part.to(device) for part in train.rows)
        if not (weight > 0).all():
            # A row without weight is as good as none.
            x, y, weight = (part[weight > 0] for part in (x, y, weight))
        generator = torch.Generator().manual_seed(seed)
        made_up = made_up_rows(x, min(COPIES * len(x), MOST_MADE_UP), generator)
        lessons = teacher.lesson(x), teacher.lesson(made_up)
        low, high = BOUNDS
        ratio = torch.cat([lesson.log_ratio for lesson in lessons])
        self.bounds = weighted_quantiles(lessons[0].log_ratio, [low])[0], weighted_quantiles(ratio, [high])[0]
        # Of mean one, so that made-up rows, of weight one, count as much.
        weight = weight / weight.mean()
        known = torch.cat([y, *lessons[0], weight[:, None]], 1)
        unknown = torch.cat([torch.zeros_like(lessons[1].mean), *lessons[1], weight.new_zeros(len(made_up), 1)], 1)
        self._known = TensorBatches(x, known, weight, train.batch_size, generator)
        size = math.ceil(min(len(x), MOST_AT_ONCE) / len(self._known))
        self._made_up = TensorBatches(made_up, unknown, weight.new_ones(len(made_up)), size, generator)
        self._more: Iterator[tuple[Tensor, ...]] = iter(())

    @property
    def rows(self) -> tuple[Tensor, Tensor]:
        """Inputs and lessons (n, 4 k + 1) of the training rows and, after them, of the made-up ones."""
        x, y, _ = (torch.cat(parts) for parts in zip(self._known.rows, self._made_up.rows, strict=True))
        return x, y

    def __len__(self) -> int:
        return len(self._known)

    def position(self) -> dict[str, Tensor]:
        """Positions of the training rows and of the made-up ones, which are shuffled anew at other times."""
        parts = {"known": self._known, "made_up": self._made_up}
        return {f"{part}/{name}": value for part, of in parts.items() for name, value in of.position().items()}

    def seek(self, position: dict[str, Tensor]) -> None:
        """Go to a position."""
        self._known.seek(inside(position, "known"))
        self._made_up.seek(inside(position, "made_up"))
        self._more = iter(self._made_up)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self._known:
            made_up = next(self._more, None)
            if made_up is None:
                self._more = iter(self._made_up)
                made_up = next(self._more)
            yield tuple(torch.cat(parts) for parts in zip(batch, made_up, strict=True))


class _LessonLoss(nn.Module):
    """The loss of `distil`; of held-out rows, which have targets alone, the likelihood."""

    def __init__(self, model: DensityRegression) -> None:
        super().__init__()
        self.model = model

    def divisor(self, y: Tensor, weight: Tensor) -> Tensor:
        """What the sum of the losses is divided by in training; in evaluation it is the weight."""
        # By the number of training rows: a batch of heavy ones counts for more, and made-up rows come on top.
        return (y[:, -1] > 0).sum().clamp_min(1) if self.training else weight.sum()

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        head = self.model.head
        if not self.training:
            rows = self.model.flat(x, y, weight)
            return weighted_mean(gaussian_losses(head.unbounded(rows.z), rows.y), rows.weight)
        k = self.model.targets
        target, *lesson, of_targets = y.split([k, k, k, k, 1], dim=1)
        mean, log_noise, log_ratio = head.taught(self.model.encode(x))
        assert log_ratio is not None
        log_total = log_noise + F.softplus(log_ratio)
        losses = lesson_losses(Lesson(mean, log_noise, log_ratio), Lesson(*lesson))
        known = gaussian_losses(Moments(mean, 0.5 * log_total), target)
        loss: Tensor = (losses * weight).sum() + LIKELIHOOD_WEIGHT * (known * of_targets[:, 0]).sum()
        return loss / self.divisor(y, weight)


def lesson_losses(learnt: Lesson, taught: Lesson) -> Tensor:
    """Losses (n,) of a network against its teacher, in nats, averaged over targets; 0 if they agree.

    The Kullback-Leibler divergence between the Gaussians with the noise and the disagreement, half of that between two
    of equal mean with the noise alone, and a share of that between two of equal mean with the disagreement alone.
    """
    log_total, own_total = (part.log_noise + F.softplus(part.log_ratio) for part in (taught, learnt))
    squared = (taught.mean - learnt.mean).square() * torch.exp(-own_total)
    both = _divergence(log_total - own_total) + 0.5 * squared
    alone = NOISE_WEIGHT * _divergence(taught.log_noise - learnt.log_noise)
    return (both + alone).mean(-1) + ratio_losses(learnt.log_ratio, taught.log_ratio)


def ratio_losses(learnt: Tensor, taught: Tensor) -> Tensor:
    """The share of `lesson_losses` (n,) for the disagreement alone, from log r (n, k)."""
    ratio = taught - learnt
    beyond = 0.5 * math.expm1(STEEPEST) * (ratio - STEEPEST).clamp_min(0.0)
    return RATIO_WEIGHT * (_divergence(ratio.clamp_max(STEEPEST)) + beyond).mean(-1)


def _divergence(log_ratio: Tensor) -> Tensor:
    """Kullback-Leibler divergence of Gaussians of equal mean, by the log of the ratio of their variances."""
    return 0.5 * (torch.expm1(log_ratio) - log_ratio)


def made_up_rows(x: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Rows between and around those of a table, (number, c), as inputs to ask a teacher about.

    Each is a row moved towards another one or away from it, by up to 1.5 times or half of their distance; then some of
    its columns, few or many, get noise of one size, small or large.
    """

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator).to(x)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(x)

    one, other = (x[torch.randint(len(x), (number,), generator=generator).to(x.device)] for _ in range(2))
    share = (1.0 + 2.0 * EXTRAPOLATED) * uniform(number, 1) - EXTRAPOLATED
    rows = torch.lerp(one, other, share)
    moved = uniform(*rows.shape) < uniform(number, 1).square()
    size = JITTER * torch.exp(normal(number, 1))
    return rows + moved * size * normal(*rows.shape)
