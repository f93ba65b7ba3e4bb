"""Scores of Gaussian forecasts: plain functions of (y_true, mean, std), on NumPy arrays."""

__all__ = [
    "calibration_curve",
    "calibration_error",
    "coverage",
    "crps",
    "interval_score",
    "mae",
    "miscalibration_area",
    "nll",
    "rmse",
    "sharpness",
]

from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf, ndtri

FloatArray = NDArray[np.float64]


def nll(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    r"""Mean negative log-likelihood, :math:`\log\sigma + \tfrac12 z^2 + \tfrac12\log 2\pi`, in nats.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.

    Returns
    -------
    float
        Averaged over all entries. Scaling the target by ``c`` adds ``log(c)``. It is infinite when an
        error is so many standard deviations wide that its square exceeds float64.
    """
    residual, std = _residual_and_std(y_true, mean, std)
    with np.errstate(over="ignore"):
        z = residual / std
        return float(np.mean(np.log(std) + 0.5 * z * z) + 0.5 * np.log(2 * np.pi))


def rmse(y_true: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error.

    Parameters
    ----------
    y_true, mean : array-like of shape (n,) or (n, k)
        Observed targets and predicted means, in the target's units.

    Returns
    -------
    float
        Over all entries, in the target's units.
    """
    return _root_mean_square(_residual(y_true, mean))


def mae(y_true: ArrayLike, mean: ArrayLike) -> float:
    """Mean absolute error.

    Parameters
    ----------
    y_true, mean : array-like of shape (n,) or (n, k)
        Observed targets and predicted means, in the target's units.

    Returns
    -------
    float
        Averaged over all entries, in the target's units.
    """
    return float(np.mean(np.abs(_residual(y_true, mean))))


def crps(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    r"""Mean continuous ranked probability score of a Gaussian, in closed form.

    For one entry, with :math:`z = (y - \mu) / \sigma`, it is
    :math:`\sigma \left[ z (2\Phi(z) - 1) + 2\varphi(z) - 1/\sqrt\pi \right]`.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.

    Returns
    -------
    float
        Averaged over all entries, in the target's units; it tends to the absolute error as ``std``
        tends to 0.

    References
    ----------
    Gneiting & Raftery, "Strictly Proper Scoring Rules, Prediction, and Estimation", JASA 2007.
    """
    residual, std = _residual_and_std(y_true, mean, std)
    with np.errstate(over="ignore", under="ignore"):
        z = residual / std
        density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    # The residual itself, not std * z: z overflows when std is tiny, though the score does not.
    scores = residual * erf(z / np.sqrt(2)) + std * (2 * density - 1 / np.sqrt(np.pi))
    return float(np.mean(scores))


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
    residual, std = _residual_and_std(y_true, mean, std)
    expected = _levels(levels)
    # Compared as z <= quantile, not cdf <= p: the cdf underflows to 0 and would then count at p = 0.
    return expected, _fraction_at_most(_standardised(residual, std), ndtri(expected))


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
    residual, std = _residual_and_std(y_true, mean, std)
    expected = _levels(levels)
    observed = _fraction_at_most(np.abs(_standardised(residual, std)), ndtri(0.5 + expected / 2))
    return _area_to_zero(expected, observed - expected)


def sharpness(std: ArrayLike) -> float:
    """Root of the mean predicted variance.

    Parameters
    ----------
    std : array-like of shape (n,) or (n, k)
        Predicted standard deviations, positive, in the target's units.

    Returns
    -------
    float
        Over all entries, in the target's units. Smaller is sharper, which is a virtue only between
        forecasts that are equally well calibrated.
    """
    return _root_mean_square(_positive("std", std))


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
    residual, std = _residual_and_std(y_true, mean, std)
    return float(np.mean(np.abs(residual) <= _half_width(std, level)))


def interval_score(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float = 0.95) -> float:
    r"""Mean interval score of the central interval: its width, plus a penalty for what falls outside.

    A target at a distance :math:`d` outside the interval costs :math:`2 d / \alpha` more, with
    :math:`\alpha` = 1 - ``level``.

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
        Averaged over all entries, in the target's units; smaller is better.

    References
    ----------
    Gneiting & Raftery, "Strictly Proper Scoring Rules, Prediction, and Estimation", JASA 2007.
    """
    residual, std = _residual_and_std(y_true, mean, std)
    half_width = _half_width(std, level)
    outside = np.maximum(np.abs(residual) - half_width, 0.0)
    return float(np.mean(2 * half_width + 2 / (1 - level) * outside))


def _floats(name: str, values: ArrayLike) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, in rows of equal length: {error}") from error
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have shape (n,) or (n, k), got shape {array.shape}; reshape it first.")
    if array.size == 0:
        raise ValueError(f"{name} is empty (shape {array.shape}); a score needs at least one value.")
    if bad := int(np.count_nonzero(~np.isfinite(array))):
        raise ValueError(f"{name} has {bad} NaN or infinite values out of {array.size}; drop or replace those rows.")
    return array


def _positive(name: str, values: ArrayLike) -> FloatArray:
    array = _floats(name, values)
    if bad := int(np.count_nonzero(array <= 0)):
        raise ValueError(
            f"{name} must be positive, got {bad} values <= 0 (smallest {array.min():g}); "
            "pass standard deviations, not log-variances, and bound them away from 0."
        )
    return array


def _check_same_shape(name: str, array: FloatArray, y_true: FloatArray) -> None:
    if array.shape != y_true.shape:
        raise ValueError(
            f"{name} must have the shape of y_true, got {array.shape} and {y_true.shape}; "
            "nothing is broadcast, reshape one of them."
        )


def _residual(y_true: ArrayLike, mean: ArrayLike) -> FloatArray:
    y_true, mean = _floats("y_true", y_true), _floats("mean", mean)
    _check_same_shape("mean", mean, y_true)
    return y_true - mean


def _residual_and_std(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> tuple[FloatArray, FloatArray]:
    residual, std = _residual(y_true, mean), _positive("std", std)
    _check_same_shape("std", std, residual)
    return residual, std


def _standardised(residual: FloatArray, std: FloatArray) -> FloatArray:
    """Residuals in standard deviations, finite, so that none ties with the quantiles of 0 and 1."""
    largest = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        return np.clip(residual / std, -largest, largest)


def _root_mean_square(values: FloatArray) -> float:
    scale = float(np.max(np.abs(values)))
    if scale == 0:
        return 0.0
    # Divided by the largest first: squares leave float64's range long before the values do.
    with np.errstate(under="ignore"):
        return scale * float(np.sqrt(np.mean((values / scale) ** 2)))


def _levels(levels: int) -> FloatArray:
    if not isinstance(levels, Integral) or levels < 2:
        raise ValueError(f"levels must be an integer of at least 2 (the levels 0 and 1), got {levels!r}.")
    return np.linspace(0.0, 1.0, int(levels))


def _fraction_at_most(values: FloatArray, thresholds: FloatArray) -> FloatArray:
    return np.searchsorted(np.sort(values, axis=None), thresholds, side="right") / values.size


def _area_to_zero(x: FloatArray, height: FloatArray) -> float:
    """Area between the x axis and the polyline (x, height), counting both sides as positive."""
    left, right = height[:-1], height[1:]
    total = np.abs(left) + np.abs(right)
    crossing = left * right < 0
    # A piece that crosses the axis is two triangles, whose bases stand in the ratio of their heights.
    triangles = (left**2 + right**2) / np.where(crossing, total, 1.0)
    return float(np.sum(np.diff(x) / 2 * np.where(crossing, triangles, total)))


def _half_width(std: FloatArray, level: float) -> FloatArray:
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}; for 95 % pass 0.95.")
    return std * float(ndtri(0.5 + level / 2))
