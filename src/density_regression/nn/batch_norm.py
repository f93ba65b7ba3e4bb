"""Batch norm over a batch whose rows are spread over several processes, on any device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from density_regression.nn.processes import Processes

__all__ = ["over_processes"]


@contextmanager
def over_processes(module: nn.Module, processes: Processes) -> Iterator[None]:
    """Let the batch norms of a module that is trained take mean and variance over the rows of all processes.

    Torch's own `SyncBatchNorm` is for GPUs alone, and takes the place of the modules.
    """
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)] if processes.size > 1 else []
    for norm in norms:
        norm.forward = partial(_forward, norm, processes)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


class _Sum(torch.autograd.Function):
    """Sum over processes, and of its gradients."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return processes.sum(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.processes.sum(gradients[0]), None


def _sum(value: Tensor, processes: Processes) -> Tensor:
    total: Tensor = _Sum.apply(value, processes)  # type: ignore[no-untyped-call]
    return total


def _forward(norm: _BatchNorm, processes: Processes, x: Tensor) -> Tensor:
    """Normalise x (n, c, ...) by the mean and variance of each channel, (c,), over rows and positions."""
    if not norm.training:
        return type(norm).forward(norm, x)
    norm._check_input_dim(x)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    others, shape = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
    count = processes.sum(wide.new_tensor(x.numel() / x.shape[1]))
    mean = _sum(wide.sum(others), processes) / count
    centred = wide - mean.view(shape)
    variance = _sum(centred.square().sum(others), processes) / count
    if norm.running_mean is not None and norm.running_var is not None and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        share = 1.0 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        norm.running_mean.lerp_(mean.detach().to(norm.running_mean), share)
        unbiased = variance.detach() * count / (count - 1.0)
        norm.running_var.lerp_(unbiased.to(norm.running_var), share)
    z = centred * torch.rsqrt(variance + norm.eps).view(shape)
    if norm.affine:
        z = z * norm.weight.view(shape) + norm.bias.view(shape)
    return z.to(x.dtype)
