"""Every method of the comparison: `fit(X, y)`, then `predict(X)` for mean and standard deviation, in the data's units.

The project's regressors scale inside. Every peer is given inputs and targets standardised on the training rows, by
`Standardised`. What needs torch and training of its own is in `networks.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from networks import EPOCHS, EnsembleOfFive, LastLayerLaplace
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

from density_regression import DensityRegressor
from density_regression.baselines import DeepEnsembleRegressor, GaussianRegressor

Floats = NDArray[np.float64]

OURS = "ours (DensityRegressor)"

GP_ROWS = 2000
"""Most training rows of the Gaussian process, whose cost is cubic in them."""

SMALLEST_STD = 1e-6
"""In standard deviations of the target: quantiles fitted one by one may cross."""


class Method(Protocol):
    """What is compared."""

    def fit(self, X: Floats, y: Floats) -> object: ...

    def predict(self, X: Floats) -> tuple[Floats, Floats]: ...


class Ours:
    """A regressor of this project, with its defaults but for the number of epochs."""

    def __init__(self, estimator: type[Any], seed: int, epochs: int = EPOCHS) -> None:
        self.regressor = estimator(epochs=epochs, random_state=seed, n_threads=1, verbose=False)

    def fit(self, X: Floats, y: Floats) -> None:
        self.regressor.fit(X, y)

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        mean, std = self.regressor.predict(X, return_std=True)
        return mean, std


class Standardised:
    """A peer that sees inputs and targets with mean 0 and standard deviation 1 over the training rows."""

    def __init__(self, inner: Method) -> None:
        self.inner = inner

    def fit(self, X: Floats, y: Floats) -> None:
        self.x_scaler = StandardScaler().fit(X)
        self.center, self.scale = float(y.mean()), float(y.std())
        self.inner.fit(self.x_scaler.transform(X), (y - self.center) / self.scale)

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        mean, std = self.inner.predict(self.x_scaler.transform(X))
        return mean * self.scale + self.center, std * self.scale


class NGBoost:
    """NGBoost with its defaults: a Normal, 500 trees."""

    def __init__(self, seed: int) -> None:
        from ngboost import NGBRegressor

        self.regressor = NGBRegressor(random_state=seed, verbose=False)

    def fit(self, X: Floats, y: Floats) -> None:
        self.regressor.fit(X, y)

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        law = self.regressor.pred_dist(X)
        return law.params["loc"], law.params["scale"]


class GaussianProcess:
    """scikit-learn's exact Gaussian process, a length scale for each input, on at most `GP_ROWS` random rows."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, X: Floats, y: Floats) -> None:
        rows = np.random.default_rng(self.seed).permutation(len(y))[:GP_ROWS]
        kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
        self.regressor = GaussianProcessRegressor(kernel, normalize_y=True, random_state=self.seed)
        with warnings.catch_warnings():
            # It says so where a length scale ends at its bound, as that of an input without influence does.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.regressor.fit(X[rows], y[rows])

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        mean, std = self.regressor.predict(X, return_std=True)
        return mean, std


class QuantileBoosting:
    """scikit-learn's gradient boosting of three quantiles, read as a Normal: median, and width from the others."""

    LEVELS = (0.05, 0.5, 0.95)

    def __init__(self, seed: int) -> None:
        self.regressors = [
            HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=seed) for level in self.LEVELS
        ]

    def fit(self, X: Floats, y: Floats) -> None:
        for regressor in self.regressors:
            regressor.fit(X, y)

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        low, median, high = (regressor.predict(X) for regressor in self.regressors)
        return median, np.maximum((high - low) / (2 * 1.645), SMALLEST_STD)


METHODS: dict[str, Callable[[int], Method]] = {
    OURS: lambda seed: Ours(DensityRegressor, seed),
    "ours, its default of 400 epochs": lambda seed: Ours(DensityRegressor, seed, epochs=400),
    "Gaussian network (this project)": lambda seed: Ours(GaussianRegressor, seed),
    "Deep Ensemble of 5 (this project)": lambda seed: Ours(DeepEnsembleRegressor, seed),
    "NGBoost": lambda seed: Standardised(NGBoost(seed)),
    "Gaussian process on 2,000 rows (scikit-learn)": lambda seed: Standardised(GaussianProcess(seed)),
    "quantile boosting (scikit-learn)": lambda seed: Standardised(QuantileBoosting(seed)),
    "Deep Ensemble of 5 (torch-uncertainty)": lambda seed: Standardised(EnsembleOfFive(seed)),
    "last-layer Laplace (laplace-torch)": lambda seed: Standardised(LastLayerLaplace(seed)),
}
"""Makes a method from a seed."""

PACKAGES = ("ngboost", "laplace-torch", "torch-uncertainty", "lightning", "curvlinops-for-pytorch", "torchvision")
"""What a result depends on besides the project's own requirements."""
