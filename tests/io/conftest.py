"""Fixtures that these tests share."""

from pathlib import Path

import pytest
from saved_models import fitted

from density_regression import DensityRegressor


@pytest.fixture(scope="module")
def regressor() -> DensityRegressor:
    return fitted()


@pytest.fixture
def folder(regressor: DensityRegressor, tmp_path: Path) -> Path:
    regressor.save(tmp_path / "model")
    return tmp_path / "model"
