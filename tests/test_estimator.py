"""DensityRegressor: what it predicts, in which units, from which input, and what it refuses."""

from __future__ import annotations

import copy
import random
import warnings
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone
from torch import Tensor, nn

from density_regression import (
    MLP,
    DensityRegressor,
    FlowDensity,
    GaussianDensity,
    MeanHead,
    MixtureDensity,
    NaturalHead,
    RadialFlowDensity,
    predicting,
)
from density_regression.datasets import make_cubic
from density_regression.density import RobustTempering


def quick(**params: object) -> DensityRegressor:
    """A regressor that is fitted in a moment."""
    return DensityRegressor(**{"hidden": (16,), "epochs": 5, "n_threads": 1, "random_state": 0, **params})


def moments(reg: DensityRegressor, X: object) -> np.ndarray:
    """Mean and standard deviation, stacked."""
    return np.stack(reg.predict(X, return_std=True))


def everything(reg: DensityRegressor, X: object) -> list[np.ndarray]:
    """All that can be asked of the rows of X, and no warning about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers = [*reg.predict(X, return_std=True), *reg.predict_interval(X), *reg.decompose(X)]
        answers += [reg.predict_quantiles(X, [1e-9, 0.5, 0.999]), reg.sample(X, 3)]
        if reg.density is not None:
            answers += [reg.score_samples(X), reg.familiarity(X)]
    return answers


def assert_sound(reg: DensityRegressor, X: object) -> None:
    """Finite answers, and a positive standard deviation."""
    assert all(np.isfinite(answer).all() for answer in everything(reg, X))
    assert (moments(reg, X)[1] > 0).all()


class Recording(nn.Module):
    """Features that are the inputs themselves; notes what it was given, and with how many threads."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []
        self.threads: set[int] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.clone())
        self.threads.add(torch.get_num_threads())
        return x


class Overflowing(nn.Module):
    """Features that leave float32 far from the training rows, one as infinity and one as not a number."""

    def forward(self, x: Tensor) -> Tensor:
        grown = x.square().exp()
        return torch.cat([x, grown, grown - grown.square() / grown], dim=1)


