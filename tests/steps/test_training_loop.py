"""What training takes, its loop, and batches from memory."""

import math
import shutil
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from density_regression import (
    DensityRegression,
    DensityRegressor,
    GaussianDensity,
    MixtureDensity,
    RadialFlowDensity,
    TrainingOptions,
    fit_density_regression,
)
from density_regression.baselines import GaussianNetwork, fit_baseline
from density_regression.datasets import make_cubic
from density_regression.density import Density
from density_regression.loop import optimise
from density_regression.training import TensorBatches, pretrain
from steps.helpers import assert_equal, batches, finite, generator, network, nll, state, wave

# -- what training takes ----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("parts", [(5, 5, 4), (5, 4, 5), (4, 5, 5)], ids=str)
def test_tables_of_other_lengths(parts: tuple[int, int, int]) -> None:
    x, y, weight = parts
    with pytest.raises(ValueError, match="must be of one length"):
        TensorBatches(torch.zeros(x, 1), torch.zeros(y, 1), torch.ones(weight), 2, generator())
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        TensorBatches(torch.zeros(5, 1), torch.zeros(5, 1), torch.ones(5), 0)


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


# -- the loop of step 1 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1e6, 1e30])
def test_divergence_is_said(rate: float) -> None:
    model = network()
    try:
        fit_density_regression(model, batches(*wave()), options=TrainingOptions(epochs=5, learning_rate=rate))
    except ValueError as error:
        assert "diverged" in str(error)  # noqa: PT017 (either way is right)
    else:
        assert finite(model)


@pytest.mark.parametrize("size", [1e10, 1e19, 1e30])
def test_huge_targets_fail_loudly_or_not_at_all(size: float) -> None:
    model = network()
    x, y = wave()
    try:
        fit_density_regression(model, batches(x, y * size), options=TrainingOptions(epochs=5))
    except ValueError as error:
        assert "diverged" in str(error)  # noqa: PT017 (either way is right)
    else:
        assert finite(model)
        assert model(x).mean.isfinite().all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate", [1.0, 10.0, 100.0, 1e4])
def test_a_rate_too_high_fails_loudly_or_not_at_all(rate: float, seed: int) -> None:
    """Weights that overflow in one place may leave a held-out loss that is a number."""
    X, y = make_cubic(120, random_state=0)
    regressor = DensityRegressor(hidden=(8, 8), epochs=5, learning_rate=rate, random_state=seed)
    try:
        regressor.fit(X, y)
    except ValueError as error:
        assert "diverged" in str(error)  # noqa: PT017 (either way is right)
        return
    assert finite(regressor.model_)
    assert np.isfinite(regressor.predict(X, return_std=True)).all()


class Slope(nn.Module):
    """A loss with gradient 1 in its only weight, which it writes down before each step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
        self.seen: list[float] = []

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        if self.training:
            self.seen.append(self.weight.item())
        return self.weight.sum()


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_the_rate_falls_to_zero_along_a_cosine(decay: float) -> None:
    """Of a gradient that is always 1, a step of Adam is the rate itself; decay takes its share of the weight before."""
    objective = Slope()
    options = TrainingOptions(epochs=6, learning_rate=0.1, weight_decay=decay, patience=None)
    ones = torch.ones(20, 1, dtype=torch.float64)
    optimise(objective, TensorBatches(ones, ones, ones[:, 0], 5), None, options)
    path = [*objective.seen, objective.weight.item()]
    assert len(path) == 6 * 4 + 1
    for step, (before, after) in enumerate(pairwise(path)):
        rate = 0.1 * 0.5 * (1 + math.cos(math.pi * step / 24))
        assert after == pytest.approx(before * (1 - rate * decay) - rate, abs=1e-7)


def test_the_best_weights_are_kept() -> None:
    """With a rate so high that the loss goes up and down."""
    model = network(head="natural")
    held_out = wave(seed=10)
    options = TrainingOptions(epochs=40, learning_rate=0.3, patience=None)
    history = pretrain(model, batches(*wave(), seed=0), batches(*held_out, 77), options)
    assert len(history) == 40
    assert min(history) < history[-1] - 1e-3
    assert nll(model, *held_out) == pytest.approx(min(history), abs=1e-5)
    assert not model.training


def test_patience_ends_training() -> None:
    x, y = wave()
    held_out = batches(x, torch.randn(200, 1, generator=generator(3)))
    options = TrainingOptions(epochs=200, learning_rate=3e-2, patience=4)
    history = pretrain(network(), batches(x, y), held_out, options)
    best = int(np.argmin(history))
    assert len(history) == best + 5 < 200
    patient = TrainingOptions(epochs=60, learning_rate=3e-2, patience=None)
    assert len(pretrain(network(), batches(x, y), held_out, patient)) == 60


def test_gradients_are_clipped() -> None:
    """Adam divides by the gradient's size, but for a floor; a gradient below it hardly moves anything."""
    moved = []
    for clip in (10.0, 1e-12):
        model = network()
        before = model.encoder[0].weight.detach().clone()
        pretrain(model, batches(*wave()), None, TrainingOptions(epochs=2, weight_decay=0.0, gradient_clip=clip))
        moved.append((model.encoder[0].weight.detach() - before).abs().max().item())
    assert moved[0] > 1e-3
    assert moved[1] < 1e-6


