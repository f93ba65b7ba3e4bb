"""Data and fitted regressors that several test files share. Do not refit or change them: take a `clone`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from sklearn.datasets import make_friedman1

from density_regression import DensityRegressor
from density_regression.datasets import make_cubic

pytest.register_assert_rewrite(
    "estimators.helpers",
    "experiments.bench_helpers",
    "experiments.helpers",
    "inference.helpers",
    "saved_models",
    "serve.helpers",
    "training.helpers",
)

# Tables this small gain nothing from several threads, and lose much where cores are shared.
torch.set_num_threads(1)


class Rows(NamedTuple):
    """A table and its target."""

    X: np.ndarray
    y: np.ndarray


@pytest.fixture(scope="session")
def cubic() -> Rows:
    """One column: 200 rows of the noisy cubic."""
    return Rows(*make_cubic(200, random_state=0))


@pytest.fixture(scope="session")
def friedman() -> Rows:
    """Ten columns, five of them without influence: 300 rows."""
    return Rows(*make_friedman1(300, noise=1.0, random_state=0))


@pytest.fixture(scope="session")
def fitted(cubic: Rows) -> DensityRegressor:
    """Fitted in a moment to `cubic`."""
    return DensityRegressor(epochs=15, n_threads=1, random_state=0).fit(*cubic)


@pytest.fixture(scope="session")
def fitted_two(friedman: Rows) -> DensityRegressor:
    """Fitted in a moment to two targets of `friedman`, y in thousandths and the first column in millions."""
    targets = np.column_stack([1e-3 * friedman.y, 1e6 * friedman.X[:, 0]])
    return DensityRegressor(hidden=(32,), epochs=40, n_threads=1, random_state=0).fit(friedman.X, targets)


@pytest.fixture(scope="session")
def default_cubic() -> DensityRegressor:
    """Default settings but for half of the epochs, on 300 rows of the noisy cubic."""
    return DensityRegressor(epochs=200, random_state=0).fit(*make_cubic(300, random_state=0))


@pytest.fixture(scope="session")
def default_friedman(friedman: Rows) -> DensityRegressor:
    """Default settings but for half of the epochs, on `friedman`."""
    return DensityRegressor(epochs=200, random_state=0).fit(*friedman)
