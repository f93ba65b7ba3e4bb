"""Weights in mini-batches: what is minimised is the mean loss by weight over all rows."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from density_regression import DensityRegressor, TrainingOptions, fit_density_regression
from density_regression.baselines import DeepEnsembleRegressor, DeterministicRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.nn.heads import weighted_mean
from density_regression.training.batches import TensorBatches, on_device
from density_regression.training.loop import _share, optimise
from training.helpers import batches, generator, network, nll, wave


def table(seed: int = 0, n: int = 24) -> tuple[Tensor, Tensor, Tensor]:
    """A few rows in a hundred weigh a lot."""
    source = generator(seed)
    x, y = torch.randn(2, n, 1, generator=source)
    return x, y, torch.where(torch.rand(n, generator=source) < 0.2, 50.0, 1.0) * (1 + seed)


def mean_of_shares(train: TensorBatches) -> Tensor:
    """Mean over batches of what `optimise` takes for their losses; these are squares of the targets."""
    shares = []
    for _, y, weight in train:
        shares.append(_share(weighted_mean(y.square().mean(-1), weight), weight, train.mean_weight()))
    return torch.stack(shares).mean(0)


def risk(rows: Sequence[Tensor]) -> Tensor:
    _, y, weight = rows
    return (weight @ y.square().mean(1)) / weight.sum()


def test_shares_of_batches_make_up_the_weighted_risk() -> None:
    torch.testing.assert_close(mean_of_shares(TensorBatches(*table(), 4)), risk(table()))
    torch.testing.assert_close(mean_of_shares(TensorBatches(*table(), 4, generator())), risk(table()))


def test_shares_of_members() -> None:
    members = TensorBatches(*table(), 4, [generator(seed) for seed in range(3)])
    torch.testing.assert_close(mean_of_shares(members), risk(table()).expand(3))
    # Of tables whose weights have other units.
    parts = [TensorBatches(*table(seed), 4, [generator(seed), generator(seed + 9)]) for seed in (0, 3)]
    expected = torch.stack([risk(table(seed)) for seed in (0, 0, 3, 3)])
    torch.testing.assert_close(mean_of_shares(TensorBatches.side_by_side(parts, 2)), expected)


def test_shares_of_batches_with_positions() -> None:
    x, y, weight = torch.randn(6, 3, 4), torch.randn(6, 1, 4), torch.rand(6, 4)
    train = TensorBatches(x, y, weight, 2)
    shares = [
        _share(weighted_mean(y.square().flatten(), weight.flatten()), weight, train.mean_weight())
        for _, y, weight in train
    ]
    torch.testing.assert_close(torch.stack(shares).mean(), (weight * y[:, 0].square()).sum() / weight.sum())


@pytest.mark.parametrize("value", [0.0, 1.0, 7.3])
def test_equal_weights_need_no_shares(value: float) -> None:
    assert TensorBatches(torch.zeros(9, 1), torch.zeros(9, 1), torch.full((9,), value), 4).mean_weight() is None


@pytest.mark.parametrize("regressor", [DeterministicRegressor, DeepEnsembleRegressor, DensityRegressor])
def test_rare_heavy_rows_count_in_small_batches(regressor: type[DeepRegressor]) -> None:
    rng = np.random.default_rng(0)
    heavy = rng.random(1000) < 0.05
    y, weight = np.where(heavy, 10.0, 0.0), np.where(heavy, 50.0, 1.0)
    X = rng.normal(size=(1000, 1))
    fitted = regressor(hidden=(8,), epochs=20, batch_size=8, random_state=0).fit(X, y, sample_weight=weight)
    assert fitted.predict(X).mean() == pytest.approx(np.average(y, weights=weight), abs=0.5)


def test_moved_inputs_count_by_the_same_share() -> None:
    class Location(nn.Module):
        """Squared distances from a number, which the inputs do not change."""

        def __init__(self) -> None:
            super().__init__()
            self.number = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            return weighted_mean((y - self.number).square().mean(1), weight)

    x, y, weight = table(n=400)
    objective = Location()
    options = TrainingOptions(epochs=60, weight_decay=0.0, patience=None, smoothness=0.1)
    optimise(objective, TensorBatches(x, y, weight, 4, generator()), None, options)
    assert objective.number.item() == pytest.approx((weight @ y / weight.sum()).item(), abs=0.05)


# -- precision, and targets that are missing ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_targets_in_half_precision(dtype: torch.dtype) -> None:
    x, y = torch.zeros(70_000, 1), torch.ones(70_000, 1, dtype=dtype)
    for batch in ((x, y), (x, y, torch.ones(70_000, dtype=dtype))):
        _, target, weight = on_device(batch, torch.device("cpu"))
        assert target.dtype == weight.dtype == torch.float32
        assert weight.sum() == 70_000
        assert weighted_mean(target[:, 0], weight) == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_targets_keep_their_precision(dtype: torch.dtype) -> None:
    _, target, weight = on_device((torch.zeros(2, 1), torch.ones(2, 1, dtype=dtype)), torch.device("cpu"))
    assert target.dtype == weight.dtype == dtype


@pytest.mark.parametrize("in_memory", [False, True])
def test_targets_of_rows_without_weight_may_be_missing(in_memory: bool) -> None:
    x, y = wave()
    weight = (torch.arange(len(x)) % 3 > 0).float()
    y[weight == 0] = torch.nan
    train = batches(x, y, weight=weight) if in_memory else DataLoader(TensorDataset(x, y, weight), batch_size=50)
    model = network()
    fit_density_regression(model, train, train, options=TrainingOptions(epochs=15))
    assert nll(model, *wave(seed=20)) < 0.6


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("value", [-1.0, torch.nan, torch.inf])
def test_weights_that_are_none(value: float, in_memory: bool) -> None:
    x, y = wave()
    weight = torch.where(torch.arange(len(x)) == 3, value, 1.0)
    with pytest.raises(ValueError, match="Weights must be at least 0 and finite"):
        fit_density_regression(network(), batches(x, y, weight=weight) if in_memory else [(x, y, weight)])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_weights_may_be_a_mask(dtype: torch.dtype) -> None:
    x, y = wave()
    weight = (torch.arange(len(x)) % 3 > 0).to(dtype)
    for train in (batches(x, y, weight=weight), [(x, y, weight)]):
        model = network()
        fit_density_regression(model, train, options=TrainingOptions(epochs=15))
        assert nll(model, *wave(seed=20)) < 0.6
