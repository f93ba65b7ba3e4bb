"""Every metric against an independent computation, by hand, and by properties that it must have."""

import itertools
import math

import numpy as np
import pytest
import uncertainty_toolbox as uct  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import integrate, stats

from density_regression import metrics
from metrics.helpers import FORECASTS, Forecast, make_forecast


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


@pytest.mark.parametrize("z", [-4.0, 0.0, 1.3, 6.0, None])
@pytest.mark.parametrize("std", [0.01, 0.8, 2.5])
def test_crps_of_a_log_normal_law_against_its_integral(z: float | None, std: float) -> None:
    mean = 1.5
    y = -2.0 if z is None else math.exp(mean + z * std)
    # In logarithms, as the law has a long tail; below 0 its distribution function is 0.
    ends = np.linspace(mean - 10 * std, mean + 14 * std, 25)
    pieces = np.sort(ends if z is None else np.append(ends, math.log(y)))

    def squared_gap(u: float) -> float:
        return float((stats.norm.cdf(u, mean, std) - (math.exp(u) >= y)) ** 2 * math.exp(u))

    area = sum(integrate.quad(squared_gap, *pair)[0] for pair in itertools.pairwise(pieces))
    area += max(-y, 0.0) + (math.exp(ends[0]) if z is None else 0.0)
    assert metrics.crps_log_normal([y], [mean], [std]) == pytest.approx(area, rel=1e-5)


def test_crps_of_a_log_normal_law_of_any_width_is_no_nan() -> None:
    for y in (-1.0, 0.0, 1e-300, 1.0, 1e300):
        for std in (1e-12, 1.0, 30.0, 1e4):
            score = metrics.crps_log_normal([y], [0.0], [std])
            assert score >= 0
            assert not math.isnan(score)
    # A law without width is its median.
    assert metrics.crps_log_normal([3.0], [0.0], [1e-12]) == pytest.approx(2.0)


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
