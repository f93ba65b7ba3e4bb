"""All rivals keep the contract of DensityRegressor: shapes, weights, bad input, saving."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

from density_regression import TrainingOptions, baselines, load
from density_regression.baselines import fit_baseline
from density_regression.datasets import make_cubic
from density_regression.estimators.base import DeepRegressor
from density_regression.registry import estimators

REGRESSORS = {name: estimator for name, estimator in estimators().items() if name != "DensityRegressor"}
QUICK = {"hidden": (16, 16), "epochs": 5, "n_threads": 1, "random_state": 0, "verbose": False}


def quick(name: str, **params: object) -> DeepRegressor:
    """A regressor that is fitted in a moment."""
    return REGRESSORS[name](**{**QUICK, **params})


def moments(reg: DeepRegressor, X: object) -> np.ndarray:
    return np.stack(reg.predict(X, return_std=True))


@pytest.fixture(params=REGRESSORS, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def fitted(name: str) -> DeepRegressor:
    return quick(name).fit(*make_cubic(200, random_state=0))


@pytest.fixture(scope="module")
def fitted_two(name: str, friedman) -> DeepRegressor:
    """Two targets of very different size."""
    targets = np.column_stack([1e-3 * friedman.y, 1e6 * friedman.X[:, 0]])
    return quick(name, epochs=30).fit(friedman.X, targets)


def test_it_learns(name: str, cubic) -> None:
    # The noise of a Gaussian process is learnt more slowly than its mean.
    epochs = 200 if name == "DUERegressor" else 60
    reg = REGRESSORS[name](epochs=epochs, n_threads=1, random_state=0, verbose=False).fit(*cubic)
    mean, std = reg.predict(cubic.X, return_std=True)
    assert reg.score(*cubic) > 0.9
    # Standardised residuals are of unit size, more or less.
    assert 0.3 < np.sqrt(np.mean(((cubic.y - mean) / std) ** 2)) < 2.0


def test_shapes(fitted: DeepRegressor, cubic) -> None:
    X = cubic.X[:7]
    mean, std = fitted.predict(X, return_std=True)
    assert mean.shape == std.shape == (7,)
    assert (std > 0).all()
    low, high = fitted.predict_interval(X, coverage=0.8)
    assert (low < high).all()
    quantiles = fitted.predict_quantiles(X, [0.1, 0.5, 0.9])
    assert quantiles.shape == (7, 3)
    assert (np.diff(quantiles) > 0).all()
    assert fitted.sample(X, 3).shape == (3, 7)
    dist = fitted.predict_dist(X)
    np.testing.assert_allclose(dist.mean, mean)
    np.testing.assert_allclose(dist.stddev, std)


@pytest.mark.parametrize("two", [False, True], ids=["one target", "two targets"])
def test_one_pass_gives_what_the_methods_give(
    fitted: DeepRegressor, fitted_two: DeepRegressor, two: bool, friedman
) -> None:
    reg, X = (fitted_two, friedman.X[:9]) if two else (fitted, np.linspace(-9, 9, 9)[:, None])
    found = reg._predict_all(X, 0.8)
    expected = (*reg.predict(X, return_std=True), *reg.predict_interval(X, 0.8))
    for part, wanted in zip(found[:4], expected, strict=True):
        np.testing.assert_array_equal(part, wanted)
    assert found.familiarity is None


def test_several_targets_keep_their_units(fitted_two: DeepRegressor, friedman) -> None:
    mean, std = fitted_two.predict(friedman.X, return_std=True)
    assert mean.shape == std.shape == (300, 2)
    truth = np.column_stack([1e-3 * friedman.y, 1e6 * friedman.X[:, 0]])
    scale = truth.std(axis=0)
    assert (np.abs(mean.mean(axis=0) - truth.mean(axis=0)) < scale).all()
    assert ((std.mean(axis=0) > 1e-3 * scale) & (std.mean(axis=0) < 10 * scale)).all()
    assert fitted_two.predict_quantiles(friedman.X[:4], [0.1, 0.9]).shape == (4, 2, 2)


def test_fits_repeat_by_seed(name: str, cubic) -> None:
    first, second, other = (quick(name, random_state=seed).fit(*cubic) for seed in (0, 0, 1))
    np.testing.assert_array_equal(moments(first, cubic.X), moments(second, cubic.X))
    assert not np.array_equal(moments(first, cubic.X), moments(other, cubic.X))


def test_fitting_and_predicting_leave_the_generator_alone(name: str, cubic) -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    quick(name, epochs=2).fit(*cubic).predict(cubic.X)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_row_does_not_depend_on_its_company(fitted: DeepRegressor, cubic) -> None:
    together = moments(fitted, cubic.X)
    alone = np.concatenate([moments(fitted, cubic.X[i : i + 1]) for i in range(len(cubic.X))], axis=1)
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-5)


def test_row_without_weight_has_no_influence(name: str, cubic) -> None:
    X, y = cubic
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2.0, len(X))
    kept = rng.random(len(X)) < 0.7
    with_them = quick(name).fit(np.where(kept[:, None], X, 1e3), np.where(kept, y, -1e6), np.where(kept, weight, 0.0))
    without = quick(name).fit(X[kept], y[kept], weight[kept])
    np.testing.assert_array_equal(moments(with_them, X), moments(without, X))


def test_mean_follows_the_heavier_group(name: str) -> None:
    rng = np.random.default_rng(0)
    X, group = rng.uniform(-1, 1, (400, 1)), np.arange(400) % 2 == 1
    y = np.where(group, 1.0, -1.0) + rng.normal(0, 0.1, 400)
    mean = quick(name, epochs=40).fit(X, y, np.where(group, 9.0, 1.0)).predict(X)
    assert mean.mean() > 0.5


@settings(max_examples=25, deadline=None)
@given(size=st.floats(-30, 30), seed=st.integers(0, 100))
def test_never_nan_never_infinite(fitted: DeepRegressor, size: float, seed: int) -> None:
    X = 10.0**size * np.random.default_rng(seed).normal(size=(5, 1))
    mean, std = fitted.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
    assert np.isfinite(fitted.predict_quantiles(X, [0.001, 0.999])).all()


def test_never_nan_at_the_largest_numbers(fitted: DeepRegressor) -> None:
    X = np.array([[1e308], [-1e308], [1e-308], [0.0]])
    assert np.isfinite(moments(fitted, X)).all()


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_a_handful_of_rows(name: str, rows: int) -> None:
    X, y = make_cubic(rows, random_state=0)
    assert np.isfinite(moments(quick(name).fit(X, y), X)).all()


def test_constant_columns_and_target(name: str) -> None:
    X = np.column_stack([np.full(60, 3.0), np.linspace(0, 1, 60)])
    reg = quick(name, epochs=30).fit(X, np.full(60, 42.0))
    mean, std = reg.predict(X, return_std=True)
    np.testing.assert_allclose(mean, 42.0, atol=0.5)
    assert np.isfinite(std).all()


@pytest.mark.parametrize("size", [1e-200, 1e-6, 1e6, 1e200])
def test_targets_of_any_size(name: str, size: float, cubic) -> None:
    reg = quick(name).fit(cubic.X, size * cubic.y)
    assert np.isfinite(moments(reg, cubic.X)).all()


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[np.nan], [np.nan], [np.nan]], [0.0, 1.0, 2.0], "only gaps"),
        ([[np.inf], [1.0], [2.0]], [0.0, 1.0, 2.0], "infinity"),
        ([[0.0], [1.0], [2.0]], [0.0, np.nan, 2.0], "NaN"),
        ([[0.0]], [0.0], "minimum of 2"),
        ([[0.0], [1.0]], [0.0, 1.0, 2.0], "inconsistent"),
        ([["a"], ["b"]], [0.0, 1.0], "could not convert"),
        (np.empty((0, 1)), [], "0 sample"),
    ],
    ids=["gaps", "infinity", "nan target", "one row", "lengths", "text", "empty"],
)
def test_bad_input(name: str, X: object, y: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(name).fit(X, y)


def test_wrong_width(fitted: DeepRegressor) -> None:
    with pytest.raises(ValueError, match="2 features"):
        fitted.predict([[1.0, 2.0]])


def test_not_fitted(name: str) -> None:
    with pytest.raises(NotFittedError):
        quick(name).predict([[1.0]])


@pytest.mark.parametrize("two", [False, True], ids=["one target", "two targets"])
def test_save_and_load(fitted: DeepRegressor, fitted_two: DeepRegressor, two: bool, tmp_path: Path, cubic) -> None:
    reg = fitted_two if two else fitted
    X = np.random.default_rng(0).normal(size=(40, reg.n_features_in_)) * 3
    reg.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert type(back) is type(reg)
    assert back.get_params() == reg.get_params()
    np.testing.assert_allclose(moments(back, X), moments(reg, X), rtol=1e-6, atol=1e-6)


def test_save_and_load_with_an_own_encoder(name: str, tmp_path: Path, cubic) -> None:
    encoder = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 9), nn.ReLU())
    reg = quick(name, encoder=encoder).fit(*cubic)
    reg.save(tmp_path / "model")
    with pytest.raises(ValueError, match="encoder"):
        load(tmp_path / "model")
    back = load(tmp_path / "model", encoder=copy.deepcopy(encoder))
    np.testing.assert_allclose(moments(back, cubic.X), moments(reg, cubic.X), rtol=1e-6, atol=1e-6)


def test_copies_predict_the_same(fitted: DeepRegressor, cubic) -> None:
    for copied in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(moments(copied, cubic.X), moments(fitted, cubic.X))


def test_clone_is_not_fitted(fitted: DeepRegressor, cubic) -> None:
    fresh = clone(fitted)
    with pytest.raises(NotFittedError):
        fresh.predict(cubic.X)
    np.testing.assert_array_equal(moments(fresh.fit(*cubic), cubic.X), moments(fitted, cubic.X))


def test_a_finished_fit_is_taken_up_again(name: str, tmp_path: Path, cubic) -> None:
    first = quick(name, checkpoint_dir=tmp_path).fit(*cubic)
    again = quick(name, checkpoint_dir=tmp_path).fit(*cubic)
    assert first.report_.history
    assert not again.report_.history
    np.testing.assert_array_equal(moments(again, cubic.X), moments(first, cubic.X))
    other = quick(name, checkpoint_dir=tmp_path, random_state=1).fit(*cubic)
    assert other.report_.history


def test_every_parameter_is_named_in_the_signature(name: str) -> None:
    params = REGRESSORS[name]().get_params()
    assert {"encoder", "hidden", "epochs", "random_state"} <= params.keys()
    with pytest.raises(TypeError, match="unknown"):
        REGRESSORS[name](unknown=1)


@pytest.mark.parametrize(
    "networks",
    [
        [baselines.EvidentialNetwork(nn.Identity(), 1, regularisation=value) for value in (0.0, 1.0)],
        [baselines.GaussianNetwork(nn.Identity(), 1, beta=value) for value in (0.0, 1.0)],
        [baselines.QuantileNetwork(nn.Identity(), 1, levels=(0.1, value)) for value in (0.8, 0.9)],
        [baselines.NaturalPosteriorNetwork(nn.Identity(), 1, prior_scale=value) for value in (1.0, 2.0)],
    ],
    ids=["evidential", "gaussian", "quantile", "natural posterior"],
)
def test_a_checkpoint_of_other_settings_is_ignored(networks: list[baselines.Baseline], tmp_path: Path) -> None:
    x = torch.randn(30, 1)
    options = TrainingOptions(epochs=1)
    fit = partial(fit_baseline, train=[(x, x)], options=options, checkpoint_dir=tmp_path, verbose=False)
    again = copy.deepcopy(networks[0])
    assert fit(networks[0]).history
    assert fit(networks[1]).history
    assert fit(networks[0]).history
    assert not fit(again).history


def test_levels_of_any_kind_are_saved(tmp_path: Path, cubic) -> None:
    levels = pd.Series([0.1, 0.5, 0.9])
    reg = baselines.QuantileRegressor(levels=levels, **QUICK).fit(*cubic)
    reg.save(tmp_path)
    back = load(tmp_path)
    assert back.levels == (0.1, 0.5, 0.9)
    np.testing.assert_allclose(moments(back, cubic.X), moments(reg, cubic.X), rtol=1e-6, atol=1e-6)


def test_rows_without_weight_do_not_stretch_the_density() -> None:
    x = torch.randn(40, 2)
    x[0] = 1e6
    weight = torch.ones(40)
    weight[0] = 0.0
    model = baselines.NaturalPosteriorNetwork(nn.Identity(), 2)
    fit_baseline(model, [(x, x[:, :1], weight)], options=TrainingOptions(epochs=1), verbose=False)
    assert model.radius < 100
