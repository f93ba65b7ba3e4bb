"""Accumulated metrics against those of whole arrays, however rows are divided into batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from density_regression import metrics
from density_regression.experiments.evaluation.forecast import LEVELS
from density_regression.experiments.evaluation.sample import RowSample
from density_regression.experiments.evaluation.totals import CURVE_LEVELS, PIT_BINS, Totals
from experiments.evaluation_helpers import made_up, normal_forecast, parts

ROWS = 60
CUTS = st.lists(st.integers(1, ROWS - 1), max_size=8)


def totals_of(y: np.ndarray, mean: np.ndarray, std: np.ndarray, cuts: list[int]) -> Totals:
    totals = Totals()
    for part in parts(cuts, len(y)):
        totals.update(normal_forecast(y[part], mean[part], std[part]))
    return totals


@settings(max_examples=60, deadline=None)
@given(cuts=CUTS, seed=st.integers(0, 1000), spread=st.sampled_from([0.3, 1.0, 4.0]))
def test_any_division_into_batches_gives_the_metrics_of_all_rows(cuts: list[int], seed: int, spread: float) -> None:
    rows = y, mean, std = made_up(ROWS, spread=spread, seed=seed)
    totals = totals_of(*rows, cuts)
    expected = {
        "nll": metrics.nll(*rows),
        "crps": metrics.crps(*rows),
        "rmse": metrics.rmse(y, mean),
        "mae": metrics.mae(y, mean),
        "r2": metrics.r2(y, mean),
        "bias": float(np.mean(y - mean)),
        "sharpness": metrics.sharpness(std),
        "std_factor": metrics.rmse((y - mean) / std, np.zeros(ROWS)),
        "calibration_error": metrics.calibration_error(*rows),
    }
    assert totals.metrics() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    for one, level in zip(totals.intervals(), LEVELS, strict=True):
        assert one.level == level
        assert one.coverage == pytest.approx(metrics.coverage(*rows, level=level), rel=1e-9)
        assert one.width == pytest.approx(metrics.interval_width(std, level=level), rel=1e-9)
    expected_curve, observed = metrics.calibration_curve(*rows, levels=CURVE_LEVELS)
    np.testing.assert_allclose(totals.curve(), (expected_curve, observed), rtol=1e-9)
    pit = np.histogram(stats.norm(mean, std).cdf(y), np.linspace(0, 1, PIT_BINS + 1))[0]
    np.testing.assert_array_equal(totals.pit, pit)


def test_a_constant_target_far_from_zero_has_the_r2_of_all_rows() -> None:
    y = np.full(10, 1e9 + 0.1)
    for mean in (y, y + 1.0):
        assert totals_of(y, mean, np.ones(10), [3, 7]).metrics()["r2"] == metrics.r2(y, mean)


def test_huge_errors_do_not_overflow() -> None:
    y, mean = np.array([1e200, -1e200, 0.0]), np.zeros(3)
    totals = totals_of(y, mean, np.ones(3), [1, 2])
    assert totals.metrics()["rmse"] == pytest.approx(metrics.rmse(y, mean))
    assert totals.metrics()["r2"] == pytest.approx(metrics.r2(y, mean), abs=1e-9)


def test_conformal_intervals_are_counted_apart() -> None:
    y, mean, std = made_up(ROWS)
    rows = normal_forecast(y, mean, std)
    totals = Totals()
    totals.update(rows._replace(conformal={0.9: (y - 1.0, y + 2.0)}))
    (one,) = totals.intervals(conformal=True)
    assert (one.level, one.coverage, one.width) == (0.9, 1.0, pytest.approx(3.0))
    assert [one.level for one in totals.intervals()] == list(LEVELS)


@settings(max_examples=30, deadline=None)
@given(cuts=CUTS, size=st.integers(1, 80))
def test_a_sample_does_not_depend_on_the_batches(cuts: list[int], size: int) -> None:
    values = np.arange(float(ROWS))
    whole, divided = RowSample(size, seed=3), RowSample(size, seed=3)
    whole.update(a=values, b=-values)
    for part in parts(cuts, ROWS):
        divided.update(a=values[part], b=-values[part])
    one, other = whole.columns(), divided.columns()
    np.testing.assert_array_equal(one["a"], other["a"])
    np.testing.assert_array_equal(one["b"], -one["a"])
    assert len(one["a"]) == min(size, ROWS)
    # In the order of the rows, none of them twice.
    assert (np.diff(one["a"]) > 0).all()


def test_a_sample_is_of_all_rows_alike() -> None:
    found = []
    for seed in range(200):
        sample = RowSample(10, seed)
        for part in np.split(np.arange(100.0), 4):
            sample.update(row=part)
        found.append(sample.columns()["row"])
    counts = np.histogram(np.concatenate(found), 4, (0, 100))[0]
    assert stats.chisquare(counts).pvalue > 1e-3
