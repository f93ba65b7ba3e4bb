"""Natural Posterior Networks: the conjugate update, the Bayesian loss, and evidence that falls away from the data."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import invgamma, norm, t
from torch import nn

from density_regression import load
from density_regression.baselines import NaturalPosteriorNetwork, NaturalPosteriorRegressor, fit_baseline
from density_regression.baselines.normal_inverse_gamma import NormalInverseGamma
from density_regression.nn.runtime import TrainingOptions

BELIEFS = [(0.3, 1.5, 1.75, 2.0), (-1.0, 40.0, 21.0, 5.0), (0.0, 300.0, 151.0, 900.0)]


def belief(*parts: float, dtype: torch.dtype = torch.float64) -> NormalInverseGamma:
    return NormalInverseGamma(*(torch.tensor([[part]], dtype=dtype) for part in parts))


def random_network(seed: int = 0, **params: object) -> NaturalPosteriorNetwork:
    torch.manual_seed(seed)
    network = NaturalPosteriorNetwork(nn.Identity(), 5, 2, **{"latent": 3, "layers": 2, **params})
    with torch.no_grad():
        network.linear.weight.normal_()
        network.linear.bias.normal_()
    return network


def test_posterior_is_the_conjugate_update_by_hand() -> None:
    network = random_network(prior_scale=3.0, prior_evidence=2.0).double()
    z = torch.randn(6, 5, dtype=torch.float64)
    latent = network.project(z)
    log_density = network.flow.log_prob(latent).detach().numpy()
    output = network.linear(latent).detach().numpy()
    n = (np.exp(log_density) * (4 * np.pi) ** 1.5)[:, None]
    chi = np.stack([output[:, :2], output[:, :2] ** 2 + np.exp(2 * output[:, 2:])])
    chi_prior = np.array([0.0, 3.0**2])[:, None, None]
    total = 2.0 + n
    first, second = (2.0 * chi_prior + n * chi) / total
    found = network.row_belief(z)
    expected = (first, total, 1 + total / 2, total / 2 * (second - first**2))
    for part, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(part.detach(), np.broadcast_to(value, (6, 2)), rtol=1e-6)


def test_update_is_that_of_counted_rows() -> None:
    """Evidence of 3 is three more rows: the textbook's update of a Normal-inverse-gamma by a sample."""
    rows, prior_evidence, prior_scale = np.array([0.4, 1.9, -0.7]), 2.0, 1.5
    network = random_network(prior_scale=prior_scale, prior_evidence=prior_evidence)
    mean, log_std = torch.tensor([[rows.mean()]]), torch.tensor([[math.log(rows.std())]])
    found = network._update(mean, log_std, torch.tensor([[3.0]]).double())
    alpha, beta = 1 + prior_evidence / 2 + 3 / 2, prior_evidence * prior_scale**2 / 2
    beta += rows.var() * 3 / 2 + prior_evidence * 3 / (prior_evidence + 3) * rows.mean() ** 2 / 2
    expected = (3 * rows.mean() / (prior_evidence + 3), prior_evidence + 3, alpha, beta)
    np.testing.assert_allclose([part.item() for part in found], expected)


@pytest.mark.parametrize("parts", BELIEFS)
def test_expected_log_likelihood_and_entropy_by_sampling(parts: tuple[float, ...]) -> None:
    mean, nu, alpha, beta = parts
    rng = np.random.default_rng(0)
    variance = invgamma.rvs(alpha, scale=beta, size=400_000, random_state=rng)
    mu = rng.normal(mean, np.sqrt(variance / nu))
    y = 0.8
    log_likelihood = norm.logpdf(y, mu, np.sqrt(variance))
    surprise = -invgamma.logpdf(variance, alpha, scale=beta) - norm.logpdf(mu, mean, np.sqrt(variance / nu))
    found = belief(*parts)
    pairs = [
        (found.expected_log_likelihood(torch.tensor([[y]], dtype=torch.float64)), log_likelihood),
        (found.entropy(), surprise),
    ]
    for value, draws in pairs:
        assert value.item() == pytest.approx(draws.mean(), abs=5 * draws.std() / math.sqrt(len(draws)))


