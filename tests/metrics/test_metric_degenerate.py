"""Metrics against uncertainty-toolbox and numerical integration, on ordinary and on degenerate forecasts."""

import math
from itertools import pairwise

import numpy as np
import pytest
import uncertainty_toolbox as uct  # type: ignore[import-untyped]
from numpy.typing import NDArray
from scipy import integrate, stats

from density_regression import metrics

FloatArray = NDArray[np.float64]
Forecast = tuple[FloatArray, FloatArray, FloatArray]


def make(n: int, seed: int) -> Forecast:
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=n), rng.uniform(0.2, 3.0, size=n)
    return mean + std * rng.normal(size=n), mean, std


Y, MEAN, STD = make(60, 0)
FORECASTS: dict[str, Forecast] = {
    "random": (Y, MEAN, STD),
    "many": make(2000, 1),
    "one row": make(1, 2),
    "one row without error": (np.zeros(1), np.zeros(1), np.ones(1)),
    "constant std": (Y, MEAN, np.full_like(STD, 0.7)),
    "constant y": (np.full_like(Y, 0.1), MEAN, STD),
    "constant y and mean": (np.full_like(Y, 0.1), np.full_like(Y, 0.1), STD),
    "no error": (MEAN, MEAN, STD),
    "tiny std": (Y, MEAN, STD * 1e-8),
    "huge std": (Y, MEAN, STD * 1e8),
    "std of many sizes": (Y, MEAN, np.logspace(-8, 8, STD.size)),
}


@pytest.fixture(params=list(FORECASTS), ids=list(FORECASTS))
def forecast(request: pytest.FixtureRequest) -> Forecast:
    return FORECASTS[request.param]


def test_calibration_against_toolbox(forecast: Forecast) -> None:
    y, mean, std = forecast
    for levels in (100, 2, 7, 31):
        toolbox = uct.mean_absolute_calibration_error(mean, std, y, num_bins=levels)
        assert metrics.mace(*forecast, levels=levels) == pytest.approx(toolbox, abs=1e-12)
        area = uct.miscalibration_area(mean, std, y, num_bins=levels)
        assert metrics.miscalibration_area(*forecast, levels=levels) == pytest.approx(area, abs=1e-12)
    assert metrics.mace(*forecast) == pytest.approx(uct.mean_absolute_calibration_error(mean, std, y), abs=1e-12)


def test_scores_against_toolbox(forecast: Forecast) -> None:
    y, mean, std = forecast
    assert metrics.nll(*forecast) == pytest.approx(uct.nll_gaussian(mean, std, y), rel=1e-9)
    # The toolbox multiplies z by std again, so that its rounding grows with |z|.
    assert metrics.crps(*forecast) == pytest.approx(uct.crps_gaussian(mean, std, y), rel=1e-6, abs=1e-12)
    assert metrics.sharpness(std) == pytest.approx(uct.sharpness(std), rel=1e-12)
    for level in (0.5, 0.95):
        toolbox = uct.interval_score(mean, std, y, start_p=level, end_p=level, resolution=1)
        assert metrics.interval_score(*forecast, level=level) == pytest.approx(toolbox, rel=1e-6)


@pytest.mark.filterwarnings("ignore")  # of the toolbox's other figures
def test_point_errors_against_toolbox(forecast: Forecast) -> None:
    y, mean, _ = forecast
    toolbox = uct.metrics.get_all_accuracy_metrics(mean, y, verbose=False)
    assert metrics.rmse(y, mean) == pytest.approx(toolbox["rmse"], rel=1e-9, abs=1e-15)
    assert metrics.mae(y, mean) == pytest.approx(toolbox["mae"], rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("z", [-30.0, -2.5, 0.0, 0.4, 9.0])
@pytest.mark.parametrize("std", [1e-6, 1.0, 1e6])
def test_crps_against_its_integral(z: float, std: float) -> None:
    mean = 0.3
    y = mean + z * std
    ends = mean + std * np.linspace(min(z, 0.0) - 12, max(z, 0.0) + 12, 40)
    pieces = np.sort(np.append(ends, y))

    def squared_gap(t: float) -> float:
        return float((stats.norm.cdf(t, mean, std) - (t >= y)) ** 2)

    area = sum(integrate.quad(squared_gap, *pair)[0] for pair in pairwise(pieces))
    assert metrics.crps([y], [mean], [std]) == pytest.approx(area, rel=1e-6)


def test_every_score_of_a_finite_forecast_is_finite(forecast: Forecast) -> None:
    y, mean, std = forecast
    names = ("nll", "crps", "calibration_error", "miscalibration_area", "mace", "coverage", "interval_score")
    for name in (*names, "ence", "ause", "spearman"):
        result = getattr(metrics, name)(*forecast)
        assert type(result) is float
        assert math.isfinite(result), name
    for result in (metrics.rmse(y, mean), metrics.mae(y, mean), metrics.r2(y, mean), metrics.interval_width(std)):
        assert type(result) is float
        assert math.isfinite(result)
    assert 0 < metrics.auroc(std, std) < 1


# ENCE, which the toolbox does not have


def slow_ence(y: FloatArray, mean: FloatArray, std: FloatArray, bins: int) -> float:
    """For std without ties, bin by bin."""
    rows = sorted(zip(std, y - mean, strict=True))
    n, bins = len(rows), min(bins, len(rows))
    sizes = [n // bins + (index < n % bins) for index in range(bins)]
    total, start = 0.0, 0
    for size in sizes:
        inside = rows[start : start + size]
        start += size
        rmv = math.sqrt(math.fsum(s * s for s, _ in inside) / size)
        rmse = math.sqrt(math.fsum(e * e for _, e in inside) / size)
        total += abs(rmv - rmse) / rmv
    assert start == n
    return total / bins


@pytest.mark.parametrize("name", ["random", "many", "one row", "constant y", "no error", "tiny std", "huge std"])
@pytest.mark.parametrize("bins", [1, 7, 10, 60, 5000])
def test_ence_against_a_loop(name: str, bins: int) -> None:
    forecast = FORECASTS[name]
    assert metrics.ence(*forecast, bins=bins) == pytest.approx(slow_ence(*forecast, bins=bins), rel=1e-9)
    assert bins != 10 or metrics.ence(*forecast) == metrics.ence(*forecast, bins=10)


def test_ence_of_one_std_compares_it_with_the_rmse() -> None:
    std = np.full_like(Y, 0.7)
    expected = abs(0.7 - metrics.rmse(Y, MEAN)) / 0.7
    assert metrics.ence(Y, MEAN, std) == pytest.approx(expected)


def test_ence_does_not_depend_on_the_order_of_ties() -> None:
    std = np.repeat([0.5, 1.0, 2.0], 20)
    order = np.random.default_rng(0).permutation(60)
    assert metrics.ence(Y, MEAN, std, bins=7) == pytest.approx(metrics.ence(Y[order], MEAN[order], std[order], bins=7))


def test_ence_of_errors_as_wide_as_std_is_0() -> None:
    assert metrics.ence(MEAN + STD, MEAN, STD) == pytest.approx(0.0, abs=1e-12)
    assert metrics.ence(MEAN - 3 * STD, MEAN, STD, bins=4) == pytest.approx(2.0)
    assert metrics.ence([1e300, -1e300], [0.0, 0.0], [1e300, 1e300]) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("bins", [0, -1, 2.0, "ten"])
def test_ence_refuses_bad_bins(bins: object) -> None:
    with pytest.raises(ValueError, match="bins must be an integer of at least 1"):
        metrics.ence(Y, MEAN, STD, bins=bins)
