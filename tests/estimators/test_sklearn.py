"""Among scikit-learn's own: its checks for all eleven; model selection, parameters and copies for ours."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
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
from density_regression.baselines import SNGPRegressor
from density_regression.nn.tempering import RobustTempering
from density_regression.registry import estimators
from estimators.helpers import moments, quick


def own_factory(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 12), nn.Tanh())


# -- scikit-learn's checks --------------------------------------------------------------------------------------


@pytest.fixture(params=estimators().values(), ids=list(estimators()))
def estimator(request: pytest.FixtureRequest) -> BaseEstimator:
    """Each of the eleven, small and with few epochs, as scikit-learn checks its own that iterate."""
    small = {"epochs": 20} if request.param is DensityRegressor else {"epochs": 10, "hidden": (32,)}
    small |= {"random_features": 128} if request.param is SNGPRegressor else {}
    return request.param(**small)


def test_check_estimator(estimator: BaseEstimator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        results = check_estimator(estimator, on_fail=None)
    by_status: dict[str, set[str]] = {}
    for result in results:
        by_status.setdefault(result["status"], set()).add(result["check_name"])
    # A weighted row is not exactly a repeated row for mini-batches and held-out rows; weights have own tests.
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
    assert tags.input_tags.allow_nan
    assert not tags.input_tags.sparse


# -- pipelines and model selection ------------------------------------------------------------------------------


def test_pipeline(cubic) -> None:
    X, y = cubic
    pipeline = Pipeline([("scale", StandardScaler()), ("regress", quick(epochs=60))])
    pipeline.fit(X, y, regress__sample_weight=np.ones(len(X)))
    mean, std = pipeline.predict(X, return_std=True)
    assert pipeline.score(X, y) > 0.95
    # The estimator scales inside, so scaling before it changes nothing but roundings.
    expected = quick(epochs=60).fit(X, y)
    np.testing.assert_allclose(mean, expected.predict(X), atol=1e-3 * y.std())
    np.testing.assert_allclose(std, moments(expected, X)[1], rtol=1e-2)
    assert pipeline.score_samples(X).shape == (len(X),)
    pipeline.set_params(regress__epochs=3)
    assert len(pipeline.fit(X, y)["regress"].report_.history) == 3


def test_cross_val_score(cubic) -> None:
    scores = cross_val_score(quick(epochs=100), *cubic, cv=3)
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
