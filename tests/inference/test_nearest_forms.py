"""Densities of many centres, fused and as graphs: in each of their forms they say what the module says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from density_regression import DensityRegression, DensityRegressor, load
from density_regression.inference.fused import Constants, FusedRegression, Layers
from density_regression.inference.onnx.graph import PARTS
from density_regression.inference.onnx.nearest import RESIDUAL_LIMIT, SQUARED_LIMIT, Nearest
from density_regression.nn.density import MixtureDensity
from density_regression.tabular.table import INPUT_LIMIT, Floats
from inference.helpers import QUICK, assert_same, run

ALONE: dict[str, Any] = QUICK | {"members": 0}
TAUGHT: dict[str, Any] = QUICK | {"epochs": 6, "members": 3}


class Cubes(torch.nn.Module):
    """Features far beyond their limit, where the whitened ones are clipped, too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (0.05 * x) ** 3


@pytest.fixture(scope="module")
def wide() -> tuple[Floats, Floats]:
    """Twelve columns about forty places, and two targets."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 12))[rng.integers(0, 40, size=400)] + 0.3 * rng.normal(size=(400, 12))
    return x, np.stack([3 * x[:, 0] + rng.normal(size=400), 1e-3 * x[:, 1] * x[:, 2]], 1)


def near_and_far(x: Floats) -> Floats:
    sizes = 10 ** np.random.default_rng(1).uniform(0, 9, size=(len(x), 1))
    return np.concatenate([x, 3 * x, -100 * x, sizes * x, 1e20 * x, 1e300 * np.sign(x)])


def constants(model: DensityRegression, bounds: Floats | None = None) -> tuple[Constants, Floats]:
    if bounds is None:
        layers = Layers.of(model.encoder)
        assert layers is not None
        bounds = layers.bounds()
    found = Constants.of(model, bounds)
    assert found is not None
    assert found.shared
    return found, bounds


def many(centers: int = 60, **settings: Any) -> MixtureDensity:
    return MixtureDensity(centers=centers, **settings)


# -- fused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"variance": 0.9}, {"max_dims": None, "variance": 1.0}])
@pytest.mark.parametrize("targets", [1, 2])
def test_fused_as_the_model(settings: dict[str, Any], targets: int, wide: tuple[Floats, Floats]) -> None:
    reg = DensityRegressor(**ALONE, density=many(**settings)).fit(wide[0], wide[1][:, :targets])
    constants(reg.model_)
    form = FusedRegression.of(reg.model_)
    assert form is not None
    sizes = torch.tensor([0.1, 1.0, 10.0, 1e4, INPUT_LIMIT]).repeat_interleave(60)[:, None]
    x = sizes * torch.randn(300, 12, generator=torch.Generator().manual_seed(1))
    x = torch.cat([reg.x_scaling_.apply(wide[0]), x.clamp(-INPUT_LIMIT, INPUT_LIMIT)])
    with torch.inference_mode():
        found, (mean, log_std), log_density = form(x), reg.model_.moments(x), reg.model_.log_density(x)
    torch.testing.assert_close(found.log_std, log_std, rtol=0, atol=1e-4)
    torch.testing.assert_close(form.log_density(x), log_density, rtol=1e-4, atol=1e-3)
    assert ((found.mean - mean).abs() <= 1e-4 * mean.abs().maximum(log_std.exp())).all()


def test_a_row_is_predicted_alike_in_any_company(wide: tuple[Floats, Floats]) -> None:
    reg = DensityRegressor(**ALONE, density=many(128)).fit(*wide)
    x = near_and_far(wide[0])
    whole = *reg.predict(x, return_std=True), reg.score_samples(x)
    for size in (1, 7, 33, 500):
        for start in range(0, len(x), 211):
            part = slice(start, start + size)
            for found, expected in zip(
                (*reg.predict(x[part], return_std=True), reg.score_samples(x[part])), whole, strict=True
            ):
                np.testing.assert_array_equal(found, expected[part])


# -- as a graph -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "kind", "targets"),
    [
        ({"density": many(variance=0.9)}, "spherical", 1),
        ({"density": many(), "hidden": (16, 600)}, "spherical", 2),
        ({"density": many(variance=0.99999, max_dims=None)}, "residual", 2),
        ({"density": many(max_dims=None, variance=1.0), "hidden": (12,), "with_inputs": False}, "none", 1),
        ({"density": many(), "encoder": torch.nn.Identity()}, "clipped, none", 2),
        ({"density": many(), "encoder": Cubes()}, "clipped, none", 1),
        ({"density": many(max_dims=10), "encoder": Cubes()}, "clipped, residual", 2),
        (
            {"density": many(), "encoder": lambda c: torch.nn.Sequential(torch.nn.Linear(c, 40), torch.nn.Tanh())},
            "clipped, residual",
            1,
        ),
    ],
    ids=[
        "spherical",
        "spherical and wide",
        "residual",
        "none",
        "clipped, none",
        "cubes",
        "cubes with residual",
        "clipped, residual",
    ],
)
def test_the_graph_gives_what_predict_gives(
    settings: dict[str, Any], kind: str, targets: int, wide: tuple[Floats, Floats], tmp_path: Path
) -> None:
    """By squares multiplied out where digits are left; else by those of the residual itself; and after clipping."""
    reg = DensityRegressor(**ALONE | settings).fit(wide[0], wide[1][:, :targets])
    bounds = np.full(reg.model_.features, 1e12) if "encoder" in settings else None
    forms = Nearest.of(*constants(reg.model_, bounds))
    found = (forms.clipped, forms.residual_factor > 0, forms.back is not None)
    assert (
        found
        == {
            "spherical": (False, True, False),
            "residual": (False, True, True),
            "none": (False, False, False),
            "clipped, none": (True, False, False),
            "clipped, residual": (True, True, True),
        }[kind]
    )
    assert reg.to_onnx(tmp_path / "model.onnx") < 1e-4
    x = near_and_far(wide[0])
    assert_same(reg, tmp_path / "model.onnx", x)
    assert all(np.isfinite(values).all() for values in run(tmp_path / "model.onnx", x).values())
    kinds = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert len(kinds) <= 42
    assert "ReduceMax" in kinds


def test_squares_are_multiplied_out_only_where_digits_are_left(wide: tuple[Floats, Floats]) -> None:
    reg = DensityRegressor(**ALONE, density=many(variance=0.9)).fit(*wide)
    c, bounds = constants(reg.model_)
    size = c.residual_factor**2 * np.square(c.back).sum()
    for share, back in ((0.9, False), (1.1, True)):
        grown = c._replace(residual_factor=c.residual_factor * (share * RESIDUAL_LIMIT / size) ** 0.5)
        assert (Nearest.of(grown, bounds).back is not None) == back
    # Nor where the square of anything beside overflows.
    assert not Nearest.of(c, bounds).clipped
    assert Nearest.of(c, np.full(len(bounds), 10 * SQUARED_LIMIT)).clipped


def test_few_places_of_which_each_is_a_center(tmp_path: Path) -> None:
    """The components are as tight as can be, and their centres far apart in units of their width."""
    rng = np.random.default_rng(0)
    x = (rng.random((60, 12)) > 0.5).astype(float)[rng.integers(0, 60, size=400)]
    for settings in ({}, {"embedding": None}):
        reg = DensityRegressor(**ALONE | settings, density=many(128)).fit(x, x[:, 0] + rng.normal(size=400))
        assert np.linalg.norm(constants(reg.model_)[0].centers, axis=1).max() > 20
        assert reg.to_onnx(tmp_path / "model.onnx") < 1e-4
        assert_same(reg, tmp_path / "model.onnx", near_and_far(x))


# -- the default in many dimensions -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taught(wide: tuple[Floats, Floats]) -> dict[int, DensityRegressor]:
    """By the number of targets."""
    return {k: DensityRegressor(**TAUGHT).fit(wide[0], wide[1][:, :k]) for k in (1, 2)}


@pytest.mark.parametrize("targets", [1, 2])
def test_the_default_in_many_dimensions(
    targets: int, taught: dict[int, DensityRegressor], wide: tuple[Floats, Floats], tmp_path: Path
) -> None:
    reg, x = taught[targets], near_and_far(wide[0])
    assert len(constants(reg.model_)[0].log_norm) > 50
    assert reg.to_onnx(tmp_path / "model.onnx", parts=True) < 1e-3
    assert_same(reg, tmp_path / "model.onnx", x)
    x = np.concatenate([wide[0], 3 * wide[0], -100 * wide[0]])
    found, expected = run(tmp_path / "model.onnx", x), reg.decompose(x)
    _, std = reg.predict(x, return_std=True)
    for name, part in zip(PARTS, (expected.aleatoric, expected.disagreement, expected.distance), strict=True):
        assert part is not None
        shares = ((values.reshape(len(x), -1) / std.reshape(len(x), -1)) ** 2 for values in (found[name], part))
        np.testing.assert_allclose(*shares, rtol=0, atol=3e-4)
    reg.to_onnx(tmp_path / "model.onnx", dtype="float32")
    found = run(tmp_path / "model.onnx", wide[0].astype(np.float32))
    np.testing.assert_allclose(found["log_density"], reg.score_samples(wide[0]), rtol=1e-4, atol=1e-3)


def test_saved_and_loaded_it_predicts_the_same_bit_for_bit(
    taught: dict[int, DensityRegressor], wide: tuple[Floats, Floats], tmp_path: Path
) -> None:
    reg, x = taught[1], near_and_far(wide[0])
    reg.save(tmp_path / "saved")
    loaded = load(tmp_path / "saved")
    assert isinstance(loaded, DensityRegressor)
    assert isinstance(loaded.model_.density, MixtureDensity)
    assert loaded.model_.density.quadratics().shared
    for found, expected in zip(loaded.predict(x, return_std=True), reg.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(loaded.score_samples(x), reg.score_samples(x))


def test_by_torch_s_exporter_it_is_the_same(taught: dict[int, DensityRegressor], wide: tuple[Floats, Floats]) -> None:
    x = near_and_far(wide[0])
    mean, std, log_density = taught[1].to_program().module()(torch.from_numpy(x))
    expected, expected_std = taught[1].predict(x, return_std=True)
    assert (np.abs(mean[:, 0].numpy() - expected) <= 1e-4 * np.maximum(np.abs(expected), expected_std)).all()
    np.testing.assert_allclose(std[:, 0], expected_std, rtol=1e-4)
    np.testing.assert_allclose(log_density, taught[1].score_samples(x), rtol=1e-4, atol=1e-3)
