"""Tests for differences between methods over resampled splits, and ranks over data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

__all__ = [
    "Friedman",
    "Test",
    "corrected_interval",
    "corrected_t_test",
    "friedman",
    "holm",
    "mean_ranks",
    "nemenyi_critical_difference",
    "paired_p_value",
    "plain_t_test",
    "tied_with_best",
]

FloatArray = NDArray[np.float64]
Test = Literal["corrected", "plain"]


class Friedman(NamedTuple):
    """Friedman's statistic, corrected for ties, and its p-value (chi-squared, methods - 1 degrees)."""

    statistic: float
    p_value: float


def corrected_t_test(differences: ArrayLike, test_to_train: float) -> float:
    """Two-sided p-value of the corrected resampled t-test (Nadeau & Bengio, 2003).

    Splits share training rows, so their differences are correlated, and the variance of their mean is
    not s^2 / n but about s^2 (1 / n + n_test / n_train).

    Parameters
    ----------
    differences : array-like of shape (n,)
        One method's score minus another's, split by split, in any unit.
    test_to_train : float
        Rows to test on over rows to train on, in one split.

    Returns
    -------
    float
        1 where n < 2, for one difference has no spread to judge it by, and where all differences are 0;
        0 where n >= 2 differences are all the same number, not 0.
    """
    values = _differences(differences, test_to_train)
    largest = np.abs(values).max(initial=0.0)
    if len(values) < 2 or largest == 0:
        return 1.0
    # The statistic has no unit; of 1e300 the square would overflow.
    scaled = values / largest
    if np.ptp(scaled) == 0:
        return 0.0
    return float(2 * stats.t.sf(abs(scaled.mean()) / _error(scaled, test_to_train), len(scaled) - 1))


def corrected_interval(differences: ArrayLike, test_to_train: float, level: float = 0.95) -> tuple[float, float]:
    """Interval of the mean difference that holds what `corrected_t_test` would not reject.

    Parameters
    ----------
    differences, test_to_train
        As in `corrected_t_test`.
    level : float
        Chance that the interval holds the true mean.

    Returns
    -------
    tuple of two floats
        Lower and upper end, in the differences' unit; infinite where n < 2 or beyond what a float can hold.
    """
    values = _differences(differences, test_to_train)
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}; 0.95 is usual.")
    if len(values) < 2:
        return -math.inf, math.inf
    # As in the test, squares must not overflow.
    largest = float(np.abs(values).max()) or 1.0
    scaled = values / largest
    mean = float(scaled.mean())
    half = float(stats.t.ppf((1 + level) / 2, len(scaled) - 1)) * _error(scaled, test_to_train)
    return largest * (mean - half), largest * (mean + half)


def plain_t_test(differences: ArrayLike) -> float:
    """Two-sided p-value of the ordinary paired t-test, which takes splits for independent.

    The paper's test. Edge cases as in `corrected_t_test`.
    """
    return corrected_t_test(differences, 0.0)


def paired_p_value(ours: ArrayLike, theirs: ArrayLike, test_to_train: float, test: Test = "corrected") -> float:
    """Two-sided p-value that two methods differ, from their scores on the same splits.

    Parameters
    ----------
    ours, theirs : array-like of shape (n,)
        Scores, split by split.
    test_to_train : float
        As in `corrected_t_test`; the plain test does not use it.
    test : {"corrected", "plain"}
    """
    if test not in ("corrected", "plain"):
        raise ValueError(f'test must be "corrected" or "plain", got {test!r}.')
    one, other = _vector("ours", ours), _vector("theirs", theirs)
    if len(one) != len(other):
        raise ValueError(f"scores are paired by split: give equally many, got {len(one)} and {len(other)}.")
    # Halves, as 1e308 - -1e308 is no float.
    return corrected_t_test(one / 2 - other / 2, test_to_train if test == "corrected" else 0.0)


