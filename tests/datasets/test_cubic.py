"""The cubic toy: its law, its reproducibility and its errors."""

import math

import numpy as np
import pytest
from scipy import stats

from density_regression.datasets import make_cubic


def test_shapes_and_types() -> None:
    X, y = make_cubic(random_state=0)
    assert X.shape == (1000, 1)
    assert y.shape == (1000,)
    assert X.dtype == y.dtype == np.float64


def test_law() -> None:
    X, y = make_cubic(20_000, low=-2, high=3, noise=1.5, random_state=0)
    x, noise = X[:, 0], y - X[:, 0] ** 3
    assert x.min() >= -2
    assert x.max() <= 3
    assert stats.kstest(x, stats.uniform(-2, 5).cdf).pvalue > 1e-3
    assert stats.kstest(noise, stats.norm(0, 1.5).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(x, noise)[0, 1]) < 0.03


def test_no_noise_gives_the_function() -> None:
    X, y = make_cubic(50, noise=0, random_state=0)
    np.testing.assert_array_equal(y, X[:, 0] ** 3)


def test_seed() -> None:
    X, y = make_cubic(10, random_state=3)
    X_again, y_again = make_cubic(10, random_state=3)
    X_other, _ = make_cubic(10, random_state=4)
    np.testing.assert_array_equal(X, X_again)
    np.testing.assert_array_equal(y, y_again)
    assert not np.array_equal(X, X_other)


def test_generator_advances() -> None:
    rng = np.random.default_rng(3)
    X, y = make_cubic(10, random_state=rng)
    X_next, _ = make_cubic(10, random_state=rng)
    X_seed, y_seed = make_cubic(10, random_state=3)
    np.testing.assert_array_equal(X, X_seed)
    np.testing.assert_array_equal(y, y_seed)
    assert not np.array_equal(X, X_next)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be an integer"),
        ({"n": 2.5}, "n must be an integer"),
        ({"low": 1, "high": 1}, "low must be less than high"),
        ({"low": 5}, "low must be less than high"),
        ({"high": math.inf}, "both finite"),
        ({"noise": -1}, "noise is a standard deviation"),
        ({"noise": math.nan}, "noise is a standard deviation"),
    ],
)
def test_bad_arguments(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_cubic(**arguments)  # type: ignore[arg-type]
