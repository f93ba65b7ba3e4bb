"""A fitted mixture and whatever else is linear in the features, as one matrix product."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from density_regression._numeric import LARGE
from density_regression.density.base import Density

__all__ = ["Folded"]


class Folded(nn.Module):
    r"""The log-density of features z, and other affine functions of them, from one product y = z W + b.

    A mixture sees whitened features through a factor of each component's precision, and the length of what whitening
    leaves over: all affine in z, so that

    .. math:: \log p(z) = \log \sum_k \exp(c_k - |y_k|^2 / 2) - |y_r|^2 / 2.

    Where features are few and rows are many, as those of an image's pixels, this takes about half as long as one step
    after another; for the wide features of tables it is no faster.
    """

    weight: Tensor
    bias: Tensor
    log_norm: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, log_norm: Tensor, sizes: tuple[int, int, int]) -> None:
        super().__init__()
        self.sizes = sizes
        for name, value in (("weight", weight), ("bias", bias), ("log_norm", log_norm)):
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
        quadratics = density.quadratics()
        if quadratics is None:
            raise ValueError(f"A {type(density).__name__} cannot be folded into one product.")
        factor, shift, log_norm = (part.double() for part in quadratics)
        maps = directions @ factor
        # A basis of what the kept directions do not explain: there the identity less their projection is one.
        left_over = torch.eye(len(center), dtype=center.dtype, device=center.device)
        left_over = left_over - directions @ whitening.reconstruction[: whitening.kept].double()
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
        return cls(weight, bias, log_norm + whitening.log_det, sizes)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """log p (n,) at features (n, D) within +-`LARGE`, and the output (n, m) of what was folded in beside it."""
        y = torch.addmm(self.bias, z, self.weight)
        beside, components, directions = self.sizes
        others = y[:, :beside]
        squares = y[:, beside:].clamp(-LARGE, LARGE).square()
        if components == 1:
            return self.log_norm - 0.5 * squares.sum(1), others
        # Of equal widths, one after another; what is left over comes last.
        distance = squares[:, :directions].unflatten(1, (components, -1)).sum(2)
        log_prob = (self.log_norm - 0.5 * distance).logsumexp(1) - 0.5 * squares[:, directions:].sum(1)
        return log_prob, others