class Interrupting(nn.Module):
    """Raises at the tenth call, as a user would who presses Ctrl-C."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 10:
            raise KeyboardInterrupt
        return self.linear(x)


# -- the prediction and what is derived from it -----------------------------------------------------------------


def test_prediction_is_good_and_its_intervals_cover(default_cubic) -> None:
    X, y = make_cubic(2000, random_state=1)
    low, high = default_cubic.predict_interval(X, coverage=0.95)
    assert 0.9 < np.mean((low < y) & (y < high)) < 0.99
    assert default_cubic.score(X, X[:, 0] ** 3) > 0.99
    assert 2.0 < np.median(moments(default_cubic, X)[1]) < 4.5


def test_quantiles_intervals_and_distribution_agree(fitted, cubic) -> None:
    mean, std = fitted.predict(cubic.X, return_std=True)
    np.testing.assert_array_equal(mean, fitted.predict(cubic.X))
    normal = stats.norm(mean, std)
    levels = [0.9, 0.001, 0.5, 0.25]
    quantiles = fitted.predict_quantiles(cubic.X, levels)
    np.testing.assert_allclose(quantiles, normal.ppf(np.array(levels)[:, None]).T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(quantiles[:, 2], mean, rtol=1e-12)
    for coverage in (0.5, 0.95):
        interval = fitted.predict_interval(cubic.X, coverage=coverage)
        np.testing.assert_allclose(interval, normal.interval(coverage), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(fitted.predict_interval(cubic.X), fitted.predict_interval(cubic.X, 0.95))
    distribution = fitted.predict_dist(cubic.X)
    assert distribution.mean.dtype == torch.float64
    np.testing.assert_array_equal(distribution.mean, mean)
    np.testing.assert_array_equal(distribution.stddev, std)
    np.testing.assert_allclose(distribution.cdf(torch.from_numpy(quantiles[:, 0])), 0.9, rtol=1e-9)


def test_outputs_are_float64_of_one_dimension(fitted, cubic) -> None:
    for answer in everything(fitted, cubic.X)[:6]:
        assert answer.dtype == np.float64
        assert answer.shape == (200,)
    assert fitted.predict_quantiles(cubic.X, [0.5]).shape == (200, 1)
    assert fitted.sample(cubic.X).shape == (1, 200)


@pytest.mark.parametrize("coverage", [0, 1, -0.1, 95, float("nan")])
def test_bad_coverage(fitted, coverage: float) -> None:
    with pytest.raises(ValueError, match=r"coverage must lie strictly between 0 and 1, got"):
        fitted.predict_interval([[0.0]], coverage=coverage)


@pytest.mark.parametrize("levels", [[0.0], [0.5, 1.0], [-0.1], [float("nan")], 0.5, [[0.5]], None])
def test_bad_levels(fitted, levels: object) -> None:
    with pytest.raises(ValueError, match="levels must be a list of numbers strictly between 0 and 1"):
        fitted.predict_quantiles([[0.0]], levels)


def test_sample(fitted) -> None:
    X = [[-1.0], [2.0], [9.0]]
    draws = fitted.sample(X, 20_000, random_state=3)
    mean, std = fitted.predict(X, return_std=True)
    assert draws.shape == (20_000, 3)
    np.testing.assert_allclose((draws.mean(0) - mean) / std, 0.0, atol=0.035)
    np.testing.assert_allclose(draws.std(0) / std, 1.0, atol=0.03)
    np.testing.assert_allclose(np.corrcoef(draws.T), np.eye(3), atol=0.035)
    assert stats.kstest((draws[:, 1] - mean[1]) / std[1], "norm").statistic < 0.02


def test_sample_is_reproducible(fitted) -> None:
    X = [[-1.0], [2.0]]
    np.testing.assert_array_equal(fitted.sample(X, 4), fitted.sample(X, 4))
    np.testing.assert_array_equal(fitted.sample(X, 4, random_state=1), fitted.sample(X, 4, random_state=1))
    assert not np.array_equal(fitted.sample(X, 4, random_state=1), fitted.sample(X, 4, random_state=2))
    generator = np.random.RandomState(1)
    np.testing.assert_array_equal(fitted.sample(X, 4, random_state=generator), fitted.sample(X, 4, random_state=1))
    assert not np.array_equal(fitted.sample(X, 4, random_state=generator), fitted.sample(X, 4, random_state=1))


def test_sample_needs_a_positive_number(fitted) -> None:
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        fitted.sample([[0.0]], 0)


def test_strangeness_grows_with_distance(fitted) -> None:
    ray = np.array([4.0, 5.0, 7.0, 10.0, 30.0, 1e3, 1e6])[:, None]
    for X in (ray, -ray):
        assert (np.diff(fitted.score_samples(X)) < 0).all()
        assert (np.diff(moments(fitted, X)[1]) > 0).all()
        assert (np.diff(fitted.decompose(X).epistemic) > 0).all()
        assert fitted.familiarity(X)[-1] == 0.0


def test_familiarity_is_a_percentile() -> None:
    reg = quick(epochs=15).fit(*make_cubic(1500, random_state=0))
    X, _ = make_cubic(2000, random_state=1)
    familiarity, score = reg.familiarity(X), reg.score_samples(X)
    assert familiarity.min() >= 0.0
    assert 0.99 < familiarity.max() <= 1.0
    assert (np.diff(familiarity[score.argsort()]) >= 0).all()
    assert stats.kstest(familiarity, "uniform").statistic < 0.12
    np.testing.assert_array_equal(reg.familiarity([[50.0], [-1e30]]), 0.0)


def test_familiarity_counts_rows_that_are_no_more_familiar(fitted, cubic) -> None:
    reg = copy.copy(fitted)
    score = fitted.score_samples(cubic.X)
    reg.held_out_levels_ = np.sort(score)
    np.testing.assert_allclose(reg.familiarity(cubic.X), np.mean(score <= score[:, None], axis=1))


def test_familiarity_of_many_held_out_rows() -> None:
    """Where only quantiles of the held-out log-densities are kept, they still say the percentile."""
    X, y = make_cubic(4000, random_state=0)
    reg = quick(epochs=1, validation_fraction=0.5).fit(X, y)
    assert len(reg.held_out_levels_) < 2000
    fresh = make_cubic(2000, random_state=1)[0]
    assert stats.kstest(reg.familiarity(fresh), "uniform").statistic < 0.06


def test_decomposition_adds_up(fitted, fitted_two, friedman) -> None:
    for reg, X in ((fitted, np.linspace(-40, 40, 101)[:, None]), (fitted_two, 3 * friedman.X)):
        aleatoric, epistemic = reg.decompose(X)
        std = moments(reg, X)[1]
        assert aleatoric.shape == epistemic.shape == std.shape
        np.testing.assert_allclose(np.hypot(aleatoric, epistemic), std, rtol=1e-5)
        assert (aleatoric > 0).all()
        assert (epistemic >= 0).all()
    aleatoric, epistemic = fitted.decompose([[0.0], [1e4]])
    assert epistemic[0] < aleatoric[0]
    assert epistemic[1] > 10 * aleatoric[1]


def test_without_density(cubic) -> None:
    reg = quick(epochs=20, density=None).fit(*cubic)
    assert reg.score(*cubic) > 0.95
    assert_sound(reg, cubic.X)
    aleatoric, epistemic = reg.decompose(cubic.X)
    np.testing.assert_array_equal(epistemic, 0.0)
    np.testing.assert_allclose(aleatoric, moments(reg, cubic.X)[1], rtol=1e-6)
    for method in (reg.score_samples, reg.familiarity):
        with pytest.raises(ValueError, match="no fitted density"):
            method(cubic.X)


# -- several targets --------------------------------------------------------------------------------------------


def test_shapes_of_several_targets(fitted_two, friedman) -> None:
    X = friedman.X[:7]
    for answer in everything(fitted_two, X)[:6]:
        assert answer.shape == (7, 2)
    assert fitted_two.predict_quantiles(X, [0.1, 0.5, 0.9]).shape == (7, 2, 3)
    assert fitted_two.sample(X, 5).shape == (5, 7, 2)
    assert fitted_two.predict_dist(X).batch_shape == (7, 2)
    assert fitted_two.score_samples(X).shape == fitted_two.familiarity(X).shape == (7,)
    low, high = fitted_two.predict_interval(X, 0.8)
    np.testing.assert_array_equal(fitted_two.predict_quantiles(X, [0.1, 0.9])[..., 0], low)
    assert (high > low).all()


def test_each_target_in_its_own_units(fitted_two, friedman) -> None:
    targets = np.column_stack([1e-3 * friedman.y, 1e6 * friedman.X[:, 0]])
    mean, std = fitted_two.predict(friedman.X, return_std=True)
    for k in range(2):
        assert np.corrcoef(mean[:, k], targets[:, k])[0, 1] > 0.9
        assert np.sqrt(np.mean((mean[:, k] - targets[:, k]) ** 2)) < 0.5 * targets[:, k].std()
        assert 1e-3 < np.median(std[:, k]) / targets[:, k].std() < 1.0  # the second is a column of X
    low, high = fitted_two.predict_interval(friedman.X)
    assert (np.mean((low < targets) & (targets < high), axis=0) > 0.85).all()


def test_one_column_of_targets_is_squeezed(cubic) -> None:
    X, y = cubic
    column = quick().fit(X, y[:, None])
    assert column.predict(X).shape == (200,)
    assert column.predict_quantiles(X, [0.1, 0.9]).shape == (200, 2)
    np.testing.assert_array_equal(moments(column, X), moments(quick().fit(X, y), X))


def test_targets_change_in_number_at_the_next_fit(cubic) -> None:
    X, y = cubic
    reg = quick().fit(X, np.column_stack([y, -y, y]))
    assert reg.predict(X).shape == (200, 3)
    assert reg.fit(X, y).predict(X).shape == (200,)


# -- units ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "shift"), [(1000.0, 5.0), (1e-8, 0.0), (2.0**40, 0.0)])
def test_units_of_the_target(fitted, cubic, factor: float, shift: float) -> None:
    X, y = cubic
    expected = moments(fitted, X)
    actual = moments(clone(fitted).fit(X, factor * y + shift), X)
    np.testing.assert_allclose((actual[0] - shift) / factor, expected[0], atol=1e-5 * y.std())
    np.testing.assert_allclose(actual[1] / factor, expected[1], rtol=1e-5)


def test_units_of_the_inputs(friedman) -> None:
    X, y = friedman
    factor, shift = 10.0 ** np.arange(-5, 5), np.linspace(-1, 1, 10)
    moved = (X + shift) * factor
    plain, other = quick().fit(X, y), quick().fit(moved, y)
    np.testing.assert_allclose(moments(other, moved), moments(plain, X), rtol=1e-3, atol=1e-3 * y.std())
    np.testing.assert_allclose(other.score_samples(moved), plain.score_samples(X), rtol=1e-2, atol=1e-2)


def test_units_come_from_training_rows_alone() -> None:
    """Held-out rows must stay unseen. Few rows and half of them held out, so that it shows."""
    X, y = make_cubic(20, random_state=0)
    reg = quick(epochs=1, validation_fraction=0.5).fit(X, y)
    for scaling, values in ((reg.x_scaling_, X), (reg.y_scaling_, y)):
        assert abs(scaling.center - values.mean()) > 0.05 * values.std()


def test_units_are_weighted(cubic) -> None:
    weight = np.where(cubic.y > 0, 5.0, 1.0)
    reg = quick(epochs=1, validation_fraction=0.0).fit(*cubic, weight)
    for scaling, values in ((reg.x_scaling_, cubic.X[:, 0]), (reg.y_scaling_, cubic.y)):
        center = np.average(values, weights=weight)
        assert scaling.center == pytest.approx(center)
        assert scaling.scale == pytest.approx(np.sqrt(np.average((values - center) ** 2, weights=weight)))


@pytest.mark.parametrize("offset", [1e9, -1e9])
@pytest.mark.parametrize("of", ["X", "y"])
def test_huge_offset_costs_no_precision(of: str, offset: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 1))
    y = X[:, 0] + rng.normal(0, 0.1, 300)
    truth = X[:, 0] + (offset if of == "y" else 0.0)
    X, y = (X + offset, y) if of == "X" else (X, y + offset)
    mean, std = quick(epochs=30).fit(X, y).predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.06
    assert 0.07 < np.median(std) < 0.14


# -- odd tables: a finite answer --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e300, 1e-300, 1e200, 1e-200])
def test_values_of_any_size(cubic, size: float) -> None:
    X, y = cubic.X / 4, cubic.y / 60
    expected = moments(quick().fit(X, y), X)
    large_X = quick().fit(size * X, y)
    np.testing.assert_allclose(moments(large_X, size * X), expected, rtol=1e-6, atol=1e-6)
    large_y = quick().fit(X, size * y)
    np.testing.assert_allclose(moments(large_y, X) / size, expected, rtol=1e-6, atol=1e-6)
    assert_sound(large_y, X)
    assert_sound(large_X, X)
    assert_sound(quick().fit(X, y), size * X)


@pytest.mark.parametrize("rows", [*range(2, 21)])
def test_few_rows(friedman, rows: int) -> None:
    X, y = friedman.X[:rows], friedman.y[:rows]
    assert_sound(quick(epochs=3).fit(X, y), friedman.X)
    assert_sound(quick(epochs=3, validation_fraction=0.0).fit(X[:, :1], y), friedman.X[:, :1])


def test_constant_column(cubic) -> None:
    X = np.column_stack([cubic.X, np.full(200, 0.1), np.full(200, 1e12), np.zeros(200)])
    reg = quick(epochs=15).fit(X, cubic.y)
    assert reg.score(X, cubic.y) > 0.9
    assert_sound(reg, X)
    moved = X.copy()
    moved[:, 1] += 100.0
    assert_sound(reg, moved)
    assert (moments(reg, moved)[1] > moments(reg, X)[1]).all()


def test_constant_column_with_weights(cubic) -> None:
    """A weighted mean of equal numbers may miss them by a rounding, which is no spread to divide by."""
    X = np.column_stack([cubic.X, np.full(200, 0.1)])
    reg = quick().fit(X, cubic.y, np.random.default_rng(0).uniform(0.1, 1.0, 200))
    np.testing.assert_allclose(moments(reg, X + np.array([0.0, 1e-6])), moments(reg, X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [0.0, 0.1, -3e7])
def test_constant_target(cubic, value: float) -> None:
    reg = quick().fit(cubic.X, np.full(200, value))
    np.testing.assert_allclose(reg.predict(cubic.X), value, rtol=1e-6, atol=1e-6)
    assert_sound(reg, cubic.X)
    assert moments(reg, cubic.X)[1].max() < 1e-3 + 1e-8 * abs(value)


def test_nothing_to_learn_from(cubic) -> None:
    assert_sound(quick().fit(np.full((50, 2), 7.0), np.full(50, -1.0)), [[7.0, 7.0], [0.0, 1e9]])
    assert_sound(quick().fit(np.ones((200, 1)), cubic.y), cubic.X)
    one_of_two_constant = np.column_stack([cubic.y, np.ones(200)])
    reg = quick(epochs=15).fit(cubic.X, one_of_two_constant)
    assert_sound(reg, cubic.X)
    assert np.corrcoef(reg.predict(cubic.X)[:, 0], cubic.y)[0, 1] > 0.9


def test_repeated_rows(cubic) -> None:
    X, y = np.repeat(cubic.X[:5], 40, axis=0), np.repeat(cubic.y[:5], 40)
    assert_sound(quick().fit(X, y), cubic.X)


def test_wide_table() -> None:
    rng = np.random.default_rng(0)
    reg = quick().fit(rng.normal(size=(12, 200)), rng.normal(size=12))
    assert_sound(reg, rng.normal(size=(30, 200)))


# -- what is refused --------------------------------------------------------------------------------------------

X20, Y20 = np.linspace(-1, 1, 20)[:, None], np.linspace(0, 3, 20)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.where(X20 > 0.9, np.nan, X20), Y20, "contains NaN"),
        (np.where(X20 > 0.9, np.inf, X20), Y20, "contains infinity"),
        ([["red"]] * 20, Y20, "red"),
        (X20[:0], Y20[:0], "0 sample"),
        (X20[:1], Y20[:1], "1 sample.* minimum of 2"),
        (X20[:, :0], Y20, "0 feature"),
        (X20[:, 0], Y20, "Expected 2D array"),
        (X20[:, :, None], Y20, "dim 3"),
        (X20, Y20[:-1], "inconsistent numbers of samples"),
        (X20, np.where(Y20 > 2.9, np.nan, Y20), "contains NaN"),
        (X20, np.where(Y20 > 2.9, -np.inf, Y20), "contains infinity"),
        (X20, ["red"] * 20, "red"),
        (X20, np.zeros((20, 2, 2)), "dim 3"),
        (X20, np.zeros((20, 0)), "0 feature"),
        (X20, None, "requires y"),
    ],
)
def test_bad_tables(X: object, y: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(X, y)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[np.nan]], "contains NaN"),
        ([[-np.inf]], "contains infinity"),
        ([["red"]], "red"),
        (np.zeros((0, 1)), "0 sample"),
        ([1.0, 2.0], "Expected 2D array"),
        ([[1.0, 2.0]], "X has 2 features, but DensityRegressor is expecting 1 features"),
    ],
)
@pytest.mark.parametrize("method", ["predict", "score_samples", "sample", "decompose"])
def test_bad_rows(fitted, method: str, X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(fitted, method)(X)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("density", "gauss"),
        ("density", GaussianDensity),
        ("tempering", "warm"),
        ("tempering", None),
        ("head", "tail"),
        ("hidden", ()),
        ("hidden", (16, 0)),
        ("hidden", (-3,)),
        ("hidden", (10.5,)),
        ("hidden", ("wide",)),
        ("hidden", 16),
        ("epochs", 0),
        ("epochs", 2.5),
        ("batch_size", 0),
        ("batch_size", "big"),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("weight_decay", -1e-3),
        ("patience", 0),
        ("validation_fraction", 1),
        ("validation_fraction", -0.1),
        ("precision", "8-bit"),
        ("n_threads", 0),
        ("verbose", "loud"),
        ("random_state", "lucky"),
        ("encoder", "transformer"),
        ("encoder", 3),
        ("encoder", lambda inputs: inputs),
        ("encoder", nn.Flatten(0)),
        ("encoder", nn.LSTM(1, 4)),
    ],
)
def test_bad_parameters(name: str, value: object) -> None:
    """The message names the parameter."""
    with pytest.raises(ValueError, match=name):
        quick(**{name: value}).fit(X20, Y20)


def test_encoder_of_the_wrong_shape_is_told_what_to_return() -> None:
    with pytest.raises(ValueError, match=r"encoder must return features of shape \(batch, d\)"):
        quick(encoder=nn.Flatten(0)).fit(X20, Y20)
    with pytest.raises(ValueError, match=r"encoder must return features .* got tuple"):
        quick(encoder=nn.LSTM(1, 4)).fit(X20, Y20)
    with pytest.raises(ValueError, match="encoder must be or return a torch module, got int"):
        quick(encoder=int).fit(X20, Y20)


def test_per_position_features_do_not_suit_a_table() -> None:
    positions = nn.Sequential(nn.Linear(1, 6), nn.Unflatten(1, (3, 2)))
    with pytest.raises(ValueError, match="the model predicts"):
        quick(encoder=positions).fit(X20, Y20)


def test_diverging_training_is_an_error() -> None:
    with pytest.raises(ValueError, match="learning_rate"):
        quick(learning_rate=1e12, head="mean").fit(X20, Y20)


# -- a refit that fails loses nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "factor", "error"),
    [
        ({}, np.nan, ValueError),
        ({"hidden": ()}, 3.0, ValueError),
        ({"epochs": 0}, 3.0, ValueError),
        ({"learning_rate": 1e12, "head": "mean"}, 3.0, ValueError),
        ({"encoder": nn.Flatten(0)}, 3.0, ValueError),
        ({"encoder": Interrupting()}, 3.0, KeyboardInterrupt),
    ],
    ids=["input", "late parameter", "early parameter", "divergence", "encoder", "interrupt"],
)
def test_failed_refit_keeps_what_was_learnt(cubic, params: dict[str, object], factor: float, error: type) -> None:
    reg = quick().fit(*cubic)
    before = everything(reg, cubic.X)
    with pytest.raises(error):
        reg.set_params(**params).fit(factor * cubic.X + 1.0, np.column_stack([cubic.y, 7 * cubic.y]))
    for old, new in zip(before, everything(reg, cubic.X), strict=True):
        np.testing.assert_array_equal(new, old)


def test_failed_refit_to_a_table_of_another_width(cubic, friedman) -> None:
    reg = quick().fit(*cubic)
    before = moments(reg, cubic.X)
    with pytest.raises(ValueError, match="hidden"):
        reg.set_params(hidden=()).fit(*friedman)
    np.testing.assert_array_equal(moments(reg, cubic.X), before)


def test_failed_first_fit_leaves_it_unfitted() -> None:
    reg = quick(encoder=nn.Flatten(0))
    with pytest.raises(ValueError, match="encoder"):
        reg.fit(X20, Y20)
    with pytest.raises(ValueError, match="not fitted"):
        reg.predict(X20)


# -- a row's answer does not depend on its company --------------------------------------------------------------


@pytest.fixture(scope="module", params=["fitted", "fitted_two", "default_friedman", 1, 3, 5])
def in_company(request, cubic, friedman) -> tuple[DensityRegressor, np.ndarray]:
    """A regressor and rows; numbers stand for so many directions in the density, and so for odd matrix products."""
    if isinstance(request.param, str):
        reg = request.getfixturevalue(request.param)
        return reg, cubic.X if reg.n_features_in_ == 1 else friedman.X
    # The fewer directions are needed, the less is left over, and the more its rounding shows.
    density = GaussianDensity(max_dims=request.param)
    return quick(hidden=(50,), density=density, random_state=2).fit(*cubic), cubic.X


@pytest.mark.parametrize("size", [1, 3, 17, 31, 100])
def test_rows_alone_in_chunks_or_together(in_company, size: int) -> None:
    reg, X = in_company
    together = (*reg.predict(X, return_std=True), reg.score_samples(X))
    chunks = [X[start : start + size] for start in range(0, len(X), size)]
    parts = [(*reg.predict(chunk, return_std=True), reg.score_samples(chunk)) for chunk in chunks]
    mean, std, score = (np.concatenate(part) for part in zip(*parts, strict=True))
    # Sums in float32 round a little differently for another number of rows, and no more than that.
    np.testing.assert_allclose(mean, together[0], rtol=1e-6, atol=2e-6 * together[0].std(axis=0).min())
    np.testing.assert_allclose(std, together[1], rtol=1e-5)
    np.testing.assert_allclose(score, together[2], rtol=1e-6, atol=2e-5)


def test_more_rows_than_a_chunk(fitted, fitted_two, cubic, friedman, monkeypatch) -> None:
    for reg, X in ((fitted, cubic.X), (fitted_two, friedman.X)):
        expected = everything(reg, X)
        with monkeypatch.context() as patch:
            patch.setattr(predicting, "CHUNK", 37)
            actual = everything(reg, X)
        for new, old in zip(actual[:-1], expected[:-1], strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-4 * old.std())
        # A held-out row sits on its own level, and rounding may put it just above or just below.
        np.testing.assert_allclose(actual[-1], expected[-1], atol=1.5 / len(reg.held_out_levels_))


def test_order_of_rows_is_kept(fitted, cubic) -> None:
    order = np.random.default_rng(0).permutation(len(cubic.X))
    np.testing.assert_allclose(fitted.predict(cubic.X[order]), fitted.predict(cubic.X)[order], rtol=1e-7, atol=1e-6)


# -- randomness, threads, silence -------------------------------------------------------------------------------


def test_random_state(cubic) -> None:
    first = moments(quick(random_state=1).fit(*cubic), cubic.X)
    np.testing.assert_array_equal(moments(quick(random_state=1).fit(*cubic), cubic.X), first)
    assert not np.allclose(moments(quick(random_state=2).fit(*cubic), cubic.X), first)
    np.testing.assert_array_equal(moments(quick(random_state=np.random.RandomState(1)).fit(*cubic), cubic.X), first)


def test_refit_starts_anew(cubic) -> None:
    reg = quick().fit(*cubic)
    first = moments(reg, cubic.X)
    np.testing.assert_array_equal(moments(reg.fit(cubic.X, -cubic.y).fit(*cubic), cubic.X), first)
    drawing = quick(random_state=np.random.RandomState(0))
    first = moments(drawing.fit(*cubic), cubic.X)
    assert not np.array_equal(moments(drawing.fit(*cubic), cubic.X), first)
    undecided = quick(random_state=None)
    first = moments(undecided.fit(*cubic), cubic.X)
    assert not np.array_equal(moments(undecided.fit(*cubic), cubic.X), first)


def test_global_generators_are_left_alone(cubic) -> None:
    def states() -> list[object]:
        return [np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), random.getstate()]

    encoder = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5))
    before = states()
    for params in ({}, {"encoder": encoder}, {"density": FlowDensity(epochs=1, transforms=1, hidden=(4,))}):
        reg = quick(**params).fit(*cubic)
        everything(reg, cubic.X)
    assert states() == before


def test_global_torch_seed_has_no_influence(cubic) -> None:
    results = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            results.append(moments(quick(encoder=lambda inputs: MLP(inputs, (8,))).fit(*cubic), cubic.X))
    np.testing.assert_array_equal(*results)


def test_threads(cubic) -> None:
    before = torch.get_num_threads()
    reg = quick(encoder=Recording(), n_threads=before + 1).fit(*cubic)
    assert reg.model_.encoder.threads == {before + 1}
    assert torch.get_num_threads() == before
    reg.model_.encoder.threads.clear()
    reg.predict(cubic.X)
    assert reg.model_.encoder.threads == {before + 1}
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="encoder"):
        quick(encoder=nn.Flatten(0), n_threads=before + 1).fit(*cubic)
    assert torch.get_num_threads() == before
    assert quick(encoder=Recording(), n_threads=None).fit(*cubic).model_.encoder.threads == {before}


def test_fit_is_silent_without_a_terminal(cubic, capfd) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(verbose=True).fit(*cubic).predict(cubic.X)
    assert capfd.readouterr() == ("", "")


def test_report(cubic) -> None:
    report = quick(epochs=7, patience=None).fit(*cubic).report_
    assert list(report.seconds) == ["pretrain", "fit_density", "refit_head", "learn_reach"]
    assert all(seconds >= 0 for seconds in report.seconds.values())
    assert len(report.history) == 7
    assert np.isfinite(report.history).all()


def test_early_stopping(cubic) -> None:
    history = quick(epochs=400, learning_rate=0.03, patience=3).fit(*cubic).report_.history
    assert 4 < len(history) < 400
    assert min(history) == history[-4]


@pytest.mark.parametrize(("rows", "held_out"), [(3, 3), (20, 5), (60, 10), (200, 30)])
def test_number_of_held_out_rows(cubic, rows: int, held_out: int) -> None:
    """A share of them, but of few rows a quarter, up to ten; with none held out the training rows serve."""
    reg = quick(epochs=1).fit(cubic.X[:rows], cubic.y[:rows])
    assert len(reg.held_out_levels_) == held_out


def test_held_out_rows_keep_it_from_being_too_sure() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 10)), rng.normal(size=60)
    overfit = {"hidden": (100, 100), "epochs": 300, "patience": None, "density": None}
    sure = moments(quick(validation_fraction=0.0, **overfit).fit(X, y), X)[1]
    honest = moments(quick(validation_fraction=0.3, **overfit).fit(X, y), X)[1]
    assert np.median(sure) < 0.5 < np.median(honest)


# -- own encoders, densities, temperings ------------------------------------------------------------------------


def test_encoder_factory(friedman) -> None:
    asked = []

    def factory(inputs: int) -> nn.Module:
        asked.append(inputs)
        return nn.Sequential(nn.Linear(inputs, 6), nn.Tanh())

    reg = quick(encoder=factory, epochs=30).fit(*friedman)
    assert asked == [10] * 5  # its own network, and four that do not see all rows
    assert isinstance(reg.model_.encoder[1], nn.Tanh)
    assert reg.model_.features == 6
    assert reg.score(*friedman) > 0.5


def test_encoder_sees_scaled_inputs() -> None:
    rng = np.random.default_rng(0)
    X = 1e6 + 50.0 * rng.normal(size=(400, 2))
    reg = quick(encoder=Recording(), epochs=1).fit(X, X[:, 0])
    training = torch.cat(reg.model_.encoder.seen)
    np.testing.assert_allclose(training.mean(0), 0.0, atol=0.2)
    np.testing.assert_allclose(training.std(0), 1.0, atol=0.2)


def test_own_module_is_copied_and_predicts_in_eval_mode(cubic) -> None:
    encoder = nn.Sequential(nn.Linear(1, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3))
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    reg = quick(encoder=encoder, epochs=30).fit(*cubic)
    assert encoder.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())
    assert reg.encoder is encoder
    assert not reg.model_.encoder.training
    trained = reg.model_.encoder.state_dict()
    assert not torch.equal(trained["0.weight"], before["0.weight"])
    np.testing.assert_array_equal(moments(reg, cubic.X), moments(reg, cubic.X))
    assert all(torch.equal(tensor, trained[name]) for name, tensor in reg.model_.encoder.state_dict().items())
    assert reg.score(*cubic) > 0.9


def test_own_module_starts_from_its_weights(cubic) -> None:
    """Fine-tuning: with next to no learning rate, the encoder stays what it was."""
    encoder = MLP(1, (16,))
    reg = quick(encoder=encoder, learning_rate=1e-12).fit(*cubic)
    for before, after in zip(encoder.parameters(), reg.model_.encoder.parameters(), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-6)


def test_own_density_and_tempering_are_copied_and_used(cubic) -> None:
    density, tempering = MixtureDensity(components=1), RobustTempering(exponent=2.0)
    reg = quick(density=density, tempering=tempering).fit(*cubic)
    assert not density.fitted
    assert reg.model_.density is not density
    assert reg.model_.density.config()["components"] == 1
    assert tempering.reference == 0.0
    gentle = quick(density=density, tempering=RobustTempering(exponent=1.0)).fit(*cubic)
    far = [[1e4]]
    assert moments(reg, far)[1] > 10 * moments(gentle, far)[1]


@pytest.mark.parametrize(("head", "kind"), [("natural", NaturalHead), ("mean", MeanHead)])
def test_head_is_the_one_asked_for(cubic, head: str, kind: type) -> None:
    assert isinstance(quick(head=head).fit(*cubic).model_.head, kind)


def test_encoder_that_overflows_is_held_finite(cubic) -> None:
    reg = quick(encoder=Overflowing(), epochs=15).fit(*cubic)
    far = np.array([[20.0], [-1e3], [1e30]])
    assert not torch.isfinite(reg.model_.encoder(torch.from_numpy(far).float())).all()
    assert_sound(reg, far)
    assert (moments(reg, far)[1] > moments(reg, cubic.X)[1].max()).all()


def test_plain_network_has_the_widths_asked_for(cubic) -> None:
    reg = quick(hidden=[5, 7]).fit(*cubic)
    assert [layer.out_features for layer in reg.model_.encoder.modules() if isinstance(layer, nn.Linear)] == [5, 7]


@pytest.mark.parametrize("params", [{"batch_size": 7}, {"batch_size": 10_000}, {"device": "auto"}, {"patience": 1}])
def test_other_settings(cubic, params: dict[str, object]) -> None:
    reg = quick(epochs=15, **params).fit(*cubic)
    assert reg.score(*cubic) > 0.9


def test_mixed_precision(cubic) -> None:
    reg = quick(epochs=15, precision="bf16-mixed").fit(*cubic)
    assert reg.score(*cubic) > 0.9
    assert_sound(reg, cubic.X)


# -- a network somebody already has -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def linear_problem() -> tuple[np.ndarray, np.ndarray]:
    """Two columns in units of their own, and a linear target with noise of 0.5."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)) * [3.0, 0.2] + [10.0, -1.0]
    return X, X @ [2.0, -5.0] + rng.normal(0, 0.5, 600)


