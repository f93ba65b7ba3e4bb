"""What training takes: loaders, weights, targets and models of any kind, and which it refuses."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from density_regression import (
    DensityRegression,
    GaussianDensity,
    MixtureDensity,
    RadialFlowDensity,
    TrainingOptions,
    fit_density_regression,
)
from density_regression.baselines import GaussianNetwork, fit_baseline
from density_regression.nn.density import Density
from density_regression.training.batches import TensorBatches
from training.helpers import assert_equal, batches, finite, generator, network, nll, state, wave


def test_a_loader_with_pairs() -> None:
    held_out = DataLoader(TensorDataset(*wave(60, seed=10)), batch_size=30)
    model = network()
    train = DataLoader(TensorDataset(*wave()), batch_size=32, shuffle=True, generator=generator())
    report = fit_density_regression(model, train, held_out, options=TrainingOptions(epochs=15))
    assert nll(model, *wave(seed=20)) < 0.6
    assert len(report.history) == 15


def test_without_held_out_rows() -> None:
    model = network()
    report = fit_density_regression(model, batches(*wave(), seed=0), options=TrainingOptions(epochs=15))
    assert len(report.history) == 15
    assert report.history[-1] < report.history[0]
    assert nll(model, *wave(seed=20)) < 0.6


@pytest.mark.parametrize("pretrained", [False, True])
def test_a_loader_with_weights(pretrained: bool) -> None:
    """Half of the rows say the opposite, and weigh next to nothing."""
    x, y = wave(400)
    lies = torch.arange(400) % 2 == 0
    weight = torch.where(lies, 1e-6, 1.0)
    rows = TensorDataset(x, torch.where(lies[:, None], -y, y), weight)
    model = network(width=32)
    options = TrainingOptions(epochs=15)
    loader, held_out = DataLoader(rows, batch_size=40), DataLoader(rows, batch_size=400)
    fit_density_regression(model, loader, held_out, options=options, pretrained=pretrained)
    assert nll(model, *wave(seed=20)) < 0.6


def test_weights_of_one_are_no_weights() -> None:
    x, y = wave()
    losses = [
        fit_density_regression(network(), DataLoader(TensorDataset(*rows), batch_size=50), options=TrainingOptions(3))
        for rows in ((x, y), (x, y, torch.ones(len(x))), (x, y, torch.full((len(x),), 7.0)))
    ]
    assert losses[0].history == losses[1].history
    np.testing.assert_allclose(losses[2].history, losses[0].history, rtol=1e-5)


def test_a_batch_without_weight_is_passed_over() -> None:
    x, y = wave()
    weight = (torch.arange(len(x)) >= 50).float()
    model = network()
    fit_density_regression(model, batches(x, y, weight=weight), options=TrainingOptions(epochs=15))
    assert finite(model)
    assert nll(model, *wave(seed=20)) < 0.6


@pytest.mark.parametrize("shape", [(), (7,)], ids=["table", "sequence"])
def test_sequences_and_tables_train_alike(shape: tuple[int, ...]) -> None:
    """The same rows, one by one or seven to a sequence, through an encoder that looks at one position."""
    x, y = wave(210)
    encoder = nn.Sequential(nn.Conv1d(1, 8, 1), nn.ReLU())
    if shape:
        x, y = (part.reshape(30, 7, 1).movedim(1, 2) for part in (x, y))
    else:
        x, y = x[..., None], y[..., None]
    torch.manual_seed(0)
    encoder[0].reset_parameters()
    model = DensityRegression(encoder, 8)
    fit_density_regression(model, batches(x, y, len(x)), options=TrainingOptions(epochs=150, learning_rate=1e-2))
    assert model(x).mean.shape == y.shape
    assert nll(model, x, y) < 0.6


@pytest.mark.parametrize("pretrained", [False, True])
@pytest.mark.parametrize("shape", [(200,), (200, 2), (200, 1, 1), (100, 2)], ids=str)
def test_targets_of_another_shape(shape: tuple[int, ...], pretrained: bool) -> None:
    x, _ = wave(200)
    loader = [(x, torch.zeros(shape))]
    with pytest.raises(ValueError, match=r"Targets have shape \(.*\), the model predicts \(200, 1\)"):
        fit_density_regression(network(), loader, pretrained=pretrained)


def test_batches_without_length() -> None:
    class Endless:
        def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
            yield wave()

    with pytest.raises(ValueError, match="must have a length"):
        fit_density_regression(network(), Endless())


def test_a_loader_of_data_without_length() -> None:
    class Stream(IterableDataset[tuple[Tensor, Tensor]]):
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            yield from zip(*wave(), strict=True)

    with pytest.raises(ValueError, match="must have a length"):
        fit_density_regression(network(), DataLoader(Stream(), batch_size=50))
    # One pass is enough if the encoder is trained.
    fit_density_regression(network(), DataLoader(Stream(), batch_size=50), pretrained=True)


def test_batches_that_are_used_up() -> None:
    class Once:
        def __init__(self) -> None:
            self.batches = iter([wave()])

        def __len__(self) -> int:
            return 1

        def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
            return self.batches

    with pytest.raises(ValueError, match="anew in each epoch"):
        fit_density_regression(network(), Once(), [wave()], unvaried=[wave()])


def test_an_empty_batch_is_passed_over() -> None:
    x, y = wave()
    loader = [(x, y), (x[:0], y[:0])]
    model = network()
    fit_density_regression(model, loader, loader, options=TrainingOptions(epochs=2))
    assert finite(model)


@pytest.mark.parametrize("batch", [(torch.zeros(5, 1),), (torch.zeros(5, 1),) * 4, torch.zeros(2, 5, 1)])
def test_batches_of_other_parts(batch: Any) -> None:
    with pytest.raises(ValueError, match=r"A batch must be \(x, y\) or \(x, y, weight\)"):
        fit_density_regression(network(), [batch])


@pytest.mark.parametrize("x", [np.zeros((5, 1)), {"x": torch.zeros(5, 1)}, [torch.zeros(5, 1)] * 2], ids=type)
def test_batches_of_other_things(x: Any) -> None:
    with pytest.raises(ValueError, match=rf"each a tensor, got a {type(x).__name__}"):
        fit_density_regression(network(), [(x, torch.zeros(5, 1))])


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_targets_that_are_no_numbers(value: float, held_out: bool) -> None:
    x, y = wave()
    bad = torch.where(torch.arange(len(y))[:, None] == 3, value, y)
    train, held = ((x, y), (x, bad)) if held_out else ((x, bad), (x, y))
    with pytest.raises(ValueError, match="Targets are NaN or infinite"):
        fit_density_regression(network(), [train], [held], pretrained=True)


def test_frozen_parameters() -> None:
    x, y = wave()
    model = network()
    model.encoder.requires_grad_(False)
    before = state(model)
    fit_density_regression(model, [(x, y)], options=TrainingOptions(epochs=2))
    assert_equal(state(model), before, "encoder.")
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to train"):
        fit_density_regression(model, [(x, y)])
    fit_density_regression(model, [(x, y)], pretrained=True)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_complex_weights() -> None:
    class Fourier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(1, 8, dtype=torch.complex64, generator=generator()))

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh((x.to(torch.complex64) @ self.weight).real)

    model = DensityRegression(Fourier(), 8)
    report = fit_density_regression(model, [wave()], options=TrainingOptions(epochs=15, average=2))
    assert report.history[-1] < report.history[0]
    assert nll(model, *wave(seed=20)) < 0.6


def test_a_state_that_is_no_tensor() -> None:
    class Counted(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"seen": 1}

        def set_extra_state(self, state: dict[str, int]) -> None:
            assert state == {"seen": 1}

    model = DensityRegression(Counted(1, 8), 8)
    fit_density_regression(model, [wave()], options=TrainingOptions(epochs=2))
    assert math.isfinite(nll(model, *wave()))


def test_smoothness_of_inputs_that_cannot_move() -> None:
    model = DensityRegression(nn.Sequential(nn.Embedding(5, 8), nn.Flatten()), 8)
    rows = (torch.arange(5)[:, None], torch.zeros(5, 1))
    with pytest.raises(ValueError, match="smoothness"):
        fit_density_regression(model, [rows], options=TrainingOptions(smoothness=0.1))


def test_parts_of_one_s_own_need_not_tell_their_settings() -> None:
    class Own(GaussianDensity):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)

    model = network(density=Own(max_dims=2))
    fit_density_regression(model, [wave()], options=TrainingOptions(epochs=2))
    assert finite(model)


@pytest.mark.parametrize("density", [MixtureDensity(1), RadialFlowDensity(epochs=1)], ids=["mixture", "flow"])
def test_a_trained_model_is_ready_to_predict(density: Density) -> None:
    model = network(density=density)
    fit_density_regression(model, [wave()], options=TrainingOptions(epochs=2))
    assert not any(part.training for part in model.modules())


def test_a_device_that_is_none() -> None:
    with pytest.raises(ValueError, match="device must be"):
        fit_density_regression(network(), batches(*wave()), options=TrainingOptions(device="abacus"))


@pytest.mark.parametrize("held_out", [[], batches(torch.zeros(0, 1), torch.zeros(0, 1))], ids=["no batches", "no rows"])
def test_held_out_rows_that_are_none(held_out: Any) -> None:
    with pytest.raises(ValueError, match="held_out"):
        fit_density_regression(network(), batches(*wave()), held_out, options=TrainingOptions(epochs=1))


@pytest.mark.parametrize("positions", [(), (4,)])
@pytest.mark.parametrize("loader", [False, True])
def test_rows_without_weight_train_nothing(loader: bool, positions: tuple[int, ...]) -> None:
    rows = torch.zeros(6, 1, *positions), torch.ones(6, 1, *positions), torch.zeros(6, *positions)
    encoder = nn.Conv1d(1, 4, 1) if positions else nn.Linear(1, 4)
    train = DataLoader(TensorDataset(*rows), 3) if loader else TensorBatches(*rows, 3)
    options = TrainingOptions(epochs=1)
    with pytest.raises(ValueError, match="training batches have no rows with weight"):
        fit_baseline(GaussianNetwork(encoder, 4), train, options=options, verbose=False)
    with pytest.raises(ValueError, match="training batches have no rows with weight"):
        fit_density_regression(DensityRegression(encoder, 4), train, options=options, verbose=False)
