"""Fixtures that these tests share."""

from __future__ import annotations

import numpy as np
import pytest

from density_regression.tabular.table import Floats


@pytest.fixture(scope="module")
def rows() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    # Columns of all sizes; one of them large, and varying little.
    x = rng.normal(size=(200, 5)) * [1, 1e-3, 1e3, 1, 1] + [0, 0, 0, 1e7, -5]
    return x, 50 + 3 * x[:, 0] + rng.normal(size=200)
