"""The teacher: several networks that share their weight matrices, from which the one network learns."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.nn.density.base import bound_features
from density_regression.nn.encoders import PiecewiseEmbedding, plain_layers
from density_regression.nn.heads import ADDED_RATIO, S_LIMIT, Moments, gaussian_losses, weighted_mean
from density_regression.nn.runtime import TrainingOptions, device_of
from density_regression.training.batches import TensorBatches
from density_regression.training.loop import optimise

if TYPE_CHECKING:
    from density_regression.nn.model import DensityRegression
    from density_regression.training.checkpoints import Unfinished
    from density_regression.training.progress import Monitor

__all__ = ["EPOCH_SHARE", "Lesson", "Teacher", "block_weights", "part_of", "student_t_losses", "teach"]

EPOCH_SHARE: Final = 1 / 4
"""Share of a fit's epochs in which the teacher is trained."""

FEWEST_EPOCHS: Final = 12
"""Of either, unless the fit has fewer in all."""

FREEDOM: Final = 8.0
"""Degrees of freedom of the law by which held-out rows choose the teacher's epoch: one odd row shall not decide."""

MOST_ROWS: Final = 50_000
"""Most rows of a table that the teacher is trained on, drawn at random; of more, the network has fewer epochs."""

ROWS_AT_ONCE: Final = 8192
"""Rows of which the teacher is asked at a time."""

BLOCK_ROWS: Final = 16
FEWEST_BLOCKS: Final = 50
"""Rows of a block, on average: neighbours to which a member gives the same weight. And fewest blocks, of fewer rows."""


class Lesson(NamedTuple):
    """What the teacher says of rows: mean, log variance of the noise, and log r, each (n, k).

    The mean is that of the members' means, the noise the mean of their variances, and r the variance of their means
    relative to the noise, plus `ADDED_RATIO`.
    """

    mean: Tensor
    log_noise: Tensor
    log_ratio: Tensor


class Teacher(nn.Module):
    """Members that share their weight matrices (Wen et al., 2020; Gorishniy et al., 2025).

    Member i computes relu((x * r_i) W * s_i + b_i) in each layer, with W shared. The r of the first layer begin as
    random signs, all others and all s as ones; biases and heads are each member's own.

    Parameters
    ----------
    widths : sequence of int
        Columns that the first layer reads, and width of each layer.
    members, targets : int
        Number of members, and of targets.
    embedding : PiecewiseEmbedding, optional
        Of the inputs, in front of the first layer.
    generator : torch.Generator
        Source of the first weights, on the CPU.

    Examples
    --------
    >>> import torch
    >>> teacher = Teacher([3, 20, 20], members=4, generator=torch.Generator().manual_seed(0))
    >>> teacher(torch.zeros(7, 3)).mean.shape
    torch.Size([4, 7, 1])
    """

    def __init__(
        self,
        widths: Sequence[int],
        members: int,
        targets: int = 1,
        *,
        embedding: PiecewiseEmbedding | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.members = members
        self.embedding = copy.deepcopy(embedding)
        sizes = list(pairwise(widths))
        self.layers = nn.ModuleList(
            _SharedLinear(*size, members, signs=first == 0, generator=generator) for first, size in enumerate(sizes)
        )
        bound = 1.0 / math.sqrt(widths[-1])
        weight = torch.empty(members, widths[-1], 2 * targets).uniform_(-bound, bound, generator=generator)
        weight[..., targets:] = 0.0
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(members, 1, 2 * targets))

    @classmethod
    def of(cls, model: DensityRegression, members: int, seed: int) -> Teacher:
        """A teacher whose members have the layers of a model's plain network."""
        embedding, linear = plain_layers(model.encoder)
        widths = [linear[0].in_features, *(layer.out_features for layer in linear)]
        generator = torch.Generator().manual_seed(seed)
        teacher = cls(widths, members, model.targets, embedding=embedding, generator=generator)
        return teacher.to(linear[0].weight.dtype)

    def forward(self, x: Tensor) -> Moments:
        """Moments (M, n, k) of each member at inputs (n, c), or (M, n, c) with rows of its own for each."""
        z = x if self.embedding is None else self.embedding(x)
        z = z.expand(self.members, *z.shape) if z.ndim == 2 else z
        for layer in self.layers:
            z = torch.relu_(layer(z))
        output = torch.baddbmm(self.bias, bound_features(z), self.weight).to(self.weight.dtype)
        mean, log_var = output.chunk(2, dim=-1)
        return Moments(mean, 0.5 * log_var.clamp(-S_LIMIT, S_LIMIT))

    @torch.no_grad()
    def lesson(self, x: Tensor) -> Lesson:
        """What the members say together of rows (n, c)."""
        parts = [_together(self(rows)) for rows in x.split(ROWS_AT_ONCE)]
        return Lesson(*(torch.cat(part) for part in zip(*parts, strict=True)))


