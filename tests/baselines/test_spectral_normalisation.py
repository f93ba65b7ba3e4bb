"""Spectral normalisation: bounds by singular value decomposition, distances, plain weights afterwards."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from density_regression import load
from density_regression.baselines import DUENetwork, DUERegressor, SNGPNetwork, SNGPRegressor, fit_baseline
from density_regression.baselines.spectral_normalisation import (
    SpectralNorm,
    apply_spectral_norm,
    mean_distance,
    remove_spectral_norm,
)
from density_regression.nn.encoders import ResidualMLP
from density_regression.nn.runtime import TrainingOptions

QUICK = {"epochs": 15, "n_threads": 1, "random_state": 0, "verbose": False}
REGRESSORS = [SNGPRegressor, DUERegressor]


def largest(weight):
    """Largest singular value of a weight, its kernel reshaped."""
    return np.linalg.svd(weight.detach().double().flatten(1).numpy(), compute_uv=False)[0]


def sigmas(encoder):
    return np.array([largest(m.weight) for m in encoder.modules() if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d)])


class Images(nn.Module):
    """Rows of 16 columns as images of 4 x 4, to features of width 6."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(20, 6)
        )

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("kind", REGRESSORS)
@pytest.mark.parametrize("bound", [0.5, 0.95])
def test_every_layer_is_within_its_bound_after_fitting(kind, bound, friedman):
    reg = kind(spectral_bound=bound, **QUICK).fit(*friedman)
    found = sigmas(reg.model_.encoder)
    assert len(found) == len(reg.hidden)
    assert (found <= bound + 1e-5).all()
    # The bound is what holds them: they would be larger, and are not all made small.
    assert found.max() > 0.999 * bound


@pytest.mark.parametrize("kind", REGRESSORS)
def test_own_encoders_are_bounded_on_a_copy(kind):
    torch.manual_seed(0)
    X = np.random.default_rng(0).normal(size=(80, 16))
    encoder = Images()
    with torch.no_grad():
        encoder.layers[1].weight.mul_(20)
    before = copy.deepcopy(encoder.state_dict())
    reg = kind(encoder=encoder, **QUICK).fit(X, X[:, 0])
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    found = sigmas(reg.model_.encoder)
    assert len(found) == 2
    assert (found <= 0.95 + 1e-5).all()
    assert found[0] > 0.949


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (1, 5), (6, 3, 2, 2)])
def test_power_iteration_finds_the_largest_singular_value(shape):
    torch.manual_seed(0)
    weight = torch.randn(shape, dtype=torch.float64)
    norm = SpectralNorm(weight, 0.9, start=1)
    first_error = abs(norm.sigma(weight).item() - largest(weight))
    for _ in range(200):
        bounded = norm(weight)
    assert norm.sigma(weight).item() == pytest.approx(largest(weight), rel=1e-9)
    assert largest(bounded) == pytest.approx(0.9, rel=1e-9)
    assert first_error > 1e-6 or 1 in shape
    # Out of training it stays where it is.
    u = norm.eval().u.clone()
    norm(torch.randn(shape, dtype=torch.float64))
    assert torch.equal(norm.u, u)


def test_gradient_of_the_bounded_weight():
    torch.manual_seed(0)
    weight = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    norm = SpectralNorm(weight, 0.7, start=500).eval()
    direct = 0.7 * weight / torch.linalg.matrix_norm(weight, ord=2)
    target = torch.randn(4, 3, dtype=torch.float64)
    (expected,) = torch.autograd.grad((direct * target).sum(), weight)
    (found,) = torch.autograd.grad((norm(weight) * target).sum(), weight)
    torch.testing.assert_close(found, expected)


def test_a_layer_within_the_bound_is_untouched():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    with torch.no_grad():
        encoder[0].weight.mul_(0.5 / largest(encoder[0].weight))
        encoder[1].weight.mul_(9.0 / largest(encoder[1].weight))
    small, large = (layer.weight.detach().clone() for layer in encoder)
    apply_spectral_norm(encoder, 0.8)
    encoder.train()(torch.randn(2, 4))
    assert torch.equal(encoder[0].weight, small)
    remove_spectral_norm(encoder)
    assert torch.equal(encoder[0].weight, small)
    torch.testing.assert_close(encoder[1].weight, large * 0.8 / 9.0)


def test_what_is_left_is_exact_where_the_power_iteration_was_not():
    torch.manual_seed(0)
    encoder = nn.Linear(30, 30)
    apply_spectral_norm(encoder, 0.5)
    norm = encoder.parametrizations["weight"][0]
    # As wrong as can be: a direction that the weight hardly stretches.
    left, _, right = torch.linalg.svd(encoder.parametrizations["weight"].original.detach())
    norm.u.copy_(left[:, -1])
    norm.v.copy_(right[-1])
    remove_spectral_norm(encoder)
    assert largest(encoder.weight) == pytest.approx(0.5, rel=1e-6)


def test_a_weight_of_zeros_finds_its_direction_later():
    layer = nn.Linear(3, 3)
    nn.init.zeros_(layer.weight)
    apply_spectral_norm(layer, 1.0)
    layer(torch.ones(1, 3))
    with torch.no_grad():
        layer.parametrizations["weight"].original.copy_(torch.diag(torch.tensor([5.0, 1.0, 1.0])))
    for _ in range(30):
        bounded = layer.weight
    assert largest(bounded) == pytest.approx(1.0, rel=1e-5)


def test_a_layer_used_twice_has_gradients():
    layer = nn.Linear(4, 4)
    apply_spectral_norm(layer, 0.1)
    layer(layer(torch.ones(1, 4))).sum().backward()
    assert layer.parametrizations["weight"].original.grad.abs().sum() > 0


