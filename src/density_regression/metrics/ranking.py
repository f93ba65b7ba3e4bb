"""Whether forecasts are widest where they err, and on rows unlike the training data."""

__all__ = ["auroc", "ause", "sparsification_curve", "spearman"]

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from density_regression.metrics._arrays import FloatArray, count_of, floats, mean_over_ties, residual_and_std

_POWERS = {"rmse": 2, "mae": 1}


def sparsification_curve(
    y_true: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    error: Literal["rmse", "mae"] = "rmse",
    points: int = 100,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Error of what is left as the entries of largest ``std`` are removed, and of largest error.

    Entries of equal ``std`` are removed in no particular order: each stands for the mean (squared) error of
    all of them, which is what random orders give on average.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.
    error : {"rmse", "mae"}, default="rmse"
        Error of the entries left.
    points : int, default=100
        Number of points of the curves; as many as entries, where there are fewer.

    Returns
    -------
    fraction_removed : ndarray of shape (points,)
        From 0 to just below 1: entries removed, over all entries.
    error_by_std : ndarray of shape (points,)
        Error of those left, in the target's units, when the largest ``std`` go first.
    error_by_oracle : ndarray of shape (points,)
        The same when the largest errors go first: no order does better.

    References
    ----------
    Ilg et al., "Uncertainty Estimates and Multi-Hypotheses Networks for Optical Flow", ECCV 2018.
    """
    if error not in _POWERS:
        raise ValueError(f"error must be 'rmse' or 'mae', got {error!r}.")
    residual, std = (array.ravel() for array in residual_and_std(y_true, mean, std))
    points = min(count_of("points", points), std.size)
    removed = np.arange(points) * std.size // points
    scale = float(np.max(np.abs(residual))) or 1.0
    with np.errstate(under="ignore"):
        loss = np.abs(residual / scale) ** _POWERS[error]
    by_std = mean_over_ties(std, loss)[np.argsort(std)]
    curves = (_mean_of_first(losses, std.size - removed) for losses in (by_std, np.sort(loss)))
    error_by_std, error_by_oracle = (scale * curve ** (1 / _POWERS[error]) for curve in curves)
    return removed / std.size, error_by_std, error_by_oracle


def ause(
    y_true: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    error: Literal["rmse", "mae"] = "rmse",
    points: int = 100,
) -> float:
    """Area under the sparsification error: between the two curves of `sparsification_curve`.

    It is divided by the error of all entries, so that it has no unit and compares across data sets.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive. Only the order of ``std`` matters.
    error : {"rmse", "mae"}, default="rmse"
        Error of the entries left.
    points : int, default=100
        Number of points of the curves, which are linear in between.

    Returns
    -------
    float
        0 if ``std`` sorts the entries as their errors do, or if there are no errors; larger is worse.

    References
    ----------
    Ilg et al., "Uncertainty Estimates and Multi-Hypotheses Networks for Optical Flow", ECCV 2018.
    """
    fraction, by_std, by_oracle = sparsification_curve(y_true, mean, std, error, points)
    if by_std[0] == 0:
        return 0.0
    # Never below the oracle, but for rounding.
    gap = np.maximum(by_std - by_oracle, 0.0) / by_std[0]
    return float(np.sum(np.diff(fraction) * (gap[:-1] + gap[1:]) / 2))


def spearman(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Rank correlation of the absolute error and ``std``.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.

    Returns
    -------
    float
        Over all entries, between -1 and 1; ties have their mean rank. 0 if all errors, or all ``std``, are
        equal, a single entry included: there is then no order to agree with.
    """
    residual, std = residual_and_std(y_true, mean, std)
    error_rank, std_rank = _centred_ranks(np.abs(residual)), _centred_ranks(std)
    size = np.sqrt(np.sum(error_rank**2) * np.sum(std_rank**2))
    return float(np.clip(np.sum(error_rank * std_rank) / size, -1.0, 1.0)) if size > 0 else 0.0


def auroc(familiar: ArrayLike, strange: ArrayLike) -> float:
    """Probability that a strange entry's score exceeds a familiar one's, ties counted half.

    This is the area under the ROC curve of telling the two apart by their score, and Mann and Whitney's U
    over its largest value.

    Parameters
    ----------
    familiar, strange : array-like of shape (n,) or (n, k), and (m,) or (m, k)
        Scores of data like the training data and of other data, larger for the unfamiliar: predicted standard
        deviations, or minus ``score_samples``. Any unit, the same for both; only their order matters.

    Returns
    -------
    float
        Between 0 and 1; 0.5 if the score does not tell them apart.
    """
    ordered = np.sort(floats("familiar", familiar), axis=None)
    scores = floats("strange", strange)
    below = np.searchsorted(ordered, scores, side="left").mean()
    at_most = np.searchsorted(ordered, scores, side="right").mean()
    return float((below + at_most) / (2 * ordered.size))


def _mean_of_first(values: FloatArray, counts: NDArray[np.intp]) -> FloatArray:
    return np.cumsum(values)[counts - 1] / counts


def _centred_ranks(values: FloatArray) -> FloatArray:
    ranks: FloatArray = rankdata(values.ravel())
    return ranks - (values.size + 1) / 2
