"""SNGP: random features against the kernel, the posterior against direct formulas and an exact Gaussian process."""

import math

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from torch import nn

from density_regression.baselines import SNGPNetwork, SNGPRegressor, fit_baseline
from density_regression.baselines.sngp import MAX_RANDOM_FEATURES, MAX_SCALED_NORM, RandomFeatureGP
from density_regression.nn.encoders import ResidualMLP
from density_regression.nn.runtime import TrainingOptions

QUICK = {"hidden": (16, 16), "random_features": 64, "n_threads": 1, "random_state": 0, "verbose": False}


def process(D, seed=0, features=3, length=1.5, targets=1):
    torch.manual_seed(seed)
    gp = RandomFeatureGP(features, targets, D).double()
    nn.init.constant_(gp.log_length, math.log(length))
    return gp


def network(targets=1, D=40, noise=(0.3,)):
    """A network whose encoder hands its inputs on."""
    torch.manual_seed(0)
    model = SNGPNetwork(nn.Identity(), 3, targets, random_features=D)
    with torch.no_grad():
        model.gp.log_std.copy_(0.5 * torch.tensor(noise).log())
    return model.eval()


def rows(n, seed=1, targets=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=generator), torch.randn(n, targets, generator=generator)


def rbf(a, b, length=1.5):
    return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1) / length**2)


def test_random_features_give_the_kernel():
    z = rows(30)[0].double()
    exact = rbf(z.numpy(), z.numpy())
    errors = []
    for D in (2**8, 2**14):
        with torch.no_grad():
            phi = process(D).phi(z).numpy()
        errors.append(np.sqrt(np.mean((phi @ phi.T - exact) ** 2)))
    assert errors[1] < 0.01
    # Eight times the error for an eighth of the root of D.
    assert 4 < errors[0] / errors[1] < 16


