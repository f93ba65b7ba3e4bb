"""Models that learnt from several networks: fused, exported and saved, they say what the module says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from density_regression import DensityRegressor, load
from density_regression.inference.fused import FusedRegression, fused_form
from density_regression.nn.density import MixtureDensity
from density_regression.nn.heads import LOG_STD_LIMIT
from density_regression.nn.model import DensityRegression
from density_regression.tabular.table import INPUT_LIMIT, Floats
from inference.helpers import assert_same

SETTINGS: dict[str, Any] = {"epochs": 12, "hidden": (16,), "members": 3, "n_threads": 1, "random_state": 0}
TWO = pytest.mark.parametrize("targets", [1, 2])


@pytest.fixture(scope="module")
def fitted(rows: tuple[Floats, Floats]) -> dict[int, DensityRegressor]:
    """By the number of targets."""
    x, y = rows
    both = np.stack([y, 1e-3 * np.abs(x[:, 0]) * x[:, 4]], 1)
    return {k: DensityRegressor(**SETTINGS).fit(x, y if k == 1 else both) for k in (1, 2)}


def near_and_far(rows: tuple[Floats, Floats]) -> Floats:
    x = rows[0]
    return np.concatenate([x, 3 * x, -100 * x, 1e20 * x, 1e300 * np.sign(x)])


def scaled(columns: int = 5) -> torch.Tensor:
    """Inputs of all sizes that a network may see."""
    sizes = torch.tensor([0.1, 1.0, 10.0, 1e4, INPUT_LIMIT]).repeat_interleave(60)[:, None]
    x = sizes * torch.randn(300, columns, generator=torch.Generator().manual_seed(1))
    return x.clamp(-INPUT_LIMIT, INPUT_LIMIT)


def assert_fused(model: DensityRegression, x: torch.Tensor) -> None:
    form = FusedRegression.of(model)
    assert form is not None
    with torch.inference_mode():
        found, (mean, log_std), log_density = form(x), model.moments(x), model.log_density(x)
    torch.testing.assert_close(found.log_std, log_std, rtol=0, atol=1e-4)
    torch.testing.assert_close(form.log_density(x), log_density, rtol=1e-4, atol=1e-3)
    assert ((found.mean - mean).abs() <= 1e-4 * mean.abs().maximum(log_std.exp())).all()


# -- fused ------------------------------------------------------------------------------------------------------------


@TWO
def test_fused_as_the_model(targets: int, fitted: dict[int, DensityRegressor]) -> None:
    model = fitted[targets].model_
    assert model.head.disagreement
    assert_fused(model, scaled())


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": (16, 8)},
        {"embedding": None},
        {"with_inputs": False},
        {"with_inputs": "density"},
        {"density": MixtureDensity(3, max_dims=4)},
        {"density": "gaussian"},
    ],
    ids=["two layers", "no embedding", "no inputs", "inputs for the density", "residual", "gaussian"],
)
def test_other_settings_fused_and_exported(
    settings: dict[str, Any], rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    reg = DensityRegressor(**{**SETTINGS, **settings}).fit(*rows)
    assert_fused(reg.model_, scaled())
    assert reg.to_onnx(tmp_path / "model.onnx") < 1e-3
    assert_same(reg, tmp_path / "model.onnx", near_and_far(rows))


@TWO
def test_bounds_of_r_near_and_far_are_in_the_fused_form(targets: int, fitted: dict[int, DensityRegressor]) -> None:
    """From no range at all to the widest, and with log r so large that nothing else is left of the variance."""
    model = fitted[targets].model_
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        for low, high in ((-2.3, -2.3), (-2.3, 27.7), (40.0, 60.0), (-60.0, -40.0)):
            model.head.bound_ratio(torch.full((targets,), low), torch.full((targets,), high))
            assert_fused(model, scaled())
        with torch.no_grad():
            model.head.linear.weight[2 * targets :] *= 100
        assert_fused(model, scaled())
    finally:
        model.load_state_dict(kept)


def test_a_std_beyond_its_limit_is_clipped_by_both(fitted: dict[int, DensityRegressor]) -> None:
    model = fitted[1].model_
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        model.head.bound_ratio(torch.full((1,), 150.0), torch.full((1,), 170.0))
        with torch.inference_mode():
            assert model.moments(scaled()).log_std.max() == LOG_STD_LIMIT
        assert_fused(model, scaled())
    finally:
        model.load_state_dict(kept)


def test_predictions_are_fused_and_alike_in_any_company(
    fitted: dict[int, DensityRegressor], rows: tuple[Floats, Floats]
) -> None:
    reg, x = fitted[2], near_and_far(rows)
    assert fused_form(reg.model_, torch.device("cpu"), reg.x_scaling_.limit) is not None
    whole = reg.predict(x, return_std=True)
    for part in (slice(0, 1), slice(190, 223), slice(500, 999)):
        for found, expected in zip(reg.predict(x[part], return_std=True), whole, strict=True):
            np.testing.assert_array_equal(found, expected[part])


@TWO
def test_predicted_std_is_that_of_its_parts(
    targets: int, fitted: dict[int, DensityRegressor], rows: tuple[Floats, Floats]
) -> None:
    x = np.concatenate([rows[0], 3 * rows[0], -100 * rows[0]])
    _, std = fitted[targets].predict(x, return_std=True)
    aleatoric, epistemic, disagreement, distance = fitted[targets].decompose(x)
    assert disagreement is not None
    assert distance is not None
    assert aleatoric.shape == disagreement.shape == distance.shape == std.shape
    np.testing.assert_allclose(np.sqrt(aleatoric**2 + disagreement**2 + distance**2), std, rtol=1e-4)
    np.testing.assert_allclose(np.hypot(disagreement, distance), epistemic, rtol=1e-4)
    assert (disagreement[:200] > 0).any()
    assert (distance[400:] > 0).all()


# -- exported and saved -----------------------------------------------------------------------------------------------


@TWO
def test_the_graph_gives_what_predict_gives(
    targets: int, fitted: dict[int, DensityRegressor], rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    difference = fitted[targets].to_onnx(tmp_path / "model.onnx")
    assert 0 <= difference < 1e-3
    assert_same(fitted[targets], tmp_path / "model.onnx", near_and_far(rows))
    # Written by hand: torch's exporter makes more than twice as many nodes.
    assert len(onnx.load(tmp_path / "model.onnx").graph.node) <= 45


@TWO
def test_a_wide_range_of_noise_and_disagreement_in_a_graph(
    targets: int, fitted: dict[int, DensityRegressor], rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    model = fitted[targets].model_
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        model.head.s_low.fill_(-15.0)
        model.head.s_high.fill_(15.0)
        model.head.bound_ratio(torch.full((targets,), -2.3), torch.full((targets,), 25.0))
        with torch.no_grad():
            model.head.linear.weight[targets:] *= 20
        assert fitted[targets].to_onnx(tmp_path / "model.onnx") < 1e-3
        assert_same(fitted[targets], tmp_path / "model.onnx", near_and_far(rows))
    finally:
        model.load_state_dict(kept)


@TWO
def test_saved_and_loaded_it_is_the_same(
    targets: int, fitted: dict[int, DensityRegressor], rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    reg, x = fitted[targets], near_and_far(rows)
    reg.save(tmp_path / "saved")
    loaded = load(tmp_path / "saved")
    assert isinstance(loaded, DensityRegressor)
    assert loaded.model_.head.disagreement
    for found, expected in zip(loaded.predict(x, return_std=True), reg.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(loaded.decompose(x), reg.decompose(x), strict=True):
        assert found is not None
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(loaded.score_samples(x), reg.score_samples(x))
    assert_fused(loaded.model_, scaled())
    loaded.to_onnx(tmp_path / "model.onnx")
    assert_same(loaded, tmp_path / "model.onnx", x)
