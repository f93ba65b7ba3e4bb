"""Encoders: shapes, the residual network's distances, errors."""

import numpy as np
import pytest
import torch
from torch import nn

from density_regression import DensityRegressor
from density_regression.nn.encoders import (
    MLP,
    Embedded,
    PiecewiseEmbedding,
    ResidualMLP,
    WithInputs,
    ignore_last_column,
)


@pytest.mark.parametrize("kind", [MLP, ResidualMLP])
@pytest.mark.parametrize("hidden", [(5,), (7, 7), (7, 7, 3), (4, 8, 8, 2)])
def test_shapes_and_gradients(kind, hidden):
    encoder = kind(3, hidden)
    z = encoder(torch.randn(6, 3))
    assert z.shape == (6, hidden[-1])
    z.square().sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


@pytest.mark.parametrize("hidden", [(5,), (7, 7), (7, 7, 3)])
def test_both_have_the_same_number_of_parameters(hidden):
    # `load` counts on it when it asks whether a file can hold such a network.
    plain, residual = (sum(p.numel() for p in kind(3, hidden).parameters()) for kind in (MLP, ResidualMLP))
    assert plain == residual


def test_residual_blocks_add_where_widths_are_equal():
    torch.manual_seed(0)
    encoder = ResidualMLP(3, (4, 4, 2))
    first, block, last = (layer for layer in encoder.modules() if isinstance(layer, nn.Linear))
    x = torch.randn(10, 3)
    z = x @ first.weight.T + first.bias
    z = z + (z @ block.weight.T + block.bias).clamp_min(0)
    torch.testing.assert_close(encoder(x), (z @ last.weight.T + last.bias).clamp_min(0))


def test_residual_block_without_weight_is_the_identity():
    encoder = ResidualMLP(3, (4, 4, 4))
    for layer in list(encoder)[1:]:
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)
    x = torch.randn(10, 3)
    torch.testing.assert_close(encoder(x), encoder[0](x))


@pytest.mark.parametrize("kind", [MLP, ResidualMLP])
@pytest.mark.parametrize("hidden", [(), (0,), (3, -1), (2.5,)])
def test_bad_widths(kind, hidden):
    with pytest.raises(ValueError, match="hidden must be"):
        kind(3, hidden)


def test_inputs_lie_beside_the_features_and_keep_every_distance():
    torch.manual_seed(0)
    plain = MLP(3, (8,))
    encoder = WithInputs(plain)
    x = torch.randn(20, 3)
    torch.testing.assert_close(encoder(x), torch.cat([plain(x), x, torch.zeros(20, 1)], 1))
    assert (torch.cdist(encoder(x), encoder(x)) >= torch.cdist(x, x) - 1e-4).all()


def test_an_ordinary_encoder_loses_an_input_it_does_not_need_and_the_default_does_not():
    # The target is a function of the first input; far away along the second nothing was ever seen.
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 2))
    y = np.sin(3 * X[:, 0]) + 0.05 * rng.standard_normal(500)
    settings = {"hidden": (32, 32), "epochs": 60, "batch_size": 64, "random_state": 0, "verbose": False}
    steps = {"needed": [4.0, 0.0], "not needed": [0.0, 4.0]}
    moved = {}
    for with_inputs in (False, True):
        regressor = DensityRegressor(with_inputs=with_inputs, **settings).fit(X, y)
        z, *others = (
            regressor.model_.encode(regressor.x_scaling_.apply(X + step)).detach() for step in ([0, 0], *steps.values())
        )
        needed, not_needed = ((other - z).norm(dim=1).median().item() for other in others)
        moved[with_inputs] = not_needed / needed
    assert moved[False] < 0.5
    assert moved[True] > 1.3 * moved[False]
    # And so with the default no far row looks familiar.
    far = np.array([0.0, 4.0])
    assert (regressor.familiarity(np.concatenate([X + far, X - far])) < 0.05).all()


@pytest.mark.parametrize("embedded", [False, True])
def test_the_last_column_is_ignored_by_the_network_alone(embedded: bool) -> None:
    torch.manual_seed(0)
    rows = torch.randn(50, 3)
    rows[:, 2] = 0.0
    embedding = PiecewiseEmbedding.fit(rows)
    encoder = WithInputs(Embedded(embedding, MLP(embedding.width, (8,))) if embedded else MLP(3, (8,)))
    before, moved = encoder(rows), rows + torch.tensor([0.0, 0.0, 7.0])
    assert not torch.equal(encoder(moved)[:, :8], before[:, :8])
    ignore_last_column(encoder)
    torch.testing.assert_close(encoder(rows), before)
    torch.testing.assert_close(encoder(moved)[:, :8], before[:, :8])
    assert (encoder(moved)[:, 10] == 7.0).all()
