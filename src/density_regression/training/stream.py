"""Step 1 over all rows of a table on disk, by a network that has learnt from a sample of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.io.progress import RowProgress
from density_regression.nn.heads import Moments, gaussian_losses, weighted_mean
from density_regression.nn.runtime import TrainingOptions, device_of
from density_regression.tabular.stream import StreamBatches
from density_regression.training.batches import Batches, TensorBatches
from density_regression.training.distillation import Lessons, lesson_losses, ratio_losses
from density_regression.training.loop import Losses, optimise
from density_regression.training.teacher import Lesson, Teacher

if TYPE_CHECKING:
    from density_regression.nn.model import DensityRegression
    from density_regression.training.checkpoints import Unfinished
    from density_regression.training.progress import Monitor

__all__ = ["go_on", "passes"]

FEWEST_ROWS: Final = 20_000_000
"""Rows to train on in all: of a smaller table there are several passes."""

REMINDED: Final = 16
"""One row of a lesson for so many rows of a batch."""

LESSON_ROWS: Final = 10_000
"""Rows of the sample that the teacher is asked about, and four times as many made-up ones."""

LESSON_WEIGHT: Final = 1.6
"""Weight of a row of a lesson beside a row."""


def passes(rows: int, options: TrainingOptions) -> int:
    """Passes over so many rows; no more than `options.epochs`."""
    return min(max(round(FEWEST_ROWS / rows), 1), options.epochs)


def go_on(
    model: DensityRegression,
    teacher: Teacher | None,
    sample: Batches,
    held_out: Batches | None,
    rows: StreamBatches,
    options: TrainingOptions,
    progress: Monitor | None = None,
    unfinished: Unfinished | None = None,
) -> Losses:
    """Train a model that has learnt from a sample on all rows, by the likelihood of their targets.

    What a teacher said of the sample and of made-up rows is repeated with every batch, so that it is not forgotten: of
    rows of the sample the disagreement alone, as the other rows tell mean and noise better. The last weights are kept.
    """
    device = device_of(options)
    batches: StreamBatches | _Reminded = rows
    if teacher is not None:
        assert isinstance(sample, TensorBatches)
        batches = _Reminded(
            rows, *Lessons(teacher, sample.sample(LESSON_ROWS), options.seed, device).rows, options.seed
        )
    options = replace(options, epochs=passes(rows.rows, options), smoothness=0.0)
    with ExitStack() as stack:
        tell = None
        if progress is not None:
            from density_regression.training.progress import Monitor

            tell = Monitor(False, progress.callbacks, "stream")
            stack.enter_context(progress.paused())
            bar = RowProgress("1/3 all rows", options.epochs * rows.rows, progress.shown)
            rows.on_rows = stack.enter_context(bar).advance
        (losses,) = optimise(
            _StreamLoss(model), batches, held_out, options, tell, name="stream", keep_last=True, unfinished=unfinished
        )
    model.eval()
    return losses


class _Reminded:
    """Batches with some rows of a lesson at the end of each: y (n, 4 k + 1) as in `Lessons`.

    The last column is -1 for rows without a lesson. Which rows of the lesson a batch has depends on its number alone.
    """

    def __init__(self, batches: StreamBatches, x: Tensor, y: Tensor, seed: int) -> None:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device)
        self.each = max(min(batches.batch_size // REMINDED, len(x)), 1)
        self._batches = batches
        self._different = len(x)
        # The first rows once more, so that no batch needs rows from both ends.
        order = torch.cat([order, order[: self.each]])
        self._x, self._y = x[order].cpu(), y[order].cpu()

    def __len__(self) -> int:
        return len(self._batches)

    def position(self) -> dict[str, Tensor]:
        """See `StreamBatches`."""
        return self._batches.position()

    def seek(self, position: dict[str, Tensor]) -> None:
        """See `StreamBatches`."""
        self._batches.seek(position)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for x, y, weight in self._batches:
            epoch, batch = self._batches.position().values()
            start = int(epoch * len(self) + batch) * self.each % self._different
            own = slice(start, start + self.each)
            lessons = self._y[own]
            rows = F.pad(y, (0, lessons.shape[1] - y.shape[1]), value=-1.0)
            each = torch.cat([weight, weight.new_ones(self.each)])
            yield torch.cat([x, self._x[own]]), torch.cat([rows, lessons]), each


class _StreamLoss(nn.Module):
    """The mean loss of rows and lessons; of rows alone, as those held out are, the likelihood."""

    def __init__(self, model: DensityRegression) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        head, k = self.model.head, self.model.targets
        if y.shape[1] == k:
            rows = self.model.flat(x, y, weight)
            return weighted_mean(gaussian_losses(head.unbounded(rows.z), rows.y), rows.weight)
        mean, log_noise, log_ratio = head.taught(self.model.encode(x))
        assert log_ratio is not None
        target, *taught, kind = y.split([k, k, k, k, 1], dim=1)
        learnt, lesson, kind = Lesson(mean, log_noise, log_ratio), Lesson(*taught), kind[:, 0]
        likelihood = gaussian_losses(Moments(mean, 0.5 * (log_noise + F.softplus(log_ratio))), target)
        known = ratio_losses(learnt.log_ratio, lesson.log_ratio)
        of_lessons = LESSON_WEIGHT * torch.where(kind > 0, known, lesson_losses(learnt, lesson))
        return weighted_mean(torch.where(kind < 0, likelihood, of_lessons), weight)
