"""Deep evidential regression, and Student's t that it shares with Natural Posterior Networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad
from scipy.special import gammaln
from scipy.stats import invgamma, norm, t
from torch import nn

from density_regression.baselines import EvidentialNetwork, EvidentialRegressor, fit_baseline
from density_regression.baselines.normal_inverse_gamma import NormalInverseGamma, log_gamma_ratio
from density_regression.nn.runtime import TrainingOptions

BELIEFS = [(0.3, 0.7, 2.5, 1.2), (-1.0, 5.0, 1.2, 0.1), (0.0, 0.05, 40.0, 30.0)]


def belief(*parts: float, dtype: torch.dtype = torch.float64) -> NormalInverseGamma:
    return NormalInverseGamma(*(torch.tensor([[part]], dtype=dtype) for part in parts))


def random_network(seed: int = 0, targets: int = 2, **params: float) -> EvidentialNetwork:
    torch.manual_seed(seed)
    network = EvidentialNetwork(nn.Identity(), 5, targets, **params)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_()
    return network


def as_numpy(parts: NormalInverseGamma) -> list[np.ndarray]:
    return [part.detach().double().numpy() for part in parts]


@pytest.mark.parametrize("parts", BELIEFS)
@pytest.mark.parametrize("y", [-3.0, 0.3, 50.0])
def test_nll_is_that_of_student_t(parts: tuple[float, ...], y: float) -> None:
    mean, nu, alpha, beta = parts
    expected = -t.logpdf(y, 2 * alpha, mean, np.sqrt(beta * (1 + nu) / (nu * alpha)))
    assert belief(*parts).nll(torch.tensor([[y]], dtype=torch.float64)).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("parts", BELIEFS[:2])
def test_nll_is_the_integral_over_the_belief(parts: tuple[float, ...]) -> None:
    mean, nu, alpha, beta = parts
    y = 0.8

    def density(log_variance: float, score: float) -> float:
        variance = np.exp(log_variance)
        mu = mean + score * np.sqrt(variance / nu)
        weight = norm.pdf(score) * invgamma.pdf(variance, alpha, scale=beta) * variance
        return norm.pdf(y, mu, np.sqrt(variance)) * weight

    integral, _ = dblquad(density, -9, 9, np.log(beta) - 8, np.log(beta) + 14, epsabs=1e-9, epsrel=1e-7)
    assert belief(*parts).nll(torch.tensor([[y]], dtype=torch.float64)).item() == pytest.approx(
        -np.log(integral), rel=1e-5
    )


@pytest.mark.parametrize("parts", BELIEFS)
def test_variance_is_that_of_student_t(parts: tuple[float, ...]) -> None:
    mean, nu, alpha, beta = parts
    found, log_std = belief(*parts).moments()
    expected = t.var(2 * alpha, mean, np.sqrt(beta * (1 + nu) / (nu * alpha)))
    assert found.item() == mean
    assert (2 * log_std).exp().item() == pytest.approx(expected, rel=1e-9)
    assert (2 * belief(*parts).log_scale()).exp().item() == pytest.approx(beta * (1 + nu) / (nu * alpha), rel=1e-9)


def test_parts_of_the_variance_are_moments_of_the_belief() -> None:
    mean, nu, alpha, beta = 0.5, 3.0, 6.0, 2.0
    rng = np.random.default_rng(0)
    variance = invgamma.rvs(alpha, scale=beta, size=400_000, random_state=rng)
    mu = rng.normal(mean, np.sqrt(variance / nu))
    parts = belief(mean, nu, alpha, beta)
    assert parts.log_aleatoric().exp().item() == pytest.approx(variance.mean(), rel=0.01)
    assert parts.log_epistemic().exp().item() == pytest.approx(mu.var(), rel=0.01)


@pytest.mark.parametrize("alpha", [1.01, 2.0, 29.9, 30.1, 1e3, 1e6])
def test_log_gamma_ratio(alpha: float) -> None:
    exact = gammaln(alpha + 0.5) - gammaln(alpha)
    assert log_gamma_ratio(torch.tensor(alpha, dtype=torch.float64)).item() == pytest.approx(exact, rel=1e-8)
    # In float32, where the difference of the two logarithms has no digit left at 1e6.
    assert log_gamma_ratio(torch.tensor(alpha)).item() == pytest.approx(exact, rel=1e-5, abs=1e-5)


def test_much_evidence_is_a_normal() -> None:
    parts = belief(0.2, 1e18, 1e20, 4e20, dtype=torch.float32)
    assert parts.nll(torch.tensor([[3.0]])).item() == pytest.approx(-norm.logpdf(3.0, 0.2, 2.0), rel=1e-5)


def test_regulariser_by_hand() -> None:
    z, y = torch.randn(7, 5), torch.randn(7, 2)
    network = random_network(regularisation=0.3)
    mean, nu, alpha, beta = as_numpy(network.row_belief(z))
    nll = -t.logpdf(y.numpy(), 2 * alpha, mean, np.sqrt(beta * (1 + nu) / (nu * alpha)))
    penalty = 0.3 * np.abs(y.numpy() - mean) * (2 * nu + alpha)
    np.testing.assert_allclose(network.train().row_losses(z, y).detach(), (nll + penalty).mean(axis=1), rtol=1e-4)
    np.testing.assert_allclose(network.eval().row_losses(z, y).detach(), nll.mean(axis=1), rtol=1e-4)


def test_network_begins_at_unit_variance() -> None:
    mean, nu, alpha, beta = EvidentialNetwork(nn.Identity(), 5, 3).row_belief(torch.randn(4, 5))
    for part, expected in ((nu, 1.0), (alpha, 2.01), (beta, 0.5)):
        torch.testing.assert_close(part, torch.full((4, 3), expected), rtol=1e-5, atol=1e-5)
    assert mean.std() > 0


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), size=st.floats(-10, 12))
def test_finite_in_float32(seed: int, size: float) -> None:
    network = random_network(seed)
    z = (10.0**size * torch.randn(20, 5)).clamp(-1e12, 1e12)
    parts = network.row_belief(z)
    assert (parts.nu > 0).all()
    assert (parts.alpha > 1).all()
    assert (parts.beta > 0).all()
    losses = network.train().row_losses(z, torch.randn(20, 2))
    losses.mean().backward()
    assert all(part.isfinite().all() for part in (*parts, *network.row_moments(z), losses, parts.log_scale()))
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_gradients_reach_every_parameter() -> None:
    network = random_network()
    network.row_losses(torch.randn(9, 5), torch.randn(9, 2)).mean().backward()
    assert all((parameter.grad != 0).any(-1).all() for parameter in network.parameters())


@pytest.fixture(scope="module")
def two(friedman) -> EvidentialRegressor:
    targets = np.column_stack([1e-3 * friedman.y, 1e6 * friedman.X[:, 0]])
    return EvidentialRegressor(hidden=(16,), epochs=10, random_state=0).fit(friedman.X, targets)


def test_own_dist_in_the_targets_units(two: EvidentialRegressor, friedman) -> None:
    dist = two.own_dist(friedman.X)
    mean, std = two.predict(friedman.X, return_std=True)
    assert dist.df.dtype == torch.float64
    assert dist.batch_shape == (300, 2)
    np.testing.assert_allclose(dist.mean, mean)
    np.testing.assert_allclose(dist.variance.sqrt(), std, rtol=1e-4)
    with torch.no_grad():
        parts = two.model_.belief(two.x_scaling_.apply(friedman.X))
    np.testing.assert_allclose(dist.df, 2 * parts.alpha, rtol=1e-5)


def test_parts_add_up_to_the_prediction(two: EvidentialRegressor, friedman) -> None:
    aleatoric, epistemic = two.decompose(friedman.X)[:2]
    _, std = two.predict(friedman.X, return_std=True)
    np.testing.assert_allclose(np.hypot(aleatoric, epistemic), std, rtol=1e-5)
    with torch.no_grad():
        parts = two.model_.belief(two.x_scaling_.apply(friedman.X))
    np.testing.assert_allclose((epistemic / aleatoric) ** 2, 1 / parts.nu, rtol=1e-4)


def test_one_target_is_squeezed(cubic) -> None:
    reg = EvidentialRegressor(hidden=(8,), epochs=2, random_state=0).fit(*cubic)
    assert reg.own_dist(cubic.X).batch_shape == reg.decompose(cubic.X).epistemic.shape == (200,)


def test_regularisation_lowers_evidence(friedman) -> None:
    low, high = (
        EvidentialRegressor(hidden=(16,), epochs=20, regularisation=weight, random_state=0).fit(*friedman)
        for weight in (0.0, 1.0)
    )
    assert high.own_dist(friedman.X).df.mean() < low.own_dist(friedman.X).df.mean()


def test_every_pixel_has_its_belief() -> None:
    torch.manual_seed(0)
    network = EvidentialNetwork(nn.Conv2d(3, 6, 3, padding=1), 6, 2)
    x, y = torch.randn(4, 3, 5, 7), torch.randn(4, 2, 5, 7)
    report = fit_baseline(network, [(x, y)], options=TrainingOptions(epochs=1))
    assert np.isfinite(report.history).all()
    parts = network.belief(x)
    assert all(part.shape == y.shape for part in (*parts, *network.moments(x)))
    pixel = network.row_belief(network.encode(x)[1, :, 2, 3][None])
    torch.testing.assert_close(parts.nu[1, :, 2, 3], pixel.nu[0])


@pytest.mark.parametrize("regularisation", [-0.1, np.nan, np.inf])
def test_bad_regularisation(regularisation: float, cubic) -> None:
    with pytest.raises(ValueError, match="regularisation"):
        EvidentialNetwork(nn.Identity(), 3, regularisation=regularisation)
    with pytest.raises(ValueError, match="regularisation"):
        EvidentialRegressor(regularisation=regularisation).fit(*cubic)
