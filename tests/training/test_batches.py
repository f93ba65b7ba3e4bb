"""Batches of tensors in memory: each row once, shuffled anew."""

import math

import pytest
import torch
from torch import Tensor

from density_regression.training.batches import TensorBatches
from training.helpers import batches, generator


@pytest.mark.parametrize("parts", [(5, 5, 4), (5, 4, 5), (4, 5, 5)], ids=str)
def test_tables_of_other_lengths(parts: tuple[int, int, int]) -> None:
    x, y, weight = parts
    with pytest.raises(ValueError, match="must be of one length"):
        TensorBatches(torch.zeros(x, 1), torch.zeros(y, 1), torch.ones(weight), 2, generator())
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        TensorBatches(torch.zeros(5, 1), torch.zeros(5, 1), torch.ones(5), 0)


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize(("n", "size"), [(100, 10), (101, 10), (99, 10), (7, 100), (7, 1), (1, 1), (65, 32)])
def test_batches_hold_each_row_once(n: int, size: int, seed: int | None) -> None:
    x = torch.arange(float(n))[:, None]
    loader = batches(x, x + 0.5, size, x[:, 0] + 0.25, seed)
    for _ in range(2):
        parts = list(loader)
        assert len(parts) == len(loader) == math.ceil(n / size)
        assert {len(part) for batch in parts for part in batch} <= {n // len(parts), n // len(parts) + 1}
        assert max(len(batch[0]) for batch in parts) <= size
        seen, y, weight = (torch.cat(part) for part in zip(*parts, strict=True))
        assert torch.equal(seen.sort(dim=0).values, x)
        assert torch.equal(y, seen + 0.5)
        assert torch.equal(weight, seen[:, 0] + 0.25)


def test_batches_are_shuffled_anew() -> None:
    x = torch.arange(50.0)[:, None]

    def epochs(seed: int | None) -> list[Tensor]:
        loader = batches(x, x, 8, seed=seed)
        return [torch.cat([batch[0] for batch in loader]) for _ in range(2)]

    assert all(torch.equal(order, x) for order in epochs(None))
    first, second = epochs(0)
    assert not torch.equal(first, second)
    assert not torch.equal(first, x)
    assert all(torch.equal(*pair) for pair in zip((first, second), epochs(0), strict=True))
    assert not torch.equal(first, epochs(1)[0])
