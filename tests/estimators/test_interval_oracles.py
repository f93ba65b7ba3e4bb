"""Tools of others that take any regressor: MAPIE and crepes as oracles of our intervals, and skpro's checks.

They are not installed with the package; the tests are skipped without them.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from density_regression import DensityRegressor
from density_regression.baselines import DeepEnsembleRegressor, GaussianRegressor
from density_regression.estimators.base import DeepRegressor

QUICK: dict[str, Any] = {"hidden": (16,), "epochs": 5, "n_threads": 1, "random_state": 0, "verbose": False}
METHODS = [DensityRegressor, GaussianRegressor, DeepEnsembleRegressor]


def draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, 10.0 + X[:, 0] ** 2 + (0.3 + np.abs(X[:, 1])) * rng.standard_t(4, size=n)


NEW = draw(100, 2)[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("coverage", [0.75, 0.9])
def test_mapie_gives_the_same_intervals(method: type[DeepRegressor], coverage: float) -> None:
    """With 199 rows both its ends are of the same rank; with others its lower end is one rank nearer (MAPIE 1.6)."""
    regression = pytest.importorskip("mapie.regression")
    reg = method(**QUICK).fit(*draw(150, 0))
    aside = draw(199, 1)
    theirs = regression.SplitConformalRegressor(
        reg, confidence_level=coverage, conformity_score="std_normalized", prefit=True
    ).conformalize(*aside)
    mean, intervals = theirs.predict_interval(NEW)
    low, high = reg.conformalize(*aside).predict_interval(NEW, coverage)
    assert_allclose(mean, reg.predict(NEW), rtol=1e-12)
    assert_allclose(intervals[:, :, 0], np.column_stack([low, high]), rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("rows", "coverage"), [(200, 0.9), (199, 0.75), (57, 0.95)])
def test_crepes_gives_the_same_intervals(method: type[DeepRegressor], rows: int, coverage: float) -> None:
    crepes = pytest.importorskip("crepes")
    reg = method(**QUICK).fit(*draw(150, 0))
    X, y = draw(rows, 1)
    mean, std = reg.predict(X, return_std=True)
    theirs = crepes.ConformalRegressor().fit(y - mean, sigmas=std)
    intervals = theirs.predict_int(*(reg.predict(NEW, return_std=True)), confidence=coverage)
    low, high = reg.conformalize(X, y).predict_interval(NEW, coverage)
    assert_allclose(intervals, np.column_stack([low, high]), rtol=1e-9)


def test_crepes_on_the_logarithms_of_prices() -> None:
    crepes = pytest.importorskip("crepes")
    X, y = draw(150, 0)
    reg = DensityRegressor(target="log", **QUICK).fit(X, np.exp(0.1 * y))
    aside, prices = draw(200, 1)[0], np.exp(0.1 * draw(200, 1)[1])
    law, new = reg.predict_dist(aside), reg.predict_dist(NEW)
    theirs = crepes.ConformalRegressor().fit(np.log(prices) - law.loc.numpy(), sigmas=law.scale.numpy())
    intervals = theirs.predict_int(new.loc.numpy(), new.scale.numpy(), confidence=0.9)
    low, high = reg.conformalize(aside, prices).predict_interval(NEW, 0.9)
    assert_allclose(np.exp(intervals), np.column_stack([low, high]), rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_skpro_s_checks(method: type[DeepRegressor], monkeypatch: pytest.MonkeyPatch) -> None:
    adapters = pytest.importorskip("skpro.regression.adapters.sklearn")
    checks = pytest.importorskip("skpro.utils.estimator_checks")
    fits = []
    fit = method.fit
    monkeypatch.setattr(method, "fit", lambda self, *rows, **more: (fits.append(1), fit(self, *rows, **more))[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = checks.check_estimator(
            adapters.SklearnProbaReg(method(**QUICK)), raise_exceptions=False, verbose=False
        )
    # About the docstring of the adapter, which is skpro's own.
    results.pop("test_class_has_doctest_example[SklearnProbaReg]", None)
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}
    assert len(results) > 20
    assert len(fits) > 5
