"""A model of used cars, which tests of the page share; none changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from density_regression import DensityRegressor
from density_regression.serve.bundle import prepare
from density_regression.serve.prepare import make_bundle
from density_regression.serve.scorer import Scorer
from serve.helpers import QUICK
from serve.page.helpers import make_cars


@pytest.fixture(scope="session")
def cars_regressor(folder: Path) -> DensityRegressor:
    """Saved as "cars", prepared."""
    reg = DensityRegressor(**QUICK).fit(*make_cars())
    reg.save(folder / "cars")
    make_bundle(folder / "cars")
    return reg


@pytest.fixture(scope="session")
def cars(folder: Path, cars_regressor: DensityRegressor) -> Scorer:
    return Scorer(prepare(folder / "cars"))