def test_from_trained_on_a_linear_problem(linear_problem) -> None:
    X, y = linear_problem
    reg = DensityRegressor.from_trained(nn.Identity(), X[:400], y[:400], random_state=0)
    mean, std = reg.predict(X[400:], return_std=True)
    np.testing.assert_allclose(mean, X[400:] @ [2.0, -5.0], atol=0.5)
    assert np.median(std) == pytest.approx(0.5, rel=0.25)
    assert moments(reg, [[10.0, 200.0]])[1] > 10 * std.max()
    assert reg.report_.history == []
    assert reg.familiarity([[1e3, 1e3]]) == 0.0


@pytest.mark.parametrize("head", ["natural", "mean"])
def test_from_trained_leaves_the_encoder_as_it_is(linear_problem, head: str) -> None:
    X, y = linear_problem
    encoder = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
    encoder[1].running_mean.fill_(0.3)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    reg = DensityRegressor.from_trained(encoder, X, y, head=head, random_state=0)
    assert encoder.training
    for module in (encoder, reg.model_.encoder):
        assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert reg.model_.encoder is not encoder
    assert not reg.model_.encoder.training
    np.testing.assert_array_equal(moments(reg, X), moments(reg, X))


def test_from_trained_gives_the_encoder_the_users_units(linear_problem) -> None:
    X, y = linear_problem
    reg = DensityRegressor.from_trained(Recording(), X, y, random_state=0)
    given = {tuple(row) for batch in reg.model_.encoder.seen for row in batch.tolist()}
    assert given == {tuple(row) for row in X.astype(np.float32).tolist()}
    reg.model_.encoder.seen.clear()
    reg.predict(X[:20])
    np.testing.assert_array_equal(reg.model_.encoder.seen[0][:20], X[:20].astype(np.float32))


