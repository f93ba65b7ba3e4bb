"""Quantile regression: the loss, quantiles that never cross, and the Normal that stands for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from torch import Tensor, nn

from density_regression import load
from density_regression.baselines import QuantileNetwork, QuantileRegressor, fit_baseline
from density_regression.baselines.quantile import MIN_RELATIVE_STEP
from density_regression.nn.runtime import TrainingOptions

LEVELS = (0.1, 0.3, 0.6, 0.95)


class Fixed(QuantileNetwork):
    """A network whose quantiles are given: features (n, levels) are the quantiles of one target."""

    def __init__(self, levels: tuple[float, ...]) -> None:
        super().__init__(nn.Identity(), len(levels), levels=levels)

    def row_quantiles(self, z: Tensor) -> Tensor:
        return z[:, None]


def random_network(seed: int, size: float, targets: int = 2, levels: tuple[float, ...] = LEVELS) -> QuantileNetwork:
    torch.manual_seed(seed)
    network = QuantileNetwork(nn.Identity(), 5, targets, levels=levels)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0.0, size)
    return network.eval()


def test_pinball_loss_by_hand() -> None:
    z, y = torch.tensor([[-1.0, 0.0, 1.0]]), torch.tensor([[0.5]])
    # Errors 1.5, 0.5 and -0.5 at levels 0.2, 0.5 and 0.9.
    expected = (0.2 * 1.5 + 0.5 * 0.5 + 0.1 * 0.5) / 3
    torch.testing.assert_close(Fixed((0.2, 0.5, 0.9)).row_losses(z, y), torch.tensor([expected]))


@pytest.mark.parametrize("level", [0.1, 0.5, 0.85])
def test_sample_quantile_minimises_the_loss(level: float) -> None:
    y = torch.from_numpy(np.random.default_rng(0).gamma(2.0, size=(201, 1))).float()
    candidates = torch.linspace(0, 8, 4001)
    network = Fixed((level, 0.99))
    # The second level adds the same to every candidate.
    loss = torch.stack([network.row_losses(torch.tensor([[c, 9.0]]).expand(201, 2), y).mean() for c in candidates])
    best = candidates[loss.argmin()].item()
    assert best == pytest.approx(np.quantile(y.numpy(), level, method="inverted_cdf"), abs=2e-3)


def test_training_finds_the_sample_quantiles() -> None:
    rng = np.random.default_rng(0)
    y = rng.exponential(size=400)
    reg = QuantileRegressor(levels=LEVELS, validation_fraction=0, epochs=150, weight_decay=0, random_state=0)
    reg.fit(np.zeros((400, 1)), y)
    found = reg.predict_quantiles([[0.0]], LEVELS)[0]
    np.testing.assert_allclose((y[:, None] <= found).mean(axis=0), LEVELS, atol=0.01)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    weights=st.floats(-3, 2),
    inputs=st.floats(-6, 12),
    count=st.sampled_from([2, 3, 13, 200]),
)
def test_quantiles_never_cross(seed: int, weights: float, inputs: float, count: int) -> None:
    levels = tuple(np.linspace(0.01, 0.95, count))
    network = random_network(seed, 10.0**weights, levels=levels)
    z = torch.from_numpy(10.0**inputs * np.random.default_rng(seed).normal(size=(20, 5))).float().clamp(-1e12, 1e12)
    quantiles = network.row_quantiles(z)
    assert quantiles.dtype == torch.float32
    assert quantiles.isfinite().all()
    assert (quantiles.diff(dim=-1) > 0).all()
    mean, log_std = network.row_moments(z)
    assert mean.isfinite().all()
    assert log_std.isfinite().all()


@settings(max_examples=30, deadline=None)
@given(
    mean=st.floats(-5, 5),
    std=st.floats(0.1, 5),
    levels=st.lists(st.integers(1, 99), min_size=2, max_size=20, unique=True),
)
def test_moments_are_exact_for_a_normal(mean: float, std: float, levels: list[int]) -> None:
    probabilities = tuple(np.sort(levels) / 100)
    network = QuantileNetwork(nn.Identity(), 1, levels=probabilities).double()
    quantiles = norm.ppf(probabilities, mean, std)
    steps = torch.from_numpy(np.diff(quantiles))
    # The least step, which the network adds to each, is taken off first.
    size = (1.0 + abs(quantiles[network.anchor]) + steps.sum()) / (1.0 + MIN_RELATIVE_STEP * len(steps))
    with torch.no_grad():
        network.linear.weight.zero_()
        network.linear.bias[0] = quantiles[network.anchor]
        network.linear.bias[1:] = (steps - MIN_RELATIVE_STEP * size).expm1().log()
    found, log_std = network.row_moments(torch.zeros(1, 1, dtype=torch.float64))
    # Constants are in float32.
    assert found.item() == pytest.approx(mean, abs=1e-5)
    assert log_std.exp().item() == pytest.approx(std, rel=1e-5)
    found = network.row_quantiles(torch.zeros(1, 1, dtype=torch.float64))
    np.testing.assert_allclose(found.detach().flatten(), quantiles, rtol=1e-9, atol=1e-9)


def test_moments_are_least_squares() -> None:
    network, z = random_network(0, 1.0).double(), torch.randn(6, 5, dtype=torch.float64)
    quantiles = network.row_quantiles(z).detach().numpy().reshape(-1, len(LEVELS))
    slope, intercept = np.polyfit(norm.ppf(LEVELS), quantiles.T, 1)
    mean, log_std = network.row_moments(z)
    np.testing.assert_allclose(mean.detach().flatten(), intercept, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(log_std.exp().detach().flatten(), slope, rtol=1e-5)


def test_an_untrained_network_is_a_standard_normal_around_its_anchor() -> None:
    network = QuantileNetwork(nn.Identity(), 3, 2)
    quantiles = network.row_quantiles(torch.randn(4, 3))
    expected = torch.from_numpy(norm.ppf(network.levels)).float()
    torch.testing.assert_close(quantiles - quantiles[..., 6:7], expected.expand(4, 2, -1), atol=1e-4, rtol=1e-4)


def test_gradients_reach_every_parameter() -> None:
    network = random_network(0, 0.5)
    network.row_losses(torch.randn(9, 5), torch.randn(9, 2)).mean().backward()
    assert all((parameter.grad != 0).any(-1).all() for parameter in network.parameters())


@pytest.fixture(scope="module")
def two(friedman) -> QuantileRegressor:
    targets = np.column_stack([1e-3 * friedman.y, 1e6 * friedman.X[:, 0]])
    return QuantileRegressor(levels=LEVELS, hidden=(16,), epochs=5, random_state=0).fit(friedman.X, targets)


def test_predicted_quantiles_are_those_learnt(two: QuantileRegressor, friedman) -> None:
    found = two.predict_quantiles(friedman.X, LEVELS)
    with torch.no_grad():
        scaled = two.model_.quantiles(two.x_scaling_.apply(friedman.X)).double().numpy()
    expected = scaled * two.y_scaling_.scale[:, None] + two.y_scaling_.center[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_quantiles_between_and_beyond(two: QuantileRegressor, friedman) -> None:
    X = friedman.X[:5]
    own = two.predict_quantiles(X, LEVELS)
    _, std = two.predict(X, return_std=True)
    # Between: halfway in the normal score. Beyond: as far as the score goes on, in standard deviations.
    half = norm.cdf((norm.ppf(0.3) + norm.ppf(0.6)) / 2)
    below, between, above = np.moveaxis(two.predict_quantiles(X, [1e-12, half, 1 - 1e-9]), -1, 0)
    np.testing.assert_allclose(between, own[..., 1:3].mean(axis=-1), rtol=1e-6)
    np.testing.assert_allclose(below, own[..., 0] + std * (norm.ppf(1e-12) - norm.ppf(0.1)), rtol=1e-5)
    np.testing.assert_allclose(above, own[..., -1] + std * (norm.ppf(1 - 1e-9) - norm.ppf(0.95)), rtol=1e-5)


def test_quantiles_increase_with_the_level(two: QuantileRegressor, friedman) -> None:
    levels = np.concatenate([[1e-300, 1e-9], np.linspace(0.001, 0.999, 500), [1 - 1e-15]])
    assert (np.diff(two.predict_quantiles(1e6 * friedman.X, levels)) > 0).all()


def test_interval_holds_what_it_promises(cubic) -> None:
    reg = QuantileRegressor(epochs=100, random_state=0).fit(*cubic)
    low, high = reg.predict_interval(cubic.X, coverage=0.8)
    assert 0.7 < ((low < cubic.y) & (cubic.y < high)).mean() < 0.9


def test_levels_survive_saving(two: QuantileRegressor, tmp_path: Path, friedman) -> None:
    two.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.levels == LEVELS
    np.testing.assert_allclose(back.predict_quantiles(friedman.X, [0.2]), two.predict_quantiles(friedman.X, [0.2]))


def test_every_pixel_has_its_quantiles() -> None:
    torch.manual_seed(0)
    network = QuantileNetwork(nn.Conv2d(3, 6, 3, padding=1), 6, 2, levels=LEVELS)
    x, y = torch.randn(4, 3, 5, 7), torch.randn(4, 2, 5, 7)
    report = fit_baseline(network, [(x, y)], options=TrainingOptions(epochs=1), scale_targets=False)
    assert np.isfinite(report.history).all()
    quantiles = network.quantiles(x)
    assert quantiles.shape == (4, 2, 5, 7, len(LEVELS))
    assert network(x).mean.shape == y.shape
    pixel = network.row_quantiles(network.encode(x)[1, :, 2, 3][None])
    torch.testing.assert_close(quantiles[1, :, 2, 3], pixel[0])


@pytest.mark.parametrize(
    "levels",
    [
        (0.5,),
        (0.5, 0.5),
        (0.6, 0.4),
        (0.0, 0.5),
        (0.5, 1.0),
        (0.5, np.nan),
        (0.1, "high"),
        (0.1, None),
        0.5,
        tuple(np.linspace(0.001, 0.999, 1001)),
    ],
    ids=lambda levels: str(levels)[:30],
)
def test_bad_levels(levels: object, cubic) -> None:
    with pytest.raises(ValueError, match="levels"):
        QuantileNetwork(nn.Identity(), 3, levels=levels)
    with pytest.raises(ValueError, match="levels"):
        QuantileRegressor(levels=levels).fit(*cubic)


@pytest.mark.parametrize("levels", [[0.0], [0.5, 1.0], [[0.5]], 0.5, [np.nan]])
def test_bad_wanted_levels(two: QuantileRegressor, levels: object, friedman) -> None:
    with pytest.raises(ValueError, match="levels"):
        two.predict_quantiles(friedman.X, levels)
