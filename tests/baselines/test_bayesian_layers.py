"""Bayesian linear layers and their priors against closed forms, quadrature and sampled weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

from density_regression.baselines.bayesian import BayesianLinear, Prior, gaussian_kl, mixture_kl

MIXTURE = Prior(std=1.0, narrow_std=0.1, narrow_share=0.4)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def layer(gradient: str = "local", *, bias: bool = True) -> BayesianLinear:
    """A layer of 3 inputs and 2 outputs in float64, whose standard deviations are all different and not small."""
    part = BayesianLinear(nn.Linear(3, 2, bias=bias), Prior(), gradient).double()
    with torch.no_grad():
        part.mean.normal_()
        part.rho.uniform_(-1.0, 0.5)
    return part


# -- the divergence from the prior ------------------------------------------------------------------------------


def test_gaussian_divergence_is_that_of_torch() -> None:
    mean, std = torch.randn(4, 3).double(), torch.rand(4, 3).double() + 0.1
    expected = kl_divergence(Normal(mean, std), Normal(0.0, 0.7)).sum()
    torch.testing.assert_close(gaussian_kl(mean, std, 0.7), expected)
    torch.testing.assert_close(Prior(0.7).divergence(mean, std), expected)


def test_gaussian_divergence_is_that_of_draws() -> None:
    mean, std = torch.tensor([0.3, -1.0]).double(), torch.tensor([0.2, 0.9]).double()
    posterior, prior = Normal(mean, std), Normal(0.0, 0.7)
    draws = posterior.sample((400_000,))
    estimates = (posterior.log_prob(draws) - prior.log_prob(draws)).sum(1)
    error = estimates.std().item() / math.sqrt(len(draws))
    assert abs(estimates.mean().item() - gaussian_kl(mean, std, 0.7).item()) < 4 * error


def divergence_by_quadrature(mean: float, std: float, prior: Prior) -> float:
    def integrand(w: float) -> float:
        density = (1 - prior.narrow_share) * norm.pdf(w, 0, prior.std)
        density += prior.narrow_share * norm.pdf(w, 0, prior.narrow_std)
        return norm.pdf(w, mean, std) * (norm.logpdf(w, mean, std) - math.log(density))

    ends = mean - 12 * std, mean + 12 * std
    inside = [point for point in (0.0, mean) if ends[0] < point < ends[1]]
    return quad(integrand, *ends, points=inside, limit=500)[0]


def test_mixture_divergence_is_unbiased() -> None:
    means, stds = np.array([0.0, 0.05, 1.5]), np.array([0.1, 0.5, 0.3])
    exact = sum(divergence_by_quadrature(mean, std, MIXTURE) for mean, std in zip(means, stds, strict=True))
    mean, std = torch.from_numpy(means), torch.from_numpy(stds)
    estimates = torch.stack([mixture_kl(mean, std, MIXTURE) for _ in range(20_000)])
    error = estimates.std().item() / math.sqrt(len(estimates))
    assert error < 0.02
    assert abs(estimates.mean().item() - exact) < 4 * error


def test_slope_of_the_mixture_divergence_is_unbiased() -> None:
    at, step, n = (0.3, 0.4), 1e-4, 200_000
    exact = [
        divergence_by_quadrature(at[0] + step, at[1], MIXTURE) - divergence_by_quadrature(at[0] - step, at[1], MIXTURE),
        divergence_by_quadrature(at[0], at[1] + step, MIXTURE) - divergence_by_quadrature(at[0], at[1] - step, MIXTURE),
    ]
    mean, std = (torch.tensor(value).double().requires_grad_() for value in at)
    (mixture_kl(mean.expand(n), std.expand(n), MIXTURE) / n).backward()
    np.testing.assert_allclose([mean.grad, std.grad], np.array(exact) / (2 * step), atol=0.05)


def test_a_mixture_of_equals_is_a_gaussian() -> None:
    mean, std = torch.zeros(200_000).double(), torch.full((200_000,), 0.3).double()
    estimate = mixture_kl(mean, std, Prior(0.5, 0.5, 0.3)) / len(mean)
    assert estimate.item() == pytest.approx(gaussian_kl(mean, std, 0.5).item() / len(mean), abs=2e-3)


def test_mixture_divergence_is_finite_far_away() -> None:
    assert mixture_kl(torch.tensor([1e3]), torch.tensor([1e-8]), Prior(1.0, 0.0025, 0.5)).isfinite()


# -- noise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("gradient", ["local", "flipout"])
@torch.no_grad()
def test_outputs_have_the_moments_of_sampled_weights(gradient: str, bias: bool) -> None:
    part, n = layer(gradient, bias=bias).train(), 20_000
    x = torch.tensor([[0.5, -2.0, 1.0], [3.0, 0.0, -1.0]]).double()
    outputs = torch.stack([part(x) for _ in range(n)])
    weights = part.mean + part.std * torch.randn(n, *part.mean.shape).double()
    sampled = x @ weights[..., :3].mT + (weights[:, None, :, 3] if bias else 0.0)
    ones = torch.cat([x, torch.ones(2, 1)], 1) if bias else x
    mean, variance = ones @ part.mean.T, ones.square() @ part.std.square().T
    for draws in (outputs, sampled):
        assert ((draws.mean(0) - mean).abs() < 5 * (variance / n).sqrt()).all()
        torch.testing.assert_close(draws.var(0), variance, rtol=0.06, atol=0.0)


@pytest.mark.parametrize("gradient", ["local", "flipout"])
@torch.no_grad()
def test_rows_have_noise_of_their_own(gradient: str) -> None:
    part = layer(gradient).train()
    x = torch.tensor([[0.5, -2.0, 1.0]]).double().repeat(2, 1)
    noise = torch.stack([part(x) for _ in range(5_000)]) - F.linear(x, part.mean[:, :3], part.mean[:, 3])
    # Neither the noise of an output nor how that of two outputs goes together is that of the other row.
    for values in (noise[..., 0], noise.prod(-1)):
        assert abs(torch.corrcoef(values.T)[0, 1]) < 0.06


@pytest.mark.parametrize("gradient", ["local", "flipout"])
def test_gradients_are_those_of_sampled_weights(gradient: str) -> None:
    """Slope of E[output^2], which is mean^2 + variance, in every mean and rho."""
    part = layer(gradient).train()
    x = torch.tensor([[0.5, -2.0, 1.0]]).double()
    # Flipout draws its weights once for a batch, so it takes many batches.
    for _ in range(4_000):
        (part(x.repeat(50, 1)).square().mean(0).sum() / 4_000).backward()
    found = part.mean.grad, part.rho.grad
    part.mean.grad = part.rho.grad = None
    ones = torch.cat([x, torch.ones(1, 1)], 1)
    ((ones @ part.mean.T).square() + ones.square() @ part.std.square().T).sum().backward()
    for gradient_found, exact in zip(found, (part.mean.grad, part.rho.grad), strict=True):
        torch.testing.assert_close(gradient_found, exact, rtol=0.1, atol=0.15)


def test_no_input_no_noise_and_no_nan() -> None:
    part = layer(bias=False).train()
    part(torch.zeros(2, 3).double()).sum().backward()
    assert part.rho.grad.isfinite().all()
