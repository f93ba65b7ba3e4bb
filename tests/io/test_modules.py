"""A torch module to a folder and back, its familiarity, and its ONNX file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from saved_models import forge, inert
from torch import Tensor, nn

import density_regression
from density_regression import (
    MLP,
    DensityRegression,
    GaussianDensity,
    InvalidModelError,
    TrainingOptions,
    fit_density_regression,
    to_onnx,
)
from density_regression.baselines import DropoutNetwork, GaussianNetwork, fit_baseline
from density_regression.inference.onnx import ExportError
from density_regression.nn.heads import Head, MeanHead
from density_regression.nn.model import FAMILIARITY_LEVELS
from density_regression.nn.tempering import RobustTempering

QUICK = TrainingOptions(epochs=2)


def rows(n: int = 60, shape: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 3, *shape, generator=torch.Generator().manual_seed(0))
    return x, 1000.0 + 50.0 * x[:, :2]


def encoder(kernel: int = 0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.Tanh()) if kernel else MLP(3, (8,))


@pytest.fixture(scope="module")
def model() -> DensityRegression:
    model = DensityRegression(encoder(), 8, 2, density=GaussianDensity(max_dims=3), tempering=RobustTempering(1.0))
    fit_density_regression(model, [rows()], [rows()], options=QUICK, verbose=False)
    return model


@pytest.fixture
def folder(model: DensityRegression, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def assert_same(one: DensityRegression, other: DensityRegression, x: Tensor) -> None:
    far = torch.cat([x, 100 * x])
    assert torch.equal(one(far).mean, other(far).mean)
    assert torch.equal(one(far).stddev, other(far).stddev)
    assert torch.equal(one.familiarity(far), other.familiarity(far))


def test_a_module_comes_back(model: DensityRegression, folder: Path) -> None:
    given = encoder().requires_grad_(False)
    before = given[0].weight.clone()
    with inert():
        loaded = DensityRegression.load(folder, encoder=nn.Sequential(*given))
    assert_same(loaded, model, rows()[0])
    assert torch.equal(given[0].weight, before)
    assert not loaded.training
    assert isinstance(loaded.density, GaussianDensity)
    assert loaded.density.max_dims == 3
    assert loaded.tempering.exponent == 1.0


def test_a_module_without_density_in_double_precision(tmp_path: Path) -> None:
    model = DensityRegression(nn.Identity(), 3, head="natural", density=None).double()
    model.save(tmp_path)
    loaded = DensityRegression.load(tmp_path, encoder=nn.Identity())
    x = rows()[0].double()
    assert torch.equal(loaded(x).mean, model(x).mean)
    assert loaded.density is None
    with pytest.raises(ValueError, match="knows no held-out log-densities"):
        loaded.familiarity(x)


def test_an_encoder_must_be_given_again_and_fit(folder: Path) -> None:
    with pytest.raises(ValueError, match="encoder of your own: give it again"):
        DensityRegression.load(folder)
    with pytest.raises(InvalidModelError, match="do not fit the model"):
        DensityRegression.load(folder, encoder=MLP(3, (9,)))


def test_folders_of_other_things(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match=r"DensityRegression\.load"):
        density_regression.load(folder)
    X = np.arange(20.0)[:, None]
    density_regression.DensityRegressor(epochs=1, random_state=0).fit(X, X[:, 0]).save(tmp_path / "table")
    with pytest.raises(InvalidModelError, match="holds no DensityRegression, but 'DensityRegressor'"):
        DensityRegression.load(tmp_path / "table", encoder=encoder())


@pytest.mark.parametrize(
    "change",
    [
        {"head": ["mean", 10**12]},
        {"targets": 10**9},
        {"head": "os.system"},
        {"density": {"type": "system", "config": {}}},
        {"tempering": None},
        {"features": None},
    ],
    ids=str,
)
def test_forged_folders(change: dict[str, object], folder: Path) -> None:
    forge(folder, config=lambda config: config.update(change))
    with inert(), pytest.raises(InvalidModelError):
        DensityRegression.load(folder, encoder=encoder())


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    class OwnHead(MeanHead):
        pass

    class OwnDensity(GaussianDensity):
        pass

    class OwnModel(DensityRegression):
        pass

    class Counting(nn.Identity):
        def get_extra_state(self) -> int:
            return 3

        def set_extra_state(self, state: int) -> None:
            pass

    head: Head = OwnHead(3)
    for wrong, match in (
        (DensityRegression(nn.Identity(), 3, head=head), "OwnHead is a head of your own"),
        (DensityRegression(nn.Identity(), 3, density=OwnDensity()), "density is of a class of your own"),
        (OwnModel(nn.Identity(), 3), "OwnModel is a class of its own"),
        (DensityRegression(Counting(), 3), "encoder._extra_state of the model is a int"),
    ):
        with pytest.raises(ValueError, match=match):
            wrong.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_old_states_know_no_levels(model: DensityRegression) -> None:
    fresh = DensityRegression(encoder(), 8, 2, density=GaussianDensity(max_dims=3), tempering=RobustTempering(1.0))
    fresh.load_state_dict({name: value for name, value in model.state_dict().items() if name != "familiar_levels"})
    assert fresh.familiar_levels is None
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh.familiarity(rows()[0]), model.familiarity(rows()[0]))


def test_familiarity_is_a_share_of_held_out_rows(model: DensityRegression) -> None:
    x = rows()[0]
    levels = model.log_density(x)
    expected = (levels[None] <= levels[:, None]).double().mean(1)
    torch.testing.assert_close(model.familiarity(x).double(), expected, atol=1 / len(x), rtol=0)
    assert (model.familiarity(100 * x) == 0).all()


def test_many_levels_are_kept_as_quantiles() -> None:
    model = DensityRegression(nn.Identity(), 1)
    values = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    model.keep_levels(values)
    expected = np.quantile(values.numpy(), np.linspace(0, 1, FAMILIARITY_LEVELS))
    np.testing.assert_allclose(model.familiar_levels, expected, atol=1e-6)


# -- ONNX -------------------------------------------------------------------------------------------------------------


def run(path: Path, x: Tensor) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, {"X": x.numpy()})
    return found


@pytest.mark.parametrize("shape", [(), (7,)], ids=["table", "sequence"])
def test_a_module_as_onnx(shape: tuple[int, ...], tmp_path: Path) -> None:
    x, y = rows(shape=shape)
    model = DensityRegression(encoder(len(shape)), 8, 2)
    fit_density_regression(model, [(x, y)], [(x, y)], options=QUICK, verbose=False)
    assert to_onnx(model, tmp_path / "model.onnx", x[:1]) < 1e-3
    mean, std, log_density = run(tmp_path / "model.onnx", x)
    with torch.no_grad():
        np.testing.assert_allclose(mean, model(x).mean, rtol=1e-4)
        np.testing.assert_allclose(std, model(x).stddev, rtol=1e-3)
        np.testing.assert_allclose(log_density, model.log_density(x), rtol=1e-3, atol=1e-3)
    assert model.target_center is not None


def test_a_rival_as_onnx(tmp_path: Path) -> None:
    x, y = rows()
    model = GaussianNetwork(encoder(), 8, 2)
    fit_baseline(model, [(x, y)], options=QUICK, verbose=False)
    to_onnx(model, tmp_path / "model.onnx", x)
    np.testing.assert_allclose(run(tmp_path / "model.onnx", x)[0], model(x).mean.detach(), rtol=1e-4)


def test_what_cannot_be_onnx(model: DensityRegression, tmp_path: Path) -> None:
    x = rows()[0]
    with pytest.raises(ExportError, match="draws at random"):
        to_onnx(DropoutNetwork(encoder(), 8), tmp_path / "model.onnx", x)
    for example in (x[0], x.long(), x.numpy()):
        with pytest.raises(ValueError, match="example must be a tensor"):
            to_onnx(model, tmp_path / "model.onnx", example)
    with pytest.raises(ValueError, match="model must be a module of this package"):
        to_onnx(encoder(), tmp_path / "model.onnx", x)
    assert not (tmp_path / "model.onnx").exists()
