"""The loop of step 1: rates, early stopping, precision, seeds and bad options."""

import math
import shutil
import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from density_regression import DensityRegressor, RadialFlowDensity, TrainingOptions, fit_density_regression
from density_regression.datasets import make_cubic
from density_regression.training.algorithm import pretrain
from density_regression.training.batches import TensorBatches
from density_regression.training.loop import optimise
from training.helpers import assert_equal, batches, finite, generator, network, nll, state, wave


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


class Held(Slope):
    """Its held-out losses are those given, one for each epoch."""

    def __init__(self, held_out: list[float]) -> None:
        super().__init__()
        self.held_out = list(held_out)

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        if self.training:
            return super().forward(x, y, weight)
        return torch.tensor(self.held_out.pop(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("held_out", "keep_last", "kept"),
    [
        ([3.0, 1.0, 2.0, 4.0], False, 2),
        ([3.0, 1.0, 2.0, 4.0], True, 4),
        ([3.0, 1.0, 2.0, math.inf], True, 3),
        ([3.0, 1.0, math.nan, math.nan], True, 2),
    ],
)
def test_which_weights_are_kept(held_out: list[float], keep_last: bool, kept: int) -> None:
    """Those with the best held-out loss, or the last ones whose loss is a number, whatever the patience."""
    objective = Held(held_out)
    options = TrainingOptions(epochs=4, patience=1 if keep_last else None, weight_decay=0.0)
    ones = batches(torch.ones(20, 1), torch.ones(20, 1), 5)
    (losses,) = optimise(objective, ones, ones.sample(5), options, keep_last=keep_last)
    # Four steps an epoch; a weight is written down before each.
    after = [*objective.seen[4::4], None]
    expected = after[kept - 1]
    assert len(losses.held_out) == 4
    assert objective.weight.item() == expected if expected is not None else objective.weight.item() < objective.seen[-1]


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
    history = pretrain(model, batches(*wave(), seed=0), batches(*held_out, 77), options).held_out
    assert len(history) == 40
    assert min(history) < history[-1] - 1e-3
    assert nll(model, *held_out) == pytest.approx(min(history), abs=1e-5)
    assert not model.training


def test_patience_ends_training() -> None:
    x, y = wave()
    held_out = batches(x, torch.randn(200, 1, generator=generator(3)))
    options = TrainingOptions(epochs=200, learning_rate=3e-2, patience=4)
    history = pretrain(network(), batches(x, y), held_out, options).held_out
    best = int(np.argmin(history))
    assert len(history) == best + 5 < 200
    patient = TrainingOptions(epochs=60, learning_rate=3e-2, patience=None)
    assert [len(losses) for losses in pretrain(network(), batches(x, y), held_out, patient)] == [60, 60]


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