def test_from_trained_uses_the_held_out_rows(linear_problem) -> None:
    X, y = linear_problem
    noise = 5.0 * np.random.default_rng(1).normal(size=200)
    quiet, noisy = (
        DensityRegressor.from_trained(nn.Identity(), X[:400], y[:400], held_out=(X[400:], held), random_state=0)
        for held in (y[400:], y[400:] + noise)
    )
    ratio = moments(noisy, X)[1] / moments(quiet, X)[1]
    assert np.median(ratio) == pytest.approx(10.0, rel=0.2)
    assert len(quiet.held_out_levels_) == 200
    np.testing.assert_allclose(np.sort(quiet.score_samples(X[400:])), quiet.held_out_levels_, atol=1e-4)


def test_from_trained_trains_on_every_row_if_others_are_held_out(linear_problem) -> None:
    X, y = linear_problem
    held_out = (X[400:], y[400:])
    reg = DensityRegressor.from_trained(Recording(), X[:400], y[:400], held_out=held_out, random_state=0)
    assert sum(len(batch) for batch in reg.model_.encoder.seen) >= 600
    # The target's centre is that of all training rows, and of no held-out row.
    assert reg.y_scaling_.center == pytest.approx(y[:400].mean())


def test_from_trained_takes_parameters_and_several_targets(linear_problem) -> None:
    X, y = linear_problem
    Y = np.column_stack([y, 1e4 * X[:, 0]])
    reg = DensityRegressor.from_trained(
        nn.Identity(), X, Y, held_out=(X[:50], Y[:50]), density="gaussian", tempering="rescaled", random_state=0
    )
    assert isinstance(reg.model_.density, GaussianDensity)
    assert reg.get_params()["tempering"] == "rescaled"
    assert reg.score(X, Y) > 0.95


