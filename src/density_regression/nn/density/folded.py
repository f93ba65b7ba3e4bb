"""A fitted mixture, and other affine functions of the features, evaluated by one matrix product."""

from typing import Final, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.nn.density.base import FEATURE_LIMIT, Density

__all__ = ["Folded", "narrow"]

MAX_SUMMED_COLUMNS: Final = 8
"""Most columns of a product that are computed as sums along rows where those are fused."""

MAX_SUMMED_ROWS: Final = 64
"""Most rows for which a whole product is computed as sums along rows where those are fused."""


def is_fused(z: Tensor) -> bool:
    """Whether sums along rows of `z` are fused into the kernel that computes it: compiled for a GPU, to predict."""
    return z.is_cuda and torch.compiler.is_compiling() and not torch.is_grad_enabled()


def _columns(z: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """The columns (n,) of z @ weight.T + bias, as sums along the rows of `z` (n, D)."""
    return [(z * row).sum(1) + offset for row, offset in zip(weight, bias, strict=True)]


def narrow(layer: nn.Linear, z: Tensor) -> Tensor:
    """A linear layer with few outputs on rows (n, D); as sums, not a matrix product, where these are fused."""
    return torch.stack(_columns(z, layer.weight, layer.bias), 1) if is_fused(z) else layer(z)


class Folded(nn.Module):
    r"""Log-density of features z, and other affine functions of them, from one product y = W z + b.

    Whitening, the precision factors of a mixture's components and the residual of the whitening are affine in z, so

    .. math:: \log p(z) = \log \sum_k \exp(c_k - |y_k|^2 / 2) - |y_r|^2 / 2.

    With few features and many rows, such as an image's pixels, this takes about half as long as the steps one by one;
    with the wide features of tables it is no faster. For a single component compiled for a GPU see `by_sums`.
    """

    weight: Tensor
    bias: Tensor
    log_norm: Tensor
    # Of a single component only, for `by_sums`.
    stretch: Tensor
    anchor: Tensor
    back: Tensor

    def __init__(self, sizes: tuple[int, int, int], **values: Tensor) -> None:
        super().__init__()
        self.sizes = sizes
        for name, value in values.items():
            # Derived from the density's state, so not saved.
            self.register_buffer(name, value.float().contiguous(), persistent=False)

    @classmethod
    @torch.no_grad()
    def of(cls, density: Density, beside: nn.Linear | None = None, unit: Tensor | None = None) -> Self:
        """Fold a fitted `GaussianDensity` or `MixtureDensity`, and a layer `beside` to evaluate on the same features.

        The features are divided by `unit` (D,) for the density, not for the layer.
        """
        whitening = density.whitening
        center = whitening.center.double()
        directions = whitening.projection[:, : whitening.kept].double()
        reconstruction = whitening.reconstruction[: whitening.kept].double()
        quadratics = density.quadratics()
        if quadratics is None:
            raise ValueError(f"A {type(density).__name__} cannot be folded into one product.")
        factor, shift, log_norm = (part.double() for part in quadratics)
        # A basis of the residual space: eigenvectors of eigenvalue one of the projection onto it.
        residual = torch.eye(len(center)).to(center) - directions @ reconstruction
        basis = torch.linalg.eigh((residual + residual.T) / 2).eigenvectors[:, whitening.kept :]
        weight = torch.cat([directions @ factor, basis / whitening.residual_scale], dim=1)
        bias = -center @ weight
        bias[: len(shift)] -= shift
        if unit is not None:
            weight = weight / unit[:, None]
        if beside is not None:
            weight = torch.cat([beside.weight.T, weight], dim=1)
            bias = torch.cat([beside.bias, bias])
        values = {"weight": weight.T, "bias": bias, "log_norm": log_norm + whitening.log_det}
        if len(log_norm) == 1:
            stretch = torch.ones_like(center) / whitening.residual_scale
            back = torch.linalg.solve(factor, reconstruction) / whitening.residual_scale
            anchor = center * stretch + shift @ back
            values |= {"stretch": stretch if unit is None else stretch / unit, "anchor": anchor, "back": back}
        return cls((0 if beside is None else beside.out_features, len(log_norm), len(shift)), **values)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Log-density (n,) of bounded features (n, D), and the output (n, m) of the layer `beside`."""
        beside, components, directions = self.sizes
        if components == 1 and beside + directions <= MAX_SUMMED_COLUMNS and is_fused(z):
            return self.by_sums(z)
        if is_fused(z) and len(z) <= MAX_SUMMED_ROWS:
            y = (z[:, None] * self.weight).sum(2) + self.bias
        else:
            y = F.linear(z, self.weight, self.bias)
        others = y[:, :beside]
        squares = y[:, beside:].clamp(-FEATURE_LIMIT, FEATURE_LIMIT).square()
        if components == 1:
            return self.log_norm - 0.5 * squares.sum(1), others
        # Components of equal widths one after another, then the residual.
        distance = squares[:, :directions].unflatten(1, (components, -1)).sum(2)
        log_prob = (self.log_norm - 0.5 * distance).logsumexp(1) - 0.5 * squares[:, directions:].sum(1)
        return log_prob, others

    def by_sums(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """`forward` for a single component, as sums along rows that are fused into the kernel that computes `z`.

        The residual is the difference to the reconstruction from the kept directions.
        """
        beside, _, directions = self.sizes
        few = _columns(z, self.weight[: beside + directions], self.bias[: beside + directions])
        others, y = few[:beside], few[beside:]
        residual = z * self.stretch - self.anchor
        for coordinate, back in zip(y, self.back, strict=True):
            residual = residual - coordinate[:, None] * back
        distance = residual.clamp(-FEATURE_LIMIT, FEATURE_LIMIT).square().sum(1)
        for coordinate in y:
            distance = distance + coordinate.clamp(-FEATURE_LIMIT, FEATURE_LIMIT).square()
        return self.log_norm - 0.5 * distance, torch.stack(others, 1) if others else z[:, :0]
