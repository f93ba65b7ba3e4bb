"""How wide forecasts are, whatever was observed."""

__all__ = ["interval_width", "sharpness"]

import numpy as np
from numpy.typing import ArrayLike

from density_regression.metrics._arrays import deviations_at, positive, root_mean_square, unit_of


def sharpness(std: ArrayLike, unit: float = 1.0) -> float:
    """Root of the mean predicted variance.

    Parameters
    ----------
    std : array-like of shape (n,) or (n, k)
        Predicted standard deviations, positive, in the target's units.
    unit : float, default=1
        What to count in, in the target's units. The standard deviation of the training target gives the
        paper's figure.

    Returns
    -------
    float
        Over all entries, in multiples of ``unit``, which by default is the target's unit. Smaller is sharper,
        which is a virtue only between forecasts that are equally well calibrated.
    """
    return root_mean_square(positive("std", std)) / unit_of(unit)


def interval_width(std: ArrayLike, level: float = 0.95) -> float:
    """Mean width of the central interval.

    Parameters
    ----------
    std : array-like of shape (n,) or (n, k)
        Predicted standard deviations, positive, in the target's units.
    level : float, default=0.95
        Probability that the interval is meant to hold, strictly between 0 and 1.

    Returns
    -------
    float
        Averaged over all entries, in the target's units.
    """
    return 2 * float(np.mean(positive("std", std))) * deviations_at(level)
