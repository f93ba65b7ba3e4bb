"""Deep Ensembles: members trained together are those trained alone, and the prediction is their mixture's."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from baselines.helpers import DOUBLE, Residual, generators, rows
from density_regression import MLP, TrainingOptions
from density_regression.baselines import (
    BayesianNetwork,
    DeepEnsembleRegressor,
    DropoutNetwork,
    EnsembleNetwork,
    EvidentialNetwork,
    GaussianNetwork,
    GaussianRegressor,
    fit_baseline,
)
from density_regression.baselines.base import Objective
from density_regression.training.batches import TensorBatches
from density_regression.training.loop import optimise
from density_regression.training.vectorised import stack


class Branching(Residual):
    """Looks at its values, which vmap cannot."""

    def forward(self, x: Tensor) -> Tensor:
        z = super().forward(x)
        return z if z.sum() > 1e9 else z * 1.0


class Scaled(Residual):
    """Has numbers of its own that its state does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.rand(8, dtype=DOUBLE)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


ENCODERS = {
    "mlp": lambda: MLP(3, (8, 8)),
    "no bias": lambda: nn.Sequential(nn.Linear(3, 8, bias=False), nn.Tanh()),
    "vmap": Residual,
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU()),
    "branching": Branching,
    "own slope": lambda: nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(float(torch.rand(())))),
    "own numbers": Scaled,
}
TOGETHER = {"mlp", "no bias", "vmap"}


def random_network(encoder: str, seed: int, targets: int = 1, beta: float = 0.0) -> GaussianNetwork:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return GaussianNetwork(ENCODERS[encoder](), 8, targets, beta=beta).double()


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize(
    ("epochs", "patience", "targets", "beta"), [(4, None, 1, 0.0), (30, 2, 2, 0.5)], ids=["20 steps", "stopped early"]
)
def test_members_are_those_of_separate_fits(
    encoder: str, epochs: int, patience: int | None, targets: int, beta: float
) -> None:
    # Targets of size 30: gradients are clipped, each member's by itself.
    options = TrainingOptions(epochs=epochs, patience=patience, learning_rate=0.05)
    train, held_out = rows(targets=targets), rows(40, targets, seed=1)
    alone = [random_network(encoder, seed, targets, beta) for seed in range(5)]
    lengths = set()
    for member, generator in zip(alone, generators(5), strict=True):
        batches = TensorBatches(*train, 18, generator)
        (losses,) = optimise(Objective(member), batches, TensorBatches(*held_out, 100), options)
        lengths.add(len(losses.held_out))
    ensemble = EnsembleNetwork([random_network(encoder, seed, targets, beta) for seed in range(5)])
    report = fit_baseline(
        ensemble,
        TensorBatches(*train, 18, generators(5)),
        TensorBatches(*held_out, 100),
        options=options,
        scale_targets=False,
        verbose=False,
    )
    assert len(report.history) == max(lengths)
    if patience is None:
        assert len(report.history) * 5 == 20
    elif encoder == "mlp":
        assert len(lengths) > 1, "members were to stop at different times"
    for expected, got in zip(alone, ensemble.members, strict=True):
        for name, value in expected.state_dict().items():
            torch.testing.assert_close(got.state_dict()[name], value, rtol=0, atol=1e-8)


def test_each_member_moves_inputs_by_its_own_loss() -> None:
    """Also where a batch is shared: the first member is trained as if there were no others."""
    options = TrainingOptions(epochs=3, smoothness=0.3)
    ensemble, alone = EnsembleNetwork([random_network("mlp", seed) for seed in range(3)]), random_network("mlp", 0)
    for model in (ensemble, alone):
        torch.manual_seed(0)
        fit_baseline(model, [rows()], options=options, verbose=False)
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(ensemble.members[0].state_dict()[name], value)


def test_a_trial_draws_nothing() -> None:
    """Whether members can be trained together is tried with a batch, of a loader that shuffles."""
    loader = DataLoader(TensorDataset(*rows()), batch_size=30, shuffle=True)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    options = TrainingOptions(epochs=0)
    fit_baseline(EnsembleNetwork([random_network("mlp", 0)]), loader, [rows()], options=options, verbose=False)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_what_can_be_stacked_is(encoder: str) -> None:
    members = [ENCODERS[encoder]().double() for _ in range(3)]
    stacked = stack(members)
    if encoder in ("batch norm", "own slope", "own numbers"):
        assert stacked is None
        return
    x = torch.randn(3, 5, 3, dtype=DOUBLE)
    if encoder not in TOGETHER:
        with pytest.raises(RuntimeError):
            stacked(x)
        return
    expected = torch.stack([member(part) for member, part in zip(members, x, strict=True)])
    torch.testing.assert_close(stacked(x), expected)
    for i, member in enumerate(members):
        for name, value in member.state_dict().items():
            assert torch.equal(stacked.member_state(i)[name], value)


