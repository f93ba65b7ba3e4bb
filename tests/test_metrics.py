"""Every metric against an independent computation, and on input it must refuse."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import uncertainty_toolbox as uct  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy import integrate, stats

from density_regression import metrics

FloatArray = NDArray[np.float64]
Metric = Callable[..., float]


class Forecast(NamedTuple):
    y_true: FloatArray
    mean: FloatArray
    std: FloatArray


THREE_ARGUMENTS: list[Metric] = [
    metrics.nll,
    metrics.crps,
    metrics.calibration_error,
    metrics.miscalibration_area,
    metrics.coverage,
    metrics.interval_score,
    metrics.mace,
    metrics.ence,
    metrics.ause,
    metrics.spearman,
]
ALL: list[Metric] = [*THREE_ARGUMENTS, metrics.rmse, metrics.mae, metrics.r2]


def arguments(metric: Metric, forecast: Forecast) -> tuple[FloatArray, ...]:
    return forecast if metric in THREE_ARGUMENTS else forecast[:2]


def make_forecast(n: int = 400, spread: float = 1.0, bias: float = 0.0, seed: int = 0) -> Forecast:
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=n)
    std = rng.uniform(0.2, 3.0, size=n)
    return Forecast(mean + bias + spread * std * rng.normal(size=n), mean, std)


FORECASTS = {
    "calibrated": make_forecast(),
    "overconfident": make_forecast(spread=3.0, seed=1),
    "underconfident": make_forecast(spread=0.3, seed=2),
    "biased": make_forecast(bias=2.0, seed=3),
    "tiny": make_forecast(n=7, seed=4),
    "one": make_forecast(n=1, seed=5),
}


@pytest.fixture(params=list(FORECASTS), ids=list(FORECASTS))
def forecast(request: pytest.FixtureRequest) -> Forecast:
    return FORECASTS[request.param]


def finite(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


@st.composite
def forecasts(draw: st.DrawFn) -> Forecast:
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=2, max_side=12))
    values = hnp.arrays(np.float64, shape, elements=finite(-1e6, 1e6))
    return Forecast(draw(values), draw(values), draw(hnp.arrays(np.float64, shape, elements=finite(1e-6, 1e30))))


# Against other implementations


def test_nll_against_toolbox_and_scipy(forecast: Forecast) -> None:
    y_true, mean, std = forecast
    assert metrics.nll(*forecast) == pytest.approx(uct.nll_gaussian(mean, std, y_true), rel=1e-12)
    assert metrics.nll(*forecast) == pytest.approx(-stats.norm(mean, std).logpdf(y_true).mean(), rel=1e-12)


def test_crps_against_toolbox(forecast: Forecast) -> None:
    y_true, mean, std = forecast
    assert metrics.crps(*forecast) == pytest.approx(uct.crps_gaussian(mean, std, y_true), rel=1e-10)


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9, 0.99])
def test_interval_score_against_toolbox(forecast: Forecast, level: float) -> None:
    y_true, mean, std = forecast
    expected = uct.interval_score(mean, std, y_true, start_p=level, end_p=level, resolution=1)
    assert metrics.interval_score(*forecast, level=level) == pytest.approx(expected, rel=1e-10)


def test_miscalibration_area_against_toolbox(forecast: Forecast) -> None:
    y_true, mean, std = forecast
    assert metrics.miscalibration_area(*forecast) == pytest.approx(
        uct.miscalibration_area(mean, std, y_true), abs=1e-12
    )


@pytest.mark.parametrize("levels", [2, 3, 11, 250])
def test_miscalibration_area_against_toolbox_at_other_levels(forecast: Forecast, levels: int) -> None:
    y_true, mean, std = forecast
    expected = uct.miscalibration_area(mean, std, y_true, num_bins=levels)
    assert metrics.miscalibration_area(*forecast, levels=levels) == pytest.approx(expected, abs=1e-12)


def test_sharpness_against_toolbox(forecast: Forecast) -> None:
    assert metrics.sharpness(forecast.std) == pytest.approx(uct.sharpness(forecast.std), rel=1e-12)


def test_point_errors_against_numpy(forecast: Forecast) -> None:
    y_true, mean, _ = forecast
    assert metrics.rmse(y_true, mean) == pytest.approx(math.sqrt(np.mean((y_true - mean) ** 2)), rel=1e-12)
    assert metrics.mae(y_true, mean) == pytest.approx(np.mean(np.abs(y_true - mean)), rel=1e-12)


@pytest.mark.parametrize("levels", [2, 20, 100])
def test_calibration_error_against_the_cdf(forecast: Forecast, levels: int) -> None:
    y_true, mean, std = forecast
    cdf = stats.norm(mean, std).cdf(y_true)
    expected = sum((p - np.mean(cdf <= p)) ** 2 for p in np.linspace(0, 1, levels))
    assert metrics.calibration_error(*forecast, levels=levels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("level", [0.1, 0.5, 0.95])
def test_coverage_against_scipy_interval(forecast: Forecast, level: float) -> None:
    y_true, mean, std = forecast
    low, high = stats.norm(mean, std).interval(level)
    expected = np.mean((low <= y_true) & (y_true <= high))
    assert metrics.coverage(*forecast, level=level) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("z", [-4.0, -0.7, 0.0, 1.3, 6.0])
def test_crps_against_its_integral(z: float) -> None:
    mean, std = 1.5, 0.8
    y = mean + z * std
    law = stats.norm(mean, std)
    below, _ = integrate.quad(lambda t: law.cdf(t) ** 2, mean - 12 * std, y)
    above, _ = integrate.quad(lambda t: law.sf(t) ** 2, y, mean + 12 * std)
    assert metrics.crps([y], [mean], [std]) == pytest.approx(below + above, rel=1e-6)


def test_crps_against_monte_carlo() -> None:
    # CRPS = E|X - y| - E|X - X'| / 2, with X and X' independent draws of the forecast.
    rng = np.random.default_rng(0)
    y, mean, std = 2.0, 0.5, 1.7
    first, second = rng.normal(mean, std, size=(2, 400_000))
    draws = np.abs(first - y) - 0.5 * np.abs(first - second)
    error = draws.std() / math.sqrt(draws.size)
    assert abs(metrics.crps([y], [mean], [std]) - draws.mean()) < 4 * error


# By hand


def test_values_by_hand() -> None:
    y_true, mean, std = [1.0, 4.0], [1.0, 2.0], [1.0, 2.0]
    assert metrics.nll(y_true, mean, std) == pytest.approx((math.log(2 * math.pi) + math.log(2) + 0.5) / 2)
    assert metrics.rmse(y_true, mean) == pytest.approx(math.sqrt(2))
    assert metrics.mae(y_true, mean) == pytest.approx(1.0)
    assert metrics.sharpness(std) == pytest.approx(math.sqrt(2.5))
    assert metrics.coverage(y_true, mean, std, level=0.6) == 0.5
    assert metrics.coverage(y_true, mean, std, level=0.7) == 1.0


def test_crps_at_the_mean_by_hand() -> None:
    assert metrics.crps([0.0], [0.0], [1.0]) == pytest.approx((math.sqrt(2) - 1) / math.sqrt(math.pi))


def test_interval_score_by_hand() -> None:
    q = stats.norm.ppf(0.9)
    score = metrics.interval_score([0.0, 5.0], [0.0, 0.0], [1.0, 2.0], level=0.8)
    assert score == pytest.approx((2 * q + 4 * q + 10 * (5 - 2 * q)) / 2)


def test_calibration_error_of_the_median_is_the_papers_8_249() -> None:
    mean = np.linspace(-3, 3, 50)
    error = metrics.calibration_error(mean, mean, np.full(50, 0.7), levels=100)
    assert error == pytest.approx(8.249, abs=5e-4)


def test_calibration_error_grows_with_levels_not_with_rows() -> None:
    y = np.zeros(10)
    assert metrics.calibration_error(y, y, y + 1, levels=3) == pytest.approx(0.25)
    assert metrics.calibration_error(y[:1], y[:1], y[:1] + 1, levels=3) == pytest.approx(0.25)
    assert metrics.calibration_error(y, y, y + 1, levels=5) == pytest.approx(0.375)


def test_calibration_curve_ends() -> None:
    expected, observed = metrics.calibration_curve([-50.0, 0.0, 50.0], [0.0] * 3, [1.0] * 3, levels=5)
    np.testing.assert_allclose(expected, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(observed, [0, 1 / 3, 2 / 3, 2 / 3, 1])


def test_miscalibration_area_by_hand() -> None:
    y = np.zeros(4)
    # Every target at the mean: all intervals hold it, so the curve is 1 and the area a half.
    assert metrics.miscalibration_area(y, y, y + 1) == pytest.approx(0.5)
    # Levels 0, 1/2, 1 and observed 0, 1, 1: two triangles of height a half.
    assert metrics.miscalibration_area(y + 0.1, y, y + 1, levels=3) == pytest.approx(0.25)


# Properties


@given(forecasts())
def test_ranges(forecast: Forecast) -> None:
    assert 0 <= metrics.crps(*forecast) < math.inf
    assert 0 <= metrics.coverage(*forecast) <= 1
    assert 0 <= metrics.miscalibration_area(*forecast) <= 0.51
    assert 0 <= metrics.calibration_error(*forecast) <= 100 / 3 + 1
    assert 0 <= metrics.mae(*forecast[:2]) <= metrics.rmse(*forecast[:2]) * (1 + 1e-12)
    assert metrics.interval_score(*forecast) > 0
    smallest, largest = forecast.std.min(), forecast.std.max()
    assert smallest * (1 - 1e-12) <= metrics.sharpness(forecast.std) <= largest * (1 + 1e-12)


@given(forecasts())
def test_crps_is_below_the_absolute_error_and_coverage_grows_with_the_level(forecast: Forecast) -> None:
    # E|X - X'| >= 0 and |y - mean| = |y - E X| <= E|X - y| bound CRPS from both sides.
    absolute = metrics.mae(*forecast[:2])
    spread = float(np.mean(forecast.std)) / math.sqrt(math.pi)
    score = metrics.crps(*forecast)
    slack = 1e-9 * (1 + absolute + spread)
    assert absolute - spread - slack <= score <= absolute + 2 * spread + slack
    assert metrics.coverage(*forecast, level=0.5) <= metrics.coverage(*forecast, level=0.9)


@given(forecasts(), finite(0.01, 5.0).flatmap(lambda size: st.sampled_from([-size, size])))
def test_scores_are_least_at_the_observed_value(forecast: Forecast, shift: float) -> None:
    y_true, _, std = forecast
    std = np.minimum(std, 10.0)
    for metric in (metrics.nll, metrics.crps):
        assert metric(y_true, y_true, std) <= metric(y_true, y_true + shift, std)


@given(finite(-5.0, 5.0), finite(0.1, 10.0))
def test_nll_of_a_sample_is_least_at_its_own_moments(shift: float, factor: float) -> None:
    y = FORECASTS["biased"].y_true
    best = metrics.nll(y, np.full_like(y, y.mean()), np.full_like(y, y.std()))
    other = metrics.nll(y, np.full_like(y, y.mean() + shift), np.full_like(y, y.std() * factor))
    assert best <= other + 1e-12


@given(finite(1e-3, 1e3), finite(-100.0, 100.0))
def test_change_of_units(scale: float, offset: float) -> None:
    y_true, mean, std = FORECASTS["overconfident"]
    other = (y_true * scale + offset, mean * scale + offset, std * scale)
    same = (y_true, mean, std)
    assert metrics.nll(*other) == pytest.approx(metrics.nll(*same) + math.log(scale), abs=1e-6)
    assert metrics.crps(*other) == pytest.approx(metrics.crps(*same) * scale, rel=1e-6)
    assert metrics.interval_score(*other) == pytest.approx(metrics.interval_score(*same) * scale, rel=1e-6)
    assert metrics.sharpness(other[2]) == pytest.approx(metrics.sharpness(std) * scale, rel=1e-9)


def test_a_calibrated_forecast_is_seen_as_such() -> None:
    forecast = make_forecast(n=50_000)
    assert metrics.coverage(*forecast) == pytest.approx(0.95, abs=0.005)
    assert metrics.calibration_error(*forecast) < 0.01
    assert metrics.miscalibration_area(*forecast) < 0.01


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
    others = {"auroc", "calibration_curve", "interval_width", "nll_own", "sharpness", "sparsification_curve"}
    scorers = {"make_scorer", "register_scorers"}
    assert {metric.__name__ for metric in ALL} | others | scorers == set(metrics.__all__)
    assert all(callable(getattr(metrics, name)) for name in metrics.__all__)


def test_r2_of_errors_whose_square_overflows() -> None:
    assert metrics.r2([0.0, 1.0], [1e200, 1e200]) == -np.inf
