"""Small numerical helpers that several layers share."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = [
    "FAR",
    "LARGE",
    "FittedModule",
    "along_signs",
    "columns",
    "is_fused",
    "narrow",
    "smooth_clamp",
    "tame",
    "weighted_quantiles",
]

LARGE: Final = 1e12
"""Bound on features, in any unit: its square, summed over thousands of them, is finite in float32."""


FAR: Final = 1e8
"""Bound on scaled inputs: what lies so many standard deviations away is strange enough, and few networks overflow."""


def tame(z: Tensor) -> Tensor:
    """Bring features into +-`LARGE`, and features that overflowed to NaN on the way to its edge.

    A finite input of 1e30 may leave an encoder as inf or NaN. Such a feature is as far from the training data
    as a number can say, so it is put there, and whatever follows stays finite. Half precision cannot hold the edge,
    and is made single. Gradients pass as if nothing had been done.
    """
    z = z.float() if z.dtype == torch.float16 else z
    # A gradient through both steps would cost more than the layers of a small network, but only there can vmap go.
    cheap = z.requires_grad and not torch._C._functorch.is_batchedtensor(z)
    if cheap and _is_tame(z):
        return z
    return _Tamed.apply(z) if cheap else _tamed(z)  # type: ignore[no-untyped-call]


def _is_tame(z: Tensor) -> bool:
    """Whether nothing need be done to features, if that is quickly seen: a copy of them costs as much as a layer.

    One would wait for a GPU, and a compiler knows no numbers.
    """
    seen = z.device.type == "cpu" and not torch.compiler.is_compiling()
    return seen and torch.linalg.vector_norm(z.detach()).item() < 0.5 * LARGE


def _tamed(z: Tensor) -> Tensor:
    return z.clamp(-LARGE, LARGE).nan_to_num_(nan=LARGE)


class _Tamed(torch.autograd.Function):
    """`tame` with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        # Nothing in place here: torch 2.11 would compile it to a gradient of zero.
        return z.clamp(-LARGE, LARGE).nan_to_num(nan=LARGE)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


def along_signs(x: Tensor, gradient: Tensor, size: Tensor | float) -> Tensor:
    """Inputs moved by `size` along the signs of a gradient: the fast gradient sign method (Goodfellow et al., 2015).

    Where the gradient is no number, they stay.
    """
    return x.detach() + size * gradient.nan_to_num().sign()


def is_fused(z: Tensor) -> bool:
    """Whether sums along rows of `z` will be a part of the kernel that makes it: compiled for a GPU, to predict."""
    return z.is_cuda and torch.compiler.is_compiling() and not torch.is_grad_enabled()


def columns(z: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """The columns (n,) of z @ weight.T + bias, one by one, as sums along the rows of `z` (n, D)."""
    return [(z * own).sum(1) + offset for own, offset in zip(weight, bias, strict=True)]


def narrow(layer: nn.Linear, z: Tensor) -> Tensor:
    """A layer with very few outputs on rows (n, D); no matrix product, which is slow for these, where it is fused."""
    return torch.stack(columns(z, layer.weight, layer.bias), 1) if is_fused(z) else layer(z)


def smooth_clamp(value: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Squeeze `value` into [low, high]: never decreasing, and close to the identity inside.

    The corners are rounded over an eighth of the interval, and over one unit at the most.
    """
    beta = 8.0 / (high - low).clamp(1e-3, 8.0)
    # Nothing changes this far outside, but the difference of two huge numbers would be lost in rounding.
    value = value.clamp(low - 20.0 / beta, high + 20.0 / beta)
    return low + (F.softplus(beta * (value - low)) - F.softplus(beta * (value - high))) / beta


def weighted_quantiles(values: Tensor, levels: Sequence[float], weight: Tensor | None = None) -> list[Tensor]:
    """Quantiles of each column of `values` (n, ...) at these levels, rows counted by `weight` (n,).

    Without weights these are those of `torch.quantile` (linear interpolation, but for any number of rows). With
    weights, the smallest value at which the cumulated weight reaches a level.
    """
    ordered, order = values.sort(dim=0)
    if weight is None:
        return [_between_rows(ordered, level * (len(values) - 1)) for level in levels]
    cumulated = weight.to(values.dtype)[order].cumsum(dim=0)
    reached = [(cumulated >= level * cumulated[-1:]).int().argmax(dim=0, keepdim=True) for level in levels]
    return [ordered.gather(0, index).squeeze(0) for index in reached]


def _between_rows(ordered: Tensor, position: float) -> Tensor:
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below].lerp(ordered[above], position - below)


class FittedModule(nn.Module):
    """A module whose buffers get their shapes when it is fitted, and can still load any state dict."""

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: object) -> None:
        for name, buffer in self._buffers.items():
            saved = state_dict.get(prefix + name)
            if buffer is not None and saved is not None and saved.ndim == buffer.ndim and saved.shape != buffer.shape:
                self._buffers[name] = buffer.new_empty(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def config(self) -> dict[str, Any]:
        """Arguments that build this module anew, as plain numbers and strings; learnt state comes apart."""
        names = inspect.signature(type(self)).parameters
        lost = [name for name in names if not hasattr(self, name)]
        if lost:
            raise ValueError(
                f"{type(self).__name__} must keep each argument of its __init__ as an attribute of that name, or have "
                f"a config() of its own; it lacks {', '.join(lost)}."
            )
        values = {name: getattr(self, name) for name in names}
        return {name: value.item() if isinstance(value, Tensor) else value for name, value in values.items()}

    def _store(self, **buffers: Tensor) -> None:
        """Set buffers, keeping each one's dtype and device."""
        for name, value in buffers.items():
            self._buffers[name] = value.detach().to(getattr(self, name)).contiguous()
