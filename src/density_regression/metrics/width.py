"""Widths of predictive distributions, regardless of the targets."""

__all__ = ["interval_width", "sharpness"]

import numpy as np
from numpy.typing import ArrayLike

from density_regression.metrics._checks import check_positive, check_unit
from density_regression.metrics._numerics import central_quantile, root_mean_square


def sharpness(std: ArrayLike, unit: float = 1.0) -> float:
    """Root mean predicted variance over all entries, in multiples of ``unit``.

    Sharpness = sqrt(mean of std^2) / unit.

    Smaller is sharper, which is better only among forecasts that are equally well calibrated.

    Parameters
    ----------
    std : array-like of shape (n,) or (n, k)
        Predicted standard deviations (> 0), in the target's units.
    unit : float, default=1
        Unit of the result, in the target's units. The paper uses the standard deviation of the training target.

    Examples
    --------
    >>> round(sharpness([0.5, 0.5, 1.0]), 3)
    0.707
    """
    return root_mean_square(check_positive("std", std)) / check_unit(unit)


def interval_width(std: ArrayLike, level: float = 0.95) -> float:
    """Mean width of the central interval over all entries, in the target's units.

    Width = 2 z std, with z = Phi^-1((1 + level) / 2).

    Parameters
    ----------
    std : array-like of shape (n,) or (n, k)
        Predicted standard deviations (> 0), in the target's units.
    level : float, default=0.95
        Nominal coverage, strictly between 0 and 1.

    Examples
    --------
    >>> round(interval_width([0.5, 0.5, 1.0], level=0.9), 3)
    2.193
    """
    return 2 * float(np.mean(check_positive("std", std))) * central_quantile(level)
