"""Arguments of metrics: shapes, types and extremes, and those that are refused."""

import math

import numpy as np
import pytest

from density_regression import metrics
from metrics.helpers import ALL, FORECASTS, THREE_ARGUMENTS, Forecast, Metric, arguments, make_forecast

# Shapes, types and extremes


@pytest.mark.parametrize("metric", [metric for metric in ALL if metric is not metrics.r2])
def test_columns_are_averaged_over_all_entries(metric: Metric) -> None:
    forecast = FORECASTS["overconfident"]
    table = Forecast(*(array.reshape(-1, 4) for array in forecast))
    result = metric(*arguments(metric, table))
    assert type(result) is float
    assert result == pytest.approx(metric(*arguments(metric, forecast)), rel=1e-12)


@pytest.mark.parametrize("metric", ALL)
def test_float32_and_lists_are_taken_as_float64(metric: Metric) -> None:
    single = [array.astype(np.float32) for array in arguments(metric, FORECASTS["tiny"])]
    assert metric(*single) == metric(*(array.astype(np.float64).tolist() for array in single))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("metric", THREE_ARGUMENTS)
@pytest.mark.parametrize("std", [1e-150, 1e-30, 1e30, 1e150])
def test_extreme_std_gives_a_finite_score(metric: Metric, std: float) -> None:
    y_true, mean, _ = FORECASTS["calibrated"]
    assert math.isfinite(metric(y_true, mean, np.full_like(mean, std)))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("metric", THREE_ARGUMENTS)
def test_std_at_the_edge_of_float64_gives_no_nan(metric: Metric) -> None:
    y_true, mean, _ = FORECASTS["calibrated"]
    for std in (5e-324, 1e300):
        assert not math.isnan(metric(y_true, mean, np.full_like(mean, std)))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("metric", [metric for metric in ALL if metric is not metrics.r2])
def test_an_error_beyond_float64_gives_no_nan(metric: Metric) -> None:
    forecast = np.array([1.7e308, 0.0]), np.array([-1.7e308, 0.0]), np.array([1.0, 2.0])
    assert not math.isnan(metric(*arguments(metric, forecast)))


def test_limits_of_std() -> None:
    y_true, mean, _ = FORECASTS["calibrated"]
    tiny, huge = np.full_like(mean, 5e-324), np.full_like(mean, 1e30)
    assert metrics.crps(y_true, mean, tiny) == pytest.approx(metrics.mae(y_true, mean), rel=1e-12)
    assert metrics.nll(y_true, mean, tiny) == math.inf
    assert metrics.nll(y_true, mean, huge) == pytest.approx(30 * math.log(10) + 0.5 * math.log(2 * math.pi))
    assert metrics.calibration_error(y_true, mean, huge) == pytest.approx(8.249, abs=5e-4)
    assert metrics.sharpness(np.full(3, 1e200)) == pytest.approx(1e200)
    assert metrics.sharpness(np.full(3, 1e-200)) == pytest.approx(1e-200)


def test_hopeless_targets_do_not_count_at_level_zero() -> None:
    # The cdf is positive everywhere, though in float64 it is 0 here.
    _, observed = metrics.calibration_curve([-1e300], [0.0], [1e-300], levels=3)
    np.testing.assert_array_equal(observed, [0, 1, 1])


def test_perfect_prediction_has_no_error() -> None:
    assert metrics.rmse([1.0, 2.0], [1.0, 2.0]) == 0
    assert metrics.mae([1.0, 2.0], [1.0, 2.0]) == 0


def test_arguments_are_left_as_they_were() -> None:
    forecast = make_forecast(n=20)
    copies = [array.copy() for array in forecast]
    for metric in ALL:
        metric(*arguments(metric, forecast))
    for array, copy in zip(forecast, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


# Input to refuse


@pytest.mark.parametrize(
    ("metric", "index"),
    [(metric, index) for metric in ALL for index in range(3 if metric in THREE_ARGUMENTS else 2)],
)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([1.0, math.nan], "NaN or infinite"),
        ([1.0, math.inf], "NaN or infinite"),
        ([], "empty"),
        (1.0, "shape"),
        ([[[1.0, 1.0]]], "shape"),
        ([1.0, 1.0, 1.0], "shape of y_true"),
        ([[1.0], [1.0]], "shape of y_true"),
        (["one", "two"], "numbers"),
        ([1.0, 2.0 + 1.0j], "numbers.* complex"),
        (np.array(["NaT", 1], dtype="m8[s]"), "numbers.* timedelta64"),
        (np.array(["NaT", 1], dtype="M8[s]"), "numbers.* datetime64"),
        (np.ma.masked_greater([1.0, 1e20], 1e19), "numbers.* masked"),
    ],
)
def test_bad_arrays(metric: Metric, index: int, bad: object, message: str) -> None:
    values: list[object] = [[1.0, 2.0]] * (3 if metric in THREE_ARGUMENTS else 2)
    values[index] = bad
    with pytest.raises(ValueError, match=message):
        metric(*values)


@pytest.mark.parametrize("metric", THREE_ARGUMENTS)
@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_std_must_be_positive(metric: Metric, bad: float) -> None:
    with pytest.raises(ValueError, match=r"std must be positive, got 1 values <= 0"):
        metric([0.0, 0.0], [0.0, 0.0], [1.0, bad])


def test_sharpness_refuses_what_it_cannot_use() -> None:
    for bad in ([], [0.0], [-1.0], [math.nan], 1.0):
        with pytest.raises(ValueError, match="std"):
            metrics.sharpness(bad)


@pytest.mark.parametrize("metric", [metrics.coverage, metrics.interval_score])
@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, -0.1, math.nan])
def test_bad_level(metric: Metric, level: float) -> None:
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        metric([0.0], [0.0], [1.0], level=level)


@pytest.mark.parametrize("metric", [metrics.calibration_error, metrics.miscalibration_area, metrics.mace])
@pytest.mark.parametrize("levels", [1, 0, -5, 10.0])
def test_bad_levels(metric: Metric, levels: object) -> None:
    with pytest.raises(ValueError, match="levels must be an integer of at least 2"):
        metric([0.0], [0.0], [1.0], levels=levels)


def test_every_metric_is_exported() -> None:
    others = {
        "auroc",
        "calibration_curve",
        "crps_log_normal",
        "interval_width",
        "nll_own",
        "sharpness",
        "sparsification_curve",
    }
    scorers = {"make_scorer", "register_scorers"}
    assert {metric.__name__ for metric in ALL} | others | scorers == set(metrics.__all__)
    assert all(callable(getattr(metrics, name)) for name in metrics.__all__)


def test_r2_of_errors_whose_square_overflows() -> None:
    assert metrics.r2([0.0, 1.0], [1e200, 1e200]) == -np.inf