def test_from_trained_refuses_what_is_no_module() -> None:
    for encoder in (None, lambda inputs: nn.Linear(inputs, 3), MLP, "mlp"):
        with pytest.raises(ValueError, match="encoder must be a trained torch module"):
            DensityRegressor.from_trained(encoder, X20, Y20)
    with pytest.raises(TypeError, match="hiden"):
        DensityRegressor.from_trained(nn.Identity(), X20, Y20, hiden=(3,))


def test_from_trained_refuses_bad_held_out_rows() -> None:
    two = np.column_stack([Y20, Y20])
    with pytest.raises(ValueError, match="2 features"):
        DensityRegressor.from_trained(nn.Identity(), X20, Y20, held_out=(np.column_stack([X20, X20]), Y20))
    with pytest.raises(ValueError, match="NaN"):
        DensityRegressor.from_trained(nn.Identity(), X20, Y20, held_out=(X20 * np.nan, Y20))
    for y, held in ((Y20, two), (two, Y20)):
        with pytest.raises(ValueError, match="held_out"):
            DensityRegressor.from_trained(nn.Identity(), X20, y, held_out=(X20, held))


def test_from_trained_does_not_resume_from_a_fit(linear_problem, tmp_path) -> None:
    X, y = linear_problem
    encoder = MLP(2, (8,))
    params = {"epochs": 2, "random_state": 0, "checkpoint_dir": tmp_path}
    DensityRegressor(encoder=encoder, **params).fit(X, y)
    reg = DensityRegressor.from_trained(encoder, X, y, **params)
    for before, after in zip(encoder.parameters(), reg.model_.encoder.parameters(), strict=True):
        assert torch.equal(before, after)
    other = DensityRegressor.from_trained(encoder, X, y, held_out=(X[:50], 10 * y[:50]), **params)
    assert not np.allclose(moments(other, X)[1], moments(reg, X)[1])