@pytest.mark.parametrize("noise", [(0.3,), (0.05, 2.0)])
def test_posterior_is_the_direct_formula(noise):
    targets = len(noise)
    model = network(targets, noise=noise)
    x, y = rows(25, targets=targets)
    weight = torch.rand(25, generator=torch.Generator().manual_seed(2)) + 0.5
    model.finish([(x[:10], y[:10], weight[:10]), (x[10:], y[10:], weight[10:])], [])
    new = 2 * rows(8, seed=3)[0]
    with torch.no_grad():
        phi, at = (model.gp.phi(part).double().numpy() for part in (x, new))
        mean, log_std = model.row_moments(new)
        variance = model.row_variance(new)
    for target, s2 in enumerate(noise):
        covariance = np.linalg.inv(np.eye(40) + phi.T @ (weight.double().numpy()[:, None] * phi) / s2)
        beta = covariance @ phi.T @ (weight.double().numpy() * y[:, target].double().numpy()) / s2
        expected = np.einsum("nd,de,ne->n", at, covariance, at)
        np.testing.assert_allclose(variance[:, target], expected, rtol=1e-4)
        np.testing.assert_allclose(mean[:, target], at @ beta, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose((2 * log_std[:, target]).exp(), expected + s2, rtol=1e-4)


def test_posterior_becomes_that_of_an_exact_gaussian_process():
    z, y = (part.double() for part in rows(20))
    new = rows(40, seed=5)[0].double()
    s2 = 0.1
    exact = GaussianProcessRegressor(RBF(1.5, length_scale_bounds="fixed"), alpha=s2, optimizer=None)
    _, std = exact.fit(z.numpy(), y[:, 0].numpy()).predict(new.numpy(), return_std=True)
    sizes, errors = [2**8, 2**10, 2**12, 2**14], []
    for D in sizes:
        squared = []
        for seed in range(6):
            with torch.no_grad():
                gp = process(D, seed)
                phi, at = gp.phi(z).numpy(), gp.phi(new).numpy()
            # By the rows, not by the features: 2^14 of them squared would take minutes (Woodbury's identity).
            gain = np.linalg.solve(phi @ phi.T + s2 * np.eye(20), phi @ at.T)
            variance = (at**2).sum(1) - ((phi @ at.T) * gain).sum(0)
            squared.append((variance - std**2) ** 2)
            if D == 2**10 and seed == 0:
                nn.init.constant_(gp.log_std, 0.5 * math.log(s2))
                gp.condition(torch.from_numpy(phi.T @ phi), torch.from_numpy(phi.T) @ y)
                with torch.no_grad():
                    np.testing.assert_allclose(gp.variance(gp.phi(new))[:, 0].numpy(), variance, rtol=1e-8)
                    np.testing.assert_allclose(gp.mean(new).numpy(), gain.T @ y.numpy(), rtol=1e-6)
        errors.append(np.sqrt(np.mean(squared)))
    assert errors[-1] < 0.01
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.6 < slope < -0.4


def test_a_row_of_weight_two_counts_like_two_rows():
    x, y = rows(15)
    double, weighted, single = network(), network(), network()
    double.finish([(torch.cat([x, x[:5]]), torch.cat([y, y[:5]]))], [])
    weighted.finish([(x, y, torch.cat([torch.full((5,), 2.0), torch.ones(10)]))], [])
    single.finish([(x, y)], [])
    torch.testing.assert_close(weighted.row_variance(x), double.row_variance(x))
    torch.testing.assert_close(weighted.gp.beta, double.gp.beta)
    assert (weighted.row_variance(x[:5]) < 0.99 * single.row_variance(x[:5])).all()


def test_before_training_it_is_the_prior():
    model = network(D=4096)
    mean, log_std = model.row_moments(rows(20)[0])
    assert (mean == 0).all()
    torch.testing.assert_close(log_std.exp() ** 2, torch.full((20, 1), 1.3), atol=0.1, rtol=0)


def test_loss_is_minus_the_log_joint_for_one_row():
    model = network(targets=2, noise=(0.3, 0.7)).train()
    x, y = rows(12, targets=2)
    model.total_weight = 12.0
    nn.init.normal_(model.gp.beta)
    beta, phi = (part.detach().double() for part in (model.gp.beta, model.gp.phi(x)))
    joint = torch.distributions.Normal(0.0, 1.0).log_prob(beta).sum() + 0.5 * math.log(2 * math.pi) * beta.numel()
    for target, s2 in enumerate((0.3, 0.7)):
        normal = torch.distributions.Normal(phi @ beta[target], math.sqrt(s2))
        joint = joint + normal.log_prob(y[:, target].double()).sum()
    loss = model.loss(x, y, torch.ones(12)).item()
    assert loss == pytest.approx(-joint.item() / 24, rel=1e-5)
    # Held-out rows are scored without the prior.
    assert model.eval().loss(x, y, torch.ones(12)).item() < loss


def test_gradients_reach_every_parameter():
    torch.manual_seed(0)
    model = SNGPNetwork(ResidualMLP(3, (8, 8)), 8, 2, random_features=32)
    x, y = rows(20, targets=2)
    model.begin([(x, y)])
    nn.init.normal_(model.gp.beta)
    model.train().loss(x, y, torch.ones(20)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    length = torch.pdist(model.eval().encoder(x).detach()).mean().item()
    assert model.gp.log_length.item() == pytest.approx(math.log(length), abs=0.05)


def test_the_posterior_mode_is_where_training_ends():
    # The gradient of the training loss vanishes at the closed form.
    model = network(targets=2, noise=(0.3, 0.7))
    x, y = rows(30, targets=2)
    model.finish([(x, y)], [])
    model.total_weight = 30.0
    model.train().loss(x, y, torch.ones(30)).backward()
    assert model.gp.beta.grad.abs().max() < 1e-6


def test_far_away_the_variance_tends_to_the_prior_s(cubic):
    # Embedded columns are clipped: with them the features stay near those of the outermost rows.
    reg = SNGPRegressor(embedding=None, epochs=30, n_threads=1, random_state=0, verbose=False).fit(*cubic)
    near = -reg.score_samples(cubic.X)
    far = -reg.score_samples(np.array([[s * 10.0**e] for e in range(2, 13) for s in (-1, 1)]))
    assert near.max() < 0.1
    assert (far > 0.8).all()
    assert (far < 1.2).all()
    assert far.dtype == np.float32


def test_so_far_away_that_cosines_would_be_noise_they_are_those_of_the_edge():
    """Else rounding decides them, and no two programs agree."""
    gp = process(40).float()
    z = 1.5 * torch.nn.functional.normalize(rows(20)[0])
    with torch.no_grad():
        near, edge, far = (gp.phi(scale * z) for scale in (0.5 * MAX_SCALED_NORM, MAX_SCALED_NORM, 1e9))
        angle = (0.5 * MAX_SCALED_NORM * z * torch.exp(-gp.log_length)) @ gp.frequency.T + gp.phase
    torch.testing.assert_close(near, math.sqrt(2 / 40) * torch.cos(angle), rtol=0, atol=1e-4)
    torch.testing.assert_close(far, edge, rtol=0, atol=1e-4)


@pytest.mark.parametrize("targets", [1, 3])
def test_export_agrees_however_far(targets, tmp_path):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 3))
    y = X[:, [0]] ** 2 + X[:, [2]] + 0.1 * rng.normal(size=(300, targets))
    for seed in range(3):
        reg = SNGPRegressor(epochs=5, **{**QUICK, "random_state": seed}).fit(X, y)
        assert reg.to_onnx(tmp_path / "model.onnx") < 5e-4


def test_score_samples_is_minus_the_variance_without_noise(friedman):
    y = np.column_stack([friedman.y, friedman.X[:, 0]])
    reg = SNGPRegressor(epochs=5, **QUICK).fit(friedman.X, y)
    std = reg.predict(friedman.X, return_std=True)[1] / reg.y_scaling_.scale
    noise = np.exp(2 * reg.model_.gp.noise_log_std().detach().numpy())
    np.testing.assert_allclose(reg.score_samples(friedman.X), -(std**2 - noise).mean(1), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_precisions(precision, cubic):
    reg = SNGPRegressor(epochs=30, precision=precision, **QUICK).fit(*cubic)
    assert reg.score(*cubic) > 0.9


def test_a_network_can_be_fitted_without_held_out_rows():
    x, y = rows(50)
    model = SNGPNetwork(ResidualMLP(3, (8, 8)), 8, random_features=16)
    report = fit_baseline(model, [(x, y)], options=TrainingOptions(epochs=3), verbose=False)
    assert len(report.history) == 3
    assert model.gp.factor.shape == (1, 16, 16)


@pytest.mark.parametrize("count", [0, MAX_RANDOM_FEATURES + 1])
def test_bad_number_of_random_features(count, cubic):
    with pytest.raises(ValueError, match="random_features must lie between 1 and 65536"):
        SNGPNetwork(nn.Identity(), 2, random_features=count)
    with pytest.raises(ValueError, match="random_features"):
        SNGPRegressor(random_features=count).fit(*cubic)
