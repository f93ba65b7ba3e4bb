"""Whether forecasts are as wide as their errors."""

__all__ = ["calibration_curve", "calibration_error", "coverage", "ence", "mace", "miscalibration_area"]

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from density_regression.metrics._arrays import (
    FloatArray,
    area_to_zero,
    count_of,
    deviations_at,
    fraction_at_most,
    levels_of,
    mean_over_ties,
    residual_and_std,
    root_mean_square,
    standardised,
)


def calibration_curve(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int = 100
) -> tuple[FloatArray, FloatArray]:
    r"""How often the predicted CDF at the target is at most p, for p from 0 to 1.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.
    levels : int, default=100
        Number of levels, evenly spaced from 0 to 1, both ends included.

    Returns
    -------
    expected : ndarray of shape (levels,)
        The levels :math:`p_j`.
    observed : ndarray of shape (levels,)
        The fraction of all entries with :math:`F(y) \le p_j`; a calibrated forecast has
        ``observed`` near ``expected``.
    """
    residual, std = residual_and_std(y_true, mean, std)
    expected = levels_of(levels)
    # Compared as z <= quantile, not cdf <= p: the cdf underflows to 0 and would then count at p = 0.
    return expected, fraction_at_most(standardised(residual, std), ndtri(expected))


def calibration_error(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int = 100) -> float:
    r"""Calibration error of the paper: :math:`\sum_j (p_j - \mathrm{observed}_j)^2` over the levels.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.
    levels : int, default=100
        Number of levels :math:`p_j`, evenly spaced from 0 to 1, both ends included.

    Returns
    -------
    float
        A sum, not a mean: it grows in proportion to ``levels``, so compare only at equal ``levels``.
        No unit; 0 is best.

    References
    ----------
    Kuleshov, Fenner & Ermon, "Accurate Uncertainties for Deep Learning Using Calibrated Regression",
    ICML 2018.
    """
    expected, observed = calibration_curve(y_true, mean, std, levels)
    return float(np.sum((expected - observed) ** 2))


def miscalibration_area(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int = 100) -> float:
    """Area between the curve of observed against expected coverage and the diagonal.

    Coverage here is that of central intervals, and the curve is linear between levels. This is the
    definition of ``uncertainty_toolbox.miscalibration_area``, whose ``num_bins=100`` are 100 levels
    from 0 to 1; the two functions agree, defaults included, to rounding.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.
    levels : int, default=100
        Number of expected coverages, evenly spaced from 0 to 1, both ends included.

    Returns
    -------
    float
        Between 0 (calibrated) and about 0.5; no unit.
    """
    expected, observed = _interval_curve(y_true, mean, std, levels)
    return area_to_zero(expected, observed - expected)


def mace(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int = 100) -> float:
    """Mean absolute calibration error: how far observed coverage is from expected, averaged over levels.

    Coverage is that of central intervals. This is ``uncertainty_toolbox.mean_absolute_calibration_error``,
    whose ``num_bins=100`` are 100 levels from 0 to 1.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.
    levels : int, default=100
        Number of expected coverages, evenly spaced from 0 to 1, both ends included.

    Returns
    -------
    float
        Between 0 (calibrated) and about 0.5; no unit.
    """
    expected, observed = _interval_curve(y_true, mean, std, levels)
    return float(np.mean(np.abs(expected - observed)))


def coverage(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float = 0.95) -> float:
    """Fraction of targets inside the central interval.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.
    level : float, default=0.95
        Probability that the interval is meant to hold, strictly between 0 and 1.

    Returns
    -------
    float
        Over all entries, between 0 and 1; near ``level`` for a calibrated forecast.
    """
    residual, std = residual_and_std(y_true, mean, std)
    return float(np.mean(np.abs(residual) <= std * deviations_at(level)))


def ence(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, bins: int = 10) -> float:
    r"""Expected normalised calibration error: how far predicted variances are from squared errors.

    Entries are sorted by ``std`` into bins of nearly equal size. With the root of a bin's mean variance, RMV,
    and its root mean squared error, RMSE, this is the mean over bins of
    :math:`|\mathrm{RMV} - \mathrm{RMSE}| / \mathrm{RMV}`. Entries of equal ``std`` share their mean squared
    error, so that their order does not matter.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.
    bins : int, default=10
        Number of bins; as many as entries, where there are fewer.

    Returns
    -------
    float
        0 is best; no unit. It is infinite when an error is more standard deviations wide than float64 holds.

    References
    ----------
    Levi, Gispan, Giladi & Fetaya, "Evaluating and Calibrating Uncertainty Prediction in Regression Tasks",
    Sensors 2022.
    """
    residual, std = (array.ravel() for array in residual_and_std(y_true, mean, std))
    order = np.argsort(std)
    scale = float(np.max(np.abs(residual))) or 1.0
    with np.errstate(over="ignore", under="ignore"):
        square = mean_over_ties(std, (residual / scale) ** 2)
        errors = [
            abs(1 - scale * np.sqrt(np.mean(square[rows])) / root_mean_square(std[rows]))
            for rows in np.array_split(order, min(count_of("bins", bins), std.size))
        ]
    return float(np.mean(errors))


def _interval_curve(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int) -> tuple[FloatArray, FloatArray]:
    """Expected coverages of central intervals, and how often each holds the target."""
    residual, std = residual_and_std(y_true, mean, std)
    expected = levels_of(levels)
    return expected, fraction_at_most(np.abs(standardised(residual, std)), ndtri(0.5 + expected / 2))