# -- far away: finite, and wider than anywhere near -------------------------------------------------------------

FAR = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("which", ["default_cubic", "default_friedman"])
@FAR
@given(data=st.data(), exponent=st.floats(3, 30))
def test_far_away_is_wider_than_every_row_at_hand(request, friedman, which: str, data, exponent: float) -> None:
    reg = request.getfixturevalue(which)
    assert next(reg.model_.parameters()).dtype == torch.float32
    columns = reg.n_features_in_
    row = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=columns, max_size=columns)))
    assume(np.abs(row).max() > 0.25)
    # All rows at hand, the held-out ones among them.
    near = friedman.X if columns > 1 else make_cubic(300, random_state=0)[0]
    largest = moments(reg, near)[1].max()
    mean, std = reg.predict([10.0**exponent * row], return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert std > largest


DENSITIES = {
    "mixture": "mixture",
    "gaussian": "gaussian",
    "kernel": "kernel",
    "realnvp": FlowDensity(epochs=2, transforms=2, hidden=(8,)),
    "maf": FlowDensity("maf", epochs=2, transforms=2, hidden=(8,)),
    "nsf": FlowDensity("nsf", epochs=2, transforms=2, hidden=(8,)),
    "radial": RadialFlowDensity(epochs=2),
    "none": None,
}


@pytest.fixture(
    scope="module",
    params=product(DENSITIES, ["robust", "exact", "rescaled"], ["natural", "mean"]),
    ids="-".join,
)
def every_kind(request, friedman) -> DensityRegressor:
    """Each density with each tempering and each head, fitted in a moment to four columns."""
    density, tempering, head = request.param
    reg = quick(density=DENSITIES[density], tempering=tempering, head=head, epochs=4)
    return reg.fit(friedman.X[:120, :4], friedman.y[:120])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), exponents=st.lists(st.floats(0, 30), min_size=4, max_size=4))