def test_half_precision() -> None:
    model, single = network(), network()
    held_out = batches(*wave(seed=10))
    for precision, trained in (("bf16-mixed", model), ("32-true", single)):
        options = TrainingOptions(epochs=15, precision=precision)
        fit_density_regression(trained, batches(*wave(), seed=0), held_out, options=options)
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32}
    assert nll(model, *wave(seed=20)) == pytest.approx(nll(single, *wave(seed=20)), abs=0.1)
    assert not torch.equal(model.encoder[0].weight, single.encoder[0].weight)


NO_COMPILER = shutil.which("c++") is None and shutil.which("g++") is None


@pytest.mark.skipif(NO_COMPILER, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled() -> None:
    x, y = wave()
    trained = []
    for compiled in (False, True):
        model = network()
        history = pretrain(model, batches(x, y, 200), None, TrainingOptions(epochs=3, compile=compiled))
        trained.append((history, state(model)))
    (history, plain), (compiled_history, compiled) = trained
    np.testing.assert_allclose(compiled_history, history, rtol=1e-5)
    assert compiled.keys() == plain.keys()
    assert all(torch.allclose(compiled[name], plain[name], atol=1e-5) for name in plain)


def test_the_report_tells_seconds_and_losses() -> None:
    start = time.perf_counter()
    options = TrainingOptions(epochs=4)
    report = fit_density_regression(network(), batches(*wave()), batches(*wave(seed=10)), options=options)
    assert list(report.seconds) == ["pretrain", "fit_density", "refit_head", "learn_reach"]
    assert all((seconds > 0) == (step != "learn_reach") for step, seconds in report.seconds.items())
    assert sum(report.seconds.values()) < time.perf_counter() - start
    assert len(report.history) == 4
    assert np.isfinite(report.history).all()


def test_the_same_seed_gives_the_same_model() -> None:
    states = []
    for seed in (0, 0, 1):
        model = network(density=RadialFlowDensity(layers=2, epochs=2))
        options = TrainingOptions(epochs=3, seed=seed)
        fit_density_regression(model, batches(*wave(), seed=seed), batches(*wave(seed=10)), options=options)
        states.append(state(model))
    assert_equal(states[0], states[1], "")
    assert not torch.equal(states[0]["encoder.0.weight"], states[2]["encoder.0.weight"])
    assert not torch.equal(states[0]["density.flow.center"], states[2]["density.flow.center"])


def test_the_seed_is_that_of_steps_two_and_three() -> None:
    centers = []
    for seed in (0, 0, 1):
        model = network(density=RadialFlowDensity(layers=2, epochs=2))
        fit_density_regression(model, batches(*wave()), options=TrainingOptions(epochs=1, seed=seed))
        centers.append(model.density.flow.center)
    assert torch.equal(centers[0], centers[1])
    assert not torch.equal(centers[0], centers[2])


# -- batches from memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize(("n", "size"), [(100, 10), (101, 10), (99, 10), (7, 100), (7, 1), (1, 1), (65, 32)])
def test_batches_hold_each_row_once(n: int, size: int, seed: int | None) -> None:
    x = torch.arange(float(n))[:, None]
    loader = batches(x, x + 0.5, size, x[:, 0] + 0.25, seed)
    for _ in range(2):
        parts = list(loader)
        assert len(parts) == len(loader) == math.ceil(n / size)
        assert {len(part) for batch in parts for part in batch} <= {n // len(parts), n // len(parts) + 1}
        assert max(len(batch[0]) for batch in parts) <= size
        seen, y, weight = (torch.cat(part) for part in zip(*parts, strict=True))
        assert torch.equal(seen.sort(dim=0).values, x)
        assert torch.equal(y, seen + 0.5)
        assert torch.equal(weight, seen[:, 0] + 0.25)


def test_batches_are_shuffled_anew() -> None:
    x = torch.arange(50.0)[:, None]

    def epochs(seed: int | None) -> list[Tensor]:
        loader = batches(x, x, 8, seed=seed)
        return [torch.cat([batch[0] for batch in loader]) for _ in range(2)]

    assert all(torch.equal(order, x) for order in epochs(None))
    first, second = epochs(0)
    assert not torch.equal(first, second)
    assert not torch.equal(first, x)
    assert all(torch.equal(*pair) for pair in zip((first, second), epochs(0), strict=True))
    assert not torch.equal(first, epochs(1)[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", -1),
        ("learning_rate", float("nan")),
        ("weight_decay", -0.1),
        ("average", -1.0),
        ("smoothness", float("inf")),
        ("smoothness", -0.1),
        ("patience", 0),
        ("gradient_clip", 0.0),
        ("gradient_clip", float("nan")),
        ("epochs", 2.5),
        # Found out in step 2, they would have trained a network for nothing.
        ("seed", None),
        ("seed", 0.5),
        # These would turn the network itself into numbers that steps 2 and 3 do not share.
        ("precision", "64-true"),
        ("precision", "bf16-true"),
    ],
)
def test_bad_options(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        TrainingOptions(**{name: value})  # type: ignore[arg-type]
