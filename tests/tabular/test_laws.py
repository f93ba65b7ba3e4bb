"""Log-normal moments against quadrature and scipy, and their ends; which laws are fitted to which targets."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from density_regression.tabular.laws import LOG_RANGE, candidate_laws, from_law, log_normal_moments, to_law

POSITIVE, MIXED = np.array([[1.0], [2.0]]), np.array([[1.0], [-3.5], [0.0]])


def moments(mean: float, std: float, dtype: torch.dtype = torch.float64) -> tuple[float, float]:
    mean_of, std_of = log_normal_moments(torch.tensor(mean, dtype=dtype), torch.tensor(std, dtype=dtype))
    return mean_of.item(), std_of.item()


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (3.0, 0.2), (-2.0, 0.01), (12.0, 1.5)])
def test_moments_by_quadrature(mean: float, std: float) -> None:
    def expected(power: int) -> float:
        """E y^power, the median taken out so that the integrand is of size one."""
        value, _ = integrate.quad(lambda t: math.exp(power * std * t) * stats.norm.pdf(t), -12, 12, epsabs=0)
        return value

    first, second = expected(1), expected(2)
    found = moments(mean, std)
    assert found[0] == pytest.approx(math.exp(mean) * first, rel=1e-9)
    assert found[1] == pytest.approx(math.exp(mean) * math.sqrt(second - first**2), rel=1e-6)


@pytest.mark.parametrize("std", [1e-10, 1e-6, 1e-3, 0.3, 2.0, 10.0, 18.0])
def test_moments_keep_their_digits(std: float) -> None:
    """Of a small standard deviation, whose square is near the rounding of 1, and of a large one."""
    law = stats.lognorm(s=std, scale=math.exp(1.5))
    assert moments(1.5, std)[0] == pytest.approx(law.mean(), rel=1e-12)
    # scipy subtracts 1 from e^v.
    exact = law.mean() * math.sqrt(math.expm1(std**2))
    assert moments(1.5, std)[1] == pytest.approx(exact, rel=1e-12)
    if std < 5:
        assert moments(1.5, std, torch.float32)[1] == pytest.approx(exact, rel=1e-4)


@given(
    mean=st.floats(-1.7e308, 1.7e308),
    std=st.floats(2.3e-308, 1.7e308),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_moments_are_finite_and_above_zero(mean: float, std: float, dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    given = [min(max(value, limits.min), limits.max) for value in (mean, max(std, limits.tiny))]
    for value in moments(given[0], given[1], dtype):
        assert math.isfinite(value)
        assert value >= limits.tiny
    low, high = LOG_RANGE[dtype]
    assert math.log(limits.tiny) < low < high < math.log(limits.max)


@given(st.floats(1e-300, 1e300))
def test_there_and_back(value: float) -> None:
    assert from_law(to_law(np.array([value]), "log"), "log")[0] == pytest.approx(value, rel=1e-12)
    assert from_law(to_law(np.array([-value]), "identity"), "identity")[0] == -value


def test_exponentials_of_anything_are_finite_and_above_zero() -> None:
    found = from_law(np.array([-1e300, -800.0, 800.0, 1e300]), "log")
    assert np.isfinite(found).all()
    assert (found > 0).all()


def test_which_laws_are_tried() -> None:
    assert candidate_laws("identity", MIXED) == ("identity",)
    assert candidate_laws("log", POSITIVE, POSITIVE) == ("log",)
    assert candidate_laws("auto", POSITIVE) == ("identity", "log")
    assert candidate_laws("auto", POSITIVE, MIXED) == ("identity",)


def test_targets_without_a_logarithm_are_refused() -> None:
    with pytest.raises(ValueError, match=r'target="log" needs y above 0, but 2 .* the lowest -3\.5: .*"identity"'):
        candidate_laws("log", POSITIVE, MIXED)