def test_every_kind_is_finite_everywhere(every_kind, friedman, seed: int, exponents: list[float]) -> None:
    directions = np.random.default_rng(seed).normal(size=(20, 4))
    assert_sound(every_kind, directions * 10.0 ** np.array(exponents))
    assert_sound(every_kind, friedman.X[:20, :4] * 10.0 ** max(exponents))


class TestRowsToPredict:
    """Plain arrays are not looked at closely; whatever is not plain still is."""

    @pytest.fixture(scope="class")
    def fitted(self) -> DensityRegressor:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(60, 3))
        return DensityRegressor(epochs=1, hidden=(8,), verbose=False, random_state=0).fit(x, x[:, 0])

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_gaps(self, fitted: DensityRegressor, value: float) -> None:
        x = np.zeros((5, 3))
        x[3, 1] = value
        with pytest.raises(ValueError, match="contains"):
            fitted.predict(x)

    def test_numbers_whose_sum_overflows(self, fitted: DensityRegressor) -> None:
        assert np.isfinite(fitted.predict(np.full((4, 3), 1.7e308), return_std=True)).all()

    @pytest.mark.parametrize("x", [np.zeros((0, 3)), np.zeros((2, 4)), np.zeros(3), np.zeros((1, 3, 1))])
    def test_shapes(self, fitted: DensityRegressor, x: np.ndarray) -> None:
        with pytest.raises(ValueError, match=r"sample|features|dim"):
            fitted.predict(x)

    def test_arrays_of_all_kinds(self, fitted: DensityRegressor) -> None:
        x = np.random.default_rng(1).normal(size=(40, 3))
        expected = fitted.predict(x)
        read_only = x.copy()
        read_only.flags.writeable = False
        kinds = [read_only, np.asfortranarray(x), x[::-1][::-1], x.astype(">f8"), x.tolist()]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for kind in kinds:
                np.testing.assert_array_equal(fitted.predict(kind), expected)
            np.testing.assert_array_equal(fitted.predict(x[::-1]), expected[::-1])
        np.testing.assert_allclose(fitted.predict(x.astype(np.float32)), expected, rtol=1e-4, atol=1e-5)

    def test_rows_are_left_as_they_were(self, fitted: DensityRegressor) -> None:
        x = np.random.default_rng(1).normal(size=(16, 3))
        before = x.copy()
        fitted.predict(x, return_std=True)
        np.testing.assert_array_equal(x, before)
