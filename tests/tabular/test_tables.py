"""Scaling of large tables, some rows at a time, and samples of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from density_regression.nn.model import DensityRegression
from density_regression.tabular import table
from density_regression.tabular.table import Scaling, TrainingRows
from density_regression.training import batches as batches_module
from density_regression.training.batches import TensorBatches, cache_features


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "COPIED_ROWS", 7)


@pytest.mark.usefixtures("small_chunks")
def test_scaling_in_chunks_is_that_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    values, weight = rng.normal(size=(50, 3)) * [1, 1e200, 0] + [0, 0, 4], rng.uniform(size=50)
    rows = rng.permutation(50)[:40]
    center, scale = Scaling.fit(values, weight, rows)
    mean = np.average(values[rows, :1], axis=0, weights=weight[rows])
    deviation = np.sqrt(np.average((values[rows, :1] - mean) ** 2, axis=0, weights=weight[rows]))
    np.testing.assert_allclose([center[0], scale[0]], [mean[0], deviation[0]])
    np.testing.assert_allclose(scale[1:], [1e200, 1.0], rtol=0.5)
    assert center[2] == 4.0


@pytest.mark.parametrize("size", [0.1, 1e15, 1e18, 1e20, 1e300])
def test_what_rounding_leaves_of_a_large_constant_stays_small(size: float) -> None:
    """Such as nanoseconds since 1970, all of one moment: their weighted mean misses them by hundreds."""
    rng = np.random.default_rng(0)
    values = size / 3 * (1.0 + np.finfo(np.float64).eps * np.column_stack([np.zeros(50), np.arange(50) % 9]))
    scaled = Scaling.fit(values, rng.uniform(0.1, 1.0, 50)).apply(values)
    assert scaled.abs().max() < 3


@pytest.mark.parametrize("of_constant", [0.0, 1e-6])
@pytest.mark.parametrize("center", [-1e15, 1e15, 1e300])
def test_what_float64_can_tell_from_a_constant_is_none(center: float, of_constant: float) -> None:
    """A standard deviation of 2 at 1e15, where numbers are an eighth apart."""
    steps = np.random.default_rng(0).integers(-32, 33, size=(400, 1))
    unit = np.spacing(abs(center))
    weight = np.random.default_rng(1).uniform(0.1, 1.0, 400)
    scaling = Scaling.fit(center + steps * unit, weight, of_constant=of_constant)
    mean = np.average(steps[:, 0], weights=weight)
    deviation = np.sqrt(np.average((steps[:, 0] - mean) ** 2, weights=weight))
    np.testing.assert_allclose((scaling.center - center) / unit, mean, atol=0.51)
    np.testing.assert_allclose(scaling.scale / unit, deviation, rtol=1e-12)


@pytest.mark.parametrize("value", [0.1, -3e7, 1e15, 1e18, 1.7e308])
def test_the_mean_of_a_constant_is_that_constant(value: float) -> None:
    weight = np.random.default_rng(0).uniform(0.1, 1.0, 50)
    center, scale = Scaling.fit(np.full((50, 1), value), weight)
    assert (center, scale) == (value, 1.0)


@pytest.mark.usefixtures("small_chunks")
def test_a_table_of_some_rows() -> None:
    rng = np.random.default_rng(0)
    x, y, weight = rng.normal(size=(50, 3)), rng.normal(size=(50, 1)), rng.uniform(size=50)
    scalings = (Scaling.fit(x, weight), Scaling.fit(y, weight))
    rows = rng.permutation(50)[:40]
    some = TrainingRows.scaled(x, y, weight, scalings, rows)
    assert torch.equal(some.x, scalings[0].apply(x[rows]))
    assert torch.equal(some.y, scalings[1].apply(y[rows]))
    assert torch.equal(TrainingRows.scaled(x, y, weight, scalings).x, scalings[0].apply(x))


def test_a_sample_of_batches() -> None:
    x = torch.arange(100.0)[:, None]
    batches = TensorBatches(x, 2 * x, x[:, 0], 8, torch.Generator().manual_seed(0))
    assert batches.sample(100) is batches
    rows, targets, weights = (torch.cat(parts) for parts in zip(*batches.sample(30), strict=True))
    assert len(rows) == len(set(rows[:, 0].tolist())) == 30
    assert torch.equal(targets, 2 * rows)
    assert torch.equal(weights, rows[:, 0])
    # From all over the table, and the same each time.
    assert rows.max() > 70
    assert torch.equal(rows, torch.cat([part[0] for part in batches.sample(30)]))


def test_steps_two_and_three_hold_a_sample_of_a_large_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "MAX_CACHED_ROWS", 20)
    model = DensityRegression(torch.nn.Linear(2, 4), features=4)
    x = torch.randn(90, 2, generator=torch.Generator().manual_seed(0))
    features = cache_features(model, TensorBatches(x, x[:, :1], torch.ones(90), 16))
    assert features.z.shape == (20, 4)
    known = model.encode(x)
    assert all((known - z).abs().sum(1).min() < 1e-6 for z in features.z)
