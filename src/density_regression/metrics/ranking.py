"""Ranking metrics: whether predicted standard deviations order entries by error, and familiar data before shifted."""

__all__ = ["auroc", "ause", "sparsification_curve", "spearman"]

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from density_regression.metrics._checks import FloatArray, check_array, check_count, residuals_and_std
from density_regression.metrics._numerics import mean_over_ties

_POWERS = {"rmse": 2, "mae": 1}


def sparsification_curve(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, error: Literal["rmse", "mae"] = "rmse", points: int = 100
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Error of the remaining entries when those of largest ``std``, or of largest error, are removed first.

    Entries of equal ``std`` each count with their mean (squared) error: the expectation over random orders.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    error : {"rmse", "mae"}, default="rmse"
        Error of the remaining entries.
    points : int, default=100
        Number of points of the curves, at most one per entry.

    Returns
    -------
    fraction_removed : ndarray of shape (points,)
        From 0 to just below 1.
    error_by_std : ndarray of shape (points,)
        Error of the remaining entries, in the target's units, when the largest ``std`` are removed first.
    error_by_oracle : ndarray of shape (points,)
        The same when the largest errors are removed first, which is the best order.

    References
    ----------
    Ilg et al., "Uncertainty Estimates and Multi-Hypotheses Networks for Optical Flow", ECCV 2018.

    Examples
    --------
    >>> fractions, by_std, by_error = sparsification_curve([0.0, 0.0], [1.0, 2.0], [0.5, 1.0], points=2)
    >>> by_std.round(2).tolist(), by_error.round(2).tolist()
    ([1.58, 1.0], [1.58, 1.0])
    """
    if error not in _POWERS:
        raise ValueError(f"error must be 'rmse' or 'mae', got {error!r}.")
    residual, std = (array.ravel() for array in residuals_and_std(y_true, mean, std))
    points = min(check_count("points", points), std.size)
    removed = np.arange(points) * std.size // points
    scale = float(np.max(np.abs(residual))) or 1.0
    with np.errstate(under="ignore"):
        loss = np.abs(residual / scale) ** _POWERS[error]
    by_std = mean_over_ties(std, loss)[np.argsort(std)]
    left = std.size - removed
    curves = (np.cumsum(losses)[left - 1] / left for losses in (by_std, np.sort(loss)))
    error_by_std, error_by_oracle = (scale * curve ** (1 / _POWERS[error]) for curve in curves)
    return removed / std.size, error_by_std, error_by_oracle


def ause(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, error: Literal["rmse", "mae"] = "rmse", points: int = 100
) -> float:
    """Area under the sparsification error: between the two curves of `sparsification_curve`, linear in between.

    Divided by the error of all entries, so that it has no unit and compares across data sets. Parameters (n,) or
    (n, k) and reference are those of `sparsification_curve`; only the order of ``std`` matters.

    Returns
    -------
    float
        0 if ``std`` sorts the entries as their errors do, or if there are no errors; larger is worse.

    Examples
    --------
    >>> ause([0.0, 0.0, 0.0], [0.1, 0.5, 2.0], [0.2, 0.4, 1.0])
    0.0
    >>> ause([0.0, 0.0, 0.0], [0.1, 0.5, 2.0], [1.0, 0.4, 0.2]) > 0.5
    True
    """
    fraction, by_std, by_oracle = sparsification_curve(y_true, mean, std, error, points)
    if by_std[0] == 0:
        return 0.0
    # Negative gaps are rounding errors.
    gap = np.maximum(by_std - by_oracle, 0.0) / by_std[0]
    return float(np.sum(np.diff(fraction) * (gap[:-1] + gap[1:]) / 2))


def spearman(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Spearman's rank correlation of the absolute error and ``std``.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.

    Returns
    -------
    float
        Over all entries, between -1 and 1; ties have their mean rank. 0 if all errors, or all ``std``, are equal.

    Examples
    --------
    >>> spearman([0.0, 0.0, 0.0], [0.1, 0.5, 2.0], [0.2, 0.4, 1.0])
    1.0
    """
    residual, std = residuals_and_std(y_true, mean, std)
    error_rank, std_rank = _centred_ranks(np.abs(residual)), _centred_ranks(std)
    size = np.sqrt(np.sum(error_rank**2) * np.sum(std_rank**2))
    return float(np.clip(np.sum(error_rank * std_rank) / size, -1.0, 1.0)) if size > 0 else 0.0


def auroc(familiar: ArrayLike, strange: ArrayLike) -> float:
    """Area under the ROC curve of detecting unfamiliar data by a score.

    AUROC = P(s > f) + P(s = f) / 2, with s the score of an unfamiliar entry and f that of a familiar one.

    It is the probability that an unfamiliar entry scores higher than a familiar one, ties counted half: the
    Mann-Whitney U statistic divided by its largest value.

    Parameters
    ----------
    familiar, strange : array-like of shape (n,) or (n, k), and (m,) or (m, k)
        Scores of data like the training data and of other data, larger for unfamiliar data: predicted standard
        deviations, or minus ``score_samples``. Only their order matters.

    Returns
    -------
    float
        Between 0 and 1; 0.5 if the score does not separate them.

    Examples
    --------
    >>> auroc([0.1, 0.2, 0.3], [0.25, 0.9])
    0.8333333333333334
    """
    ordered = np.sort(check_array("familiar", familiar), axis=None)
    scores = check_array("strange", strange)
    below = np.searchsorted(ordered, scores, side="left").mean()
    at_most = np.searchsorted(ordered, scores, side="right").mean()
    return float((below + at_most) / (2 * ordered.size))


def _centred_ranks(values: FloatArray) -> FloatArray:
    ranks: FloatArray = rankdata(values.ravel())
    return ranks - (values.size + 1) / 2
