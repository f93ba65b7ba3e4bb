"""DUE: closed forms against gpytorch's own, the optimum against an exact Gaussian process, start and errors."""

import copy
import importlib
import math
import subprocess
import sys

import gpytorch
import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from torch import nn
from torch.distributions import MultivariateNormal, kl_divergence

from density_regression.baselines import DUENetwork, DUERegressor, base
from density_regression.baselines.due import MAX_INDUCING_POINTS, SparseGP
from density_regression.nn.encoders import ResidualMLP

KERNELS = ["rbf", "matern"]
QUICK = {"hidden": (16, 16), "n_threads": 1, "random_state": 0, "verbose": False}


def process(targets=2, points=7, kernel="rbf", seed=0):
    """A process with parameters of no particular value."""
    torch.manual_seed(seed)
    gp = SparseGP(3, targets, points, kernel)
    q = gp.variational_strategy._variational_distribution
    with torch.no_grad():
        q.variational_mean.normal_()
        q.chol_variational_covar.normal_().mul_(0.3)
        gp.mean_module.constant.normal_()
    gp.covar_module.outputscale = torch.rand(targets) + 0.5
    gp.covar_module.base_kernel.lengthscale = torch.rand(targets, 1, 1) + 0.8
    gp.likelihood.noise = torch.rand(targets, 1) + 0.1
    return gp.eval()


