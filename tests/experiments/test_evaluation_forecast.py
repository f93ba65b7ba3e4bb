"""Forecasts of a batch against the public methods of regressors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.base import clone

from density_regression import DensityRegressor, baselines, metrics
from density_regression.estimators.base import DeepRegressor
from density_regression.experiments.evaluation.forecast import LEVELS, forecast

QUICK = {"hidden": (8,), "epochs": 2, "n_threads": 1, "random_state": 0, "verbose": False}

Rows = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Three columns, and a positive target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 3))
    return X, np.exp(1.0 + 0.5 * X[:, 0] + 0.3 * rng.normal(size=160))


def fitted(rows: Rows, kind: type[DeepRegressor] = DensityRegressor, **more: object) -> DeepRegressor:
    return kind(**QUICK, **more).fit(*rows)


@pytest.mark.parametrize("target", ["identity", "log"])
def test_moments_intervals_and_scores_are_those_of_the_regressor(rows: Rows, target: str) -> None:
    X, y = rows
    regressor = fitted(rows, target=target)
    found = forecast(regressor, X, y)
    mean, std = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.std, std, rtol=1e-12)
    np.testing.assert_array_equal(found.familiarity, regressor.familiarity(X))
    assert found.nll == pytest.approx(metrics.nll_own(y, regressor.predict_dist(X)), rel=1e-12)
    np.testing.assert_allclose(stats.norm.cdf(found.z), regressor.predict_dist(X).cdf(torch.from_numpy(y)), atol=1e-9)
    for level in LEVELS:
        np.testing.assert_allclose(found.ends[level], regressor.predict_interval(X, level), rtol=1e-9)
    assert found.conformal == {}
    assert found.interval(0.9) is found.ends[0.9]


def test_crps_is_that_of_the_law(rows: Rows) -> None:
    X, y = rows
    regressor = fitted(rows)
    draws = regressor.sample(X, 4000, random_state=1)
    estimate = np.abs(draws - y).mean(0) - 0.5 * np.abs(draws[:2000] - draws[2000:]).mean(0)
    assert forecast(regressor, X, y).crps == pytest.approx(estimate.mean(), rel=0.01)
    regressor = fitted(rows, target="log")
    law = regressor.predict_dist(X)
    expected = metrics.crps_log_normal(y, law.loc.numpy(), law.scale.numpy())
    assert forecast(regressor, X, y).crps == pytest.approx(expected, rel=1e-12)


def test_a_target_that_the_law_excludes_has_no_likelihood(rows: Rows) -> None:
    X, _y = rows
    found = forecast(fitted(rows, target="log"), X[:3], np.array([1.0, 0.0, -2.0]))
    assert found.nll == np.inf
    assert np.isfinite(found.crps)
    assert np.isfinite(found.z).all()
    assert (found.z[1:] < -1e300).all()
    low, _ = found.interval(0.9)
    assert (low > np.array([-np.inf, 0.0, -2.0])).all()


@pytest.mark.parametrize("shifted", [False, True])
def test_conformal_intervals_are_those_of_the_regressor(rows: Rows, shifted: bool) -> None:
    X, y = rows
    regressor = clone(fitted(rows)).fit(X[:60], y[:60])
    with warnings.catch_warnings(action="ignore"):
        # So few rows are vague about a shift.
        regressor.conformalize(X[60:90], y[60:90], shifted=X[90:] if shifted else None)
    found = forecast(regressor, X, y)
    # Thirty rows do not say anything about 0.99, but of all these levels but the last.
    assert list(found.conformal) == [0.5, 0.8, 0.9, 0.95]
    for level in found.conformal:
        with warnings.catch_warnings(action="ignore"):
            np.testing.assert_allclose(found.conformal[level], regressor.predict_interval(X, level), rtol=1e-9)
    few = regressor.conformalize(X[60:75], y[60:75])
    found = forecast(few, X, y)
    assert list(found.conformal) == [0.5, 0.8, 0.9]
    assert found.interval(0.95) is found.ends[0.95]


def test_learnt_quantiles_are_the_law_of_a_method_that_learns_them(rows: Rows) -> None:
    X, y = rows
    regressor = fitted(rows, baselines.QuantileRegressor)
    found = forecast(regressor, X, y)
    for level in LEVELS:
        low, high = regressor.predict_interval(X, level)
        np.testing.assert_allclose(found.ends[level], (low, high), rtol=1e-9)
        inside = (low <= y) & (y <= high)
        np.testing.assert_array_equal(np.abs(found.z) <= stats.norm.ppf(0.5 + level / 2), inside)
    assert found.familiarity is None


@pytest.mark.parametrize("kind", [baselines.EvidentialRegressor, baselines.DeepEnsembleRegressor])
def test_the_likelihood_is_that_of_the_methods_own_law(rows: Rows, kind: type[DeepRegressor]) -> None:
    X, y = rows
    regressor = fitted(rows, kind)
    assert forecast(regressor, X, y).nll == pytest.approx(metrics.nll_own(y, regressor.own_dist(X)), rel=1e-9)


def test_without_a_density_there_is_no_familiarity(rows: Rows) -> None:
    assert forecast(fitted(rows, density=None), *rows).familiarity is None


def test_several_targets_are_refused(rows: Rows) -> None:
    X, y = rows
    regressor = DensityRegressor(**QUICK).fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="2 targets"):
        forecast(regressor, X, y)
