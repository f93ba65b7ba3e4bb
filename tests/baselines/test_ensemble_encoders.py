"""Deep Ensembles with encoders of all kinds: shared, frozen, lazy and parametrised layers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from baselines.helpers import Residual, generators, rows
from density_regression import MLP, TrainingOptions
from density_regression.baselines import DeepEnsembleRegressor, EnsembleNetwork, GaussianNetwork, fit_baseline
from density_regression.baselines.base import Objective
from density_regression.training.batches import TensorBatches
from density_regression.training.loop import optimise


def shared_layer() -> nn.Module:
    layer = nn.Linear(8, 8)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), layer, nn.Tanh(), layer)


class TwoNames(Residual):
    def __init__(self) -> None:
        super().__init__()
        self.third = self.second


class Positions(Residual):
    """With a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("position", torch.ones(8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.position


class Scaled(Residual):
    """With a parameter that is a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * super().forward(x)


class LearntSlope(nn.ReLU):
    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.full((8,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(x, self.slope * x)


def frozen() -> nn.Module:
    encoder = MLP(3, (8, 8))
    encoder[0].requires_grad_(False)
    return encoder


STRANGE = {
    "shared layer": shared_layer,
    "two names": TwoNames,
    "buffer that is not saved": Positions,
    "scalar parameter": Scaled,
    "activation that learns": lambda: nn.Sequential(nn.Linear(3, 8), LearntSlope()),
    "weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 8)), nn.Tanh()),
    "spectral norm": lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 8)), nn.Tanh()),
    "frozen layer": frozen,
}


@pytest.mark.parametrize("encoder", STRANGE)
def test_members_with_any_encoder_end_as_they_would_alone(encoder: str) -> None:
    torch.manual_seed(0)
    alone = [GaussianNetwork(STRANGE[encoder](), 8).double() for _ in range(3)]
    ensemble = EnsembleNetwork(copy.deepcopy(alone))
    options = TrainingOptions(epochs=4, learning_rate=0.05)
    train, held_out = rows(), rows(40, seed=1)
    for member, generator in zip(alone, generators(3), strict=True):
        optimise(Objective(member), TensorBatches(*train, 18, generator), TensorBatches(*held_out, 100), options)
    batches = TensorBatches(*train, 18, generators(3))
    held = TensorBatches(*held_out, 100)
    fit_baseline(ensemble, batches, held, options=options, scale_targets=False, verbose=False)
    for expected, got in zip(alone, ensemble.members, strict=True):
        torch.testing.assert_close(
            got.moments(train[0]).mean, expected.eval().moments(train[0]).mean, atol=1e-7, rtol=0
        )


def test_frozen_layers_stay_what_they_were(cubic) -> None:
    encoder = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    encoder[0].requires_grad_(False)
    reg = DeepEnsembleRegressor(encoder=encoder, n_members=3, epochs=2, random_state=0, verbose=False).fit(*cubic)
    for member in reg.model_.members:
        assert torch.equal(member.encoder[0].weight, encoder[0].weight)
        assert not torch.allclose(member.encoder[2].weight, encoder[2].weight)


def test_frozen_weights_stay_where_only_biases_are_trained(cubic) -> None:
    encoder = nn.Sequential(nn.Linear(1, 8), nn.ReLU())
    encoder[0].weight.requires_grad_(False)
    reg = DeepEnsembleRegressor(encoder=encoder, n_members=3, epochs=2, random_state=0, verbose=False).fit(*cubic)
    for member in reg.model_.members:
        assert torch.equal(member.encoder[0].weight, encoder[0].weight)
        assert not torch.equal(member.encoder[0].bias, encoder[0].bias)


def test_lazy_layers(cubic) -> None:
    encoder = nn.Sequential(nn.LazyLinear(8), nn.ReLU())
    ensemble = DeepEnsembleRegressor(encoder=encoder, n_members=3, epochs=2, random_state=0, verbose=False).fit(*cubic)
    first, *others = (member.encoder[0].weight for member in ensemble.model_.members)
    assert first.shape == (8, 1)
    assert not any(torch.allclose(first, other) for other in others)
