"""Mixtures of Gaussians: their moments, and the distribution an estimator returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from density_regression.baselines import MCDropoutRegressor
from density_regression.baselines.mixture import mixture_moments
from density_regression.nn.heads import Moments


def members(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Moments:
    generator = torch.Generator().manual_seed(0)
    mean, log_std = (torch.randn(shape, generator=generator, dtype=dtype) for _ in range(2))
    return Moments(3.0 * mean, log_std)


@pytest.mark.parametrize("shape", [(1, 4, 1), (7, 4, 2), (5, 2, 3, 4, 4)], ids=["one", "rows", "images"])
def test_mixture_moments_are_those_of_the_mixture(shape: tuple[int, ...]) -> None:
    means, log_stds = members(shape)
    mean, log_std = mixture_moments(Moments(means, log_stds))
    mu, sigma = means.numpy(), np.exp(log_stds.numpy())
    np.testing.assert_allclose(mean, mu.mean(0), rtol=1e-12)
    second = (sigma**2 + mu**2).mean(0)
    np.testing.assert_allclose(np.exp(2 * log_std.numpy()), second - mu.mean(0) ** 2, rtol=1e-9)


def test_mixture_moments_are_those_of_draws() -> None:
    means, log_stds = members((4, 3, 1))
    mean, log_std = mixture_moments(Moments(means, log_stds))
    rng = np.random.default_rng(0)
    which = rng.integers(4, size=400_000)
    draws = means.numpy()[which] + np.exp(log_stds.numpy())[which] * rng.standard_normal((len(which), 3, 1))
    std = np.exp(log_std.numpy())
    assert (np.abs(draws.mean(0) - mean.numpy()) < 5 * std / np.sqrt(len(draws))).all()
    np.testing.assert_allclose(draws.std(0), std, rtol=0.01)


def test_far_away_predictions_do_not_overflow() -> None:
    means = torch.tensor([[1e30], [-1e30]])
    mean, log_std = mixture_moments(Moments(means, torch.full((2, 1), 80.0)))
    assert mean.item() == 0.0
    # e^80 is far above 1e30, both squares are beyond float32.
    assert log_std.item() == pytest.approx(80.0)
    assert mixture_moments(Moments(means, torch.zeros(2, 1))).log_std.item() == pytest.approx(30 * np.log(10))


def test_members_that_agree_add_nothing() -> None:
    log_std = mixture_moments(Moments(torch.full((50, 1), 2.0), torch.full((50, 1), -10.0))).log_std
    assert log_std.item() == pytest.approx(-10.0)


def test_gradient_is_finite_where_members_agree() -> None:
    means = torch.ones(3, 2, requires_grad=True)
    mixture_moments(Moments(means, torch.zeros(3, 2))).log_std.sum().backward()
    assert means.grad is not None
    assert means.grad.isfinite().all()


@pytest.fixture(scope="module", params=[1, 2], ids=["one target", "two targets"])
def fitted(request: pytest.FixtureRequest, cubic) -> MCDropoutRegressor:
    y = cubic.y if request.param == 1 else np.column_stack([cubic.y, 1e6 * cubic.X[:, 0]])
    reg = MCDropoutRegressor(hidden=(8,), epochs=3, n_samples=6, dropout=0.3, random_state=0, verbose=False)
    return reg.fit(cubic.X, y)


def test_prediction_is_the_mixture_of_the_members(fitted: MCDropoutRegressor, cubic) -> None:
    means, stds = fitted.predict_members(cubic.X)
    assert means.shape == stds.shape == (6, 200, *fitted.target_shape_)
    mean, std = fitted.predict(cubic.X, return_std=True)
    np.testing.assert_allclose(mean, means.mean(0), rtol=1e-4, atol=1e-4 * np.abs(mean).max())
    np.testing.assert_allclose(std**2, (stds**2).mean(0) + means.var(0), rtol=1e-4)


def test_own_dist_is_the_mixture(fitted: MCDropoutRegressor, cubic) -> None:
    X = cubic.X[:20]
    means, stds = fitted.predict_members(X)
    dist = fitted.own_dist(X)
    mean, std = fitted.predict(X, return_std=True)
    assert dist.batch_shape == (20, *fitted.target_shape_)
    assert dist.mean.dtype == torch.float64
    np.testing.assert_allclose(dist.mean, mean, rtol=1e-4, atol=1e-4 * np.abs(mean).max())
    np.testing.assert_allclose(dist.stddev, std, rtol=1e-4)
    at = mean + 0.7 * std
    density = (np.exp(-0.5 * ((at - means) / stds) ** 2) / (stds * np.sqrt(2 * np.pi))).mean(0)
    np.testing.assert_allclose(dist.log_prob(torch.from_numpy(at)), np.log(density), rtol=1e-8)
