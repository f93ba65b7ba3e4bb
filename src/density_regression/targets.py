"""Scaling of targets: mean and standard deviation learnt from batches, and batches scaled by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import torch
from torch import Tensor

from density_regression.batches import Batches, ScaledTargets, TensorBatches, kept_shuffles, on_device
from density_regression.loop import own_draws
from density_regression.network import Network, Predictor, position_weights

__all__ = ["learn_target_scale", "with_scaled_targets"]

MOST_VALUES: Final = 2**22
"""Target values after which no more batches are read: so many tell mean and standard deviation."""

OF_CONSTANT: Final = 1e-6
"""Scale of targets that never vary, relative to their size: what a network gets wrong about them must stay small."""

LARGEST: Final = 1e37
"""Largest target that a network can answer with, in float32."""


class _Moments(NamedTuple):
    """Weight of rows (), their mean (k,), and the weighted sum of squares about it (k,), in float64."""

    weight: Tensor
    mean: Tensor
    squares: Tensor

    @classmethod
    def of(cls, rows: Tensor, weight: Tensor) -> _Moments:
        """Those of rows (n, k) with weights (n,)."""
        total = weight.sum()
        mean = weight @ rows / total
        return cls(total, mean, weight @ (rows - mean).square())

    def merged(self, other: _Moments) -> _Moments:
        """Those of the rows of both (Chan et al., 1983)."""
        weight = self.weight + other.weight
        share, apart = other.weight / weight, other.mean - self.mean
        squares = self.squares + other.squares + apart.square() * self.weight * share
        return _Moments(weight, self.mean + apart * share, squares)


@torch.no_grad()
def learn_target_scale(model: Predictor, batches: Batches, seed: int) -> None:
    """Learn mean and standard deviation (k,) of the targets, by weight; a first batch tries the model.

    Reads the batches once, or the first `MOST_VALUES` targets of them, and leaves their shuffles as they were. What is
    random in a batch is drawn by the seed.

    Raises
    ------
    ValueError
        If the encoder cannot read a batch or returns another shape than the model expects, if targets are NaN, infinite
        or too large, or if inputs are NaN and the encoder does not mask them.
    """
    if isinstance(batches, Iterator):
        raise ValueError(
            "The batches come only once, and their targets are looked at first: give a list or a DataLoader, or "
            "targets of about unit scale with scale_targets=False."
        )
    if isinstance(batches, TensorBatches):
        # As they lie in memory: shuffled, there may be a batch for each member of an ensemble.
        batches = TensorBatches(*batches.rows, batches.batch_size)
    known: _Moments | None = None
    seen = 0
    network = next((part for part in model.modules() if isinstance(part, Network)), None)
    with own_draws(), kept_shuffles(batches):
        torch.manual_seed(seed)
        for batch in batches:
            x, y, weight = on_device(batch, next(model.parameters()).device)
            if network is not None and not seen and len(x):
                network.try_on(x, y, weight)
            if network is not None:
                network.refuse_missing(x, weight)
            rows, weight = Network.rows(y).double().cpu(), position_weights(weight, y).double().cpu()
            rows, weight = rows[weight > 0], weight[weight > 0]
            if not rows.isfinite().all():
                raise ValueError("Targets are NaN or infinite. Give rows and positions without a target a weight of 0.")
            if len(rows):
                found = _Moments.of(rows, weight)
                known = found if known is None else known.merged(found)
            seen += y.numel()
            if seen >= MOST_VALUES:
                break
    if known is not None:
        model.scale_targets(*_scale(known))


def _scale(known: _Moments) -> tuple[Tensor, Tensor]:
    """Centre and scale (k,), from moments in float64."""
    center, deviation = known.mean, (known.squares / known.weight).sqrt()
    size = center.abs() + deviation
    if not (size < LARGEST).all():
        raise ValueError(
            f"Targets are about {size.max().item():.0e} in size, but networks answer in float32: give them in a "
            f"larger unit, so that they stay below {LARGEST:.0e}."
        )
    constant = deviation <= 10 * torch.finfo(torch.float64).eps * size
    scale = torch.where(constant, OF_CONSTANT * size.clamp_min(1.0), deviation)
    return center, scale.clamp_min(1.0 / LARGEST)


def with_scaled_targets(
    model: Predictor, train: Batches, *others: Batches | None
) -> tuple[Batches, list[Batches | None]]:
    """Batches with targets as the model has learnt to scale them, train and others; the same ones stay the same."""
    center, scale = model.target_center, model.target_scale
    if center is None or scale is None:
        return train, list(others)
    made = {
        id(batches): ScaledTargets.of(batches, center, scale) for batches in (train, *others) if batches is not None
    }
    return made[id(train)], [None if batches is None else made[id(batches)] for batches in others]
