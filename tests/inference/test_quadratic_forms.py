"""Squares are multiplied out in the graph only where enough digits are left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from density_regression import DensityRegressor
from density_regression.inference.fused import Constants, Layers
from density_regression.inference.onnx.quadratic_forms import CANCELLATION_LIMIT, QuadraticForms
from density_regression.nn.density import MixtureDensity
from density_regression.nn.model import DensityRegression
from density_regression.tabular.table import Floats
from inference.helpers import ALONE, assert_same


def bounds(model: DensityRegression) -> Floats:
    layers = Layers.of(model.encoder)
    assert layers is not None
    return layers.bounds()


@pytest.mark.parametrize("hidden", [(16, 16), (16, 600)])
def test_the_residual_itself_is_squared_where_digits_would_cancel(hidden: tuple[int, int], tmp_path: Path) -> None:
    """A difference of squares only where enough digits are left; else the residual itself is squared."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    y = x[:, 0] + rng.normal(size=300)
    for variance, cancels in ((0.7, False), (0.9999, True)):
        density = MixtureDensity(3, max_dims=None, variance=variance)
        model = DensityRegressor(**{**ALONE, "hidden": hidden}, density=density).fit(x, y)
        constants = Constants.of(model.model_, bounds(model.model_))
        assert constants is not None
        assert (QuadraticForms.of(constants).back is not None) == cancels
        assert model.to_onnx(tmp_path / "model.onnx") < 1e-4
        assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, -100 * x, 1e20 * x]))


@pytest.mark.parametrize("hidden", [(16, 16), (16, 600)])
@pytest.mark.parametrize(
    ("spread", "variance", "shifted", "by_one"),
    [(1.0, 0.9, False, True), (0.3, 0.9, True, True), (0.3, 0.7, False, False), (0.1, 0.9, True, False)],
)
def test_tight_components_far_apart_keep_their_digits(
    spread: float, variance: float, shifted: bool, by_one: bool, hidden: tuple[int, int], tmp_path: Path
) -> None:
    """Squares are multiplied out, and the log-density taken of one component, only where digits are left."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3, 3))
    x = 3 * (centers[rng.integers(0, 3, size=600)] + spread * rng.normal(size=(600, 3)))
    y = x[:, 0] + rng.normal(size=600)
    density = MixtureDensity(3, max_dims=None, variance=variance)
    model = DensityRegressor(**{**ALONE, "hidden": hidden}, density=density).fit(x, y)
    constants = Constants.of(model.model_, bounds(model.model_))
    assert constants is not None
    forms = QuadraticForms.of(constants)
    assert forms.back is None
    assert (forms.shift.any(), forms.reference is not None) == (shifted, by_one)
    assert model.to_onnx(tmp_path / "model.onnx") < 1e-4
    kinds = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert ("LogSoftmax" in kinds) == by_one
    far = rng.normal(size=(1000, 3)) * 10 ** rng.uniform(0, 9, size=(1000, 1))
    assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, far]))


def test_far_centers_of_wide_features_keep_their_digits(tmp_path: Path) -> None:
    """What is linear stays as it is, however large: as a difference of squares it would lose digits."""
    x = np.random.default_rng(1).normal(size=(1000, 1000))
    model = DensityRegressor(**{**ALONE, "hidden": (100, 100)}, density=MixtureDensity(8)).fit(x, x[:, 0])
    constants = Constants.of(model.model_, bounds(model.model_))
    assert constants is not None
    assert (
        np.square(QuadraticForms.of(constants).linear).sum(0).max() / constants.residual_factor**2 > CANCELLATION_LIMIT
    )
    assert model.to_onnx(tmp_path / "model.onnx") < 2e-5
