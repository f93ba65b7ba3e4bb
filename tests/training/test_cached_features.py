"""Features cached for steps 2 and 3: all of them in order, or a uniform sample."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import nn

from density_regression import DensityRegression
from density_regression.training import batches as batches_module
from density_regression.training.batches import cache_features
from training.helpers import batches, features, generator, on_features


def test_features_that_fit_are_cached_in_order() -> None:
    x = torch.arange(60.0).reshape(30, 2)
    weight = torch.linspace(0.1, 1.0, 30)
    model = DensityRegression(nn.Identity(), 2)
    model.train()
    cached = cache_features(model, batches(x, x[:, :1] + 0.5, 7, weight))
    assert not model.training
    assert torch.equal(cached.z, x)
    assert torch.equal(cached.y, x[:, :1] + 0.5)
    assert torch.equal(cached.weight, weight)
    assert not cached.z.requires_grad


@pytest.mark.parametrize("size", [13, 700, 20_000])
def test_features_that_do_not_fit_are_sampled_uniformly(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "MAX_CACHED_VALUES", 2000)
    x = torch.arange(20_000.0)[:, None]
    cached = cache_features(DensityRegression(nn.Identity(), 1), batches(x, 2 * x, size, x[:, 0] + 1))
    assert len(cached.z.unique()) == len(cached.z) == 2000
    assert torch.equal(cached.y, 2 * cached.z)
    assert torch.equal(cached.weight, cached.z[:, 0] + 1)
    # By where they lie in the data, and by where they lie in their batch.
    for position in (cached.z[:, 0] // 1000, cached.z[:, 0] % size // (size / 13)):
        counts = position.long().bincount(minlength=13)
        assert chisquare(counts.numpy()).pvalue > 1e-3
    # Two of them nearer to each other than chance brings about would mean that batches are kept whole.
    assert cached.z[:, 0].sort().values.diff().max() < 150


def test_rows_without_weight_take_no_place_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "MAX_CACHED_ROWS", 20)
    rows = features(100, dims=1)
    weight = torch.zeros(100).double()
    weight[::10] = 1.0
    table = batches(rows.z, rows.y, 30, weight)
    assert torch.equal(cache_features(on_features(dims=1), table).z, rows.z[::10])


@pytest.mark.parametrize("size", [7, 300, 5000])
def test_a_loader_that_does_not_fit_is_sampled_uniformly(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are known only as they come, so that a sample is kept up to date."""
    monkeypatch.setattr(batches_module, "MAX_CACHED_VALUES", 500)
    x = torch.arange(5000.0)[:, None]
    loader = [(x[i : i + size], 2 * x[i : i + size], x[i : i + size, 0] + 1) for i in range(0, 5000, size)]
    cached = cache_features(DensityRegression(nn.Identity(), 1), loader)
    assert len(cached.z.unique()) == len(cached.z) == 500
    assert torch.equal(cached.y, 2 * cached.z)
    assert torch.equal(cached.weight, cached.z[:, 0] + 1)
    assert chisquare((cached.z[:, 0] // 500).long().bincount(minlength=10).numpy()).pvalue > 1e-3


def test_rows_of_a_loader_without_weight_are_left_out() -> None:
    rows = features(20, dims=1)
    weight = (torch.arange(20) % 3 == 0).double()
    y = torch.where(weight[:, None] > 0, rows.y, math.nan)
    loader = [(rows.z[i : i + 5], y[i : i + 5], weight[i : i + 5]) for i in range(0, 20, 5)]
    cached = cache_features(on_features(dims=1), loader)
    assert torch.equal(cached.z, rows.z[::3])
    assert torch.equal(cached.y, rows.y[::3])
    assert torch.equal(cached.weight, torch.ones(7).double())


def test_rows_of_a_table_are_limited_and_positions_of_images_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "MAX_CACHED_ROWS", 20)
    x = torch.randn(30, 2, generator=generator())
    model = DensityRegression(nn.Identity(), 2)
    assert len(cache_features(model, batches(x, x[:, :1])).z) == 20
    images = x[..., None].expand(30, 2, 4)
    assert len(cache_features(model, batches(images, images[:, :1])).z) == 120


def test_exactly_as_many_as_fit_are_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "MAX_CACHED_VALUES", 60)
    x = torch.arange(60.0).reshape(30, 2)
    model = DensityRegression(nn.Identity(), 2)
    cached = cache_features(model, batches(x, x[:, :1], 7))
    assert torch.equal(cached.z, x)
    cached = cache_features(model, batches(*(torch.cat([part, part[:1]]) for part in (x, x[:, :1])), 7))
    assert len(cached.z) == 30


@pytest.mark.parametrize("shape", [(5,), (3, 4)], ids=["sequence", "image"])
def test_one_row_is_cached_for_each_position(shape: tuple[int, ...]) -> None:
    x = torch.randn(6, 2, *shape, generator=generator())
    y = torch.randn(6, 3, *shape, generator=generator(1))
    weight = torch.arange(1.0, 7.0)
    cached = cache_features(DensityRegression(nn.Identity(), 2, targets=3), batches(x, y, 4, weight))
    places = list(np.ndindex(*shape))
    assert torch.equal(cached.z, torch.stack([x[(row, slice(None), *at)] for row in range(6) for at in places]))
    assert torch.equal(cached.y, torch.stack([y[(row, slice(None), *at)] for row in range(6) for at in places]))
    assert torch.equal(cached.weight, torch.stack([weight[row] for row in range(6) for _ in places]))