def test_dropout_in_an_own_encoder_differs_between_members() -> None:
    members = [nn.Sequential(nn.Identity(), nn.Dropout(0.5)) for _ in range(4)]
    stacked = stack(members).train()
    torch.manual_seed(0)
    kept = stacked(torch.ones(4, 10, 20)) > 0
    assert not all(torch.equal(kept[0], kept[i]) for i in range(1, 4))
    assert stacked.eval()(torch.ones(4, 2, 2)).eq(1).all()


def test_an_ensemble_of_one_is_its_member(cubic) -> None:
    settings = {"hidden": (16,), "epochs": 15, "random_state": 3, "verbose": False}
    one = DeepEnsembleRegressor(n_members=1, **settings).fit(*cubic)
    alone = GaussianRegressor(**settings).fit(*cubic)
    np.testing.assert_allclose(one.predict(cubic.X, True), alone.predict(cubic.X, True), rtol=1e-4)
    means, stds = one.predict_members(cubic.X)
    np.testing.assert_allclose(np.stack([means[0], stds[0]]), one.predict(cubic.X, True), rtol=1e-6, atol=1e-6)


def test_the_first_member_does_not_depend_on_the_others(cubic) -> None:
    settings = {"hidden": (16,), "epochs": 8, "random_state": 3, "verbose": False}
    first = DeepEnsembleRegressor(n_members=1, **settings).fit(*cubic).predict_members(cubic.X)
    several = DeepEnsembleRegressor(n_members=4, **settings).fit(*cubic).predict_members(cubic.X)
    np.testing.assert_allclose(np.stack(several)[:, 0], np.stack(first)[:, 0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("targets", [1, 2])
def test_prediction_is_the_mixture_of_its_members(targets: int, friedman) -> None:
    y = np.column_stack([friedman.y, 100 * friedman.X[:, 0]])[:, :targets]
    reg = DeepEnsembleRegressor(hidden=(16,), epochs=5, n_members=4, random_state=0, verbose=False).fit(friedman.X, y)
    means, stds = reg.predict_members(friedman.X)
    assert means.shape == stds.shape == ((4, 300) if targets == 1 else (4, 300, 2))
    mean, std = reg.predict(friedman.X, return_std=True)
    np.testing.assert_allclose(mean, means.mean(0), rtol=1e-5)
    np.testing.assert_allclose(std**2, (stds**2 + means**2).mean(0) - means.mean(0) ** 2, rtol=1e-3)
    # Averaging standard deviations would lose the disagreement.
    assert (std > stds.mean(0)).mean() > 0.95
    law = reg.own_dist(friedman.X)
    np.testing.assert_allclose(law.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(law.stddev, std, rtol=1e-3)


def test_members_differ(cubic) -> None:
    for encoder in (None, nn.Sequential(nn.Linear(1, 8), nn.ReLU()), lambda inputs: MLP(inputs, (8,))):
        params = {"encoder": encoder, "hidden": (8,), "embedding": None, "epochs": 1, "n_members": 3}
        reg = DeepEnsembleRegressor(random_state=0, **params).fit(*cubic)
        weights = [member.encoder[0].weight for member in reg.model_.members]
        assert not torch.allclose(weights[0], weights[1], atol=0.01)
        assert not torch.allclose(weights[1], weights[2], atol=0.01)


def test_images_pixel_by_pixel() -> None:
    torch.manual_seed(0)
    members = [GaussianNetwork(nn.Conv2d(2, 6, 3, padding=1), 6, 2) for _ in range(3)]
    alone = copy.deepcopy(members)
    x, y = torch.randn(8, 2, 5, 4), torch.randn(8, 2, 5, 4)
    options = TrainingOptions(epochs=2)
    loader = [(x[:4], y[:4]), (x[4:], y[4:])]
    ensemble = EnsembleNetwork(members)
    fit_baseline(ensemble, loader, options=options, scale_targets=False, verbose=False)
    assert ensemble(x).mean.shape == (8, 2, 5, 4)
    assert ensemble.member_moments(x).mean.shape == (3, 8, 2, 5, 4)
    for expected, got in zip(alone, ensemble.members, strict=True):
        optimise(Objective(expected), loader, None, options)
        torch.testing.assert_close(got.moments(x).mean, expected.moments(x).mean, rtol=1e-4, atol=1e-4)


def test_loss_is_the_mean_of_the_members() -> None:
    ensemble = EnsembleNetwork([random_network("mlp", seed) for seed in range(3)])
    losses = [member.loss(*rows()).item() for member in ensemble.members]
    assert ensemble.loss(*rows()).item() == pytest.approx(np.mean(losses))


def test_no_members() -> None:
    with pytest.raises(ValueError, match="at least one"):
        EnsembleNetwork([])
    with pytest.raises(ValueError, match="n_members"):
        DeepEnsembleRegressor(n_members=0).fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize("kind", [EvidentialNetwork, DropoutNetwork, BayesianNetwork])
def test_members_of_other_kinds_are_refused(kind) -> None:
    with pytest.raises(ValueError, match=f"members must be of the class GaussianNetwork itself, got {kind.__name__}"):
        EnsembleNetwork([random_network("mlp", 0), kind(MLP(3, (4,)), 4)])


def test_each_member_has_its_own_beta() -> None:
    members = [random_network("mlp", seed, beta=beta) for seed, beta in enumerate([0.0, 1.0])]
    ensemble, options = EnsembleNetwork(copy.deepcopy(members)), TrainingOptions(epochs=5)
    fit_baseline(ensemble, [rows()], options=options, verbose=False)
    for member, alone in zip(ensemble.members, members, strict=True):
        fit_baseline(alone, [rows()], options=options, verbose=False)
        torch.testing.assert_close(member(rows()[0]).mean, alone(rows()[0]).mean)


def test_members_that_share_weights_are_refused() -> None:
    encoder = MLP(1, (8,))
    members = [GaussianNetwork(encoder, 8) for _ in range(2)]
    with pytest.raises(ValueError, match="must not share weights"):
        EnsembleNetwork(members)
    encoder.requires_grad_(False)
    EnsembleNetwork(members)


def test_a_function_that_returns_one_encoder(cubic) -> None:
    """Members train copies of it, and it stays as it is."""
    encoder = MLP(1, (8,))
    before = encoder[0].weight.detach().clone()
    model = DeepEnsembleRegressor(encoder=lambda columns: encoder, epochs=2, n_members=2, verbose=False).fit(*cubic)
    first, second = (member.encoder[0].weight for member in model.model_.networks)
    assert not torch.equal(first, second)
    assert torch.equal(encoder[0].weight, before)


@pytest.mark.parametrize(("targets", "shape"), [(1, (30, 3)), (3, (30, 1)), (1, (30,))])
def test_targets_of_another_shape_are_refused(targets: int, shape: tuple[int, ...]) -> None:
    ensemble = EnsembleNetwork([random_network("mlp", seed, targets).float() for seed in range(2)])
    with pytest.raises(ValueError, match="the model predicts"):
        fit_baseline(ensemble, [(torch.randn(30, 3), torch.zeros(shape))], verbose=False)


def test_no_held_out_rows() -> None:
    ensemble = EnsembleNetwork([random_network("mlp", seed).float() for seed in range(2)])
    with pytest.raises(ValueError, match="held_out"):
        fit_baseline(ensemble, [(torch.randn(30, 3), torch.zeros(30, 1))], [], verbose=False)


def test_integer_targets() -> None:
    ensemble = EnsembleNetwork([random_network("mlp", seed).float() for seed in range(2)])
    x, y = torch.randn(30, 3), torch.arange(30)[:, None]
    report = fit_baseline(ensemble, [(x, y)], options=TrainingOptions(epochs=2), verbose=False)
    assert np.isfinite(report.history).all()


def test_a_member_of_no_numbers_is_seen() -> None:
    members = [random_network("mlp", seed) for seed in range(2)]
    nn.init.constant_(members[1].encoder[0].weight, torch.nan)
    with pytest.raises(ValueError, match="diverged"):
        fit_baseline(EnsembleNetwork(members), [rows()], options=TrainingOptions(epochs=2), verbose=False)
