"""The Gaussian network: its likelihood, beta-NLL, and pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from torch import nn

from density_regression import TrainingOptions
from density_regression.baselines import GaussianNetwork, GaussianRegressor, fit_baseline
from density_regression.baselines.gaussian import MAX_ABS_LOG_STD, gaussian_nll, split_moments
from density_regression.nn.heads import Moments

DOUBLE = torch.float64


def random_moments(n: int = 50, k: int = 3, seed: int = 0) -> tuple[Moments, torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    mean, log_std, y = (torch.randn(n, k, generator=source, dtype=DOUBLE) for _ in range(3))
    return Moments(mean, log_std), 3 * y


@given(seed=st.integers(0, 1000), k=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_nll_is_that_of_scipy(seed: int, k: int) -> None:
    moments, y = random_moments(k=k, seed=seed)
    expected = -norm.logpdf(y.numpy(), moments.mean.numpy(), moments.log_std.exp().numpy()).mean(axis=1)
    np.testing.assert_allclose(gaussian_nll(moments, y).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_gradients_of_beta_nll(beta: float) -> None:
    """By hand: those of the likelihood times var^beta; with beta = 1 the mean learns as by least squares."""
    (mean, log_std), y = random_moments(k=1)
    mean.requires_grad_()
    log_std.requires_grad_()
    gaussian_nll(Moments(mean, log_std), y, beta).sum().backward()
    variance = log_std.detach().exp() ** 2
    error = y - mean.detach()
    torch.testing.assert_close(mean.grad, -error * variance ** (beta - 1))
    torch.testing.assert_close(log_std.grad, (1 - error**2 / variance) * variance**beta)


def test_early_stopping_looks_at_the_likelihood_itself() -> None:
    torch.manual_seed(0)
    model = GaussianNetwork(nn.Identity(), 4, beta=0.5)
    nn.init.normal_(model.linear.weight)
    z, y = torch.randn(30, 4), torch.randn(30, 1)
    plain = gaussian_nll(model.row_moments(z), y)
    torch.testing.assert_close(model.eval().row_losses(z, y), plain)
    assert not torch.allclose(model.train().row_losses(z, y), plain)


def test_it_starts_at_unit_variance_for_all() -> None:
    assert (GaussianNetwork(nn.Identity(), 4, 2).row_moments(torch.randn(9, 4)).log_std == 0).all()


def test_the_variance_is_bounded() -> None:
    log_std = split_moments(torch.tensor([[0.0, 1e9], [0.0, -1e9]])).log_std
    assert log_std.tolist() == [[MAX_ABS_LOG_STD], [-MAX_ABS_LOG_STD]]


def test_it_finds_mean_and_noise_that_both_change() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 1))
    y = np.sin(3 * X[:, 0]) + np.exp(X[:, 0] - 1) * rng.normal(size=3000)
    reg = GaussianRegressor(hidden=(32, 32), epochs=60, random_state=0, verbose=False).fit(X, y)
    x = np.linspace(-0.9, 0.9, 50)
    mean, std = reg.predict(x[:, None], return_std=True)
    assert np.abs(mean - np.sin(3 * x)).max() < 0.25
    assert np.abs(std / np.exp(x - 1) - 1).max() < 0.35


def test_pixels() -> None:
    torch.manual_seed(0)
    x = torch.rand(12, 3, 6, 5)
    y = x.mean(1, keepdim=True) + 0.05 * torch.randn(12, 1, 6, 5)
    model = GaussianNetwork(nn.Conv2d(3, 8, 1), 8)
    train, held_out, options = [(x[:8], y[:8])], [(x[8:], y[8:])], TrainingOptions(epochs=60)
    report = fit_baseline(model, train, held_out, options=options, scale_targets=False, verbose=False)
    assert model(x).mean.shape == y.shape
    assert report.history[-1] < report.history[0] - 1
    # Each pixel is a row: the network has seen no other.
    alone = model(x[:1, :, 2:3, 3:4])
    torch.testing.assert_close(alone.mean[0, 0, 0, 0], model(x).mean[0, 0, 2, 3])


@pytest.mark.parametrize("beta", [-0.1, 1.1, "much"])
def test_bad_beta(beta: object) -> None:
    with pytest.raises(ValueError, match="beta"):
        GaussianRegressor(beta=beta).fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize("beta", [-0.1, 1.1, float("nan")])
def test_bad_beta_of_the_network(beta: float) -> None:
    with pytest.raises(ValueError, match="beta must lie between 0 and 1"):
        GaussianNetwork(nn.Identity(), 2, beta=beta)
