"""Proper scores of forecasts, which reward calibration and sharpness at once."""

__all__ = ["crps", "interval_score", "nll", "nll_own"]

from contextlib import suppress

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import erf
from torch.distributions import Distribution

from density_regression.metrics._arrays import deviations_at, floats, residual_and_std, weighted_mean


def nll(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    r"""Mean negative log-likelihood, :math:`\log\sigma + \tfrac12 z^2 + \tfrac12\log 2\pi`, in nats.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,) or (n, k)
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.
    sample_weight : array-like of shape (n,), optional
        Weights of the rows, not negative.

    Returns
    -------
    float
        Averaged over all entries. Scaling the target by ``c`` adds ``log(c)``. It is infinite when an
        error is so many standard deviations wide that its square exceeds float64.
    """
    residual, std = residual_and_std(y_true, mean, std)
    with np.errstate(over="ignore"):
        z = residual / std
        return weighted_mean(np.log(std) + 0.5 * z * z, sample_weight) + 0.5 * float(np.log(2 * np.pi))


def nll_own(y_true: ArrayLike, law: Distribution) -> float:
    """Mean negative log-likelihood under any torch distribution, in its own law, in nats.

    Parameters
    ----------
    y_true : array-like of shape (n,) or (n, k)
        Observed targets, in the target's units.
    law : torch.distributions.Distribution
        Predictive law of all targets, its batch and event shapes together those of ``y_true``.

    Returns
    -------
    float
        Averaged over all entries: a law of each entry and an ``Independent`` law of each row of k entries
        give the same. For a Gaussian law it is `nll`.
    """
    targets = floats("y_true", y_true)
    shape = tuple(law.batch_shape + law.event_shape)
    if shape != targets.shape:
        raise ValueError(
            f"law must have the shape of y_true, got {shape} and {targets.shape}; "
            "nothing is broadcast, expand or reshape one of them."
        )
    target = torch.from_numpy(targets)
    # A law tells its device by its mean; one that cannot give a mean is taken to be on the CPU.
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
        Observed targets, predicted means and predicted standard deviations, all in the target's units.
        ``std`` must be positive.
    sample_weight : array-like of shape (n,), optional
        Weights of the rows, not negative.

    Returns
    -------
    float
        Averaged over all entries, in the target's units; it tends to the absolute error as ``std``
        tends to 0.

    References
    ----------
    Gneiting & Raftery, "Strictly Proper Scoring Rules, Prediction, and Estimation", JASA 2007.
    """
    residual, std = residual_and_std(y_true, mean, std)
    with np.errstate(over="ignore", under="ignore"):
        z = residual / std
        density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    # The residual itself, not std * z: z overflows when std is tiny, though the score does not.
    scores = residual * erf(z / np.sqrt(2)) + std * (2 * density - 1 / np.sqrt(np.pi))
    return weighted_mean(scores, sample_weight)


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
    residual, std = residual_and_std(y_true, mean, std)
    half_width = std * deviations_at(level)
    outside = np.maximum(np.abs(residual) - half_width, 0.0)
    return float(np.mean(2 * half_width + 2 / (1 - level) * outside))
