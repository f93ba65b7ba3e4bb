"""Errors by bins of standard deviation and of familiarity, against groups of whole arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from density_regression import metrics
from density_regression.experiments.evaluation.bins import ErrorsByFamiliarity, ErrorsByStd
from experiments.evaluation_helpers import made_up, normal_forecast, parts

ROWS = 300
CUTS = st.lists(st.integers(1, ROWS - 1), max_size=6)


@settings(max_examples=25, deadline=None)
@given(cuts=CUTS, seed=st.integers(0, 100))
def test_groups_by_std_have_the_metrics_of_their_rows(cuts: list[int], seed: int) -> None:
    y, mean, std = made_up(ROWS, seed=seed)
    errors = ErrorsByStd()
    for part in parts(cuts, ROWS):
        errors.update(normal_forecast(y[part], mean[part], std[part]))
    groups = errors.groups(10)
    assert 5 <= len(groups) <= 10
    assert sum(one.rows for one in groups) == ROWS
    for one in groups:
        own = (one.low <= std) & (std < one.high)
        assert own.sum() == one.rows
        assert one.rmse == pytest.approx(metrics.rmse(y[own], mean[own]), rel=1e-9)
        assert one.std == pytest.approx(metrics.sharpness(std[own]), rel=1e-9)
        assert one.inside == pytest.approx(metrics.coverage(y[own], mean[own], std[own], level=0.9))


def test_groups_are_of_about_equal_size() -> None:
    y, mean, _ = made_up(20_000)
    errors = ErrorsByStd()
    errors.update(normal_forecast(y, mean, np.geomspace(1e-3, 1e3, 20_000)))
    sizes = [one.rows for one in errors.groups(10)]
    assert len(sizes) == 10
    assert min(sizes) > 1500
    assert max(sizes) < 2500


@pytest.mark.parametrize("std", [5e-324, 1.0, 1e308])
def test_one_std_for_all_rows_is_one_group(std: float) -> None:
    errors = ErrorsByStd()
    y = np.zeros(8)
    errors.update(normal_forecast(y, y, np.ones(8))._replace(std=np.full(8, std)))
    (one,) = errors.groups(10)
    assert one.rows == 8
    assert one.low <= std


@settings(max_examples=25, deadline=None)
@given(cuts=CUTS, seed=st.integers(0, 100))
def test_bins_by_familiarity_have_the_metrics_of_their_rows(cuts: list[int], seed: int) -> None:
    y, mean, std = made_up(ROWS, seed=seed)
    familiarity = np.random.default_rng(seed).choice([0.0, 0.005, 0.01, 0.05, 0.33, 0.5, 1.0], ROWS)
    errors = ErrorsByFamiliarity()
    for part in parts(cuts, ROWS):
        rows = normal_forecast(y[part], mean[part], std[part], familiarity[part])
        errors.update(rows, familiarity[part])
    assert errors.unfamiliar == (familiarity < 0.01).sum()
    np.testing.assert_array_equal(errors.histogram, np.histogram(familiarity, 20, (0, 1))[0])
    for one in errors.bins():
        own = (one.low <= familiarity) & ((familiarity < one.high) | (one.high == 1.0))
        assert one.rows == own.sum()
        assert one.rmse == pytest.approx(metrics.rmse(y[own], mean[own]), rel=1e-9)
    familiar = errors.familiar()
    assert familiar is not None
    own = familiarity >= 0.01
    assert familiar.rows == own.sum()
    assert familiar.std == pytest.approx(metrics.sharpness(std[own]), rel=1e-9)


def test_without_a_familiar_row_there_is_no_bin_of_them() -> None:
    y, mean, std = made_up(5)
    errors = ErrorsByFamiliarity()
    errors.update(normal_forecast(y, mean, std), np.zeros(5))
    assert errors.familiar() is None
    assert [one.rows for one in errors.bins()] == [5]
