"""Predictions, what is derived from them, and their units."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.base import clone

from density_regression.datasets import make_cubic
from estimators.helpers import assert_sound, everything, moments, quick

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


@pytest.mark.parametrize("coverage", [0, 1, 1 - 1e-16, -0.1, 95, float("nan"), np.array([0.5, 0.9]), "a", "0.9", None])
def test_bad_coverage(fitted, coverage: float) -> None:
    with pytest.raises(ValueError, match=r"coverage must lie strictly between 0 and 1, got"):
        fitted.predict_interval([[0.0]], coverage=coverage)


@pytest.mark.parametrize("levels", [[0.0], [0.5, 1.0], [-0.1], [float("nan")], 0.5, [[0.5]], None, ["a"]])
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


@pytest.mark.parametrize("n", [0, -1, 2.5, 2.0, None, "3"])
def test_sample_needs_a_positive_number(fitted, n: object) -> None:
    with pytest.raises(ValueError, match=f"n must be an integer of at least 1, got {n!r}"):
        fitted.sample([[0.0]], n)


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
    reg = copy.deepcopy(fitted)
    score = fitted.score_samples(cubic.X)
    reg.model_.familiar_levels = torch.from_numpy(np.sort(score))
    no_more_familiar = score - score[:, None] <= 1e-5 * (1 + np.abs(score))
    np.testing.assert_allclose(reg.familiarity(cubic.X), no_more_familiar.mean(axis=1), atol=1e-12)


def test_familiarity_of_many_held_out_rows() -> None:
    """Where only quantiles of the held-out log-densities are kept, they still say the percentile."""
    X, y = make_cubic(4000, random_state=0)
    reg = quick(epochs=1, validation_fraction=0.5).fit(X, y)
    assert len(reg.held_out_levels_) < 2000
    fresh = make_cubic(2000, random_state=1)[0]
    assert stats.kstest(reg.familiarity(fresh), "uniform").statistic < 0.06


def test_decomposition_adds_up(fitted, fitted_two, friedman) -> None:
    for reg, X in ((fitted, np.linspace(-40, 40, 101)[:, None]), (fitted_two, 3 * friedman.X)):
        parts = reg.decompose(X)
        std = moments(reg, X)[1]
        assert all(part.shape == std.shape for part in parts)
        np.testing.assert_allclose(np.hypot(parts.aleatoric, parts.epistemic), std, rtol=1e-5)
        np.testing.assert_allclose(np.hypot(parts.disagreement, parts.distance), parts.epistemic, rtol=1e-5)
        assert (parts.aleatoric > 0).all()
        assert all((part >= 0).all() for part in parts)
    aleatoric, epistemic = fitted.decompose([[0.0], [1e4]])[:2]
    assert epistemic[0] < aleatoric[0]
    assert epistemic[1] > 10 * aleatoric[1]


def test_without_density(cubic) -> None:
    reg = quick(epochs=60, density=None).fit(*cubic)
    assert reg.score(*cubic) > 0.95
    assert_sound(reg, cubic.X)
    aleatoric, _, disagreement, distance = reg.decompose(cubic.X)
    np.testing.assert_array_equal(distance, 0.0)
    np.testing.assert_allclose(np.hypot(aleatoric, disagreement), moments(reg, cubic.X)[1], rtol=1e-6)
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
