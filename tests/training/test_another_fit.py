"""Checkpoints of another fit, with other data or settings, are not used."""

import copy
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from density_regression import (
    MLP,
    DensityRegression,
    DensityRegressor,
    GaussianDensity,
    MixtureDensity,
    TrainingOptions,
    fit_density_regression,
)
from density_regression.baselines import GaussianRegressor
from density_regression.nn.encoders import UNet
from density_regression.nn.tempering import RobustTempering
from density_regression.vision.encoder import Patches, WithScene
from density_regression.vision.model import SceneRegression
from training.checkpoint_helpers import TABLE, X, regressor, steps_run, y
from training.helpers import generator, wave


def test_a_generator_is_known_by_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(random_state: np.random.RandomState) -> list[str]:
        return steps_run(monkeypatch, lambda: regressor(tmp_path, random_state=random_state).fit(*TABLE))

    source = np.random.RandomState(3)
    assert len(fit(source)) == 3
    assert fit(np.random.RandomState(3)) == []
    assert len(fit(source)) == 3, "it has moved on, and would draw another seed"


class Tanh(nn.Sequential):
    """The same weights as `MLP`, and another function of them."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(1, 8), nn.Tanh())


OTHER_FITS: dict[str, Callable[[Path], Any]] = {
    "inputs": lambda folder: regressor(folder).fit(X + 1e-9, y),
    "targets": lambda folder: regressor(folder).fit(X, y + np.eye(len(y))[0]),
    "rows": lambda folder: regressor(folder).fit(X[1:], y[1:]),
    "weights": lambda folder: regressor(folder).fit(X, y, np.linspace(1, 2, len(y))),
    "seed": lambda folder: regressor(folder, random_state=1).fit(X, y),
    "no seed": lambda folder: regressor(folder, random_state=None).fit(X, y),
    "epochs": lambda folder: regressor(folder, epochs=4).fit(X, y),
    "rate": lambda folder: regressor(folder, learning_rate=2e-3).fit(X, y),
    "decay": lambda folder: regressor(folder, weight_decay=0.3).fit(X, y),
    "batch": lambda folder: regressor(folder, batch_size=16).fit(X, y),
    "held out": lambda folder: regressor(folder, validation_fraction=0.3).fit(X, y),
    "hidden": lambda folder: regressor(folder, hidden=(9,)).fit(X, y),
    "head": lambda folder: regressor(folder, head="natural").fit(X, y),
    "tempering": lambda folder: regressor(folder, tempering="exact").fit(X, y),
    "density": lambda folder: regressor(folder, density="gaussian").fit(X, y),
    "density's settings": lambda folder: regressor(folder, density=MixtureDensity(2)).fit(X, y),
    "encoder": lambda folder: regressor(folder, encoder=MLP(1, (8,))).fit(X, y),
    "factory": lambda folder: regressor(folder, encoder=lambda columns: MLP(columns, (8, 8))).fit(X, y),
    "another factory": lambda folder: regressor(folder, encoder=lambda columns: Tanh()).fit(X, y),
}


@pytest.mark.parametrize("fit", OTHER_FITS.values(), ids=OTHER_FITS.keys())
def test_another_fit_starts_anew(fit: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    regressor(tmp_path).fit(X, y)
    assert len(steps_run(monkeypatch, lambda: fit(tmp_path))) == 3
    assert fit(tmp_path / "elsewhere").model_.state_dict().keys() == fit(tmp_path).model_.state_dict().keys()


def test_another_encoder_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = MLP(1, (8,))
    other = Tanh()
    other.load_state_dict(plain.state_dict())
    for encoder, steps in ((plain, 3), (copy.deepcopy(plain), 0), (other, 3), (MLP(1, (8,)), 3)):
        fitted = regressor(tmp_path, encoder=encoder)
        assert len(steps_run(monkeypatch, lambda fitted=fitted: fitted.fit(X, y))) == steps


def changed(module: nn.Module, **attributes: object) -> nn.Module:
    module = copy.deepcopy(module)
    vars(module).update(attributes)
    return module


class Scaled(nn.Linear):
    """A layer with a number that neither its state nor its `repr` shows."""

    def __init__(self, factor: float) -> None:
        super().__init__(1, 8)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * super().forward(x)


def starting_at(value: float, columns: int) -> nn.Module:
    layer = nn.Linear(columns, 8)
    nn.init.constant_(layer.weight, value)
    return layer


@pytest.mark.parametrize("estimator", [DensityRegressor, GaussianRegressor])
@pytest.mark.parametrize(
    "encoders",
    [
        [partial(starting_at, 0.1), partial(starting_at, 0.2)],
        [lambda _: Scaled(1.0), lambda _: Scaled(2.0)],
        [ORIGINAL := Scaled(1.0), changed(ORIGINAL, factor=2.0)],
        [ORIGINAL, changed(ORIGINAL, factor=torch.ones(8))],
    ],
    ids=["weights of a factory's", "number of a factory's", "number", "tensor"],
)
def test_what_an_encoder_starts_from_makes_another_fit(encoders: list[Any], estimator: Any, tmp_path: Path) -> None:
    def trains(encoder: Any) -> bool:
        settings = {"epochs": 2, "n_threads": 1, "random_state": 0, "checkpoint_dir": tmp_path}
        return estimator(encoder=encoder, **settings).fit(X, y).report_.history != []

    assert [trains(encoders[i]) for i in (0, 0, 1, 1, 0)] == [True, False, True, False, True]


def test_where_and_how_loudly_it_runs_makes_no_other_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    regressor(tmp_path).fit(X, y)
    shutil.copytree(tmp_path, tmp_path / "moved")
    same = regressor(tmp_path / "moved", verbose=False, n_threads=None, device="auto")
    assert steps_run(monkeypatch, lambda: same.fit(X, y)) == []


def test_an_interrupted_fit_among_checkpoints_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps 2 and 3 that lie in the folder belong to the fit before."""
    regressor(tmp_path, random_state=1).fit(X, y)
    steps_run(monkeypatch, lambda: regressor(tmp_path).fit(X, y), "fit_density")
    assert steps_run(monkeypatch, lambda: regressor(tmp_path).fit(X, y)) == ["fit_density", "refit_head"]


