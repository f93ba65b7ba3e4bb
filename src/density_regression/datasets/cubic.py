"""The noisy cubic of the paper's Figure 1."""

__all__ = ["make_cubic"]

import math
from numbers import Integral

import numpy as np
from numpy.typing import NDArray


def make_cubic(
    n: int = 1000,
    low: float = -4.0,
    high: float = 4.0,
    noise: float = 3.0,
    random_state: int | np.random.Generator | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Draw X (n, 1) and y (n,) from :math:`y = x^3 + \epsilon` with x uniform and :math:`\epsilon` Gaussian.

    Parameters
    ----------
    n : int, default=1000
        Number of rows.
    low, high : float, default=-4 and 4
        Range of x; the default is the training range of the paper.
    noise : float, default=3
        Standard deviation of :math:`\epsilon`, in the units of y; 0 gives the true function.
    random_state : int, numpy Generator or None, default=None
        Seed or generator. None draws differently at each call.

    Examples
    --------
    >>> X, y = make_cubic(5, random_state=0)
    >>> X.shape, y.shape
    ((5, 1), (5,))
    """
    if not isinstance(n, Integral) or n < 1:
        raise ValueError(f"n must be an integer of at least 1, got {n!r}.")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"low must be less than high, and both finite, got low={low!r}, high={high!r}.")
    if not (math.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise is a standard deviation: it must be finite and at least 0, got {noise!r}.")
    rng = np.random.default_rng(random_state)
    x = rng.uniform(low, high, size=int(n))
    return x[:, np.newaxis], x**3 + rng.normal(0.0, noise, size=int(n))
