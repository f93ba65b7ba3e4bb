"""Laws of a target: Normal, or log-normal for a positive one, whose logarithm is then Normal."""

from __future__ import annotations

from typing import Final, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from density_regression.tabular.table import Floats

__all__ = ["LAWS", "LOG_RANGE", "Law", "candidate_laws", "from_law", "log_normal_moments", "to_law"]

Law = Literal["identity", "log"]
"""What the Normal is of: the target itself, or its logarithm."""

LAWS: Final = get_args(Law)

LOG_RANGE: Final = {torch.float64: (-708.0, 709.0), torch.float32: (-87.0, 88.0)}
"""Logarithms of the smallest and the largest result of a log-normal law, by type: its exponentials stay finite."""


def candidate_laws(target: str, *targets: Floats) -> tuple[Law, ...]:
    """Laws to fit for a parameter "identity", "log" or "auto", given all targets (n, k)."""
    if target == "identity":
        return ("identity",)
    wrong = [values[values <= 0] for values in targets]
    count = sum(map(len, wrong))
    if target == "auto":
        return ("identity",) if count else ("identity", "log")
    if count:
        lowest = min(float(values.min()) for values in wrong if len(values))
        raise ValueError(
            f'target="log" needs y above 0, but {count} of its values are not, the lowest {lowest:g}: leave these rows '
            'out, or choose target="identity" (or "auto", which takes the logarithm of positive targets alone).'
        )
    return ("log",)


def to_law(values: Floats, law: Law) -> Floats:
    """Targets as the law's Normal has them: themselves, or their logarithms."""
    return np.log(values) if law == "log" else values


def from_law(values: Floats, law: Law) -> Floats:
    """Undo `to_law`; exponentials are kept within `LOG_RANGE`, so finite and above 0."""
    return np.exp(np.clip(values, *LOG_RANGE[torch.float64])) if law == "log" else values


def log_normal_moments(mean: Tensor, std: Tensor, limits: tuple[float, float] | None = None) -> tuple[Tensor, Tensor]:
    r"""Mean and standard deviation, their logarithms within `limits`, of a variable whose logarithm has these.

    With v = std^2 they are exp(mean + v / 2) and that times the root of e^v - 1. In logarithms, as e^v overflows, and
    with e^v - 1 = e^v 2 t / (1 + t), t = tanh(v / 2), which keeps the digits of a small v in ONNX, too.
    """
    variance = std.square()
    t = torch.tanh(0.5 * variance)
    log_std = mean + variance + 0.5 * torch.log(2.0 * t / (1.0 + t))
    low, high = limits or LOG_RANGE[mean.dtype]
    log_mean = mean + 0.5 * variance
    return log_mean.clamp(low, high).exp(), log_std.clamp(low, high).exp()
