"""Bayesian networks against the moments of sampled weights and exact posteriors; layers: test_bayesian_layers.py."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from density_regression import load
from density_regression.baselines import BayesianNetwork, BayesianRegressor, fit_baseline
from density_regression.baselines.bayesian import BayesianLinear, Prior
from density_regression.baselines.mixture import mixture_moments
from density_regression.nn.encoders import MLP
from density_regression.nn.runtime import TrainingOptions
from density_regression.training.batches import TensorBatches

MIXTURE = Prior(std=1.0, narrow_std=0.1, narrow_share=0.4)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def network(hidden: tuple[int, ...] = (5, 4), **params: object) -> BayesianNetwork:
    model = BayesianNetwork(MLP(2, hidden), hidden[-1], **params).double().eval()
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, BayesianLinear):
                part.mean.normal_(std=0.5)
                part.rho.uniform_(-2.0, -1.0)
    return model


def inputs(n: int = 5) -> Tensor:
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


# -- the loss ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("targets", [1, 2])
def test_penalty_is_the_divergence_for_each_target_value(targets: int) -> None:
    model = BayesianNetwork(MLP(2, (4,)), 4, targets)
    x, y, weight = torch.randn(10, 2), torch.randn(10, targets), torch.ones(10)
    weight[:3] = 0.0
    model.begin(TensorBatches(x, y, weight, 4))
    layers = [model.encoder[0], model.linear]
    total = sum(kl_divergence(Normal(part.mean, part.std), Normal(0.0, 1.0)).sum() for part in layers)
    torch.testing.assert_close(model.penalty(), total / (7 * targets))
    model.begin(TensorBatches(x.repeat(3, 1), y.repeat(3, 1), weight.repeat(3), 4))
    torch.testing.assert_close(model.penalty(), total / (21 * targets))


def test_positions_count_as_rows() -> None:
    model = BayesianNetwork(nn.Linear(4, 4), 3, 2)
    model.begin([(torch.zeros(5, 3, 4), torch.zeros(5, 2, 4)), (torch.zeros(1, 3, 4), torch.zeros(1, 2, 4))])
    assert model.observations == 6 * 2 * 4


def test_the_loss_is_nll_and_divergence() -> None:
    model = network().train()
    with torch.no_grad():
        for part in (model.encoder[0], model.encoder[2], model.linear):
            part.rho.fill_(-30.0)  # No noise: the NLL is that of the means.
    model.observations = 17
    x, y, weight = inputs(), inputs()[:, 1:], torch.ones(5).double()
    training = model.loss(x, y, weight)
    mean, log_std = model.eval().row_moments(model.encode(x))
    nll = -Normal(mean, log_std.exp()).log_prob(y).mean()
    torch.testing.assert_close(training, nll + model.penalty())
    # Early stopping looks at the likelihood alone.
    torch.testing.assert_close(model.loss(x, y, weight), nll)


# -- sampled networks -------------------------------------------------------------------------------------------


@torch.no_grad()
def test_drawn_networks_have_the_moments_of_their_weights() -> None:
    """No hidden layer: the means are Gaussian, with known moments."""
    model = BayesianNetwork(nn.Linear(2, 2, bias=False), 2, n_samples=4_000).double().eval()
    model.encoder.mean.copy_(torch.eye(2))
    model.encoder.rho.fill_(-40.0)
    model.linear.rho.uniform_(-1.0, 0.5)
    x = inputs(4)
    ones = torch.cat([x, torch.ones(4, 1)], 1)
    mean, std = ones @ model.linear.mean[0], (ones.square() @ model.linear.std[0].square()).sqrt()
    draws = model.member_moments(x).mean[..., 0]
    assert ((draws.mean(0) - mean).abs() < 4 * std / math.sqrt(4_000)).all()
    torch.testing.assert_close(draws.std(0), std, rtol=0.06, atol=0.0)


@torch.no_grad()
def test_a_layer_used_twice_is_drawn_once() -> None:
    shared = nn.Linear(2, 2, bias=False)
    model = BayesianNetwork(nn.Sequential(shared, shared), 2, n_samples=6).double().eval()
    model.encoder[0].rho.fill_(0.0)
    model.linear.rho.fill_(-40.0)
    model.linear.mean.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    assert model.encoder[0] is model.encoder[1]
    # Columns of W and of W W, read off at the unit vectors through features of their own.
    once = BayesianNetwork(nn.Sequential(shared), 2, n_samples=6).double().eval()
    once.load_state_dict({name: value for name, value in model.state_dict().items() if "encoder.1" not in name})
    first = once.member_moments(torch.eye(2).double()).mean[..., 0]
    once.linear.mean.copy_(torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    second = once.member_moments(torch.eye(2).double()).mean[..., 0]
    weight = torch.stack([first, second], 1)
    twice = model.member_moments(torch.eye(2).double()).mean[..., 0]
    torch.testing.assert_close(twice, (weight @ weight)[:, 0])


# -- the network ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["local", "flipout"])
def test_the_posterior_of_linear_regression(gradient: str) -> None:
    """With known noise the mean-field optimum is known: exact means, stds of one over the root of the precision."""
    n, noise, prior_std = 60, 0.5, 0.8
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.3]])
    y = x @ np.array([1.0, -0.5, 0.7]) + 0.2 + noise * rng.normal(size=n)
    ones = np.column_stack([x, np.ones(n)])
    precision = ones.T @ ones / noise**2 + np.eye(4) / prior_std**2
    exact = np.linalg.solve(precision, ones.T @ y / noise**2)

    model = BayesianNetwork(nn.Linear(3, 3, bias=False), 3, prior=Prior(prior_std), gradient=gradient).double()
    model.encoder = nn.Identity()
    with torch.no_grad():
        # The last layer's second output is the log standard deviation: certain, and known.
        model.linear.mean[1] = torch.tensor([0.0, 0.0, 0.0, math.log(noise)])
        model.linear.rho[1] = -40.0

    def keep(gradient: Tensor) -> Tensor:
        return gradient * torch.tensor([[1.0], [0.0]])

    model.linear.mean.register_hook(keep)
    model.linear.rho.register_hook(keep)
    batch = torch.from_numpy(x), torch.from_numpy(y)[:, None], torch.ones(n).double()
    model.begin([batch])
    # By hand: the last weights are wanted, not those of the epoch with the luckiest noise.
    optimizer = torch.optim.Adam(model.linear.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2_500)
    for _ in range(2_500):
        optimizer.zero_grad()
        model.loss(*batch).backward()
        optimizer.step()
        schedule.step()
    mean, std = model.linear.mean[0].detach().numpy(), model.linear.std[0].detach().numpy()
    expected_std = 1 / np.sqrt(np.diag(precision))
    np.testing.assert_allclose(std, expected_std, rtol=0.1)
    assert (np.abs(mean - exact) < 0.3 * expected_std).all()


@pytest.mark.parametrize("prior", [Prior(), MIXTURE], ids=["gaussian", "mixture"])
@pytest.mark.parametrize("gradient", ["local", "flipout"])
def test_gradient_reaches_every_parameter(gradient: str, prior: Prior) -> None:
    model = network((8, 8), gradient=gradient, prior=prior).train()
    model.loss(inputs(40), inputs(40)[:, :1], torch.ones(40).double()).backward()
    assert len(list(model.parameters())) == 6
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_layers_that_become_bayesian() -> None:
    encoder = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3))
    model = BayesianNetwork(encoder, 3)
    assert isinstance(model.encoder[2], BayesianLinear)
    assert isinstance(model.encoder[0], nn.Conv1d)
    assert isinstance(model.linear, BayesianLinear)
    assert type(encoder[2]) is nn.Linear, "the caller's encoder is not touched"
    torch.testing.assert_close(model.encoder[2].mean, torch.cat([encoder[2].weight, encoder[2].bias[:, None]], 1))
    with pytest.raises(ValueError, match=r"no nn\.Linear"):
        BayesianNetwork(nn.Conv1d(1, 2, 3), 2)


def test_prediction_is_repeated_and_leaves_the_generator_alone() -> None:
    model, x = network(), inputs()
    before = torch.random.get_rng_state()
    first, again = model.moments(x), model.moments(x)
    model.loss(x, x[:, :1], torch.ones(5))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first.mean, again.mean)
    model.seed.add_(1)
    assert not torch.allclose(model.moments(x).mean, first.mean, rtol=1e-3)


@pytest.mark.parametrize("rows", [1, 17, 700])
def test_members_do_not_depend_on_how_many_rows_there_are(rows: int) -> None:
    model, x = network(n_samples=40), inputs(700)
    together, alone = model.member_moments(x), model.member_moments(x[:rows])
    assert together.mean.shape == (40, 700, 1)
    assert together.mean.std(0).min() > 0.01
    torch.testing.assert_close(alone.mean, together.mean[:, :rows])
    torch.testing.assert_close(alone.log_std, together.log_std[:, :rows])


def test_prediction_is_the_mixture() -> None:
    model, x = network(n_samples=9), inputs()
    for found, expected in zip(model.moments(x), mixture_moments(model.member_moments(x)), strict=True):
        torch.testing.assert_close(found, expected)


def test_sequences_are_predicted_per_position() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x.movedim(1, -1)).relu().movedim(-1, 1)

    model = BayesianNetwork(Tokens(), 5, 2, n_samples=4)
    x = torch.randn(8, 3, 6)
    batches = TensorBatches(x, x[:, :2], torch.ones(8), 4, torch.Generator().manual_seed(0))
    fit_baseline(model, batches, batches, options=TrainingOptions(epochs=1), verbose=False)
    assert model.observations == 8 * 2 * 6
    members = model.member_moments(x)
    assert members.mean.shape == (4, 8, 2, 6)
    torch.testing.assert_close(model.member_moments(x[2:3, :, :4]).mean, members.mean[:, 2:3, :, :4])


# -- the estimator ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [{}, {"gradient": "flipout"}, {"prior": "mixture"}], ids=str)
def test_every_version_learns_and_is_saved(params: dict[str, str], tmp_path, cubic) -> None:
    reg = BayesianRegressor(hidden=(30,), epochs=80, learning_rate=1e-2, random_state=0, verbose=False, **params)
    reg.fit(*cubic)
    assert reg.score(*cubic) > 0.9
    means, stds = reg.predict_members(cubic.X[:7])
    assert means.shape == stds.shape == (50, 7)
    assert (means.std(0) > 0).all()
    reg.save(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).predict_members(cubic.X[:7]), (means, stds))


def test_uncertainty_grows_away_from_the_data() -> None:
    X = np.linspace(-1, 1, 100)[:, None]
    y = np.sin(3 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=100)
    settings = {"hidden": (50,), "learning_rate": 1e-2, "epochs": 150, "random_state": 0, "verbose": False}
    # Embedded columns are clipped, and 6 is beyond where they end.
    reg = BayesianRegressor(**settings, embedding=None).fit(X, y)
    spread = reg.predict_members([[0.0], [6.0]])[0].std(0)
    assert spread[1] > 5 * spread[0]


def test_settings_of_its_own() -> None:
    params = BayesianRegressor().get_params()
    assert params["weight_decay"] == 0.0
    assert BayesianRegressor(weight_decay=0.1).weight_decay == 0.1


@pytest.mark.parametrize(
    "params",
    [{"prior": "cauchy"}, {"prior_std": 0.0}, {"narrow_share": 1.0}, {"gradient": "score"}, {"n_samples": 10**9}],
    ids=str,
)
def test_bad_parameters(params: dict[str, object], cubic) -> None:
    with pytest.raises(ValueError, match=next(iter(params))):
        BayesianRegressor(**params).fit(*cubic)


@pytest.mark.parametrize(
    "params",
    [
        {"gradient": "Local"},
        {"initial_std": 0.0},
        {"initial_std": math.nan},
        {"prior": Prior(std=0.0)},
        {"prior": Prior(narrow_std=-1.0)},
        {"prior": Prior(narrow_share=1.0)},
    ],
    ids=str,
)
def test_bad_arguments_of_the_network(params: dict[str, object]) -> None:
    name, value = next(iter(params.items()))
    with pytest.raises(ValueError, match=re.escape(f"{value!r}.")) as error:
        BayesianNetwork(MLP(2, (4,)), 4, **params)
    assert str(error.value).startswith(name)


def test_targets_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Targets have shape \(5,\), the model predicts \(5, 1\)"):
        fit_baseline(BayesianNetwork(MLP(2, (4,)), 4), [(torch.zeros(5, 2), torch.zeros(5))], verbose=False)


def test_an_encoder_without_linear_layers_is_refused(cubic) -> None:
    with pytest.raises(ValueError, match=r"no nn\.Linear"):
        BayesianRegressor(encoder=nn.Tanh()).fit(*cubic)