def rows(n, seed=1, targets=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=generator).double(), torch.randn(n, targets, generator=generator).double()


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_is_gpytorch_s(kernel):
    gp = process(kernel=kernel)
    z = 2 * rows(9)[0]
    torch.testing.assert_close(gp.covariance(z), gp.covar_module(z, gp.points).to_dense(), atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("targets", [1, 3])
def test_prediction_is_gpytorch_s(kernel, targets):
    gp = process(targets, kernel=kernel)
    z = 2 * rows(9)[0]
    with torch.no_grad():
        mean, variance = gp.moments(z, gp.posterior())
        theirs = gp.variational_strategy(z)
        noisy = gp.likelihood(theirs)
    torch.testing.assert_close(mean, theirs.mean.T, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(variance, theirs.variance.T, atol=5e-6, rtol=1e-5)
    torch.testing.assert_close(variance + gp.noise, noisy.variance.T, atol=5e-6, rtol=1e-5)


def test_what_finish_keeps_predicts_like_gpytorch():
    torch.manual_seed(0)
    model = DUENetwork(nn.Identity(), 3, 2, n_inducing=7)
    model.gp = process()
    model.finish([], [])
    z = rows(9)[0].float()
    with torch.no_grad():
        law = model.eval()(z)
        theirs = model.gp.likelihood(model.gp.variational_strategy(z.double()))
    torch.testing.assert_close(law.mean, theirs.mean.T, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(law.stddev, theirs.stddev.T, atol=1e-5, rtol=1e-5)


def test_loss_is_gpytorch_s():
    gp = process()
    model = DUENetwork(nn.Identity(), 3, 2, n_inducing=7)
    model.gp, model.total_weight = gp, 200.0
    z, y = rows(9)
    theirs = gp.variational_strategy(z)
    expected = gp.likelihood.expected_log_prob(y.T, theirs)
    torch.testing.assert_close(model.train().row_losses(z, y), -expected.mean(0), atol=1e-5, rtol=1e-5)
    elbo = expected.mean(1) - gp.variational_strategy.kl_divergence() / 200
    torch.testing.assert_close(model.loss(z, y, torch.ones(9)), -elbo.mean(), atol=1e-5, rtol=1e-5)
    # Held-out rows are scored by the prediction, without the divergence.
    predictive = gp.likelihood(theirs)
    nll = -torch.distributions.Normal(predictive.mean, predictive.stddev).log_prob(y.T).mean()
    torch.testing.assert_close(model.eval().loss(z, y, torch.ones(9)), nll, atol=1e-5, rtol=1e-5)


def test_divergence_is_torch_s():
    gp = process()
    q = gp.variational_strategy._variational_distribution
    root = q.chol_variational_covar.detach().tril()
    divergence = kl_divergence(
        MultivariateNormal(q.variational_mean, root @ root.mT + 1e-12 * torch.eye(7)),
        MultivariateNormal(torch.zeros(2, 7, dtype=torch.float64), torch.eye(7, dtype=torch.float64)),
    )
    torch.testing.assert_close(gp.kl(), divergence.sum(), rtol=1e-6, atol=1e-6)


class Exact(gpytorch.models.ExactGP):
    """gpytorch's exact process, with the mean and kernel of another."""

    def __init__(self, z, y, gp):
        super().__init__(z, y, copy.deepcopy(gp.likelihood))
        self.mean_module, self.covar_module = copy.deepcopy(gp.mean_module), copy.deepcopy(gp.covar_module)

    def forward(self, z):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(z), self.covar_module(z))


@pytest.mark.parametrize("kernel", KERNELS)
def test_at_its_optimum_with_all_rows_as_points_it_is_the_exact_process(kernel):
    gp = process(1, 50, kernel)
    z, y = rows(50, targets=1)
    new = 1.5 * rows(30, seed=4)[0]
    q = gp.variational_strategy._variational_distribution
    with torch.no_grad():
        gp.points.copy_(z)
        # The optimal q(u), whitened (Titsias, 2009): of covariance S = (I + L' L / noise)^-1, mean S L' y / noise.
        root = torch.linalg.cholesky(gp.covar_module(z).to_dense() + 1e-10 * torch.eye(50))
        covariance = torch.linalg.inv(torch.eye(50) + root.mT @ root / gp.noise[:, None, None])
        centred = (y.T - gp.mean_module.constant[:, None])[..., None]
        q.variational_mean.copy_((covariance @ root.mT @ centred).squeeze(-1) / gp.noise[:, None])
        q.chol_variational_covar.copy_(torch.linalg.cholesky(covariance))
        mean, variance = gp.moments(new, gp.posterior())
        with gpytorch.settings.fast_computations(False, False, False):
            exact = Exact(z, y.T, gp).eval()(new)
    torch.testing.assert_close(mean, exact.mean.T, atol=1e-4, rtol=0)
    torch.testing.assert_close(variance, exact.variance.T, atol=1e-4, rtol=0)
    # And it is one: the bound rises nowhere from there.
    model = DUENetwork(nn.Identity(), 3, n_inducing=50).train()
    model.gp, model.total_weight = gp, 50.0
    model.loss(z, y, torch.ones(50)).backward()
    assert q.variational_mean.grad.abs().max() < 1e-4
    assert q.chol_variational_covar.grad.tril().abs().max() < 1e-4


@pytest.mark.parametrize("kernel", KERNELS)
def test_conditioned_on_rows_that_are_its_points_it_is_the_exact_process(kernel):
    gp = process(2, 50, kernel)
    z, y = rows(50, targets=2)
    new = 1.5 * rows(30, seed=4)[0]
    with torch.no_grad():
        gp.points.copy_(z)
        gp.condition(z, y, torch.ones(50))
        mean, variance = gp.moments(new, gp.posterior())
        with gpytorch.settings.fast_computations(False, False, False):
            exact = Exact(z, y.T, gp).eval()(new)
    # As close as the jitter of the kernel's root allows.
    torch.testing.assert_close(mean, exact.mean.T, atol=1e-3, rtol=0)
    torch.testing.assert_close(variance, exact.variance.T, atol=1e-3, rtol=0)


def test_no_other_q_has_a_better_bound_than_the_conditioned_one():
    model = DUENetwork(nn.Identity(), 3, targets=2, n_inducing=12).train()
    model.gp, model.total_weight = process(2, 12, "rbf"), 80.0
    z, y = rows(40, targets=2)
    weight = torch.linspace(0.5, 3.5, 40, dtype=torch.float64)
    model.gp.condition(z, y, weight)
    model.total_weight = float(weight.sum())
    model.loss(z, y, weight).backward()
    q = model.gp.variational_strategy._variational_distribution
    # The jitter of the kernel's root is all that is left.
    assert q.variational_mean.grad.abs().max() < 1e-5
    assert q.chol_variational_covar.grad.tril().abs().max() < 1e-5


def test_it_does_not_rest_where_all_is_noise(cubic):
    model = DUENetwork(ResidualMLP(1, (20, 20)), 20)
    x, y = (torch.as_tensor(part / part.std(), dtype=torch.float32).reshape(-1, 1) for part in cubic)
    model.begin([(x[:100], y[:100]), (x[100:], y[100:])])
    mean, _ = model.gp.moments(model.encode(x), model.gp.posterior())
    assert (mean - y).var() < 0.1 * y.var()


def test_it_starts_at_the_k_means():
    torch.manual_seed(0)
    centres = 10 * torch.randn(5, 3)
    z = centres.repeat(40, 1) + 0.1 * torch.randn(200, 3)
    gp = SparseGP(3, 2, 5)
    gp.initialise(z)
    found = torch.cdist(centres.double(), gp.points.detach()).amin(1)
    assert (found < 0.2).all()
    inertia = torch.cdist(z.double(), gp.points.detach()).amin(1).square().sum().item()
    assert inertia < 1.01 * KMeans(5, n_init=10, random_state=0).fit(z.numpy()).inertia_
    length = gp.covar_module.base_kernel.lengthscale.flatten()
    torch.testing.assert_close(length, torch.pdist(z.double()).mean().expand(2), rtol=1e-6, atol=0)


@pytest.mark.filterwarnings("error")
def test_it_starts_from_fewer_rows_than_points():
    z = torch.randn(3, 2).repeat(4, 1)
    gp = SparseGP(2, 1, 8)
    gp.initialise(z)
    assert (torch.cdist(gp.points.detach(), z.double()).amin(1) == 0).all()
    assert all(torch.isfinite(part).all() for part in gp.posterior())


def test_before_training_it_is_the_prior():
    model = DUENetwork(nn.Identity(), 3).eval()
    law = model(rows(5)[0])
    assert (law.mean == 0).all()
    torch.testing.assert_close(law.variance, (model.gp.scale + model.gp.noise).expand(5, 1))


@pytest.mark.parametrize("kernel", KERNELS)
def test_far_away_is_the_prior(kernel, cubic):
    # Embedded columns are clipped: with them the features stay near those of the outermost rows.
    reg = DUERegressor(kernel=kernel, embedding=None, epochs=30, **QUICK).fit(*cubic)
    gp = reg.model_.gp
    far = np.array([[s * 10.0**e] for e in (5, 8, 11, 30, 300) for s in (-1, 1)])
    np.testing.assert_allclose(-reg.score_samples(far), gp.scale.item(), rtol=1e-6)
    mean, std = reg.predict(far, return_std=True)
    np.testing.assert_allclose(std, math.sqrt((gp.scale + gp.noise).item()) * reg.y_scaling_.scale[0], rtol=1e-5)
    constant = gp.mean_module.constant.item() * reg.y_scaling_.scale[0] + reg.y_scaling_.center[0]
    np.testing.assert_allclose(mean, constant, rtol=1e-5)
    assert (-reg.score_samples(cubic.X)).max() < 0.5 * gp.scale.item()
    assert reg.score_samples(far).dtype == np.float32


def test_features_of_any_size_are_finite():
    model = DUENetwork(nn.Identity(), 3, kernel="matern").eval()
    model.gp = process(1, 20, "matern")
    model.finish([], [])
    z = torch.tensor([[1e12, -1e12, 1e12], [1e30, 0.0, 0.0], [0.0, 1e-30, 0.0]])
    law = model(z)
    assert torch.isfinite(law.mean).all()
    assert (law.stddev > 0).all()
    assert torch.isfinite(law.stddev).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_reach_every_parameter(kernel):
    torch.manual_seed(0)
    model = DUENetwork(ResidualMLP(3, (8, 8)), 8, 2, n_inducing=5, kernel=kernel)
    x, y = (part.float() for part in rows(20))
    model.begin([(x, y)])
    nn.init.normal_(model.gp.variational_strategy._variational_distribution.variational_mean)
    model.train().loss(x, y, torch.ones(20)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_a_covariance_without_a_root_is_a_loss_and_no_error(monkeypatch):
    # `optimise` then says that the training has diverged, and what to do.
    model = DUENetwork(nn.Identity(), 3, 2, n_inducing=4)
    monkeypatch.setattr(model.gp, "covariance", lambda z: -torch.eye(4, dtype=torch.float64).expand(2, 4, 4))
    assert model.eval().loss(*rows(4), torch.ones(4)).isnan()


def test_bf16(cubic):
    assert DUERegressor(epochs=30, precision="bf16-mixed", **QUICK).fit(*cubic).score(*cubic) > 0.9


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_inducing": 0}, "n_inducing must lie between 1 and 1024"),
        ({"n_inducing": MAX_INDUCING_POINTS + 1}, "n_inducing must lie between 1 and 1024"),
        ({"kernel": "linear"}, 'kernel must be "rbf" or "matern"'),
    ],
)
def test_bad_parameters(params, message, cubic):
    with pytest.raises(ValueError, match=message):
        DUENetwork(nn.Identity(), 2, **params)
    with pytest.raises(ValueError, match=next(iter(params))):
        DUERegressor(**params).fit(*cubic)


def test_without_gpytorch_it_says_so_before_training(monkeypatch, cubic):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(base, "fit_baseline", lambda *args, **kwargs: pytest.fail("trained"))
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"pip install density-regression\[gp\]"):
        DUENetwork(nn.Identity(), 2)
    with pytest.raises(ImportError, match=r"pip install density-regression\[gp\]"):
        DUERegressor().fit(*cubic)


def test_the_package_does_not_import_gpytorch():
    code = "import sys, density_regression; sys.exit('gpytorch' in sys.modules or 'linear_operator' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
