"""Proper scoring rules, which reward calibration and sharpness together."""

__all__ = ["crps", "crps_log_normal", "interval_score", "nll", "nll_own"]

from contextlib import suppress

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import erf, log_ndtr, ndtr
from torch.distributions import Distribution

from density_regression.metrics._checks import FloatArray, check_array, residuals_and_std
from density_regression.metrics._numerics import central_quantile


def nll(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    r"""Mean negative log-likelihood, :math:`\log\sigma + \tfrac12 z^2 + \tfrac12\log 2\pi`, in nats.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    sample_weight : array-like of shape (n,), optional
        Weights of the rows, not negative.

    Returns
    -------
    float
        Averaged over all entries. Scaling the target by ``c`` adds ``log(c)``. Infinite if :math:`z^2` exceeds float64.

    Examples
    --------
    >>> round(nll([1.0, 2.0, 4.0], [1.0, 2.5, 3.0], [0.5, 0.5, 1.0]), 3)
    0.79
    """
    residual, std = residuals_and_std(y_true, mean, std)
    with np.errstate(over="ignore"):
        z = residual / std
        return _weighted_mean(np.log(std) + 0.5 * z * z, sample_weight) + 0.5 * float(np.log(2 * np.pi))


def nll_own(y_true: ArrayLike, law: Distribution) -> float:
    """Mean negative log-likelihood under any torch distribution, in nats.

    Parameters
    ----------
    y_true : array-like of shape (n,) or (n, k)
        Targets, in the target's units.
    law : torch.distributions.Distribution
        Predictive distribution of all targets; its batch and event shapes together are the shape of ``y_true``.

    Returns
    -------
    float
        Averaged over all entries: an ``Independent`` distribution of each row of k entries gives the same as k
        distributions of one entry each. For a Gaussian it is `nll`.

    Examples
    --------
    >>> import torch
    >>> law = torch.distributions.StudentT(4.0, torch.tensor([1.0, 2.5, 3.0]), 0.5)
    >>> round(nll_own([1.0, 2.0, 4.0], law), 3)
    1.051
    """
    targets = check_array("y_true", y_true)
    shape = tuple(law.batch_shape + law.event_shape)
    if shape != targets.shape:
        raise ValueError(
            f"law must have the shape of y_true, got {shape} and {targets.shape}; "
            "nothing is broadcast, expand or reshape one of them."
        )
    target = torch.from_numpy(targets)
    # The device is known from the mean; a distribution without one is assumed to be on the CPU.
    with suppress(NotImplementedError):
        target = target.to(law.mean.device)
    with torch.no_grad():
        log_prob = law.log_prob(target)
    return -float(log_prob.double().sum()) / targets.size


def crps(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    r"""Mean continuous ranked probability score of a Gaussian, in closed form.

    For one entry, with :math:`z = (y - \mu) / \sigma`, it is
    :math:`\sigma \left[ z (2\Phi(z) - 1) + 2\varphi(z) - 1/\sqrt\pi \right]`.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    sample_weight : array-like of shape (n,), optional
        Weights of the rows, not negative.

    Returns
    -------
    float
        Averaged over all entries, in the target's units; tends to the absolute error as ``std`` tends to 0.

    References
    ----------
    Gneiting & Raftery, "Strictly Proper Scoring Rules, Prediction, and Estimation", JASA 2007.

    Examples
    --------
    >>> round(crps([1.0, 2.0, 4.0], [1.0, 2.5, 3.0], [0.5, 0.5, 1.0]), 3)
    0.34
    """
    residual, std = residuals_and_std(y_true, mean, std)
    with np.errstate(over="ignore", under="ignore"):
        z = residual / std
        density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    # residual, not std * z: z overflows for tiny std although the score is finite.
    scores = residual * erf(z / np.sqrt(2)) + std * (2 * density - 1 / np.sqrt(np.pi))
    return _weighted_mean(scores, sample_weight)


def crps_log_normal(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""Mean continuous ranked probability score of a log-normal distribution, in closed form.

    For one entry, with :math:`z = (\log y - \mu) / \sigma`, it is :math:`y (2 \Phi(z) - 1) + 2 e^{\mu + \sigma^2/2}
    \left[ \Phi(-\sigma / \sqrt 2) - \Phi(z - \sigma) \right]`; of a target of 0 or less z is minus infinity.

    Parameters
    ----------
    y_true : array-like of shape (n,) or (n, k)
        Targets, in the target's units.
    mean, std : array-like of shape (n,) or (n, k)
        Mean :math:`\mu` and standard deviation :math:`\sigma` (> 0) of the target's logarithm.
    sample_weight : array-like of shape (n,), optional
        Weights of the rows, not negative.

    Returns
    -------
    float
        Averaged over all entries, in the target's units. Infinite if the mean of a distribution exceeds float64.

    References
    ----------
    Baran & Lerch, "Log-normal distribution based Ensemble Model Output Statistics models for probabilistic wind-speed
    forecasting", Quarterly Journal of the Royal Meteorological Society 2015.

    Examples
    --------
    >>> round(crps_log_normal([1.0, 20.0], mean=[0.0, 3.0], std=[0.5, 0.5]), 3)
    1.274
    """
    # Checks shapes and values; a residual of a target and a logarithm has no other use.
    _, std = residuals_and_std(y_true, mean, std)
    target, mean = check_array("y_true", y_true), check_array("mean", mean)
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        z = (np.log(np.maximum(target, 0.0)) - mean) / std
        log_mean = mean + 0.5 * std * std
        # One exponent: the mean of the distribution may overflow where its product with a probability does not.
        tails = np.exp(log_mean + log_ndtr(-std / np.sqrt(2))) - np.exp(log_mean + log_ndtr(z - std))
        scores = target * (2 * ndtr(z) - 1) + 2 * tails
        return _weighted_mean(np.where(np.isfinite(scores), scores, np.inf), sample_weight)


def interval_score(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float = 0.95) -> float:
    r"""Mean interval score of the central interval: its width, plus a penalty for targets outside.

    A target at a distance d outside the interval adds :math:`2 d / \alpha`, with :math:`\alpha` = 1 - ``level``.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Targets, predicted means and predicted standard deviations (> 0), in the target's units.
    level : float, default=0.95
        Nominal coverage, strictly between 0 and 1.

    Returns
    -------
    float
        Averaged over all entries, in the target's units; smaller is better.

    References
    ----------
    Gneiting & Raftery, "Strictly Proper Scoring Rules, Prediction, and Estimation", JASA 2007.

    Examples
    --------
    >>> round(interval_score([1.0, 2.0, 4.0], [1.0, 2.5, 3.0], [0.5, 0.5, 1.0], level=0.9), 3)
    2.193
    """
    residual, std = residuals_and_std(y_true, mean, std)
    half_width = std * central_quantile(level)
    outside = np.maximum(np.abs(residual) - half_width, 0.0)
    return float(np.mean(2 * half_width + 2 / (1 - level) * outside))


def _weighted_mean(values: FloatArray, sample_weight: ArrayLike | None) -> float:
    """Mean over all entries of values (n,) or (n, k), with optional row weights (n,)."""
    if sample_weight is None:
        return float(np.mean(values))
    weight = check_array("sample_weight", sample_weight)
    if weight.shape != values.shape[:1]:
        raise ValueError(f"sample_weight must have shape ({len(values)},), one for each row, got {weight.shape}.")
    if weight.min() < 0 or weight.max() == 0:
        raise ValueError(
            f"sample_weight must not be negative, and not 0 everywhere, got {weight.min():g} to {weight.max():g}."
        )
    # Rows of weight 0 are dropped because 0 * inf is NaN; dividing by the largest keeps the sum of weights finite.
    counted = weight > 0
    rows = values.reshape(len(values), -1).mean(1)[counted]
    return float(np.average(rows, weights=weight[counted] / weight.max()))
