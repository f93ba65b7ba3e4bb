"""Significance tests for differences between methods over resampled splits, and ranks over data sets."""

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
    "Wilcoxon",
    "corrected_interval",
    "corrected_t_test",
    "friedman",
    "holm",
    "mean_and_sd",
    "mean_ranks",
    "nemenyi_critical_difference",
    "paired_p_value",
    "tied_with_best",
    "wilcoxon",
]

FloatArray = NDArray[np.float64]
Test = Literal["corrected", "plain"]


class Friedman(NamedTuple):
    """Friedman's statistic, corrected for ties, and its p-value (chi-squared, methods - 1 degrees of freedom)."""

    statistic: float
    p_value: float


class Wilcoxon(NamedTuple):
    """Sum of the ranks of positive differences less that of negative ones, and its two-sided p-value."""

    statistic: float
    p_value: float


def mean_and_sd(values: ArrayLike) -> tuple[float, float]:
    """Mean and standard deviation (n - 1; NaN for one value), scaled so that squares of huge values do not overflow."""
    array = np.asarray(values, dtype=np.float64)
    scale = float(np.abs(array).max()) or 1.0
    scaled = array / scale
    sd = scale * float(scaled.std(ddof=1)) if len(array) > 1 else math.nan
    return scale * float(scaled.mean()), sd


def corrected_t_test(differences: ArrayLike, test_to_train: float) -> float:
    """Two-sided p-value of the corrected resampled t-test (Nadeau & Bengio, 2003).

    Splits share training rows, so their differences are correlated, and the variance of their mean is about
    s^2 (1 / n + n_test / n_train) instead of s^2 / n. With a ratio of 0 it is the ordinary paired t-test.

    Parameters
    ----------
    differences : array-like of shape (n,)
        One method's score minus another's on each split, in any unit.
    test_to_train : float
        n_test / n_train of one split.

    Returns
    -------
    float
        1 if n < 2 or all differences are 0; 0 if n >= 2 differences are all equal but not 0.
    """
    values = _differences(differences, test_to_train)
    largest = np.abs(values).max(initial=0.0)
    if len(values) < 2 or largest == 0:
        return 1.0
    # Scaled, as the squares of huge differences overflow.
    scaled = values / largest
    if np.ptp(scaled) == 0:
        return 0.0
    return float(2 * stats.t.sf(abs(scaled.mean()) / _standard_error(scaled, test_to_train), len(scaled) - 1))


def corrected_interval(differences: ArrayLike, test_to_train: float, level: float = 0.95) -> tuple[float, float]:
    """Confidence interval of the mean difference: the means that `corrected_t_test` does not reject.

    Its ends are in the unit of the differences; infinite if n < 2 or beyond the range of floats.
    """
    values = _differences(differences, test_to_train)
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}; 0.95 is usual.")
    if len(values) < 2:
        return -math.inf, math.inf
    largest = float(np.abs(values).max()) or 1.0
    scaled = values / largest
    mean = float(scaled.mean())
    half = float(stats.t.ppf((1 + level) / 2, len(scaled) - 1)) * _standard_error(scaled, test_to_train)
    return largest * (mean - half), largest * (mean + half)


def paired_p_value(ours: ArrayLike, theirs: ArrayLike, test_to_train: float, test: Test = "corrected") -> float:
    """Two-sided p-value for a difference of two methods, from their scores (n,) on the same splits."""
    if test not in ("corrected", "plain"):
        raise ValueError(f'test must be "corrected" or "plain", got {test!r}.')
    one, other = _vector("ours", ours), _vector("theirs", theirs)
    if len(one) != len(other):
        raise ValueError(f"scores are paired by split: give equally many, got {len(one)} and {len(other)}.")
    # Halves, as 1e308 - -1e308 overflows.
    return corrected_t_test(one / 2 - other / 2, test_to_train if test == "corrected" else 0.0)


def holm(p_values: ArrayLike) -> FloatArray:
    """Holm's step-down adjusted p-values, of shape (m,) and in the order given."""
    raw = _vector("p_values", p_values)
    if np.any((raw < 0) | (raw > 1)):
        raise ValueError(f"p_values must lie in [0, 1], got {raw.min()!r} to {raw.max()!r}.")
    order = np.argsort(raw, kind="stable")
    steps = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def tied_with_best(
    scores: Mapping[str, ArrayLike], test_to_train: float, level: float = 0.05, test: Test = "corrected"
) -> set[str]:
    """Method with the lowest mean score, and those not significantly worse at a level.

    `scores` are those of each method on the same n splits. Every other method is compared with the best one by
    `paired_p_value`; p-values are Holm-corrected over these comparisons.
    """
    if not scores:
        return set()
    columns = {name: _vector(name, values) for name, values in scores.items()}
    # Divided first, as the sum of huge scores may overflow.
    best = min(columns, key=lambda name: float(np.sum(columns[name] / len(columns[name]))))
    others = [name for name in columns if name != best]
    p_values = [paired_p_value(columns[name], columns[best], test_to_train, test) for name in others]
    return {best} | {name for name, p in zip(others, holm(p_values), strict=True) if p >= level}


def wilcoxon(differences: ArrayLike) -> Wilcoxon:
    """Wilcoxon's signed-rank test that differences (n,) are symmetric about zero, exact also if some are equal.

    Zeros are left out; differences of equal size share their mean rank.
    """
    values = _vector("differences", differences)
    values = values[values != 0]
    # Twice the ranks are whole numbers, also where ranks are shared.
    doubled = np.round(2 * stats.rankdata(np.abs(values))).astype(int)
    positive, total = int(doubled[values > 0].sum()), int(doubled.sum())
    # Probability of each sum of ranks if every sign were thrown like a coin.
    probability = np.zeros(total + 1)
    probability[0] = 1.0
    for rank in doubled:
        moved = np.concatenate([np.zeros(rank), probability[:-rank]])
        probability = (probability + moved) / 2
    tail = float(probability[: min(positive, total - positive) + 1].sum())
    return Wilcoxon((2 * positive - total) / 2, min(2 * tail, 1.0))


def mean_ranks(table: ArrayLike) -> FloatArray:
    """Mean ranks (methods,) of scores (datasets, methods): 1 is the lowest score, ties share their mean rank."""
    return np.asarray(_ranks(table).mean(axis=0), dtype=np.float64)


def friedman(table: ArrayLike) -> Friedman:
    """Friedman's test that all methods rank alike, from scores of shape (datasets, methods)."""
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
    """Smallest significant difference of two mean ranks by Nemenyi's test (Demsar, 2006).

    `level` is the family-wise error rate over all pairs of methods.
    """
    if methods < 2 or datasets < 1 or not 0 < level < 1:
        raise ValueError(f"give methods >= 2, datasets >= 1 and 0 < level < 1, got {methods}, {datasets}, {level!r}.")
    studentised = stats.studentized_range.ppf(1 - level, methods, np.inf)
    return float(studentised / np.sqrt(2) * np.sqrt(methods * (methods + 1) / (6 * datasets)))


def _standard_error(values: FloatArray, test_to_train: float) -> float:
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
