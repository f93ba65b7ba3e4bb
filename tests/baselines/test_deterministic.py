"""Least squares, and a standard deviation from the held-out rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from density_regression import TrainingOptions
from density_regression.baselines import DeterministicNetwork, DeterministicRegressor, fit_baseline
from density_regression.tabular.table import split_rows

DOUBLE = torch.float64


def table(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=source, dtype=DOUBLE)
    return x, x[:, :2] * torch.tensor([1.0, -2.0]) + torch.randn(n, 2, generator=source, dtype=DOUBLE)


def test_the_std_is_the_weighted_rmse_of_the_held_out_rows() -> None:
    torch.manual_seed(0)
    model = DeterministicNetwork(nn.Identity(), 3, 2).double()
    x, y = table(40)
    weight = torch.rand(40, dtype=DOUBLE)
    model.finish([], [(x[:15], y[:15], weight[:15]), (x[15:], y[15:], weight[15:])])
    error = (y - model.linear(x)).detach().numpy() ** 2
    expected = np.sqrt(np.average(error, axis=0, weights=weight.numpy()))
    np.testing.assert_allclose(model.log_std.exp().numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(model(x).stddev.numpy(), np.tile(expected, (40, 1)), rtol=1e-6)


def test_a_linear_network_finds_least_squares() -> None:
    x, y = table(200)
    model = DeterministicNetwork(nn.Identity(), 3, 2).double()
    options = TrainingOptions(epochs=300, weight_decay=0.0, patience=None, learning_rate=0.05)
    batches = DataLoader(TensorDataset(x, y), 200)
    fit_baseline(model, batches, options=options, scale_targets=False, verbose=False)
    design = np.column_stack([x.numpy(), np.ones(200)])
    expected = np.linalg.lstsq(design, y.numpy(), rcond=None)[0]
    np.testing.assert_allclose(model.linear.weight.detach().numpy(), expected[:-1].T, atol=1e-3)
    np.testing.assert_allclose(model.linear.bias.detach().numpy(), expected[-1], atol=1e-3)


def test_the_estimator_s_std_is_its_error_on_the_rows_it_held_out(cubic) -> None:
    reg = DeterministicRegressor(hidden=(16,), epochs=10, random_state=0, verbose=False).fit(*cubic)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    _, held = split_rows(len(cubic.X), 0.15, seed)
    mean, std = reg.predict(cubic.X[held], return_std=True)
    np.testing.assert_allclose(std, np.sqrt(np.mean((cubic.y[held] - mean) ** 2)), rtol=1e-5)


def test_a_perfect_fit_still_has_a_width() -> None:
    x = torch.zeros(5, 2)
    model = DeterministicNetwork(nn.Identity(), 2)
    nn.init.zeros_(model.linear.bias)
    model.finish([], [(x, torch.zeros(5, 1))])
    assert model(x).stddev.min() > 0


def test_targets_of_another_shape_are_refused() -> None:
    model = DeterministicNetwork(nn.Identity(), 2)
    with pytest.raises(ValueError, match=r"Targets have shape \(5,\), the model predicts \(5, 1\)"):
        model.loss(torch.zeros(5, 2), torch.zeros(5), torch.ones(5))


def test_rows_without_weight_have_no_rmse() -> None:
    rows = torch.zeros(5, 2), torch.zeros(5, 1), torch.zeros(5)
    with pytest.raises(ValueError, match="no rows with weight"):
        fit_baseline(DeterministicNetwork(nn.Identity(), 2), [rows], options=TrainingOptions(epochs=1), verbose=False)
