"""Scaling of targets: mean and standard deviation learnt from batches, and batches scaled by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import torch
from torch import Tensor

from density_regression.nn.network import Network, Predictor, position_weights
from density_regression.nn.runtime import own_draws
from density_regression.training.batches import (
    Batches,
    ScaledTargets,
    TensorBatches,
    kept_shuffles,
    on_device,
    refuse_missing,
)

__all__ = ["learn_target_scale", "with_scaled_targets"]

MOST_TARGETS: Final = 2**22
"""Target values after which no more batches are read."""

CONSTANT_SCALE: Final = 1e-6
"""Scale of constant targets, relative to their size."""

TARGET_LIMIT: Final = 1e37
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

    Reads the first `MOST_TARGETS` targets, and leaves the batches' shuffles as they were.
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
                _try_on(network, x, y, weight)
            if network is not None:
                refuse_missing(network, x, weight)
            rows, weight = Network.rows(y).double().cpu(), position_weights(weight, y).double().cpu()
            rows, weight = rows[weight > 0], weight[weight > 0]
            if not rows.isfinite().all():
                raise ValueError("Targets are NaN or infinite. Give rows and positions without a target a weight of 0.")
            if len(rows):
                found = _Moments.of(rows, weight)
                known = found if known is None else known.merged(found)
            seen += y.numel()
            if seen >= MOST_TARGETS:
                break
    if known is not None:
        model.scale_targets(*_scale(known))


def _try_on(network: Network, x: Tensor, y: Tensor, weight: Tensor) -> None:
    """Raise a ValueError if the encoder cannot read a batch, or features or targets are of another shape."""
    training = network.encoder.training
    network.encoder.eval()
    try:
        network.flat(x, y, weight)
    except RuntimeError as error:
        shape = tuple(x.shape)
        raise ValueError(f"The encoder does not take inputs of shape {shape} and type {x.dtype}: {error}") from error
    finally:
        network.encoder.train(training)


def _scale(known: _Moments) -> tuple[Tensor, Tensor]:
    """Centre and scale (k,), from moments in float64."""
    center, deviation = known.mean, (known.squares / known.weight).sqrt()
    size = center.abs() + deviation
    if not (size < TARGET_LIMIT).all():
        raise ValueError(
            f"Targets are about {size.max().item():.0e} in size, but networks answer in float32: give them in a "
            f"larger unit, so that they stay below {TARGET_LIMIT:.0e}."
        )
    constant = deviation <= 10 * torch.finfo(torch.float64).eps * size
    scale = torch.where(constant, CONSTANT_SCALE * size.clamp_min(1.0), deviation)
    return center, scale.clamp_min(1.0 / TARGET_LIMIT)


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
