"""Weights of rows: which count, how much, and which are refused."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from density_regression import DensityRegressor
from estimators.helpers import moments, quick


def test_row_without_weight_has_no_influence(cubic) -> None:
    X, y = cubic
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2.0, len(X))
    kept = rng.random(len(X)) < 0.7
    strange_X, strange_y = np.where(kept[:, None], X, 1e3), np.where(kept, y, -1e6)
    with_them = quick().fit(strange_X, strange_y, np.where(kept, weight, 0.0))
    without = quick().fit(X[kept], y[kept], weight[kept])
    np.testing.assert_array_equal(moments(with_them, X), moments(without, X))
    np.testing.assert_array_equal(with_them.score_samples(X), without.score_samples(X))


def test_only_relative_weights_count(cubic) -> None:
    X, y = cubic
    weight = np.random.default_rng(0).uniform(0.1, 2.0, len(X))
    expected = moments(quick().fit(X, y, weight), X)
    np.testing.assert_array_equal(moments(quick().fit(X, y, 4.0 * weight), X), expected)
    np.testing.assert_allclose(moments(quick().fit(X, y, 3.7e-12 * weight), X), expected, rtol=1e-6, atol=1e-6)


def test_weights_of_one_are_no_weights(cubic) -> None:
    X, y = cubic
    expected = moments(quick().fit(X, y), X)
    np.testing.assert_array_equal(moments(quick().fit(X, y, np.ones(len(X))), X), expected)
    np.testing.assert_array_equal(moments(quick().fit(X, y, 3.0), X), expected)


@pytest.fixture(scope="module")
def two_groups() -> tuple[np.ndarray, np.ndarray]:
    """Inputs that say nothing, and which of two groups each row is in."""
    return np.random.default_rng(0).uniform(-1, 1, (400, 1)), np.arange(400) % 2 == 1


@pytest.mark.parametrize(("heavy", "expected"), [(True, 0.8), (False, -0.8)])
def test_mean_follows_the_heavier_group(two_groups, heavy: bool, expected: float) -> None:
    X, group = two_groups
    y = np.where(group, 1.0, -1.0) + np.random.default_rng(1).normal(0, 0.1, len(X))
    mean = quick(epochs=30).fit(X, y, np.where(group == heavy, 9.0, 1.0)).predict(X)
    assert mean.mean() == pytest.approx(expected, abs=0.12)


@pytest.mark.parametrize(("held_out", "tolerance"), [(0.0, 0.05), (0.15, 0.3)])
@pytest.mark.parametrize("noisy_is_heavy", [True, False])
def test_std_follows_the_heavier_group(two_groups, noisy_is_heavy: bool, held_out: float, tolerance: float) -> None:
    X, noisy = two_groups
    y = np.where(noisy, 1.0, 0.1) * np.random.default_rng(0).normal(size=len(X))
    weight = np.where(noisy == noisy_is_heavy, 9.0, 1.0)
    std = moments(quick(epochs=20, validation_fraction=held_out).fit(X, y, weight), X)[1]
    expected = np.sqrt(np.average(y**2, weights=weight))
    # The median: the variance begins to grow at the outermost rows.
    assert np.median(std) == pytest.approx(expected, rel=tolerance)


def test_weights_enter_the_density() -> None:
    rng = np.random.default_rng(0)
    right = np.arange(400) % 2 == 1
    X = np.where(right, 3.0, -3.0)[:, None] + rng.normal(size=(400, 1))
    y = rng.normal(size=400)

    def gap(weight: np.ndarray) -> float:
        # An encoder that changes nothing, so that the density alone is weighed.
        score = DensityRegressor.from_trained(nn.Identity(), X, y, weight, random_state=0).score_samples(X)
        return np.median(score[right]) - np.median(score[~right])

    assert gap(np.ones(400)) == pytest.approx(0.0, abs=0.5)
    assert gap(np.where(right, 20.0, 1.0)) == pytest.approx(np.log(20.0), abs=0.7)


def test_weights_of_vastly_different_size_give_a_finite_answer(cubic) -> None:
    X, y = cubic
    # In float32 the light rows weigh nothing, and most batches and all held-out rows are light.
    weight = np.where(np.arange(len(X)) < 5, 1.0, 1e-60)
    assert np.isfinite(moments(quick().fit(X, y, weight), X)).all()


def test_weights_may_be_huge(cubic) -> None:
    X, y = cubic
    expected = moments(quick().fit(X, y), X)
    np.testing.assert_array_equal(moments(quick().fit(X, y, np.full(len(X), 1e308)), X), expected)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.full(200, -1.0), "[Nn]egative"),
        (np.zeros(200), "non-zero"),
        (np.eye(200)[0], "At least 2 rows"),
        (np.ones(199), "sample_weight"),
        (np.ones((200, 2)), "1D"),
        (np.full(200, np.nan), "NaN"),
        (np.full(200, np.inf), "infinity"),
    ],
    ids=["negative", "zero", "one positive", "too few", "two columns", "nan", "infinite"],
)
def test_bad_weights(cubic, weight: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(*cubic, weight)


def test_score_takes_weights(fitted, cubic) -> None:
    X, y = cubic
    wrong = np.where(np.arange(len(X)) < 100, y, -y)
    kept = (np.arange(len(X)) < 100).astype(float)
    assert fitted.score(X, wrong, kept) == pytest.approx(fitted.score(X[:100], y[:100]))
