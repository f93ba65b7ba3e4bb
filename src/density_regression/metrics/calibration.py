"""Calibration metrics: whether predicted probabilities and variances match the observed errors."""

__all__ = ["calibration_curve", "calibration_error", "coverage", "ence", "mace", "miscalibration_area"]

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from density_regression.metrics._checks import LARGEST_FLOAT, FloatArray, check_count, residuals_and_std
from density_regression.metrics._numerics import (
    absolute_area,
    central_quantile,
    coverage_levels,
    mean_over_ties,
    root_mean_square,
)


def calibration_curve(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int = 100
) -> tuple[FloatArray, FloatArray]:
    r"""Fraction of targets below the predicted p-quantile, for p from 0 to 1.

    observed_j = share of entries with F(y) <= p_j, F the predicted distribution function.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    levels : int, default=100
        Number of levels, evenly spaced from 0 to 1, both ends included.

    Returns
    -------
    expected : ndarray of shape (levels,)
        The levels :math:`p_j`.
    observed : ndarray of shape (levels,)
        The fraction of all entries with :math:`F(y) \le p_j`; a calibrated forecast has ``observed`` near ``expected``.

    Examples
    --------
    >>> y, mean, std = [1.0, 2.0, 4.0], [1.0, 2.5, 3.0], [0.5, 0.5, 1.0]
    >>> expected, observed = calibration_curve(y, mean, std, levels=3)
    >>> expected.tolist()
    [0.0, 0.5, 1.0]
    >>> observed.round(2).tolist()
    [0.0, 0.67, 1.0]
    """
    return _curve(y_true, mean, std, levels, two_sided=False)


def calibration_error(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int = 100) -> float:
    r"""Calibration error of the paper: :math:`\sum_j (p_j - \mathrm{observed}_j)^2` over the levels.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    levels : int, default=100
        Number of levels :math:`p_j`, evenly spaced from 0 to 1, both ends included.

    Returns
    -------
    float
        0 is best; no unit. A sum, not a mean: it grows with ``levels``, so compare only at equal ``levels``.

    References
    ----------
    Kuleshov, Fenner & Ermon, "Accurate Uncertainties for Deep Learning Using Calibrated Regression", ICML 2018.

    Examples
    --------
    >>> round(calibration_error([1.0, 2.0, 4.0], [1.0, 2.5, 3.0], [0.5, 0.5, 1.0], levels=3), 3)
    0.028
    """
    expected, observed = calibration_curve(y_true, mean, std, levels)
    return float(np.sum((expected - observed) ** 2))


def miscalibration_area(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int = 100) -> float:
    """Area between the diagonal and the curve of observed against expected coverage of central intervals.

    Area = integral of |observed(p) - p| over p from 0 to 1.

    The curve is linear between levels. Equal to ``uncertainty_toolbox.miscalibration_area`` with ``num_bins=levels``.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    levels : int, default=100
        Number of expected coverages, evenly spaced from 0 to 1, both ends included.

    Returns
    -------
    float
        Between 0 (calibrated) and about 0.5; no unit.

    Examples
    --------
    >>> round(miscalibration_area([1.0, 2.0, 4.0], [1.0, 2.5, 3.0], [0.5, 0.5, 1.0]), 3)
    0.165
    """
    expected, observed = _curve(y_true, mean, std, levels, two_sided=True)
    return absolute_area(expected, observed - expected)


def mace(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int = 100) -> float:
    """Mean absolute calibration error: observed minus expected coverage of central intervals, averaged over levels.

    MACE = mean over levels p of |observed(p) - p|.

    Equal to ``uncertainty_toolbox.mean_absolute_calibration_error`` with ``num_bins=levels``. Parameters, (n,) or
    (n, k) in the target's units, and range are those of `miscalibration_area`.

    Examples
    --------
    >>> round(mace([1.0, 2.0, 4.0], [1.0, 2.5, 3.0], [0.5, 0.5, 1.0]), 3)
    0.167
    """
    expected, observed = _curve(y_true, mean, std, levels, two_sided=True)
    return float(np.mean(np.abs(expected - observed)))


def _curve(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: int, *, two_sided: bool
) -> tuple[FloatArray, FloatArray]:
    """Expected and observed fractions (levels,) of targets below quantiles, or in central intervals if two-sided."""
    residual, std = residuals_and_std(y_true, mean, std)
    expected = coverage_levels(levels)
    with np.errstate(over="ignore"):
        # Finite, because the quantiles of the levels 0 and 1 are infinite.
        z = np.clip(residual / std, -LARGEST_FLOAT, LARGEST_FLOAT)
    # Compares z with quantiles, not the CDF with levels: the CDF underflows to 0 and would then count at level 0.
    values, quantiles = (np.abs(z), ndtri(0.5 + expected / 2)) if two_sided else (z, ndtri(expected))
    return expected, np.searchsorted(np.sort(values, axis=None), quantiles, side="right") / values.size


def coverage(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float = 0.95) -> float:
    """Fraction of targets inside the central interval.

    The interval is mean +- z std, with z = Phi^-1((1 + level) / 2).

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    level : float, default=0.95
        Nominal coverage, strictly between 0 and 1.

    Returns
    -------
    float
        Over all entries, between 0 and 1; near ``level`` for a calibrated forecast.

    Examples
    --------
    >>> coverage([1.0, 2.0, 7.0], [1.0, 2.5, 3.0], [0.5, 0.5, 1.0], level=0.9)
    0.6666666666666666
    """
    residual, std = residuals_and_std(y_true, mean, std)
    return float(np.mean(np.abs(residual) <= std * central_quantile(level)))


def ence(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, bins: int = 10) -> float:
    r"""Expected normalised calibration error: how far predicted variances are from squared errors.

    Entries are sorted by ``std`` into bins of nearly equal size. With a bin's root mean variance, RMV, and its root
    mean squared error, RMSE, this is the mean over bins of :math:`|\mathrm{RMV} - \mathrm{RMSE}| / \mathrm{RMV}`.
    Entries of equal ``std`` share their mean squared error, so that their order does not matter.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    bins : int, default=10
        Number of bins, at most one per entry.

    Returns
    -------
    float
        0 is best; no unit. Infinite if the ratio of an error to its standard deviation exceeds float64.

    References
    ----------
    Levi et al., "Evaluating and Calibrating Uncertainty Prediction in Regression Tasks", Sensors 2022.

    Examples
    --------
    >>> ence([0.0, 0.0, 2.0, -2.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 2.0, 2.0], bins=2)
    0.5
    """
    residual, std = (array.ravel() for array in residuals_and_std(y_true, mean, std))
    order = np.argsort(std)
    scale = float(np.max(np.abs(residual))) or 1.0
    with np.errstate(over="ignore", under="ignore"):
        square = mean_over_ties(std, (residual / scale) ** 2)
        errors = [
            abs(1 - scale * np.sqrt(np.mean(square[rows])) / root_mean_square(std[rows]))
            for rows in np.array_split(order, min(check_count("bins", bins), std.size))
        ]
    return float(np.mean(errors))