@pytest.mark.parametrize("change", ["nothing", "options", "density", "tempering"])
def test_a_torch_fit_resumes_only_as_it_was(change: str, tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 60)[:, None]
    batches = [(x, x**2)]

    def history(**changes: Any) -> list[float]:
        options = TrainingOptions(epochs=changes.pop("epochs", 2))
        model = DensityRegression(MLP(1, (4,)), 4, **{"density": MixtureDensity(2)} | changes)
        return fit_density_regression(model, batches, options=options, checkpoint_dir=tmp_path).history

    assert len(history()) == 2
    changes = {
        "nothing": {},
        "options": {"epochs": 3},
        "density": {"density": MixtureDensity(1)},
        "tempering": {"tempering": "exact"},
    }[change]
    assert bool(history(**changes)) == (change != "nothing")


def test_a_trained_encoder_is_known_by_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(encoder: nn.Module) -> list[str]:
        model = DensityRegression(encoder, 8)
        fit = partial(fit_density_regression, model, [wave()], pretrained=True, checkpoint_dir=tmp_path)
        return steps_run(monkeypatch, fit)

    encoder = MLP(1, (8,))
    mirrored = copy.deepcopy(encoder)
    with torch.no_grad():
        mirrored[0].weight.neg_()
    assert [len(steps(part)) for part in (encoder, copy.deepcopy(encoder), mirrored)] == [2, 0, 2]


def test_settings_of_a_density_within_another_make_another_fit(tmp_path: Path) -> None:
    x = torch.rand(6, 3, 8, 8, generator=generator())

    def trains(scene: int, pixels: int) -> bool:
        encoder = WithScene(UNet(width=4, levels=1), Patches(4), max_dims=scene)
        model = SceneRegression(encoder, 4, density=GaussianDensity(max_dims=pixels), tempering=RobustTempering())
        options = TrainingOptions(epochs=1)
        return fit_density_regression(model, [(x, x[:, :1])], options=options, checkpoint_dir=tmp_path).history != []

    assert [trains(*dims) for dims in ((2, 2), (2, 2), (2, 3), (3, 3))] == [True, False, True, True]
