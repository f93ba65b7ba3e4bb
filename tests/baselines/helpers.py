"""Rows, generators and an encoder that the tests of ensembles share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

DOUBLE = torch.float64


class Residual(nn.Module):
    """Not a sequence of layers, so it goes through vmap."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        z = self.first(x)
        return z + torch.tanh(self.second(z))


def rows(n: int = 90, targets: int = 1, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=source, dtype=DOUBLE)
    y = 30 * x[:, :targets].sin() + torch.randn(n, targets, generator=source, dtype=DOUBLE)
    return x, y, torch.rand(n, generator=source, dtype=DOUBLE) + 0.5


def generators(count: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(100 + i) for i in range(count)]
