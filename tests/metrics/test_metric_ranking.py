"""Sparsification, rank correlation and AUROC, against loops, scipy and scikit-learn."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import roc_auc_score

from density_regression import metrics

FloatArray = NDArray[np.float64]
RNG = np.random.default_rng(0)
N = 37
MEAN = RNG.normal(size=N)
STD = RNG.uniform(0.2, 3.0, size=N)
Y = MEAN + STD * RNG.normal(size=N)
ZEROS = np.zeros(N)

scores = hnp.arrays(np.float64, st.integers(1, 12), elements=st.sampled_from([-1e300, -2.0, 0.0, 0.5, 1.0, 3.0, 1e300]))


@st.composite
def rows(draw: st.DrawFn) -> tuple[FloatArray, FloatArray]:
    """Errors and std, with many ties."""
    n = draw(st.integers(1, 15))
    error = draw(hnp.arrays(np.float64, n, elements=st.sampled_from([-2.0, 0.0, 0.3, 1.0, 2.0])))
    return error, draw(hnp.arrays(np.float64, n, elements=st.sampled_from([0.1, 0.5, 1.0, 4.0])))


# Sparsification


def error_of(name: str, errors: list[float]) -> float:
    if name == "mae":
        return math.fsum(abs(e) for e in errors) / len(errors)
    return math.sqrt(math.fsum(e * e for e in errors) / len(errors))


def slow_curve(errors: FloatArray, key: FloatArray, name: str, points: int) -> tuple[list[float], list[float]]:
    """For keys without ties: remove the largest, one after the other."""
    left = [e for _, e in sorted(zip(key, errors, strict=True))]
    n, points = len(left), min(points, len(left))
    kept = [n - math.floor(j * n / points) for j in range(points)]
    return [1 - k / n for k in kept], [error_of(name, left[:k]) for k in kept]


@pytest.mark.parametrize("error", ["rmse", "mae"])
@pytest.mark.parametrize("points", [1, 2, 10, 36, 37, 100])
def test_curves_against_a_loop(error: str, points: int) -> None:
    fraction, by_std, by_oracle = metrics.sparsification_curve(Y, MEAN, STD, error=error, points=points)
    slow_fraction, slow_by_std = slow_curve(Y - MEAN, STD, error, points)
    _, slow_by_oracle = slow_curve(Y - MEAN, np.abs(Y - MEAN), error, points)
    assert fraction.shape == by_std.shape == by_oracle.shape == (min(points, N),)
    np.testing.assert_allclose(fraction, slow_fraction, atol=1e-12)
    np.testing.assert_allclose(by_std, slow_by_std, rtol=1e-9)
    np.testing.assert_allclose(by_oracle, slow_by_oracle, rtol=1e-9)


@pytest.mark.parametrize("error", ["rmse", "mae"])
def test_ause_against_a_loop(error: str) -> None:
    for points in (1, 2, 10, 100):
        fraction, by_std = slow_curve(Y - MEAN, STD, error, points)
        _, by_oracle = slow_curve(Y - MEAN, np.abs(Y - MEAN), error, points)
        area = 0.0
        for j in range(len(fraction) - 1):
            area += (fraction[j + 1] - fraction[j]) * (by_std[j] - by_oracle[j] + by_std[j + 1] - by_oracle[j + 1]) / 2
        expected = area / error_of(error, list(Y - MEAN))
        assert metrics.ause(Y, MEAN, STD, error=error, points=points) == pytest.approx(expected, abs=1e-12)


def test_defaults_are_the_rmse_at_100_points() -> None:
    y, std = np.random.default_rng(1).normal(size=(2, 300))
    std = np.abs(std) + 0.1
    fraction, _, _ = metrics.sparsification_curve(y, 0 * y, std)
    np.testing.assert_allclose(fraction, np.arange(100) / 100)
    assert metrics.ause(y, 0 * y, std) == metrics.ause(y, 0 * y, std, error="rmse", points=100)
    assert metrics.ause(y, 0 * y, std) != metrics.ause(y, 0 * y, std, error="mae")


@pytest.mark.parametrize("error", ["rmse", "mae"])
def test_ties_are_averaged_over_all_orders(error: str) -> None:
    errors, std = np.array([3.0, 1.0, 0.5, 2.0, 0.1]), np.array([1.0, 1.0, 2.0, 1.0, 2.0])
    power = 2 if error == "rmse" else 1
    orders = [p for p in itertools.permutations(range(5)) if all(np.diff(std[list(p)]) >= 0)]
    kept = [5, 4, 3, 2, 1]
    expected = [np.mean([np.mean(errors[list(p[:k])] ** power) for p in orders]) ** (1 / power) for k in kept]
    _, by_std, _ = metrics.sparsification_curve(errors, np.zeros(5), std, error=error)
    assert len(orders) == 12
    np.testing.assert_allclose(by_std, expected, rtol=1e-12)


@given(rows(), st.randoms(use_true_random=False), st.sampled_from(["rmse", "mae"]))
def test_order_of_rows_does_not_matter(data: tuple[FloatArray, FloatArray], random: object, error: str) -> None:
    errors, std = data
    order = list(range(len(std)))
    random.shuffle(order)
    zeros = np.zeros_like(std)
    first = metrics.ause(errors, zeros, std, error=error)
    second = metrics.ause(errors[order], zeros, std[order], error=error)
    assert first == pytest.approx(second, abs=1e-12)
    assert first >= 0
    assert metrics.ence(errors, zeros, std) == pytest.approx(metrics.ence(errors[order], zeros, std[order]), abs=1e-12)


@given(rows(), st.sampled_from([1e-200, 1e-3, 1e3, 1e200]))
def test_ause_has_no_unit_and_sees_only_the_order_of_std(data: tuple[FloatArray, FloatArray], unit: float) -> None:
    errors, std = data
    zeros = np.zeros_like(std)
    expected = metrics.ause(errors, zeros, std)
    assert metrics.ause(unit * errors, zeros, std) == pytest.approx(expected, abs=1e-9)
    assert metrics.ause(errors, zeros, np.exp(std)) == pytest.approx(expected, abs=1e-9)


@given(rows(), st.sampled_from(["rmse", "mae"]))
def test_ause_of_a_perfect_order_is_0(data: tuple[FloatArray, FloatArray], error: str) -> None:
    errors, _ = data
    std = 0.5 + np.abs(errors)
    assert metrics.ause(errors, np.zeros_like(std), std, error=error) == pytest.approx(0.0, abs=1e-12)


def test_ause_of_the_worst_order_is_the_largest() -> None:
    error = np.linspace(1.0, 2.0, 6)
    worst = metrics.ause(error, np.zeros(6), 1 / error)
    for order in itertools.permutations(error):
        assert metrics.ause(error, np.zeros(6), order) <= worst + 1e-12
    # A constant std leaves the error as it is, whatever is removed.
    _, by_std, _ = metrics.sparsification_curve(error, np.zeros(6), np.ones(6))
    np.testing.assert_allclose(by_std, metrics.rmse(error, np.zeros(6)))
    assert 0 < metrics.ause(error, np.zeros(6), np.ones(6)) < worst


def test_ause_without_errors_or_with_one_row_is_0() -> None:
    assert metrics.ause(MEAN, MEAN, STD) == 0.0
    assert metrics.ause([1.0], [0.0], [1.0]) == 0.0


@pytest.mark.parametrize("metric", [metrics.ause, metrics.sparsification_curve])
def test_sparsification_refuses_bad_options(metric: object) -> None:
    with pytest.raises(ValueError, match="error must be 'rmse' or 'mae', got 'mse'"):
        metric(Y, MEAN, STD, error="mse")
    for points in (0, -3, 10.0):
        with pytest.raises(ValueError, match="points must be an integer of at least 1"):
            metric(Y, MEAN, STD, points=points)


def test_curve_refuses_bad_arrays() -> None:
    with pytest.raises(ValueError, match="std must be positive"):
        metrics.sparsification_curve([0.0], [0.0], [0.0])
    with pytest.raises(ValueError, match="shape of y_true"):
        metrics.sparsification_curve([0.0], [0.0, 1.0], [1.0])


# Rank correlation


def test_spearman_against_scipy() -> None:
    assert metrics.spearman(Y, MEAN, STD) == pytest.approx(stats.spearmanr(np.abs(Y - MEAN), STD).statistic)


@given(rows())
def test_spearman_with_ties_against_scipy(data: tuple[FloatArray, FloatArray]) -> None:
    errors, std = data
    result = metrics.spearman(errors, np.zeros_like(std), std)
    if np.ptp(np.abs(errors)) == 0 or np.ptp(std) == 0:
        assert result == 0.0
    else:
        assert result == pytest.approx(stats.spearmanr(np.abs(errors), std).statistic, abs=1e-12)
        assert -1 <= result <= 1


def test_spearman_of_an_order_and_of_its_reverse() -> None:
    error = np.array([0.1, -4.0, 2.0, -3.0])
    assert metrics.spearman(error, np.zeros(4), np.abs(error)) == pytest.approx(1.0)
    assert metrics.spearman(error, np.zeros(4), 1 / np.abs(error)) == pytest.approx(-1.0)
    assert metrics.spearman([1.0], [0.0], [1.0]) == 0.0


# AUROC


def slow_auroc(familiar: FloatArray, strange: FloatArray) -> float:
    wins = [(s > f) + 0.5 * (s == f) for s in strange for f in familiar]
    return math.fsum(wins) / len(wins)


@given(scores, scores)
def test_auroc_against_loop_and_sklearn(familiar: FloatArray, strange: FloatArray) -> None:
    result = metrics.auroc(familiar, strange)
    assert type(result) is float
    assert result == pytest.approx(slow_auroc(familiar, strange), abs=1e-12)
    labels = np.repeat([0, 1], [familiar.size, strange.size])
    assert result == pytest.approx(roc_auc_score(labels, np.concatenate([familiar, strange])), abs=1e-12)


@given(scores, scores)
def test_auroc_of_swapped_or_negated_scores(familiar: FloatArray, strange: FloatArray) -> None:
    result = metrics.auroc(familiar, strange)
    assert 0 <= result <= 1
    assert result + metrics.auroc(strange, familiar) == pytest.approx(1.0, abs=1e-12)
    assert result + metrics.auroc(-familiar, -strange) == pytest.approx(1.0, abs=1e-12)
    assert metrics.auroc(familiar, familiar) == pytest.approx(0.5, abs=1e-12)


def test_auroc_by_hand_and_of_tables() -> None:
    assert metrics.auroc([1.0, 2.0], [3.0, 4.0, 5.0]) == 1.0
    assert metrics.auroc([1.0, 2.0], [0.0]) == 0.0
    assert metrics.auroc([1.0, 2.0, 3.0, 4.0], [2.0, 9.0]) == pytest.approx((1.5 + 4) / 8)
    assert metrics.auroc([[1.0, 2.0], [3.0, 4.0]], [[2.0], [9.0]]) == pytest.approx((1.5 + 4) / 8)


@pytest.mark.parametrize("bad", [[], [math.nan], 1.0, ["x"]])
def test_auroc_refuses_bad_scores(bad: object) -> None:
    with pytest.raises(ValueError, match="familiar"):
        metrics.auroc(bad, [1.0])
    with pytest.raises(ValueError, match="strange"):
        metrics.auroc([1.0], bad)
