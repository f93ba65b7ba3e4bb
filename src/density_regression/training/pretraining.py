"""Step 1: encoder and head by maximum likelihood, or from a teacher; then by all rows of a table on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from density_regression.nn.processes import Processes
from density_regression.nn.runtime import TrainingOptions, device_of
from density_regression.training.batches import Batches, TensorBatches
from density_regression.training.distillation import distil
from density_regression.training.loop import Losses, optimise
from density_regression.training.refit import mean_loss
from density_regression.training.teacher import Teacher, teach

if TYPE_CHECKING:
    from density_regression.nn.model import DensityRegression
    from density_regression.tabular.stream import StreamBatches
    from density_regression.training.checkpoints import Checkpoints, Unfinished
    from density_regression.training.progress import Monitor

__all__ = ["NegativeLogLikelihood", "first_step", "pretrain"]


def pretrain(
    model: DensityRegression,
    train: Batches,
    held_out: Batches | None,
    options: TrainingOptions,
    progress: Monitor | None = None,
    unfinished: Unfinished | None = None,
) -> Losses:
    """Step 1: encoder and head by maximum likelihood, without the density (`method:1st-optimization`)."""
    model.head.reset()
    loss = NegativeLogLikelihood(model)
    (losses,) = optimise(loss, train, held_out, options, progress, name="1/3 network", unfinished=unfinished)
    model.eval()
    return losses


def first_step(
    model: DensityRegression,
    train: Batches,
    held_out: Batches | None,
    members: int,
    rows: StreamBatches | None,
    options: TrainingOptions,
    progress: Monitor | None,
    checkpoints: Checkpoints | None,
    processes: Processes,
) -> Losses:
    """Step 1, by likelihood alone or by way of a teacher; then over all `rows`. The state after each part is kept."""
    teacher = _teacher(model, train, held_out, members, options, progress, checkpoints, processes)
    unfinished = checkpoints.within(1 if rows is None else "sample") if checkpoints else None
    losses = Losses([], [])
    if state := processes.from_first(lambda: checkpoints.of("sample") if checkpoints and rows is not None else {}):
        model.load_state_dict(state)
    elif teacher is None:
        losses = pretrain(model, train, held_out, options, progress, unfinished)
    else:
        assert isinstance(train, TensorBatches)
        assert isinstance(held_out, TensorBatches | None)
        losses = distil(model, teacher, train, held_out, options, progress, unfinished)
    if rows is None:
        return losses
    from density_regression.training.stream import go_on

    if checkpoints and not state:
        checkpoints.save("sample", model.state_dict())
    unfinished = checkpoints.within(1) if checkpoints else None
    more = go_on(model, teacher, train, held_out, rows, options, progress, unfinished)
    return Losses(losses.held_out + more.held_out, losses.train + more.train)


def _teacher(
    model: DensityRegression,
    train: Batches,
    held_out: Batches | None,
    members: int,
    options: TrainingOptions,
    progress: Monitor | None,
    checkpoints: Checkpoints | None,
    processes: Processes,
) -> Teacher | None:
    """The teacher of a model whose head has `disagreement`, trained or from its checkpoint; None of other models."""
    if not model.head.disagreement:
        if members:
            raise ValueError(f"members={members} teach a head with disagreement: build it so, or set members to 0.")
        return None
    if not (isinstance(train, TensorBatches) and isinstance(held_out, TensorBatches | None) and members > 0):
        raise ValueError("A head with disagreement needs members of at least 1, and train and held_out TensorBatches.")
    if state := processes.from_first(lambda: checkpoints.of("teacher") if checkpoints else {}):
        teacher = Teacher.of(model, members, options.seed).to(device_of(options)).eval()
        teacher.load_state_dict(state)
        return teacher
    unfinished = checkpoints.within("teacher") if checkpoints else None
    teacher = teach(model, train, held_out, members, options, progress, unfinished)
    if checkpoints:
        checkpoints.save("teacher", teacher.state_dict())
    return teacher


class NegativeLogLikelihood(nn.Module):
    """The loss of step 1."""

    def __init__(self, model: DensityRegression) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Mean loss of a batch."""
        rows = self.model.flat(x, y, weight)
        return mean_loss(self.model.head.unbounded(rows.z), rows)
