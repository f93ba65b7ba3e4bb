"""Tools of others that wrap a regressor, where they are installed: skpro, MAPIE."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from density_regression import DensityRegressor
from estimators.helpers import quick


@pytest.fixture
def frame(friedman) -> pd.DataFrame:
    """Numbers with gaps, and text."""
    frame = pd.DataFrame(friedman.X).add_prefix("x")
    frame.loc[::9, "x3"] = np.nan
    return frame.assign(side=np.where(friedman.X[:, 0] > 0.5, "left", "right"))


def test_checks_of_skpro() -> None:
    checks = pytest.importorskip("skpro.utils.estimator_checks")
    adapters = pytest.importorskip("skpro.regression.adapters.sklearn")
    wrapped = adapters.SklearnProbaReg(DensityRegressor(epochs=2, hidden=(8,), verbose=False, random_state=0))
    with warnings.catch_warnings(action="ignore"):
        results = checks.check_estimator(wrapped, raise_exceptions=False)
    # This one is about the docstring of skpro's own class.
    failed = {name for name, result in results.items() if result != "PASSED" and "doctest" not in name}
    assert failed == set()
    assert len(results) > 20


def test_skpro_on_a_frame(frame: pd.DataFrame, friedman) -> None:
    adapters = pytest.importorskip("skpro.regression.adapters.sklearn")
    wrapped = adapters.SklearnProbaReg(quick()).fit(frame, pd.DataFrame({"y": friedman.y}))
    law = wrapped.predict_proba(frame[:20])
    mean, std = quick().fit(frame, friedman.y).predict(frame[:20], return_std=True)
    np.testing.assert_allclose(law.mean().to_numpy().ravel(), mean, rtol=1e-6)
    np.testing.assert_allclose(law.var().to_numpy().ravel(), std**2, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_conformal_intervals_of_mapie(frame: pd.DataFrame, friedman) -> None:
    regression = pytest.importorskip("mapie.regression")
    reg = quick(epochs=30).fit(frame[:150], friedman.y[:150])
    conformal = regression.SplitConformalRegressor(
        reg, confidence_level=0.9, conformity_score="std_normalized", prefit=True
    )
    conformal.conformalize(frame[150:250], friedman.y[150:250])
    _, intervals = conformal.predict_interval(frame[250:])
    low, high = intervals[:, :, 0].T
    assert np.mean((low <= friedman.y[250:]) & (friedman.y[250:] <= high)) > 0.75
    # As wide as the standard deviations say, each by the same factor.
    factor = (high - low) / reg.predict(frame[250:], return_std=True)[1]
    np.testing.assert_allclose(factor, factor[0], rtol=1e-6)