class _SharedLinear(nn.Module):
    """M linear layers with one weight matrix, each with its own factors of inputs and outputs, and bias."""

    def __init__(self, inputs: int, outputs: int, members: int, *, signs: bool, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound, generator=generator))
        drawn = 2.0 * torch.randint(2, (members, inputs, 1), generator=generator) - 1.0
        self.of_inputs = nn.Parameter(drawn if signs else torch.ones(members, inputs, 1))
        self.of_outputs = nn.Parameter(torch.ones(members, 1, outputs))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        # The members' own matrices are small beside their features.
        return torch.baddbmm(self.bias, x, self.of_inputs * self.weight * self.of_outputs)


class _TeacherLoss(nn.Module):
    """Mean of the members' losses; of held-out rows that of Student's t with the moments that they teach together.

    In training, y (M, b, k + M) has the weights that the members give to each row beside its targets.
    """

    def __init__(self, teacher: Teacher) -> None:
        super().__init__()
        self.teacher = teacher

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        moments = self.teacher(x)
        if self.training:
            y, drawn = y.tensor_split([moments.mean.shape[-1]], dim=-1)
            losses = gaussian_losses(moments, y) * drawn.diagonal(dim1=0, dim2=2).T
            # All at once: a member whose batch is heavy counts for more in this step. The weights that were drawn have
            # mean one: to divide by those of a small batch would count its heavy rows for less.
            return weighted_mean(losses.flatten(), weight.flatten())
        mean, log_noise, log_ratio = _together(moments)
        log_std = 0.5 * (log_noise + F.softplus(log_ratio))
        return weighted_mean(student_t_losses(Moments(mean, log_std), y, FREEDOM), weight)


def teach(
    model: DensityRegression,
    train: TensorBatches,
    held_out: TensorBatches | None,
    members: int,
    options: TrainingOptions,
    progress: Monitor | None = None,
    unfinished: Unfinished | None = None,
) -> Teacher:
    """Train a teacher for a model: each member on its own order and weights of the rows, by its own likelihood."""
    teacher = Teacher.of(model, members, options.seed).to(device_of(options))
    x, y, weight = train.sample(MOST_ROWS).rows
    shuffles = [torch.Generator().manual_seed(options.seed + i) for i in range(members)]
    drawn = torch.stack([block_weights(x, torch.Generator().manual_seed(options.seed + i)) for i in range(members)], 1)
    own = TensorBatches(x, torch.cat([y, drawn.to(y)], 1), weight, train.batch_size, shuffles)
    if progress is not None:
        progress.name, name = "teach", progress.name
    loss = _TeacherLoss(teacher)
    optimise(loss, own, held_out, part_of(options, EPOCH_SHARE), progress, name="1/3 teacher", unfinished=unfinished)
    if progress is not None:
        progress.name = name
    return teacher.eval()


def block_weights(x: Tensor, generator: torch.Generator) -> Tensor:
    """Weights (n,) of rows (n, c) for one member: a Bayesian bootstrap (Rubin, 1981) of blocks of neighbours.

    The members then differ by as much as the rows leave open. Single rows would not do: where rows have near copies,
    every member would still know all of them. A block has the rows nearest to one of a few, drawn at random; its weight
    is drawn from the exponential distribution.
    """
    blocks = max(math.ceil(len(x) / BLOCK_ROWS), FEWEST_BLOCKS)
    centres = x[torch.randperm(len(x), generator=generator)[:blocks].to(x.device)]
    block = torch.cat([torch.cdist(rows, centres).argmin(1) for rows in x.split(ROWS_AT_ONCE)])
    return torch.empty(len(centres)).exponential_(generator=generator).to(x)[block]


def student_t_losses(moments: Moments, y: Tensor, freedom: float) -> Tensor:
    """Negative log-likelihood (n,) of targets `y` (n, k) under Student's t of these moments, averaged over targets."""
    squared = ((y - moments.mean) * torch.exp(-moments.log_std)).square() / (freedom - 2.0)
    constant = math.lgamma(0.5 * freedom) - math.lgamma(0.5 * (freedom + 1.0)) + 0.5 * math.log(math.pi * (freedom - 2))
    return (moments.log_std + 0.5 * (freedom + 1.0) * torch.log1p(squared) + constant).mean(-1)


def part_of(options: TrainingOptions, share: float) -> TrainingOptions:
    """Options for the teacher, or for the network that learns from it, with this share of the epochs."""
    epochs = max(math.ceil(share * options.epochs), min(options.epochs, FEWEST_EPOCHS))
    return replace(options, epochs=epochs, smoothness=0.0)


def _together(moments: Moments) -> Lesson:
    """Mean, noise and disagreement of members (M, n, k)."""
    means, log_stds = moments
    log_noise = (2.0 * log_stds).logsumexp(0) - math.log(len(log_stds))
    disagreement = means.var(0, correction=1 if len(means) > 1 else 0)
    return Lesson(means.mean(0), log_noise, (disagreement * torch.exp(-log_noise) + ADDED_RATIO).log())