@pytest.mark.parametrize("alpha", [29.999, 30.001, 1e3, 1e4])
def test_entropy_by_series(alpha: float) -> None:
    expected = invgamma(alpha, scale=2.0).entropy() + 0.5 * math.log(2 * math.pi * math.e / 3.0)
    expected += 0.5 * (math.log(2.0) - torch.tensor(alpha).double().digamma().item())
    assert belief(0.0, 3.0, alpha, 2.0).entropy().item() == pytest.approx(expected, rel=1e-7)
    assert belief(0.0, 3.0, alpha, 2.0, dtype=torch.float32).entropy().item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("parts", BELIEFS)
def test_predictive_is_the_integral_over_the_belief(parts: tuple[float, ...]) -> None:
    mean, nu, alpha, beta = parts
    y = 0.8

    def density(log_variance: float) -> float:
        variance = math.exp(log_variance)
        # The mean is integrated by hand: Normal + Normal.
        prior = invgamma.pdf(variance, alpha, scale=beta) * variance
        return norm.pdf(y, mean, math.sqrt(variance * (1 + 1 / nu))) * prior

    center = math.log(beta / alpha)
    integral, _ = quad(density, center - 8, center + 14, points=[center], limit=500)
    assert belief(*parts).nll(torch.tensor([[y]], dtype=torch.float64)).item() == pytest.approx(
        -math.log(integral), rel=1e-6
    )


def test_loss_by_hand() -> None:
    network = random_network(entropy=0.1)
    z, y = torch.randn(6, 5), torch.randn(6, 2)
    found = network.row_belief(z)
    bayesian = -(found.expected_log_likelihood(y) + 0.1 * found.entropy())
    torch.testing.assert_close(network.train().row_losses(z, y), bayesian.mean(1))
    mean, nu, alpha, beta = (part.detach().numpy() for part in found)
    nll = -t.logpdf(y.numpy(), 2 * alpha, mean, np.sqrt(beta * (1 + nu) / (nu * alpha)))
    np.testing.assert_allclose(network.eval().row_losses(z, y).detach(), nll.mean(axis=1), rtol=1e-4)


def test_variance_without_evidence_is_that_of_the_prior() -> None:
    network = random_network(prior_scale=3.0, prior_evidence=2.0).eval()
    mean, log_std = network.row_moments(torch.full((1, 5), 1e6))
    np.testing.assert_allclose(mean.detach(), 0.0, atol=1e-6)
    np.testing.assert_allclose(log_std.exp().detach(), 3.0 * math.sqrt(1 + 1 / 2), rtol=1e-5)


@pytest.fixture(scope="module")
def cubic_fit(cubic) -> NaturalPosteriorRegressor:
    return NaturalPosteriorRegressor(embedding=None, epochs=60, n_threads=1, random_state=0).fit(*cubic)


def test_prediction_tends_to_the_prior_far_away(cubic_fit: NaturalPosteriorRegressor, cubic) -> None:
    scores = cubic_fit.score_samples(np.array([[0.0], [1e2], [1e3], [1e4]]))
    assert scores.dtype == np.float32
    assert (np.diff(scores) < 0).all()
    mean, std = cubic_fit.predict([[1e6], [-1e6]], return_std=True)
    center, scale = cubic_fit.y_scaling_.center, cubic_fit.y_scaling_.scale
    np.testing.assert_allclose(mean, np.repeat(center, 2), atol=1e-3 * scale.item())
    np.testing.assert_allclose(std, np.repeat(10 * math.sqrt(2) * scale, 2), rtol=1e-3)
    aleatoric, epistemic, *_ = cubic_fit.decompose(cubic.X)
    assert np.median(epistemic / aleatoric) < 0.2


def test_own_dist_has_the_predicted_moments(cubic_fit: NaturalPosteriorRegressor, cubic) -> None:
    dist = cubic_fit.own_dist(np.concatenate([cubic.X, [[1e5]]]))
    mean, std = cubic_fit.predict(np.concatenate([cubic.X, [[1e5]]]), return_std=True)
    np.testing.assert_allclose(dist.mean, mean)
    np.testing.assert_allclose(dist.variance.sqrt(), std, rtol=1e-4)


