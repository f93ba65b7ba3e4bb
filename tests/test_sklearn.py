"""Among scikit-learn's own: its checks for all eleven; weights, model selection, frames, copies for ours."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from density_regression import MLP, DensityRegressor, GaussianDensity, MixtureDensity
from density_regression.datasets import make_cubic
from density_regression.density import RobustTempering
from density_regression.registry import ESTIMATORS


def quick(**params: object) -> DensityRegressor:
    """A regressor that is fitted in a moment."""
    return DensityRegressor(**{"hidden": (16,), "epochs": 5, "n_threads": 1, "random_state": 0, **params})


def moments(reg: BaseEstimator, X: object) -> np.ndarray:
    """Mean and standard deviation, stacked."""
    return np.stack(reg.predict(X, return_std=True))


def own_factory(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 12), nn.Tanh())


# -- scikit-learn's checks --------------------------------------------------------------------------------------


@pytest.fixture(params=ESTIMATORS.values(), ids=list(ESTIMATORS))
def estimator(request: pytest.FixtureRequest) -> BaseEstimator:
    """Each of the eleven; the rivals with few epochs, as scikit-learn checks its own that iterate."""
    few = {} if request.param is DensityRegressor else {"epochs": 20}
    return request.param(**few)


def test_check_estimator(estimator: BaseEstimator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        results = check_estimator(estimator, on_fail=None)
    by_status: dict[str, set[str]] = {}
    for result in results:
        by_status.setdefault(result["status"], set()).add(result["check_name"])
    # A weighted row is not exactly a repeated row for mini-batches and held-out rows; own tests of weights follow.
    allowed = {f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")}
    assert by_status.pop("failed", set()) <= allowed
    assert by_status.pop("skipped", set()) <= {"check_array_api_input"}
    assert by_status.keys() == {"passed"}
    assert len(by_status["passed"]) > 40


def test_no_tag_excuses_the_estimator(estimator: BaseEstimator) -> None:
    tags = get_tags(estimator)
    assert not tags.non_deterministic
    assert not tags.no_validation
    assert not tags._skip_test
    assert not tags.regressor_tags.poor_score
    assert tags.estimator_type == "regressor"
    assert tags.target_tags.required
    assert tags.target_tags.multi_output
    assert not tags.input_tags.allow_nan
    assert not tags.input_tags.sparse


# -- weights ----------------------------------------------------------------------------------------------------


def test_row_without_weight_has_no_influence(cubic) -> None:
    X, y = cubic
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2.0, len(X))
    kept = rng.random(len(X)) < 0.7
    strange_X, strange_y = np.where(kept[:, None], X, 1e3), np.where(kept, y, -1e6)
    with_them = quick().fit(strange_X, strange_y, np.where(kept, weight, 0.0))
    without = quick().fit(X[kept], y[kept], weight[kept])
    np.testing.assert_array_equal(moments(with_them, X), moments(without, X))
    np.testing.assert_array_equal(with_them.score_samples(X), without.score_samples(X))


def test_only_relative_weights_count(cubic) -> None:
    X, y = cubic
    weight = np.random.default_rng(0).uniform(0.1, 2.0, len(X))
    expected = moments(quick().fit(X, y, weight), X)
    np.testing.assert_array_equal(moments(quick().fit(X, y, 4.0 * weight), X), expected)
    np.testing.assert_allclose(moments(quick().fit(X, y, 3.7e-12 * weight), X), expected, rtol=1e-6, atol=1e-6)


def test_weights_of_one_are_no_weights(cubic) -> None:
    X, y = cubic
    expected = moments(quick().fit(X, y), X)
    np.testing.assert_array_equal(moments(quick().fit(X, y, np.ones(len(X))), X), expected)
    np.testing.assert_array_equal(moments(quick().fit(X, y, 3.0), X), expected)


@pytest.fixture(scope="module")
def two_groups() -> tuple[np.ndarray, np.ndarray]:
    """Inputs that say nothing, and which of two groups each row is in."""
    return np.random.default_rng(0).uniform(-1, 1, (400, 1)), np.arange(400) % 2 == 1


@pytest.mark.parametrize(("heavy", "expected"), [(True, 0.8), (False, -0.8)])
def test_mean_follows_the_heavier_group(two_groups, heavy: bool, expected: float) -> None:
    X, group = two_groups
    y = np.where(group, 1.0, -1.0) + np.random.default_rng(1).normal(0, 0.1, len(X))
    mean = quick(epochs=30).fit(X, y, np.where(group == heavy, 9.0, 1.0)).predict(X)
    assert mean.mean() == pytest.approx(expected, abs=0.12)


@pytest.mark.parametrize(("held_out", "tolerance"), [(0.0, 0.05), (0.15, 0.3)])
@pytest.mark.parametrize("noisy_is_heavy", [True, False])
def test_std_follows_the_heavier_group(two_groups, noisy_is_heavy: bool, held_out: float, tolerance: float) -> None:
    X, noisy = two_groups
    y = np.where(noisy, 1.0, 0.1) * np.random.default_rng(0).normal(size=len(X))
    weight = np.where(noisy == noisy_is_heavy, 9.0, 1.0)
    std = moments(quick(epochs=20, validation_fraction=held_out).fit(X, y, weight), X)[1]
    expected = np.sqrt(np.average(y**2, weights=weight))
    assert np.sqrt(np.mean(std**2)) == pytest.approx(expected, rel=tolerance)


def test_weights_enter_the_density() -> None:
    rng = np.random.default_rng(0)
    right = np.arange(400) % 2 == 1
    X = np.where(right, 3.0, -3.0)[:, None] + rng.normal(size=(400, 1))
    y = rng.normal(size=400)

    def gap(weight: np.ndarray) -> float:
        # An encoder that changes nothing, so that the density alone is weighed.
        score = DensityRegressor.from_trained(nn.Identity(), X, y, weight, random_state=0).score_samples(X)
        return np.median(score[right]) - np.median(score[~right])

    assert gap(np.ones(400)) == pytest.approx(0.0, abs=0.5)
    assert gap(np.where(right, 20.0, 1.0)) == pytest.approx(np.log(20.0), abs=0.7)


def test_weights_of_vastly_different_size_give_a_finite_answer(cubic) -> None:
    X, y = cubic
    # In float32 the light rows weigh nothing, and most batches and all held-out rows are light.
    weight = np.where(np.arange(len(X)) < 5, 1.0, 1e-60)
    assert np.isfinite(moments(quick().fit(X, y, weight), X)).all()


def test_weights_may_be_huge(cubic) -> None:
    X, y = cubic
    expected = moments(quick().fit(X, y), X)
    np.testing.assert_array_equal(moments(quick().fit(X, y, np.full(len(X), 1e308)), X), expected)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.full(200, -1.0), "[Nn]egative"),
        (np.zeros(200), "non-zero"),
        (np.eye(200)[0], "At least 2 rows"),
        (np.ones(199), "sample_weight"),
        (np.ones((200, 2)), "1D"),
        (np.full(200, np.nan), "NaN"),
        (np.full(200, np.inf), "infinity"),
    ],
    ids=["negative", "zero", "one positive", "too few", "two columns", "nan", "infinite"],
)
def test_bad_weights(cubic, weight: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(*cubic, weight)


def test_score_takes_weights(fitted, cubic) -> None:
    X, y = cubic
    wrong = np.where(np.arange(len(X)) < 100, y, -y)
    kept = (np.arange(len(X)) < 100).astype(float)
    assert fitted.score(X, wrong, kept) == pytest.approx(fitted.score(X[:100], y[:100]))


# -- pipelines and model selection ------------------------------------------------------------------------------


def test_pipeline(cubic) -> None:
    X, y = cubic
    pipeline = Pipeline([("scale", StandardScaler()), ("regress", quick(epochs=15))])
    pipeline.fit(X, y, regress__sample_weight=np.ones(len(X)))
    mean, std = pipeline.predict(X, return_std=True)
    assert pipeline.score(X, y) > 0.95
    # The estimator scales inside, so scaling before it changes nothing but roundings.
    expected = quick(epochs=15).fit(X, y)
    np.testing.assert_allclose(mean, expected.predict(X), atol=1e-3 * y.std())
    np.testing.assert_allclose(std, moments(expected, X)[1], rtol=1e-2)
    assert pipeline.score_samples(X).shape == (len(X),)
    pipeline.set_params(regress__epochs=3)
    assert len(pipeline.fit(X, y)["regress"].report_.history) == 3


def test_cross_val_score(cubic) -> None:
    scores = cross_val_score(quick(epochs=20), *cubic, cv=3)
    assert scores.shape == (3,)
    assert scores.min() > 0.9


def test_grid_search_here_and_in_workers(cubic) -> None:
    # One unit cannot bend twice, so the grid has a clear loser; workers get estimators by pickle.
    grid = {"hidden": [(1,), (16,)], "density": ["gaussian", None]}
    here = GridSearchCV(quick(verbose=False), grid, cv=2, error_score="raise").fit(*cubic)
    workers = GridSearchCV(quick(verbose=False), grid, cv=2, n_jobs=2, error_score="raise").fit(*cubic)
    np.testing.assert_allclose(
        workers.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"], rtol=1e-6, atol=1e-6
    )
    assert here.best_params_["hidden"] == workers.best_params_["hidden"] == (16,)
    np.testing.assert_allclose(workers.predict(cubic.X), here.predict(cubic.X), rtol=1e-6, atol=1e-6)


def test_grid_search_over_objects(cubic) -> None:
    candidates = [GaussianDensity(), MixtureDensity(components=2)]
    search = GridSearchCV(quick(), {"density": candidates}, cv=2, error_score="raise").fit(*cubic)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert not any(density.fitted for density in candidates)


def test_transformed_target() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 2, (200, 1))
    y = np.exp(2 * X[:, 0] + rng.normal(0, 0.1, 200))
    reg = TransformedTargetRegressor(quick(epochs=30), func=np.log, inverse_func=np.exp).fit(X, y)
    assert reg.score(X, y) > 0.9
    assert (reg.predict(X) > 0).all()


def test_pipeline_without_scaler_is_cloned(cubic) -> None:
    pipeline = make_pipeline(quick())
    first, second = clone(pipeline).fit(*cubic), clone(pipeline).fit(*cubic)
    np.testing.assert_array_equal(first.predict(cubic.X), second.predict(cubic.X))


# -- parameters and copies --------------------------------------------------------------------------------------


def test_init_only_stores() -> None:
    given = {
        "encoder": own_factory,
        "hidden": [3, 4],
        "head": "nonsense",
        "density": GaussianDensity(),
        "tempering": object(),
        "epochs": -1,
        "random_state": np.random.RandomState(0),
    }
    params = DensityRegressor(**given).get_params()
    assert all(params[name] is value for name, value in given.items())


def test_get_and_set_params() -> None:
    reg = quick()
    assert reg.set_params(tempering="exact", hidden=(7,)) is reg
    assert reg.get_params()["tempering"] == "exact"
    assert DensityRegressor(**reg.get_params()).get_params() == reg.get_params()
    with pytest.raises(ValueError, match="Invalid parameter"):
        reg.set_params(temper="exact")


def test_set_params_takes_effect_at_the_next_fit(cubic) -> None:
    reg = quick().fit(*cubic)
    before = moments(reg, cubic.X)
    reg.set_params(head="mean", random_state=1)
    np.testing.assert_array_equal(moments(reg, cubic.X), before)
    assert not np.array_equal(moments(reg.fit(*cubic), cubic.X), before)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"encoder": MLP(1, (10,))},
        {"encoder": own_factory},
        {"density": GaussianDensity(max_dims=2), "tempering": RobustTempering(exponent=2.0)},
    ],
    ids=["plain", "module", "factory", "objects"],
)
def test_clone(cubic, params: dict[str, object]) -> None:
    reg = quick(**params).fit(*cubic)
    copied = clone(reg)
    with pytest.raises(NotFittedError):
        copied.predict(cubic.X)
    for name, value in params.items():
        if isinstance(value, nn.Module):
            assert getattr(copied, name) is not value
            for mine, theirs in zip(getattr(copied, name).parameters(), value.parameters(), strict=True):
                assert torch.equal(mine, theirs)
    np.testing.assert_array_equal(moments(copied.fit(*cubic), cubic.X), moments(reg, cubic.X))


@pytest.mark.parametrize("copier", [lambda reg: pickle.loads(pickle.dumps(reg)), copy.deepcopy], ids=["pickle", "deep"])
@pytest.mark.parametrize(
    "params",
    [{}, {"encoder": nn.Sequential(nn.Linear(1, 8), nn.BatchNorm1d(8))}, {"encoder": own_factory}, {"density": None}],
    ids=["plain", "module", "factory", "no density"],
)
def test_copies_predict_the_same(cubic, copier, params: dict[str, object]) -> None:
    reg = quick(**params).fit(*cubic)
    copied = copier(reg)
    np.testing.assert_array_equal(moments(copied, cubic.X), moments(reg, cubic.X))
    assert copied.report_.history == reg.report_.history
    if reg.density is not None:
        np.testing.assert_array_equal(copied.familiarity(cubic.X), reg.familiarity(cubic.X))


def test_unfitted_estimator_is_pickled_and_shown() -> None:
    reg = quick(encoder=MLP(1, (3,)), density=GaussianDensity())
    assert "DensityRegressor" in repr(pickle.loads(pickle.dumps(reg)))
    assert "DensityRegressor" in reg._repr_html_()
    assert repr(DensityRegressor()) == "DensityRegressor()"


@pytest.mark.parametrize("method", ["predict", "predict_interval", "predict_dist", "sample", "score_samples"])
def test_not_fitted(method: str) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(quick(), method)([[1.0]])


def test_not_fitted_familiarity_and_decompose() -> None:
    for method in (quick().familiarity, quick().decompose):
        with pytest.raises(NotFittedError):
            method([[1.0]])
    with pytest.raises(NotFittedError):
        quick().predict_quantiles([[1.0]], [0.5])


# -- frames -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    """Columns of several types, the target last."""
    rng = np.random.default_rng(0)
    size, count = rng.normal(size=150), rng.integers(0, 5, 150)
    old = rng.random(150) < 0.5
    return {"size": size, "count": count, "old": old, "price": size + count + old + rng.normal(0, 0.1, 150)}


@pytest.fixture(params=["pandas", "polars"])
def frame(request, columns):
    """The same columns as a data frame of each library."""
    return pd.DataFrame(columns) if request.param == "pandas" else pl.DataFrame(columns)


NAMES = ["size", "count", "old"]


def test_frame_gives_what_arrays_give(frame, columns) -> None:
    array = np.column_stack([columns[name] for name in NAMES]).astype(float)
    from_frame = quick().fit(frame[NAMES], frame["price"])
    assert from_frame.feature_names_in_.tolist() == NAMES
    assert from_frame.n_features_in_ == 3
    from_array = quick().fit(array, columns["price"])
    assert not hasattr(from_array, "feature_names_in_")
    np.testing.assert_array_equal(moments(from_frame, frame[NAMES]), moments(from_array, array))
    assert from_frame.score(frame[NAMES], frame["price"]) == from_array.score(array, columns["price"])


def test_frame_with_other_columns_is_refused(frame) -> None:
    reg = quick().fit(frame[NAMES], frame["price"])
    with pytest.raises(ValueError, match="same order"):
        reg.predict(frame[NAMES[::-1]])
    with pytest.raises(ValueError, match="unseen at fit time"):
        reg.predict(frame[["size", "count", "price"]])
    with pytest.raises(ValueError, match="missing"):
        reg.score_samples(frame[["size", "count"]])
    with pytest.warns(UserWarning, match="valid feature names"):
        reg.predict(np.zeros((1, 3)))


def test_frame_of_targets(frame) -> None:
    reg = quick().fit(frame[NAMES], frame[["price", "size"]])
    assert reg.predict(frame[NAMES]).shape == (150, 2)


def test_names_are_forgotten_at_the_next_fit(frame, columns) -> None:
    reg = quick().fit(frame[NAMES], frame["price"])
    reg.fit(np.asarray(frame[NAMES], dtype=float), columns["price"])
    assert not hasattr(reg, "feature_names_in_")


def test_from_trained_keeps_names(frame) -> None:
    half = (frame[NAMES][:75], frame["price"][:75])
    held_out = (frame[NAMES][75:], frame["price"][75:])
    reg = DensityRegressor.from_trained(nn.Identity(), *half, held_out=held_out, random_state=0)
    assert reg.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="same order"):
        DensityRegressor.from_trained(nn.Identity(), *half, held_out=(frame[NAMES[::-1]], frame["price"]))


def test_text_in_a_frame_is_refused(frame) -> None:
    text = ["much"] * len(frame)
    with_text = frame.assign(size=text) if isinstance(frame, pd.DataFrame) else frame.with_columns(size=pl.Series(text))
    with pytest.raises(ValueError, match="much"):
        quick().fit(with_text[NAMES], frame["price"])


def test_dates_in_a_frame_are_refused(frame) -> None:
    days = pd.date_range("2026-01-01", periods=len(frame))
    is_pandas = isinstance(frame, pd.DataFrame)
    dated = frame.assign(size=days) if is_pandas else frame.with_columns(size=pl.Series(days.to_list()))
    with pytest.raises(ValueError, match="column 'size' of X holds dates or times"):
        quick().fit(dated[NAMES], frame["price"])
    with pytest.raises(ValueError, match="y holds dates or times"):
        quick().fit(frame[NAMES], dated["size"])
    with pytest.raises(ValueError, match="column 'size' of X holds dates or times"):
        quick().fit(frame[NAMES], frame["price"]).predict(dated[NAMES])


def test_pandas_own_types(columns) -> None:
    plain = pd.DataFrame(columns)
    typed = plain.convert_dtypes()
    expected = moments(quick().fit(plain[NAMES], plain["price"]), plain[NAMES])
    actual = moments(quick().fit(typed[NAMES], typed["price"]), typed[NAMES])
    np.testing.assert_array_equal(actual, expected)


def test_shuffled_index_is_ignored(columns) -> None:
    plain = pd.DataFrame(columns)
    shuffled = plain.set_index(np.random.default_rng(0).permutation(len(plain)))
    expected = quick().fit(plain[NAMES], plain["price"]).predict(plain[NAMES])
    np.testing.assert_array_equal(quick().fit(shuffled[NAMES], plain["price"]).predict(shuffled[NAMES]), expected)


def test_lists_and_other_types(cubic) -> None:
    X, y = cubic
    expected = moments(quick().fit(X, y), X)
    np.testing.assert_array_equal(moments(quick().fit(X.tolist(), y.tolist()), X.tolist()), expected)
    np.testing.assert_array_equal(moments(quick().fit(np.asfortranarray(X), y.astype(object)), X), expected)


def test_float32_is_taken_as_it_is(cubic) -> None:
    short = [part.astype(np.float32) for part in cubic]
    long = [part.astype(np.float64) for part in short]
    np.testing.assert_array_equal(moments(quick().fit(*short), short[0]), moments(quick().fit(*long), long[0]))


def test_integers() -> None:
    X, y = np.arange(100)[:, None], np.arange(100) * 3
    mean = quick(epochs=60).fit(X, y).predict(X)
    assert mean.dtype == np.float64
    assert np.abs(mean - y).max() < 0.15 * np.ptp(y)


def test_inputs_are_left_alone() -> None:
    X, y = make_cubic(50, random_state=0)
    weight = np.ones(50)
    for array in (X, y, weight):
        array.flags.writeable = False
    reg = quick().fit(X, y, weight)
    reg.predict(X)
    reg.score_samples(X)
