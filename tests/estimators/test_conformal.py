"""Split-conformal intervals: coverage, equal to a slow computation, weights for shifted inputs, saving, errors."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from density_regression import DensityRegressor, load
from density_regression.baselines import GaussianRegressor, QuantileRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.estimators.conformal import Conformal, rows_needed
from density_regression.estimators.density_ratio import DensityRatio, Familiarity
from density_regression.registry import estimators

QUICK: dict[str, Any] = {"hidden": (16,), "epochs": 5, "n_threads": 1, "random_state": 0, "verbose": False}


def draw(n: int, seed: int, move: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Prices, whose noise no method has as its law."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) + np.array([move, 0.0])
    return X, np.exp(3.0 + X[:, 0] + 0.3 * rng.standard_t(4, size=n))


X, Y = draw(200, 0)
ASIDE = draw(150, 1)
NEW, NEW_Y = draw(80, 2)
TWO = np.column_stack([ASIDE[1], np.sqrt(ASIDE[1])])


@pytest.fixture(scope="module", params=estimators().values(), ids=list(estimators()))
def method(request: pytest.FixtureRequest) -> type[DeepRegressor]:
    return request.param


@pytest.fixture(scope="module")
def plain() -> DensityRegressor:
    """Fitted, and not to be conformalized: take `conformal`."""
    return DensityRegressor(**QUICK).fit(X, Y)


@pytest.fixture
def conformal() -> DensityRegressor:
    return DensityRegressor(**QUICK).fit(X, Y).conformalize(*ASIDE)


# -- the guarantee, on scores alone ------------------------------------------------------------------------------


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("n", [9, 20, 99])
def test_coverage_of_exchangeable_scores(coverage: float, n: int) -> None:
    """Of the n + 1 ranks of a new score all are as likely: the coverage is ceil((n + 1) c) / (n + 1)."""
    rng = np.random.default_rng(0)
    repetitions = 4000
    inside = 0
    for _ in range(repetitions):
        scores = rng.standard_cauchy(n + 1) ** 2
        inside += scores[-1] <= Conformal.of(scores[:-1, None]).quantile(coverage)[0]
    expected = math.ceil((n + 1) * coverage - 1e-9) / (n + 1)
    assert expected >= coverage
    assert inside / repetitions == pytest.approx(expected, abs=4 * math.sqrt(0.25 / repetitions))


@given(n=st.integers(1, 300), coverage=st.floats(0.01, 0.99))
def test_quantile_is_the_smallest_that_covers_enough(n: int, coverage: float) -> None:
    scores = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))[:, None]
    if n < rows_needed(coverage):
        with pytest.raises(ValueError, match=f"at least {rows_needed(coverage)} rows"):
            Conformal.of(scores).quantile(coverage)
        return
    found = Conformal.of(scores).quantile(coverage)[0]
    # As a share of n + 1 rows, the new one counted as larger than all.
    assert found / (n + 1) >= coverage - 1e-9
    assert (found - 1) / (n + 1) < coverage


def test_rows_that_are_needed() -> None:
    assert [rows_needed(coverage) for coverage in (0.5, 0.9, 0.95, 0.99, 0.999)] == [1, 9, 19, 99, 999]


def test_weighted_quantiles_by_a_slow_sum() -> None:
    rng = np.random.default_rng(0)
    scores, weights = rng.exponential(size=40), rng.uniform(0.1, 3.0, 40)
    new = np.concatenate([rng.uniform(0.1, 3.0, 20), [50.0]])
    found, finite = Conformal.of(scores[:, None], weights).weighted_quantiles(0.8, new)
    for score, is_finite, weight in zip(found[:, 0], finite, new, strict=True):
        total = weights.sum() + weight
        enough = [s for s in scores if weights[scores <= s].sum() / total >= 0.8]
        assert is_finite == bool(enough)
        assert score == (min(enough) if enough else scores.max())
    assert not finite[-1]
    # Where the law itself is wider than all scores, it is taken.
    small, _ = Conformal.of(0.1 * scores[:, None] / scores.max(), weights).weighted_quantiles(0.8, new[-1:])
    assert small[0, 0] == pytest.approx(1.2816, abs=1e-4)


@given(n=st.integers(20, 200), coverage=st.floats(0.05, 0.95), seed=st.integers(0, 50))
def test_equal_weights_are_none(n: int, coverage: float, seed: int) -> None:
    scores = np.random.default_rng(seed).exponential(size=(n, 2))
    weighted, finite = Conformal.of(scores, np.full(n, 0.7)).weighted_quantiles(coverage, np.full(3, 0.7))
    assert finite.all()
    assert_array_equal(weighted, np.tile(Conformal.of(scores).quantile(coverage), (3, 1)))


def test_effective_rows() -> None:
    scores = np.arange(10.0)[:, None]
    assert Conformal.of(scores).effective_rows == 10
    assert Conformal.of(scores, np.full(10, 3.0)).effective_rows == pytest.approx(10)
    assert Conformal.of(scores, np.array([1.0] * 5 + [1e-12] * 5)).effective_rows == pytest.approx(5)


# -- intervals of the eleven ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["identity", "log"])
def test_intervals_are_those_of_the_definition(method: type[DeepRegressor], target: Any) -> None:
    reg = method(target=target, **QUICK).fit(X, Y)
    law, of_aside = reg.predict_dist(NEW), reg.predict_dist(ASIDE[0])
    own = np.log if target == "log" else np.asarray
    back = np.exp if target == "log" else np.asarray
    before = reg.predict_quantiles(NEW, [0.1, 0.9])
    assert reg.conformalize(*ASIDE) is reg
    scores = sorted(
        abs(own(y) - m) / s for y, m, s in zip(ASIDE[1], of_aside.loc.numpy(), of_aside.scale.numpy(), strict=True)
    )
    for coverage in (0.3, 0.9, 0.99):
        q = scores[math.ceil(151 * coverage) - 1]
        low, high = reg.predict_interval(NEW, coverage)
        assert_allclose(low, back(law.loc.numpy() - q * law.scale.numpy()), rtol=1e-9)
        assert_allclose(high, back(law.loc.numpy() + q * law.scale.numpy()), rtol=1e-9)
        if target == "log":
            assert (low > 0).all()
    assert_array_equal(reg.predict_quantiles(NEW, [0.1, 0.9]), before)


@pytest.mark.parametrize("method", [DensityRegressor, GaussianRegressor, QuantileRegressor])
def test_coverage_of_fixed_predictions(method: type[DeepRegressor]) -> None:
    """Rows are shared out anew between aside and new; only the training rows, and so the model, stay."""
    reg = method(**QUICK).fit(X, Y)
    rows, y = draw(4000, 3)
    rng = np.random.default_rng(0)
    mean, std = reg.predict(rows, return_std=True)
    covered = []
    for _ in range(200):
        aside, new = np.split(rng.permutation(len(y))[:600], [199])
        reg.conformalize(rows[aside], y[aside])
        q = reg.conformal_.quantile(0.9)
        covered.append((np.abs(y[new] - mean[new]) <= q * std[new]).mean())
    assert np.mean(covered) == pytest.approx(0.9, abs=0.01)
    low, high = reg.predict_interval(rows[new], 0.9)
    assert ((low <= y[new]) & (y[new] <= high)).mean() == covered[-1]


def test_several_targets_have_intervals_of_their_own() -> None:
    reg = DensityRegressor(**QUICK).fit(X, np.column_stack([Y, np.sqrt(Y)])).conformalize(ASIDE[0], TWO)
    low, high = reg.predict_interval(NEW, 0.9)
    assert low.shape == high.shape == (80, 2)
    _, std = reg.predict(NEW, return_std=True)
    half = 0.5 * (high - low) / std
    assert_allclose(half, np.tile(reg.conformal_.quantile(0.9), (80, 1)), rtol=1e-9)
    assert reg.conformal_.scores.shape == (150, 2)
    assert np.ptp(half[0]) > 1e-3


def test_far_away_intervals_are_finite(conformal: DensityRegressor) -> None:
    for size in (1e3, 1e30, 1e300):
        low, high = conformal.predict_interval(size * NEW, 0.99)
        assert np.isfinite([low, high]).all()
        assert (low < high).all()


# -- shifted inputs ------------------------------------------------------------------------------------------------


def test_weights_bring_coverage_back_where_inputs_have_shifted() -> None:
    """Noise that the model does not know of grows with the first column, which has moved."""

    def stale(n: int, seed: int, move: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(n, 2)) + np.array([move, 0.0])
        return rows, rows[:, 0] + 0.3 * np.exp(0.5 * rows[:, 0]) * rng.normal(size=n)

    rng = np.random.default_rng(9)
    train = rng.normal(size=(500, 2))
    reg = DensityRegressor(**{**QUICK, "epochs": 40}).fit(train, train[:, 0] + 0.3 * rng.normal(size=500))
    covered = {"plain": [], "weighted": []}
    for seed in range(12):
        aside, (new, y) = stale(400, seed), stale(1000, 100 + seed, 1.0)
        for kind, shifted in (("plain", None), ("weighted", stale(300, 200 + seed, 1.0)[0])):
            reg.conformalize(*aside, shifted=shifted)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                low, high = reg.predict_interval(new, 0.9)
            covered[kind].append(((low <= y) & (y <= high)).mean())
    assert np.mean(covered["plain"]) < 0.86
    assert abs(np.mean(covered["weighted"]) - 0.9) < 0.03
    assert 50 < reg.conformal_.effective_rows < 350


def test_inputs_that_have_not_shifted_keep_their_rows(plain: DensityRegressor) -> None:
    reg = DensityRegressor(**QUICK).fit(X, Y).conformalize(*ASIDE, shifted=draw(150, 7)[0])
    assert reg.conformal_.effective_rows > 100
    assert reg.conformal_.weights is not None
    assert reg.conformal_.weights[:, 0].mean() == pytest.approx(1.0)


def test_the_ratio_of_two_gaussians() -> None:
    """Moved: a tilt of the coordinates. Wider: one of the log-density."""
    rng = np.random.default_rng(0)

    def familiar(t: np.ndarray) -> Familiarity:
        return Familiarity(t, -0.5 * (t**2).sum(axis=1))

    usual = rng.normal(size=(4000, 2))
    moved = DensityRatio.fit(familiar(rng.normal(size=(4000, 2)) + np.array([0.8, 0.0])), familiar(usual))
    expected = 0.8 * usual[:, 0] - 0.32
    assert np.abs(np.log(moved.weights(familiar(usual))) - expected).mean() < 0.1
    wider = DensityRatio.fit(familiar(1.3 * rng.normal(size=(4000, 2))), familiar(usual))
    expected = 0.5 * (usual**2).sum(axis=1) * (1 - 1 / 1.69) - 2 * math.log(1.3)
    assert np.abs(np.log(wider.weights(familiar(usual))) - expected).mean() < 0.1


def test_rows_too_strange_for_a_finite_interval_are_told(plain: DensityRegressor) -> None:
    reg = DensityRegressor(**QUICK).fit(X, Y)
    with pytest.warns(UserWarning, match="as good as"):
        reg.conformalize(*ASIDE, shifted=draw(100, 5, 3.0)[0])
    with pytest.warns(UserWarning, match="too unlike"):
        low, high = reg.predict_interval(draw(50, 6, 6.0)[0], 0.95)
    assert np.isfinite([low, high]).all()
    _, std = reg.predict(draw(50, 6, 6.0)[0], return_std=True)
    assert ((high - low) / std).max() >= 2 * reg.conformal_.scores[-1, 0] * (1 - 1e-9)


# -- rows kept aside by fit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["array", "pandas", "polars", "lists"])
def test_fit_keeps_rows_aside(kind: str) -> None:
    frame = pd.DataFrame(X, columns=["a", "b"])
    table = {"array": X, "pandas": frame, "polars": pl.from_pandas(frame), "lists": X.tolist()}[kind]
    reg = GaussianRegressor(**QUICK).fit(table, Y, conformal=0.25)
    assert reg.conformal_.rows == 50
    again = GaussianRegressor(**QUICK).fit(table, Y, conformal=0.25)
    assert_array_equal(again.conformal_.scores, reg.conformal_.scores)
    # Each kept row is one of the table's, and none of them trained.
    mean, std = reg.predict(table, return_std=True)
    scores = np.abs(Y - mean) / std
    assert np.isin(np.round(reg.conformal_.scores[:, 0], 9), np.round(scores, 9)).all()
    assert reg.y_scaling_.center != pytest.approx(GaussianRegressor(**QUICK).fit(table, Y).y_scaling_.center)


def test_rows_aside_are_whole_groups() -> None:
    groups = [f"day {i // 10}" for i in range(200)]
    reg = GaussianRegressor(**QUICK).fit(X, Y, groups=groups, conformal=0.25)
    assert reg.conformal_.rows % 10 == 0
    assert 20 <= reg.conformal_.rows <= 80


def test_rows_without_weight_are_not_kept_aside() -> None:
    weight = (np.arange(200) % 2).astype(float)
    y = np.where(weight > 0, Y, -1e9)
    reg = GaussianRegressor(**QUICK).fit(X, y, weight, conformal=0.5)
    assert 30 < reg.conformal_.rows < 70
    assert reg.conformal_.scores.max() < 1e3


def test_an_interrupted_fit_keeps_the_same_rows(tmp_path: Path) -> None:
    settings = {**QUICK, "random_state": None, "checkpoint_dir": tmp_path}
    first, again = (GaussianRegressor(**settings).fit(X, Y, conformal=0.2) for _ in range(2))
    assert not again.report_.history
    assert_array_equal(again.conformal_.scores, first.conformal_.scores)


def test_another_fit_forgets(conformal: DensityRegressor) -> None:
    assert conformal.conformal_ is not None
    conformal.fit(X, Y)
    assert conformal.conformal_ is None


def test_a_fit_that_fails_leaves_the_model_alone(conformal: DensityRegressor) -> None:
    before = conformal.predict_interval(NEW)
    with pytest.raises(ValueError, match="conformal must be a share"):
        conformal.fit(X, Y, conformal=1.5)
    with pytest.raises(ValueError, match="keeps none"):
        conformal.fit(X[:2], Y[:2], conformal=0.01)
    assert_array_equal(conformal.predict_interval(NEW), before)


# -- errors --------------------------------------------------------------------------------------------------------


def test_too_few_rows_say_how_many_are_needed() -> None:
    reg = GaussianRegressor(**QUICK).fit(X, Y).conformalize(ASIDE[0][:10], ASIDE[1][:10])
    reg.predict_interval(NEW, 0.9)
    with pytest.raises(ValueError, match=r"coverage=0\.95 needs at least 19 rows in conformalize, but there were 10"):
        reg.predict_interval(NEW)


@pytest.mark.parametrize("method", [GaussianRegressor, QuantileRegressor])
def test_methods_without_a_density_have_no_weights(method: type[DeepRegressor]) -> None:
    with pytest.raises(ValueError, match="has not: leave it out"):
        method(**QUICK).fit(X, Y).conformalize(*ASIDE, shifted=NEW)


def test_errors_leave_the_model_as_it_was(conformal: DensityRegressor) -> None:
    before = conformal.predict_interval(NEW)
    with pytest.raises(ValueError, match=r"y has 2 target\(s\)"):
        conformal.conformalize(ASIDE[0], TWO)
    with pytest.raises(ValueError, match="y has 149 rows, but X has 150"):
        conformal.conformalize(ASIDE[0], ASIDE[1][1:])
    with pytest.raises(ValueError, match="NaN"):
        conformal.conformalize(ASIDE[0], np.where(ASIDE[1] > 20, np.nan, ASIDE[1]))
    with pytest.raises(ValueError, match="shifted has 5 rows"):
        conformal.conformalize(*ASIDE, shifted=NEW[:5])
    with pytest.raises(ValueError, match="density=None"):
        DensityRegressor(density=None, **QUICK).fit(X, Y).conformalize(*ASIDE, shifted=NEW)
    with pytest.raises(ValueError, match="y above 0"):
        GaussianRegressor(target="log", **QUICK).fit(X, Y).conformalize(ASIDE[0], -ASIDE[1])
    assert_array_equal(conformal.predict_interval(NEW), before)


# -- saved ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shifted", [None, draw(100, 4, 0.5)[0]], ids=["plain", "weighted"])
def test_save_and_load(conformal: DensityRegressor, shifted: np.ndarray | None, tmp_path: Path) -> None:
    conformal.conformalize(*ASIDE, shifted=shifted)
    conformal.save(tmp_path)
    back = load(tmp_path)
    assert_array_equal(back.predict_interval(NEW, 0.9), conformal.predict_interval(NEW, 0.9))
    assert back.conformal_.effective_rows == conformal.conformal_.effective_rows
    assert_array_equal(back.predict(NEW), conformal.predict(NEW))
    # And once more, from what was loaded.
    back.save(tmp_path / "again")
    assert_array_equal(load(tmp_path / "again").predict_interval(NEW), conformal.predict_interval(NEW))


def test_a_model_that_was_not_conformalized_is_loaded_so(plain: DensityRegressor, tmp_path: Path) -> None:
    plain.save(tmp_path)
    back = load(tmp_path)
    assert back.conformal_ is None
    assert_array_equal(back.predict_interval(NEW), plain.predict_interval(NEW))
