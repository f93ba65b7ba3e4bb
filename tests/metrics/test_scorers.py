"""Scorers in scikit-learn: their values, their names, and what they say of estimators without a standard deviation."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.metrics._scorer import _SCORERS
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from density_regression import metrics
from density_regression.baselines import DeterministicRegressor
from density_regression.metrics.scorers import SCORERS, _allowed_scoring_names
from density_regression.registry import estimators

X, y = make_friedman1(60, n_features=5, noise=1.0, random_state=0)
QUICK = {"hidden": (4,), "epochs": 1, "n_threads": 1, "random_state": 0, "verbose": False}
NEG_NLL = metrics.make_scorer(metrics.nll, greater_is_better=False)


@pytest.fixture
def registered() -> Iterator[None]:
    """The names are known to scikit-learn, and forgotten afterwards."""
    metrics.register_scorers()
    yield
    for name in SCORERS:
        del _SCORERS[name]
        for names in _allowed_scoring_names():
            names.discard(name)


# -- values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", estimators())
def test_all_regressors_are_scored_by_their_mean_and_std(name: str) -> None:
    reg = estimators()[name](**QUICK).fit(X, y)
    mean, std = reg.predict(X, return_std=True)
    assert SCORERS["neg_nll"](reg, X, y) == -metrics.nll(y, mean, std)
    assert SCORERS["neg_crps"](reg, X, y) == -metrics.crps(y, mean, std)


@pytest.mark.parametrize("shape", [(60,), (60, 1)])
def test_a_single_target_may_be_a_column(shape: tuple[int, ...]) -> None:
    reg = BayesianRidge().fit(X, y)
    assert NEG_NLL(reg, X, y.reshape(shape)) == -metrics.nll(y, *reg.predict(X, return_std=True))


def test_several_targets_and_frames() -> None:
    targets = pd.DataFrame({"a": y, "b": X[:, 0]})
    reg = DeterministicRegressor(**QUICK).fit(X, targets)
    expected = -metrics.nll(targets, *reg.predict(X, return_std=True))
    assert NEG_NLL(reg, X, targets) == expected
    assert NEG_NLL(reg, X, targets.to_numpy()) == expected


def test_other_metrics_and_their_arguments() -> None:
    reg = BayesianRidge().fit(X, y)
    mean, std = reg.predict(X, return_std=True)
    assert metrics.make_scorer(metrics.coverage, level=0.5)(reg, X, y) == metrics.coverage(y, mean, std, 0.5)
    wide = metrics.make_scorer(metrics.interval_score, greater_is_better=False, level=0.8)
    assert wide(reg, X, y) == -metrics.interval_score(y, mean, std, 0.8)


@pytest.mark.parametrize("metric", [metrics.nll, metrics.crps])
@pytest.mark.parametrize("columns", [(), (2,)])
def test_a_weight_counts_as_so_many_rows(metric, columns: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    count = np.array([0, 1, 2, 3, 1])
    y_true, mean, log_std = rng.normal(size=(3, 5, *columns))
    std = np.exp(log_std)
    repeated = [np.repeat(part, count, axis=0) for part in (y_true, mean, std)]
    # The first row, of no weight, is infinitely unlikely.
    mean[0], std[0] = 1e300, 1e-300
    for unit in (1.0, 5e307, 1e-308):
        assert metric(y_true, mean, std, sample_weight=unit * count) == pytest.approx(metric(*repeated), rel=1e-12)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(59), r"sample_weight must have shape \(60,\), one for each row, got \(59,\)"),
        (np.ones((60, 1)), r"sample_weight must have shape \(60,\)"),
        (np.zeros(60), "sample_weight must not be negative, and not 0 everywhere, got 0 to 0"),
        (np.linspace(-1, 1, 60), "sample_weight must not be negative, and not 0 everywhere, got -1 to 1"),
        (np.full(60, np.nan), "sample_weight has 60 NaN"),
    ],
)
def test_bad_weights(weight: np.ndarray, message: str) -> None:
    for metric in (metrics.nll, metrics.crps):
        with pytest.raises(ValueError, match=message):
            metric(y, y, np.ones(60), sample_weight=weight)


# -- in scikit-learn --------------------------------------------------------------------------------------------


def test_cross_validate_by_name(registered) -> None:
    reg = make_pipeline(StandardScaler(), BayesianRidge())
    folds = KFold(3)
    scores = cross_validate(reg, X, y, scoring=["neg_nll", "neg_crps", "r2"], cv=folds, error_score="raise")
    for i, (train, test) in enumerate(folds.split(X)):
        predicted = reg.fit(X[train], y[train]).predict(X[test], return_std=True)
        assert scores["test_neg_nll"][i] == -metrics.nll(y[test], *predicted)
        assert scores["test_neg_crps"][i] == -metrics.crps(y[test], *predicted)
    np.testing.assert_array_equal(cross_val_score(reg, X, y, scoring="neg_nll", cv=folds), scores["test_neg_nll"])
    assert cross_validate(reg, X, y, scoring="neg_crps", cv=folds)["test_score"].tolist() == (
        scores["test_neg_crps"].tolist()
    )


def test_searches_by_name_and_cross_validated(registered) -> None:
    grid = {"bayesianridge__alpha_init": [1.0, 1e-3], "bayesianridge__max_iter": [1]}
    reg = make_pipeline(StandardScaler(), BayesianRidge())
    search = GridSearchCV(reg, grid, scoring="neg_nll", cv=2, error_score="raise").fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert scores[0] != scores[1]
    assert search.best_score_ == scores.max()
    assert search.score(X, y) == NEG_NLL(search.best_estimator_, X, y) == NEG_NLL(search, X, y)
    assert np.isfinite(cross_val_score(search, X, y, scoring="neg_crps", cv=2)).all()
    several = RandomizedSearchCV(reg, grid, n_iter=1, scoring=["neg_nll", "r2"], refit="neg_nll", cv=2).fit(X, y)
    assert np.isfinite(several.cv_results_["mean_test_neg_nll"]).all()
    assert np.isfinite(permutation_importance(search, X, y, scoring="neg_nll", n_repeats=1).importances).all()


def test_the_example_of_the_documentation(registered) -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "tuning.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n([^`]*register_scorers.*?)```", page, flags=re.DOTALL)
    names = {"X": X, "y": y}
    exec(compile(block, "tuning.md", "exec"), names)
    assert np.isfinite(names["nll"])
    assert (names["scores"]["test_score"] < 0).all()
    assert names["search"].best_score_ < 0


def test_names_are_known_on_request_only() -> None:
    assert "neg_nll" not in get_scorer_names()
    with pytest.raises(ValueError, match="The 'scoring' parameter of cross_val_score must be"):
        cross_val_score(BayesianRidge(), X, y, scoring="neg_nll")


def test_weights_are_routed() -> None:
    reg = BayesianRidge()
    weight = np.random.default_rng(0).uniform(size=60)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = metrics.make_scorer(metrics.nll, greater_is_better=False).set_score_request(sample_weight=True)
        reg.set_fit_request(sample_weight=False)
        found = cross_val_score(reg, X, y, scoring=scorer, params={"sample_weight": weight}, cv=KFold(2))
        in_pipeline = make_pipeline(BayesianRidge().set_predict_request(return_std=True)).fit(X, y)
        assert np.isfinite(NEG_NLL(in_pipeline, X, y))
    for score, (train, test) in zip(found, KFold(2).split(X), strict=True):
        predicted = reg.fit(X[train], y[train]).predict(X[test], return_std=True)
        assert score == -metrics.nll(y[test], *predicted, sample_weight=weight[test])
    assert NEG_NLL(reg, X, y, sample_weight=np.ones(60)) == pytest.approx(NEG_NLL(reg, X, y))


def test_scorers_are_pickled_copied_and_shown(registered) -> None:
    reg = BayesianRidge().fit(X, y)
    for scorer in (NEG_NLL, get_scorer("neg_nll")):
        assert pickle.loads(pickle.dumps(scorer))(reg, X, y) == NEG_NLL(reg, X, y)
        assert repr(scorer).startswith("make_scorer(nll, greater_is_better=False")


# -- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [
        LinearRegression(),
        SVR(),
        make_pipeline(StandardScaler(), LinearRegression()),
        TransformedTargetRegressor(BayesianRidge(), func=np.log1p, inverse_func=np.expm1),
        GridSearchCV(LinearRegression(), {"fit_intercept": [True]}, cv=2),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_estimators_without_std(estimator) -> None:
    with pytest.raises(ValueError, match=r"needs predict\(X, return_std=True\) to return both, which \w+ does not"):
        NEG_NLL(estimator.fit(X, np.abs(y)), X, y)


def test_one_that_takes_the_argument_and_ignores_it() -> None:
    class Deaf:
        def predict(self, X: np.ndarray, return_std: bool = False) -> np.ndarray:
            return np.zeros(len(X))

    with pytest.raises(ValueError, match="which Deaf does not"):
        NEG_NLL(Deaf(), X, y)


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(NotFittedError):
        NEG_NLL(BayesianRidge(), X, y)
    with pytest.raises(NotFittedError):
        NEG_NLL(DeterministicRegressor(), X, y)
    reg = BayesianRidge().fit(X, y)
    with pytest.raises(ValueError, match="features"):
        NEG_NLL(reg, X[:, :2], y)
    with pytest.raises(ValueError, match="must have the shape of y_true"):
        NEG_NLL(reg, X, y[:-1])
    with pytest.raises(ValueError, match=r"metric must be a function of \(y_true, mean, std\).*got 'nll'"):
        metrics.make_scorer("nll")  # type: ignore[arg-type]
