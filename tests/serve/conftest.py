"""Saved models and a server, which tests share; none changes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from density_regression import DensityRegressor
from density_regression.datasets import make_cubic
from density_regression.serve import models as models_module
from density_regression.serve.prepare import make_bundle
from serve.helpers import QUICK, Client, prepared_here, raw_table, served


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def numbers(folder: Path) -> DensityRegressor:
    """Of two columns without names; saved as "numbers", prepared."""
    rng = np.random.default_rng(0)
    X = np.column_stack([make_cubic(200, random_state=0)[0], rng.normal(size=200)])
    reg = DensityRegressor(**QUICK).fit(X, 2 * X[:, 0] + rng.normal(size=200))
    reg.save(folder / "numbers")
    make_bundle(folder / "numbers")
    return reg


@pytest.fixture(scope="session")
def raw(folder: Path) -> DensityRegressor:
    """Of text, dates and gaps, with conformal intervals; saved as "raw", prepared."""
    reg = DensityRegressor(**QUICK).fit(*raw_table(), conformal=0.3)
    reg.save(folder / "raw")
    make_bundle(folder / "raw")
    return reg


@pytest.fixture(scope="session")
def client(folder: Path, numbers: DensityRegressor, raw: DensityRegressor) -> Iterator[Client]:
    """A server with both models."""
    with served(folder / "numbers", folder / "raw") as client:
        yield client


@pytest.fixture
def model(tmp_path: Path, numbers: DensityRegressor, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose model tests may replace; what is put there is prepared in this process."""
    monkeypatch.setattr(models_module, "prepare", prepared_here)
    numbers.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(scope="session")
def other() -> DensityRegressor:
    """Of as many columns as `numbers`, and quite another target."""
    X = np.random.default_rng(1).normal(size=(100, 2))
    return DensityRegressor(**QUICK).fit(X, 1000.0 + X[:, 0])
