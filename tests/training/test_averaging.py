"""Weights averaged over the last epochs of training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from density_regression import DensityRegressor
from density_regression.nn.runtime import TrainingOptions
from density_regression.training.batches import TensorBatches
from density_regression.training.loop import optimise


class _Recorded(nn.Module):
    """A quadratic loss, and the weights it was computed with."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([3.0, -2.0], dtype=torch.float64))
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        if self.training:
            self.seen.append(self.weight.detach().clone())
        return ((self.weight * x - y).square().sum(1) * weight).mean()


@pytest.mark.parametrize("average", [0.5, 3.0])
def test_the_mean_of_the_weights_is_kept(average: float) -> None:
    x = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batches = TensorBatches(x, 0.5 * x, torch.ones(40, dtype=torch.float64), 10)
    options = TrainingOptions(epochs=6, learning_rate=0.05, patience=None)
    plain, averaged = _Recorded(), _Recorded()
    optimise(plain, batches, batches, options)
    optimise(averaged, batches, batches, replace(options, average=average))
    # Averaging changes what is kept, not the path.
    torch.testing.assert_close(torch.stack(averaged.seen), torch.stack(plain.seen))
    path = [*plain.seen[1:], plain.weight.detach()]
    mean = plain.seen[0]
    for step, weight in enumerate(path, start=1):
        share = max(1 / (4 * average), 9 / (step + 9))
        mean = (1 - share) * mean + share * weight
    torch.testing.assert_close(averaged.weight.detach(), mean)
    assert not torch.equal(averaged.weight, plain.weight)


def test_a_mean_that_becomes_worse_is_not_kept() -> None:
    x = torch.ones(8, 2, dtype=torch.float64)
    batches = TensorBatches(x, 0.5 * x, torch.ones(8, dtype=torch.float64), 8)
    start = _Recorded()
    options = TrainingOptions(epochs=40, learning_rate=2.0, average=5.0, patience=None)
    history = optimise(start, batches, batches, options)[0].held_out
    kept = start.eval()(x, 0.5 * x, torch.ones(8, dtype=torch.float64)).item()
    assert kept == pytest.approx(min(history))
    assert kept < history[-1]


def test_an_estimator_hands_it_on(friedman: tuple[np.ndarray, np.ndarray]) -> None:
    settings = {"hidden": (32,), "epochs": 30, "random_state": 0, "n_threads": 1}
    plain, averaged = (DensityRegressor(average=average, **settings).fit(*friedman) for average in (0.0, 5.0))
    assert not np.allclose(plain.predict(friedman[0]), averaged.predict(friedman[0]))
    assert averaged.score(*friedman) > 0.8
    with pytest.raises(ValueError, match="average"):
        DensityRegressor(average=-1.0).fit(*friedman)


class _Normalised(nn.Module):
    """A quadratic loss behind batch norm, and the running statistics after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2, dtype=torch.float64)
        self.seen: list[tuple[Tensor, Tensor]] = []

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        loss = (self.norm(x) - y).square().mean()
        if self.training:
            self.seen.append((self.running("mean"), self.running("var")))
        return loss

    def running(self, name: str) -> Tensor:
        return self.norm.get_buffer(f"running_{name}").clone()


def test_the_statistics_of_batch_norm_are_averaged_too() -> None:
    x = 5 + 2 * torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batches = TensorBatches(x, 0.1 * x, torch.ones(40, dtype=torch.float64), 10)
    model = _Normalised()
    mean = [model.running("mean"), model.running("var")]
    options = TrainingOptions(epochs=6, learning_rate=0.05, average=2.0, patience=None)
    history = optimise(model, batches, None, options)[0].held_out
    # The last epoch is the one that is kept.
    assert history[-1] == min(history)
    for step, values in enumerate(model.seen, start=1):
        share = max(1 / 8, 9 / (step + 9))
        mean = [(1 - share) * old + share * new for old, new in zip(mean, values, strict=True)]
    torch.testing.assert_close(model.running("mean"), mean[0])
    torch.testing.assert_close(model.running("var"), mean[1])
    assert not torch.allclose(model.running("mean"), model.seen[-1][0])
    assert model.norm.num_batches_tracked == 24