@pytest.mark.parametrize("flow", ["radial", "realnvp", "maf", "nsf"])
def test_gradients_reach_every_parameter(flow: str) -> None:
    network = random_network(flow=flow).train()
    network.row_losses(torch.randn(64, 5), torch.randn(64, 2)).mean().backward()
    assert all(parameter.grad is not None and (parameter.grad != 0).any() for parameter in network.parameters())


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1000), size=st.floats(-10, 12))
def test_finite_in_float32(seed: int, size: float) -> None:
    network = random_network(seed)
    z = (10.0**size * torch.randn(20, 5)).clamp(-1e12, 1e12)
    parts = network.row_belief(z)
    assert (parts.alpha > 1).all()
    assert (parts.beta > 0).all()
    losses = network.train().row_losses(z, torch.randn(20, 2))
    losses.mean().backward()
    assert all(part.isfinite().all() for part in (*parts, *network.row_moments(z), losses))
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_many_coordinates_do_not_overflow() -> None:
    """The budget grows with them: at the origin the evidence would be 2^(H/2)."""
    network = random_network(latent=1024)
    parts = network.row_belief(torch.zeros(1, 5))
    assert parts.nu.log().min().item() == pytest.approx(50.0)
    losses = network.row_losses(torch.zeros(1, 5), torch.ones(1, 2))
    assert all(part.isfinite().all() for part in (*parts, *parts.moments(), losses, parts.nll(torch.ones(1, 2))))


@pytest.mark.parametrize("flow", ["realnvp", "maf", "nsf"])
def test_other_flows(flow: str, tmp_path: Path, cubic) -> None:
    settings = {"layers": 2, "latent": 3, "hidden": (16,), "epochs": 3, "embedding": None, "random_state": 0}
    reg = NaturalPosteriorRegressor(flow=flow, **settings).fit(*cubic)
    X = np.concatenate([cubic.X, [[1e30], [-1e308]]])
    reg.save(tmp_path / "model")
    back = load(tmp_path / "model")
    np.testing.assert_allclose(back.score_samples(X), reg.score_samples(X), rtol=1e-5)
    assert np.isfinite(reg.predict(X, return_std=True)).all()
    assert (reg.score_samples(X)[-2:] < reg.score_samples(cubic.X).min()).all()


def test_flows_without_zuko(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match="density-regression\\[flow\\]"):
        random_network(flow="maf")


def test_every_pixel_has_its_evidence() -> None:
    torch.manual_seed(0)
    network = NaturalPosteriorNetwork(nn.Conv2d(3, 6, 3, padding=1), 6, 2, latent=4)
    x, y = torch.randn(4, 3, 5, 7), torch.randn(4, 2, 5, 7)
    report = fit_baseline(network, [(x, y)], options=TrainingOptions(epochs=1))
    assert np.isfinite(report.history).all()
    assert network.radius < 1e3
    parts, log_density = network.belief(x), network.log_density(x)
    assert all(part.shape == y.shape for part in (*parts, *network.moments(x)))
    assert log_density.shape == (4, 5, 7)
    # One evidence for both targets.
    expected = 1.0 + (log_density + network.log_budget).exp()
    torch.testing.assert_close(parts.nu, expected[:, None].expand_as(y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("latent", 0),
        ("latent", 2000),
        ("layers", 0),
        ("layers", 65),
        ("flow", "planar"),
        ("prior_scale", 0.0),
        ("prior_scale", np.nan),
        ("prior_evidence", 0.0),
        ("entropy", -1.0),
    ],
)
def test_bad_parameters(name: str, value: object, cubic) -> None:
    with pytest.raises(ValueError, match=name):
        NaturalPosteriorNetwork(nn.Identity(), 3, **{name: value})
    with pytest.raises(ValueError, match=name):
        NaturalPosteriorRegressor(**{name: value}).fit(*cubic)


def test_rows_without_weight_have_no_radius() -> None:
    rows = torch.zeros(4, 5), torch.zeros(4, 2), torch.zeros(4)
    with pytest.raises(ValueError, match="no rows with weight"):
        fit_baseline(random_network(), [rows], options=TrainingOptions(epochs=1), verbose=False)
