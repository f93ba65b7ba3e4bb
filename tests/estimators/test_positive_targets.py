"""`target="log"`: every prediction follows the log-normal law; `target="auto"` chooses by the held-out likelihood."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator
from torch.distributions import LogNormal

from density_regression import DensityRegressor, fit_together, load, metrics
from density_regression.baselines import (
    DeepEnsembleRegressor,
    EvidentialRegressor,
    GaussianRegressor,
    MCDropoutRegressor,
    NaturalPosteriorRegressor,
    QuantileRegressor,
)
from density_regression.estimators.base import DeepRegressor
from density_regression.registry import estimators

QUICK: dict[str, Any] = {"hidden": (16,), "epochs": 5, "n_threads": 1, "random_state": 0, "verbose": False}
LEVELS = [0.001, 0.05, 0.5, 0.95, 0.999]


def prices(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Prices whose noise is a share of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.exp(11.0 + X[:, 0] + 0.3 * rng.normal(size=n))


X, Y = prices()
TWO = np.column_stack([Y, 1e-3 * np.sqrt(Y)])


class Pair:
    """One method under both laws: fitted to prices with `target="log"`, and to their logarithms."""

    def __init__(self, method: type[DeepRegressor]) -> None:
        self.prices = method(target="log", **QUICK).fit(X, Y)
        self.logs = method(**QUICK).fit(X, np.log(Y))
        self.two = method(target="log", **QUICK).fit(X, TWO)


@pytest.fixture(scope="module", params=estimators().values(), ids=list(estimators()))
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


# -- the law -----------------------------------------------------------------------------------------------------


def test_all_is_the_exponential_of_a_fit_to_logarithms(pair: Pair) -> None:
    assert pair.prices.target_ == "log"
    assert pair.logs.target_ == "identity"
    assert_allclose(pair.prices.predict_quantiles(X, LEVELS), np.exp(pair.logs.predict_quantiles(X, LEVELS)), rtol=1e-9)
    for found, expected in zip(pair.prices.predict_interval(X, 0.9), pair.logs.predict_interval(X, 0.9), strict=True):
        assert_allclose(found, np.exp(expected), rtol=1e-9)
    assert_allclose(pair.prices.sample(X, 3), np.exp(pair.logs.sample(X, 3)), rtol=1e-9)
    law = pair.prices.predict_dist(X)
    assert isinstance(law, LogNormal)
    assert_allclose(np.stack([law.loc, law.scale]), pair.logs.predict(X, return_std=True), rtol=1e-12)


def test_mean_and_std_are_moments_of_the_law(pair: Pair) -> None:
    mean, std = pair.prices.predict(X, return_std=True)
    loc, scale = pair.logs.predict(X, return_std=True)
    law = stats.lognorm(s=scale, scale=np.exp(loc))
    assert_allclose(mean, law.mean(), rtol=1e-9)
    assert_allclose(std, law.std(), rtol=1e-7)
    assert_array_equal(pair.prices.predict(X), mean)


def test_samples_have_these_moments() -> None:
    reg = GaussianRegressor(target="log", **{**QUICK, "epochs": 60}).fit(X, Y)
    mean, std = reg.predict(X[:1], return_std=True)
    draws = reg.sample(X[:1], 200_000, random_state=0)[:, 0]
    assert draws.mean() == pytest.approx(mean[0], rel=0.01)
    assert draws.std() == pytest.approx(std[0], rel=0.05)


def test_shapes_of_two_targets(pair: Pair) -> None:
    mean, std = pair.two.predict(X[:7], return_std=True)
    assert mean.shape == std.shape == (7, 2)
    assert pair.two.predict_quantiles(X[:7], LEVELS).shape == (7, 2, 5)
    assert pair.two.sample(X[:7], 4).shape == (4, 7, 2)
    assert pair.two.predict_dist(X[:7]).batch_shape == (7, 2)
    # Each in its own units.
    assert (np.abs(np.log(mean.mean(axis=0) / TWO.mean(axis=0))) < 1.5).all()


@settings(max_examples=25, deadline=None)
@given(size=st.floats(-30, 300), seed=st.integers(0, 100))
def test_never_below_zero_never_infinite(pair: Pair, size: float, seed: int) -> None:
    rows = 10.0**size * np.random.default_rng(seed).normal(size=(4, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers = [*pair.prices.predict(rows, return_std=True), *pair.prices.predict_interval(rows, 0.999)]
        answers += [pair.prices.predict_quantiles(rows, LEVELS), pair.prices.sample(rows, 5)]
        if hasattr(pair.prices, "decompose"):
            answers += [part for part in pair.prices.decompose(rows) if part is not None]
            assert all((part >= 0).all() for part in answers[6:])
    assert all(np.isfinite(answer).all() for answer in answers)
    assert all((answer > 0).all() for answer in answers[:6])


@pytest.mark.parametrize("size", [1e-300, 1e-5, 1e200])
def test_targets_of_any_size(size: float) -> None:
    reg = GaussianRegressor(target="log", **QUICK).fit(X, size * Y)
    mean, std = reg.predict(X, return_std=True)
    same, spread = GaussianRegressor(target="log", **QUICK).fit(X, Y).predict(X, return_std=True)
    assert_allclose(mean / size, same, rtol=1e-4)
    assert_allclose(std / size, spread, rtol=1e-4)


# -- methods whose own law is another ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [DeepEnsembleRegressor, MCDropoutRegressor, EvidentialRegressor, NaturalPosteriorRegressor]
)
def test_own_law_is_that_of_the_logarithm(method: type[DeepRegressor]) -> None:
    pair = Pair(method)
    own, of_logs = pair.prices.own_dist(X), pair.logs.own_dist(X)
    y = torch.from_numpy(Y)
    # The density of y is that of log y over y.
    assert_allclose(own.log_prob(y), of_logs.log_prob(y.log()) - y.log(), rtol=1e-9)
    assert metrics.nll_own(Y, own) == pytest.approx(metrics.nll_own(np.log(Y), of_logs) + np.log(Y).mean(), rel=1e-9)
    grid = torch.linspace(-30, 60, 90_001, dtype=torch.float64).exp()
    density = pair.prices.own_dist(X[:1]).log_prob(grid[:, None]).exp()[:, 0]
    assert torch.trapezoid(density, grid).item() == pytest.approx(1.0, abs=1e-3)


def test_members_and_their_mixture() -> None:
    pair = Pair(DeepEnsembleRegressor)
    means, stds = pair.prices.predict_members(X)
    loc, scale = pair.logs.predict_members(X)
    law = stats.lognorm(s=scale, scale=np.exp(loc))
    assert_allclose(means, law.mean(), rtol=1e-9)
    assert_allclose(stds, law.std(), rtol=1e-7)
    own = pair.prices.own_dist(X)
    assert_allclose(own.mean, means.mean(axis=0), rtol=1e-9)
    assert_allclose(own.variance, (stds**2).mean(axis=0) + means.var(axis=0), rtol=1e-9)


def test_learnt_quantiles_are_exponentials() -> None:
    pair = Pair(QuantileRegressor)
    assert_array_equal(
        pair.prices.predict_quantiles(X, pair.prices.levels), np.exp(pair.logs.predict_quantiles(X, pair.logs.levels))
    )


@pytest.mark.parametrize("method", [DensityRegressor, EvidentialRegressor, NaturalPosteriorRegressor])
def test_parts_share_the_variance_as_they_do_of_logarithms(method: type[DeepRegressor]) -> None:
    pair = Pair(method)
    _, std = pair.prices.predict(X, return_std=True)
    _, std_of_logs = pair.logs.predict(X, return_std=True)
    parts, of_logs = pair.prices.decompose(X), pair.logs.decompose(X)
    assert_allclose(np.hypot(parts[0], parts[1]), std, rtol=1e-5)
    for part, expected in zip(parts, of_logs, strict=True):
        if expected is not None:
            assert_allclose(part / std, expected / std_of_logs, rtol=1e-4, atol=1e-9)


# -- fitting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [DensityRegressor, GaussianRegressor])
@pytest.mark.parametrize("held_out", [None, (X, -Y)], ids=["y", "held out"])
def test_targets_without_a_logarithm_are_refused(method: type[DeepRegressor], held_out: Any) -> None:
    y = Y.copy()
    y[3] = 0.0 if held_out is None else y[3]
    with pytest.raises(ValueError, match='target="log" needs y above 0'):
        method(target="log", **QUICK).fit(X, y, held_out=held_out)
    with pytest.raises(ValueError, match="'target' parameter"):
        method(target="square root", **QUICK).fit(X, Y)


def test_rows_without_weight_may_have_any_target() -> None:
    weight = np.arange(len(Y)) % 3
    reg = GaussianRegressor(target="log", **QUICK).fit(X, np.where(weight, Y, -1.0), weight)
    assert_array_equal(reg.predict(X), GaussianRegressor(target="log", **QUICK).fit(X, Y, weight).predict(X))


def test_auto_takes_the_law_that_held_out_rows_prefer() -> None:
    rng = np.random.default_rng(1)
    normal = 50 + 10 * X[:, 0] + 5 * rng.normal(size=len(X))
    assert (normal > 0).all()
    chosen = set()
    for y in (Y, normal, np.column_stack([Y, normal])):
        held_out = X[150:], y[150:]
        kwargs = {**QUICK, "epochs": 40}
        fits = {
            law: GaussianRegressor(target=law, **kwargs).fit(X[:150], y[:150], held_out=held_out)
            for law in ("identity", "log")
        }
        nll = {law: metrics.nll_own(held_out[1], reg.predict_dist(held_out[0])) for law, reg in fits.items()}
        auto = GaussianRegressor(target="auto", **kwargs).fit(X[:150], y[:150], held_out=held_out)
        assert auto.target_ == min(nll, key=nll.get)
        assert auto.get_params()["target"] == "auto"
        assert_array_equal(auto.predict(X), fits[auto.target_].predict(X))
        chosen.add(auto.target_)
    assert chosen == {"identity", "log"}


def test_auto_leaves_targets_without_a_logarithm_alone() -> None:
    y = Y - Y.mean()
    auto = GaussianRegressor(target="auto", **QUICK).fit(X, y)
    assert auto.target_ == "identity"
    assert_array_equal(auto.predict(X), GaussianRegressor(**QUICK).fit(X, y).predict(X))


def test_auto_with_a_generator_holds_out_the_same_rows_for_both() -> None:
    settings = {**QUICK, "random_state": np.random.RandomState(0)}
    auto = GaussianRegressor(target="auto", **settings).fit(X, Y)
    settings["random_state"] = np.random.RandomState(0)
    assert_array_equal(auto.predict(X), GaussianRegressor(target=auto.target_, **settings).fit(X, Y).predict(X))


def test_both_fits_of_auto_are_taken_up_again(tmp_path: Path) -> None:
    settings = {**QUICK, "target": "auto", "checkpoint_dir": tmp_path}
    first, again = (DensityRegressor(**settings).fit(X, Y) for _ in range(2))
    assert first.report_.history
    assert not again.report_.history
    assert again.checkpoint_dir == first.checkpoint_dir == tmp_path
    assert_array_equal(again.predict(X), first.predict(X))
    assert (tmp_path / "log").is_dir()


@pytest.mark.parametrize("target", ["log", "auto"])
def test_fitted_together(target: Any) -> None:
    regressors = [GaussianRegressor(target=target, **{**QUICK, "random_state": seed}) for seed in range(2)]
    fit_together(regressors, [prices(seed=seed) for seed in range(2)])
    for seed, reg in enumerate(regressors):
        alone = clone(reg).fit(*prices(seed=seed))
        assert reg.target_ == alone.target_ == "log"
        assert_allclose(reg.predict(X), alone.predict(X), rtol=1e-3)


def test_a_network_somebody_already_had() -> None:
    reg = DensityRegressor.from_trained(torch.nn.Identity(), X, Y, target="auto", random_state=0, verbose=False)
    assert reg.target_ == "log"
    assert np.corrcoef(np.log(reg.predict(X)), X[:, 0])[0, 1] > 0.9


# -- saved, and among scikit-learn's own ---------------------------------------------------------------------------


def test_save_and_load(pair: Pair, tmp_path: Path) -> None:
    pair.prices.save(tmp_path)
    back = load(tmp_path)
    assert back.target_ == back.target == "log"
    for found, expected in zip(back.predict_interval(X), pair.prices.predict_interval(X), strict=True):
        assert_allclose(found, expected, rtol=1e-6)


def test_the_law_that_auto_chose_is_saved(tmp_path: Path) -> None:
    reg = GaussianRegressor(target="auto", **QUICK).fit(X, Y)
    reg.save(tmp_path)
    back = load(tmp_path)
    assert (back.target, back.target_) == ("auto", "log")
    assert_array_equal(back.predict(X), reg.predict(X))


def test_setting_the_parameter_does_not_change_a_fitted_model(pair: Pair) -> None:
    before = pair.logs.predict(X)
    pair.logs.set_params(target="log")
    try:
        assert_array_equal(pair.logs.predict(X), before)
    finally:
        pair.logs.set_params(target="identity")


@pytest.mark.parametrize("target", ["log", "auto"])
def test_check_estimator(target: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        results = check_estimator(GaussianRegressor(target=target, epochs=20, verbose=False), on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    allowed = {f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")}
    if target == "log":
        # It gives negative targets, whatever the tag `positive_only` says.
        allowed.add("check_regressor_multioutput")
    assert failed <= allowed