def holm(p_values: ArrayLike) -> FloatArray:
    """Holm's step-down adjusted p-values: compare each with the level of the whole family.

    Parameters
    ----------
    p_values : array-like of shape (m,)

    Returns
    -------
    array of shape (m,)
        In the order given.
    """
    raw = _vector("p_values", p_values)
    if np.any((raw < 0) | (raw > 1)):
        raise ValueError(f"p_values must lie in [0, 1], got {raw.min()!r} to {raw.max()!r}.")
    order = np.argsort(raw, kind="stable")
    steps = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def tied_with_best(
    scores: Mapping[str, ArrayLike],
    test_to_train: float,
    level: float = 0.05,
    test: Test = "corrected",
) -> set[str]:
    """The method with the lowest mean, and those not significantly worse than it.

    Every other method is compared with the best one; p-values are Holm-corrected over these comparisons.

    Parameters
    ----------
    scores : mapping from a method's name to array-like of shape (n,)
        Scores on the same n splits, lower is better.
    test_to_train, level, test
        As in `paired_p_value`; a p-value below ``level`` is significant.
    """
    if not scores:
        return set()
    columns = {name: _vector(name, values) for name, values in scores.items()}
    # Divided before they are added up, as the sum of huge scores may be no float.
    best = min(columns, key=lambda name: float(np.sum(columns[name] / len(columns[name]))))
    others = [name for name in columns if name != best]
    p_values = [paired_p_value(columns[name], columns[best], test_to_train, test) for name in others]
    return {best} | {name for name, p in zip(others, holm(p_values), strict=True) if p >= level}


def mean_ranks(table: ArrayLike) -> FloatArray:
    """Mean rank of each method over data sets; 1 is the lowest score, equal scores share their ranks.

    Parameters
    ----------
    table : array-like of shape (datasets, methods)
        Scores, lower is better.

    Returns
    -------
    array of shape (methods,)
    """
    return np.asarray(_ranks(table).mean(axis=0), dtype=np.float64)


def friedman(table: ArrayLike) -> Friedman:
    """Friedman's test that all methods rank alike.

    Parameters
    ----------
    table : array-like of shape (datasets, methods)
        Scores, lower is better; at least two of either.
    """
    ranks = _ranks(table)
    datasets, methods = ranks.shape
    if datasets < 2 or methods < 2:
        raise ValueError(f"table must have at least 2 data sets and 2 methods, got {datasets} and {methods}.")
    spread = ((ranks - (methods + 1) / 2) ** 2).sum()
    if spread == 0:
        return Friedman(0.0, 1.0)
    between = ((ranks.sum(axis=0) - datasets * (methods + 1) / 2) ** 2).sum()
    statistic = float((methods - 1) * between / spread)
    return Friedman(statistic, float(stats.chi2.sf(statistic, methods - 1)))


@cache
def nemenyi_critical_difference(methods: int, datasets: int, level: float = 0.05) -> float:
    """How far two mean ranks must lie apart to differ significantly (Nemenyi's test; Demsar, 2006).

    Parameters
    ----------
    methods, datasets : int
        How many were ranked, over how many data sets.
    level : float
        Chance of any false difference among all pairs.
    """
    if methods < 2 or datasets < 1 or not 0 < level < 1:
        raise ValueError(f"give methods >= 2, datasets >= 1 and 0 < level < 1, got {methods}, {datasets}, {level!r}.")
    studentised = stats.studentized_range.ppf(1 - level, methods, np.inf)
    return float(studentised / np.sqrt(2) * np.sqrt(methods * (methods + 1) / (6 * datasets)))


def _error(values: FloatArray, test_to_train: float) -> float:
    """Standard error of the mean of differences between splits that share training rows."""
    return math.sqrt(values.var(ddof=1) * (1 / len(values) + test_to_train))


def _differences(differences: ArrayLike, test_to_train: float) -> FloatArray:
    if not (np.isfinite(test_to_train) and test_to_train >= 0):
        raise ValueError(f"test_to_train must be a finite number >= 0, got {test_to_train!r}.")
    return _vector("differences", differences)


def _ranks(table: ArrayLike) -> FloatArray:
    scores = np.asarray(table, dtype=np.float64)
    if scores.ndim != 2 or scores.size == 0 or not np.all(np.isfinite(scores)):
        raise ValueError(f"table must be finite and of shape (datasets, methods), got shape {scores.shape}.")
    return np.asarray(stats.rankdata(scores, axis=1), dtype=np.float64)


def _vector(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite numbers of shape (n,), got shape {array.shape}.")
    return array
