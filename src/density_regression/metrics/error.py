"""Errors of the predicted means."""

__all__ = ["mae", "r2", "rmse"]

import numpy as np
from numpy.typing import ArrayLike

from density_regression.metrics._checks import FloatArray, check_array, residuals
from density_regression.metrics._numerics import root_mean_square


def rmse(y_true: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error over all entries, in the target's units.

    RMSE = sqrt(mean of (y - mean)^2).

    Parameters
    ----------
    y_true, mean : array-like of shape (n,) or (n, k)
        Targets and predicted means, in the target's units.

    Examples
    --------
    >>> round(rmse([1.0, 2.0, 4.0], [1.0, 2.5, 3.0]), 3)
    0.645
    """
    return root_mean_square(residuals(y_true, mean))


def mae(y_true: ArrayLike, mean: ArrayLike) -> float:
    """Mean absolute error over all entries, in the target's units.

    MAE = mean of |y - mean|.

    Parameters
    ----------
    y_true, mean : array-like of shape (n,) or (n, k)
        Targets and predicted means, in the target's units.

    Examples
    --------
    >>> mae([1.0, 2.0, 4.0], [1.0, 2.5, 3.0])
    0.5
    """
    return float(np.mean(np.abs(residuals(y_true, mean))))


def r2(y_true: ArrayLike, mean: ArrayLike) -> float:
    """Coefficient of determination: the share of the target's variance that the means explain.

    R2 = 1 - sum (y - mean)^2 / sum (y - average of y)^2.

    Parameters
    ----------
    y_true, mean : array-like of shape (n,) or (n, k)
        Targets and predicted means, in the target's units.

    Returns
    -------
    float
        1 is best, 0 is what predicting the target's mean gives, and there is no lower bound. For (n, k) the average
        over columns. A constant column, such as that of a single row, counts as 1 if predicted without error and as 0
        otherwise, as in ``sklearn.metrics.r2_score``.

    Examples
    --------
    >>> round(r2([1.0, 2.0, 4.0], [1.0, 2.5, 3.0]), 3)
    0.732
    """
    residual = residuals(y_true, mean)
    targets = check_array("y_true", y_true).reshape(len(residual), -1)
    columns = zip(residual.reshape(len(residual), -1).T, targets.T, strict=True)
    return float(np.mean([_r2_of_column(*column) for column in columns]))


def _r2_of_column(residual: FloatArray, y_true: FloatArray) -> float:
    # Relative to the first target, so that rounding leaves no variance in a constant column.
    shifted = y_true - y_true[0]
    error, spread = root_mean_square(residual), root_mean_square(shifted - np.mean(shifted))
    if spread == 0:
        return float(error == 0)
    with np.errstate(over="ignore"):
        return float(1.0 - np.square(np.float64(error) / spread))