def test_normalising_and_settling_twice_is_like_once():
    encoder = ResidualMLP(3, (8, 8))
    names = set(encoder.state_dict())
    apply_spectral_norm(encoder, 0.9)
    apply_spectral_norm(encoder, 0.9)
    assert len(encoder[0].parametrizations["weight"]) == 1
    remove_spectral_norm(encoder)
    remove_spectral_norm(encoder)
    assert set(encoder.state_dict()) == names
    assert type(encoder[0]) is nn.Linear


def test_parametrisations_of_the_caller_are_kept():
    encoder = nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 3)), nn.Linear(3, 3))
    names = set(encoder.state_dict())
    apply_spectral_norm(encoder, 0.9)
    remove_spectral_norm(encoder)
    assert parametrize.is_parametrized(encoder[0])
    assert set(encoder.state_dict()) == names


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    bound=st.floats(0.1, 0.95),
    size=st.floats(0.1, 30.0),
    blocks=st.integers(1, 3),
    distance=st.floats(-3, 3),
)
def test_residual_network_is_bi_lipschitz(seed, bound, size, blocks, distance):
    torch.manual_seed(seed)
    encoder = ResidualMLP(4, (6,) * (1 + blocks)).double()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(size)
    apply_spectral_norm(encoder, bound)
    remove_spectral_norm(encoder)
    x = torch.randn(50, 4, dtype=torch.float64)
    step = torch.randn(50, 4, dtype=torch.float64)
    step = 10.0**distance * step / step.norm(dim=1, keepdim=True)
    with torch.no_grad():
        ratio = (encoder(x + step) - encoder(x)).norm(dim=1) / step.norm(dim=1)
    stretched = torch.linalg.svdvals(encoder[0].weight)
    assert (ratio <= stretched[0] * (1 + bound) ** blocks + 1e-6).all()
    assert (ratio >= stretched[-1] * (1 - bound) ** blocks - 1e-6).all()


def test_without_a_bound_distances_are_lost():
    # What the test above rests on: two inputs that an unbounded block folds together.
    encoder = ResidualMLP(1, (1, 1))
    for parameter, value in zip(encoder.parameters(), (1.0, 0.0, -2.0, 0.0), strict=True):
        nn.init.constant_(parameter, value)
    near, far = encoder(torch.tensor([[-1.0], [1.0]])).flatten()
    assert near == far == 1.0


def test_mean_distance():
    z = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    assert mean_distance(z) == pytest.approx(10 / 3)
    assert mean_distance(z[:1]) == 1.0
    assert mean_distance(torch.zeros(5, 2)) == 1.0


@pytest.mark.parametrize("kind", REGRESSORS)
def test_the_fitted_network_is_plain(kind, cubic, tmp_path):
    reg = kind(**{**QUICK, "epochs": 3, "embedding": None}).fit(*cubic)
    plain = ResidualMLP(1, reg.hidden)
    assert not any(parametrize.is_parametrized(module) for module in reg.model_.modules())
    assert set(reg.model_.encoder.state_dict()) == set(plain.state_dict())
    plain.load_state_dict(reg.model_.encoder.state_dict())
    expected = reg.score_samples(cubic.X)
    for other in (copy.deepcopy(reg), pickle.loads(pickle.dumps(reg))):
        np.testing.assert_array_equal(other.score_samples(cubic.X), expected)
    reg.save(tmp_path)
    np.testing.assert_allclose(load(tmp_path).score_samples(cubic.X), expected, rtol=1e-5)


@pytest.mark.parametrize("kind", [SNGPNetwork, DUENetwork])
def test_positions_are_rows(kind):
    torch.manual_seed(0)
    x, y = torch.randn(20, 2, 5), torch.randn(20, 3, 5)
    model = kind(nn.Conv1d(2, 4, 1), 4, 3)
    fit_baseline(model, [(x, y)], options=TrainingOptions(epochs=2), scale_targets=False, verbose=False)
    rows = model.encoder(x).movedim(1, -1).flatten(0, 1)
    assert model(x).mean.shape == model.variance(x).shape == y.shape
    torch.testing.assert_close(model.variance(x).movedim(1, -1).flatten(0, 1), model.row_variance(rows))
    assert model.total_weight == 100


@pytest.mark.parametrize("kind", [SNGPNetwork, DUENetwork])
def test_training_again_goes_on_and_rows_without_weight_do_not_start_it(kind):
    torch.manual_seed(0)
    x = torch.randn(40, 2)
    x[::2] = 1e6
    weight = torch.tensor([0.0, 1.5]).repeat(20)
    model = kind(ResidualMLP(2, (8, 8)), 8)
    seen = []
    model.initialise = seen.append
    model.begin([(x, x[:, :1], weight)])
    assert model.total_weight == 30
    assert seen[0].z.shape == (20, 8)
    assert seen[0].z.abs().max() < 100
    assert seen[0].y.shape == (20, 1)
    assert (seen[0].weight == 1.5).all()
    del model.initialise
    for _ in range(2):
        report = fit_baseline(model, [(x, x[:, :1], weight)], options=TrainingOptions(epochs=3), verbose=False)
        assert np.isfinite(report.history).all()


@pytest.mark.parametrize("kind", [SNGPNetwork, DUENetwork])
@pytest.mark.parametrize("bound", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_bound(kind, bound):
    with pytest.raises(ValueError, match="spectral_bound must be"):
        kind(nn.Linear(2, 2), 2, spectral_bound=bound)


@pytest.mark.parametrize("kind", [SNGPNetwork, DUENetwork])
def test_no_rows(kind):
    x = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="no rows"):
        kind(nn.Linear(2, 2), 2).begin([(x, x[:, :1], torch.zeros(3))])
