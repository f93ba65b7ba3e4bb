"""Piecewise-linear embedding of a table's columns, in front of an encoder's layers."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Self

import torch
from torch import Tensor, nn

from density_regression.nn.density.base import weighted_quantiles

__all__ = ["BIN_SIZE", "SMOOTH_RANGE", "Embedded", "PiecewiseEmbedding", "embed", "embedding_of"]

BINS: Final = 8
"""Most bins of a column, of about equally many training rows each."""

BIN_SIZE: Final = 0.3
"""Range of a bin's value. Below 1: all bins of a column together should weigh no more than the column itself."""

SMOOTH_RANGE: Final = 3.0
"""Limit of a smoothly clipped column, in standard deviations."""

LARGEST_INPUT: Final = 1e9
"""Bound on inputs, so that their squares are finite in float32."""

NARROWEST_BIN: Final = 1e-12
"""Least width of a bin, so that its slope is finite in float32."""


class PiecewiseEmbedding(nn.Module):
    """Columns, smoothly clipped, with piecewise-linear bins appended (Gorishniy et al., 2022).

    A standardised column x becomes u = x / sqrt(1 + (x / 3)^2). A bin of it from `low` to `high` has the value
    0.3 clamp((x - low) / (high - low), 0, 1), less its mean over the training rows. The edges of the bins are quantiles
    of the training rows. A column with fewer than three different values has no bins.

    Parameters
    ----------
    columns, bins : int
        Number of columns, and of bins of all columns together. `fit` builds an embedding from rows; otherwise the
        bins are empty, until a state dict is loaded.

    Examples
    --------
    >>> import torch
    >>> rows = torch.randn(100, 3)
    >>> PiecewiseEmbedding.fit(rows)(rows).shape
    torch.Size([100, 27])
    """

    column: Tensor
    low: Tensor
    slope: Tensor
    mean: Tensor

    def __init__(self, columns: int, bins: int) -> None:
        super().__init__()
        self.columns = columns
        self.register_buffer("column", torch.zeros(bins, dtype=torch.int64))
        for name in ("low", "slope", "mean"):
            self.register_buffer(name, torch.zeros(bins))

    @classmethod
    @torch.no_grad()
    def fit(cls, x: Tensor, weight: Tensor | None = None) -> Self:
        """The embedding for standardised training rows `x` (n, c) with weights (n,); rows of weight 0 do not count."""
        weight = x.new_ones(len(x)) if weight is None else weight
        x, weight = x[weight > 0], weight[weight > 0]
        parts = [_bins(values, weight) for values in x.unbind(1)]
        embedding = cls(x.shape[1], sum(part.shape[1] for part in parts)).to(x.device)
        low, slope, mean = torch.cat(parts, dim=1)
        counts = torch.tensor([part.shape[1] for part in parts], device=x.device)
        embedding.column = torch.arange(x.shape[1], device=x.device).repeat_interleave(counts)
        embedding.low, embedding.slope, embedding.mean = low.float(), slope.float(), mean.float()
        return embedding

    @property
    def width(self) -> int:
        """Number of embedded columns."""
        return self.columns + len(self.column)

    def forward(self, x: Tensor) -> Tensor:
        """Embedded columns (n, width) of standardised ones (n, c), finite if these are."""
        return embed(x, x.index_select(-1, self.column), self.low, self.slope, self.mean)

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.columns}, {len(self.column)}"


def embed(x: Tensor, of_bin: Tensor, low: Tensor, slope: Tensor, mean: Tensor) -> Tensor:
    """Embed columns `x` (..., c), given for each bin the value of its column, `of_bin` (..., bins)."""
    x = x.clamp(-LARGEST_INPUT, LARGEST_INPUT)
    clipped = x / (x / SMOOTH_RANGE).square().add(1.0).sqrt()
    # The difference first: it is exact where it is small, which a sum of two large products is not. It may overflow.
    return torch.cat([clipped, ((of_bin - low) * slope).clamp(0.0, BIN_SIZE) - mean], dim=-1)


class Embedded(nn.Sequential):
    """An encoder that reads embedded columns: from inputs (n, c) to features (n, d).

    Parameters
    ----------
    embedding : PiecewiseEmbedding
        From columns (n, c) to embedded ones (n, width).
    encoder : nn.Module
        From those to features (n, d).
    """

    embedding: PiecewiseEmbedding
    encoder: nn.Module

    def __init__(self, embedding: PiecewiseEmbedding, encoder: nn.Module) -> None:
        super().__init__(OrderedDict(embedding=embedding, encoder=encoder))


def embedding_of(encoder: nn.Module) -> PiecewiseEmbedding | None:
    """The embedding in front of an encoder, if it has one."""
    return next((part for part in encoder.modules() if isinstance(part, PiecewiseEmbedding)), None)


def _bins(values: Tensor, weight: Tensor) -> Tensor:
    """Lower edge, slope and mean (3, bins), in float64, of the bins of a column (n,)."""
    values, share = values.double(), weight.double() / weight.double().sum()
    if len(values.unique()) < 3:
        return values.new_empty(3, 0)
    edges = torch.stack(weighted_quantiles(values, [i / BINS for i in range(BINS + 1)], weight)).unique()
    low, slope = edges[:-1], BIN_SIZE / edges.diff().clamp_min(NARROWEST_BIN)
    means = [share @ ((values - start) * rate).clamp(0.0, BIN_SIZE) for start, rate in zip(low, slope, strict=True)]
    return torch.stack([low, slope, torch.stack(means)])
