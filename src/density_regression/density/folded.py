"""A fitted mixture and whatever else is linear in the features, as one matrix product."""

from __future__ import annotations

from typing import Final, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression._numeric import LARGE, columns, is_fused
from density_regression.density.base import Density

__all__ = ["Folded"]

FEW: Final = 8
"""Most columns that are computed as sums along rows, where those are fused."""

FEW_ROWS: Final = 64
"""Most rows for which the whole product is computed so: it then takes in how its rows were put together."""


class Folded(nn.Module):
    r"""The log-density of features z, and other affine functions of them, from one product y = W z + b.

    A mixture sees whitened features through a factor of each component's precision, and the length of what whitening
    leaves over: all affine in z, so that

    .. math:: \log p(z) = \log \sum_k \exp(c_k - |y_k|^2 / 2) - |y_r|^2 / 2.

    Where features are few and rows are many, as those of an image's pixels, this takes about half as long as one step
    after another; for the wide features of tables it is no faster. A single component of few directions takes even
    less once it is compiled for a GPU: see `by_sums`.
    """

    weight: Tensor
    bias: Tensor
    log_norm: Tensor
    # Of a single component, for `by_sums`.
    stretch: Tensor
    anchor: Tensor
    back: Tensor

    def __init__(self, sizes: tuple[int, int, int], **values: Tensor) -> None:
        super().__init__()
        self.sizes = sizes
        for name, value in values.items():
            # Made from another module's state, so not a part of one's own.
            self.register_buffer(name, value.float().contiguous(), persistent=False)

    @classmethod
    @torch.no_grad()
    def of(cls, density: Density, beside: nn.Linear | None = None, unit: Tensor | None = None) -> Self:
        """Fold a fitted density.

        Parameters
        ----------
        density : GaussianDensity or MixtureDensity
            The density.
        beside : nn.Linear, optional
            A layer whose output on the same features is wanted too.
        unit : Tensor of shape (D,), optional
            What features are divided by before the density sees them.
        """
        whitening = density.whitening
        center = whitening.center.double()
        directions = whitening.projection[:, : whitening.kept].double()
        reconstruction = whitening.reconstruction[: whitening.kept].double()
        quadratics = density.quadratics()
        if quadratics is None:
            raise ValueError(f"A {type(density).__name__} cannot be folded into one product.")
        factor, shift, log_norm = (part.double() for part in quadratics)
        maps = directions @ factor
        # A basis of what the kept directions do not explain: there the identity less their projection is one.
        left_over = torch.eye(len(center), dtype=center.dtype, device=center.device)
        left_over = left_over - directions @ reconstruction
        rest = torch.linalg.eigh((left_over + left_over.T) / 2).eigenvectors[:, whitening.kept :]
        weight = torch.cat([maps, rest / whitening.residual_scale], dim=1)
        bias = -center @ weight
        bias[: len(shift)] -= shift
        if unit is not None:
            weight = weight / unit[:, None]
        sizes = (0, len(log_norm), len(shift))
        if beside is not None:
            sizes = (beside.out_features, *sizes[1:])
            weight = torch.cat([beside.weight.T, weight], dim=1)
            bias = torch.cat([beside.bias, bias])
        values = {"weight": weight.T, "bias": bias, "log_norm": log_norm + whitening.log_det}
        if len(log_norm) == 1:
            stretch = torch.ones_like(center) / whitening.residual_scale
            back = torch.linalg.solve(factor, reconstruction) / whitening.residual_scale
            anchor = center * stretch + shift @ back
            values |= {"stretch": stretch if unit is None else stretch / unit, "anchor": anchor, "back": back}
        return cls(sizes, **values)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """log p (n,) at features (n, D) within +-`LARGE`, and the output (n, m) of what was folded in beside it."""
        beside, components, directions = self.sizes
        if components == 1 and beside + directions <= FEW and is_fused(z):
            return self.by_sums(z)
        if is_fused(z) and len(z) <= FEW_ROWS:
            y = (z[:, None] * self.weight).sum(2) + self.bias
        else:
            y = F.linear(z, self.weight, self.bias)
        others = y[:, :beside]
        squares = y[:, beside:].clamp(-LARGE, LARGE).square()
        if components == 1:
            return self.log_norm - 0.5 * squares.sum(1), others
        # Of equal widths, one after another; what is left over comes last.
        distance = squares[:, :directions].unflatten(1, (components, -1)).sum(2)
        log_prob = (self.log_norm - 0.5 * distance).logsumexp(1) - 0.5 * squares[:, directions:].sum(1)
        return log_prob, others

    def by_sums(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The same, of a single component, as sums along rows: a compiler puts them into the kernel that makes `z`.

        What is left over is then what is not put back together from the few directions, not a product of its own.
        """
        beside, _, directions = self.sizes
        few = columns(z, self.weight[: beside + directions], self.bias[: beside + directions])
        others, y = few[:beside], few[beside:]
        left_over = z * self.stretch - self.anchor
        for coordinate, back in zip(y, self.back, strict=True):
            left_over = left_over - coordinate[:, None] * back
        distance = left_over.clamp(-LARGE, LARGE).square().sum(1)
        for coordinate in y:
            distance = distance + coordinate.clamp(-LARGE, LARGE).square()
        return self.log_norm - 0.5 * distance, torch.stack(others, 1) if others else z[:, :0]
