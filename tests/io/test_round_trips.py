"""What was saved comes back, also with encoders of one's own."""

import copy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from saved_models import Net, X, assert_same, fitted, forge, inert, y
from torch import Tensor, nn

from density_regression import (
    DensityRegressor,
    FlowDensity,
    GaussianDensity,
    InvalidModelError,
    KernelDensity,
    MixtureDensity,
    RadialFlowDensity,
    load,
)
from density_regression.baselines import DeepEnsembleRegressor, EvidentialRegressor, MCDropoutRegressor
from density_regression.io.store import read_model, write_model
from density_regression.nn.tempering import RescaledTempering, RobustTempering

# -- round trips ------------------------------------------------------------------------------------------------------


def test_folder_round_trip(tmp_path: Path) -> None:
    config = {"estimator": "Anything", "nested": {"list": [1, 2.5, None, "ä", True]}}
    tensors = {
        "a.b": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
        "scalar": torch.tensor(0.1, dtype=torch.float64),
        "count": torch.tensor([1, 2], dtype=torch.int64),
        "empty": torch.zeros(0, 3),
        "strided": torch.arange(6.0).reshape(2, 3).T,
        "learnt": nn.Parameter(torch.ones(2)),
    }
    write_model(tmp_path / "deep" / "er", config, tensors)
    read, got = read_model(tmp_path / "deep" / "er")
    assert {key: read[key] for key in config} == config
    assert got.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert got[name].dtype == tensor.dtype
        assert torch.equal(got[name], tensor)


DENSITIES: dict[str, Any] = {
    "mixture": "mixture",
    "gaussian": "gaussian",
    "kernel": "kernel",
    "radial": RadialFlowDensity(layers=2, epochs=2),
    "flow": FlowDensity(transforms=1, hidden=(8,), epochs=1),
    "maf": FlowDensity("maf", transforms=1, hidden=[8, 4], epochs=2),
    "nsf": FlowDensity("nsf", transforms=1, hidden=(8,), epochs=1),
    "mixture with settings": MixtureDensity(3, max_components=4, variance=0.9, max_dims=2, max_rows=50),
    "kernel with settings": KernelDensity("gaussian", 0.7, max_points=20),
    "gaussian with settings": GaussianDensity(variance=0.5),
    "none": None,
}


@pytest.mark.parametrize("density", DENSITIES.values(), ids=DENSITIES.keys())
def test_every_density_comes_back(density: Any, tmp_path: Path) -> None:
    saved = fitted(density=density)
    saved.save(tmp_path)
    with inert():
        loaded = load(tmp_path)
        assert_same(loaded, saved)


@pytest.mark.parametrize("name", ["flow", "maf", "nsf", "radial"])
def test_densities_given_by_name_come_back(name: str, tmp_path: Path) -> None:
    saved = DensityRegressor(hidden=(8, 2), epochs=1, density=name, random_state=0).fit(X[:30], y[:30])
    saved.save(tmp_path)
    assert_same(load(tmp_path), saved)


@pytest.mark.parametrize(
    "tempering", ["robust", "exact", "rescaled", RescaledTempering(-1.0, 0.3), RobustTempering(0.7)], ids=str
)
@pytest.mark.parametrize("head", ["natural", "mean"])
def test_every_tempering_and_head_come_back(tempering: Any, head: str, tmp_path: Path) -> None:
    saved = fitted(tempering=tempering, head=head)
    saved.save(tmp_path)
    assert_same(load(tmp_path), saved)


def test_several_targets_come_back(tmp_path: Path) -> None:
    saved = fitted(np.stack([y, -y, X[:, 1]], axis=1))
    saved.save(tmp_path)
    loaded = load(tmp_path)
    assert loaded.predict(X).shape == (len(X), 3)
    assert_same(loaded, saved)


def test_settings_come_back(tmp_path: Path) -> None:
    training = {"batch_size": 16, "learning_rate": 1e-2, "weight_decay": 0.0, "patience": None, "epochs": 3}
    saved = fitted(**training, validation_fraction=0.3, n_threads=1, verbose=False)
    saved.save(tmp_path)
    loaded = load(tmp_path)
    assert_same(loaded, saved)
    # A loaded estimator is a full one: it can be fitted again, and to the same end.
    np.testing.assert_array_equal(loaded.fit(X, y).predict(X), saved.predict(X))


def test_numpy_settings_are_saved_as_numbers(tmp_path: Path) -> None:
    saved = fitted(hidden=np.array([8, 6]), epochs=np.int64(2), learning_rate=np.float64(0.003))
    saved.save(tmp_path)
    loaded = load(tmp_path)
    assert loaded.hidden == (8, 6)
    np.testing.assert_array_equal(loaded.predict(X), saved.predict(X))


def test_feature_names_come_back(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["höhe", "width of it"])
    saved = DensityRegressor(hidden=(8,), epochs=1, random_state=0).fit(frame, y)
    saved.save(tmp_path)
    loaded = load(tmp_path)
    assert loaded.feature_names_in_.tolist() == ["höhe", "width of it"]
    assert_same(loaded, saved, frame)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["width of it", "höhe"]])
    with pytest.warns(UserWarning, match="feature names"):
        loaded.predict(X)


def test_without_feature_names_none_come_back(folder: Path) -> None:
    assert not hasattr(load(folder), "feature_names_in_")


def test_targets_of_extreme_size_come_back(tmp_path: Path) -> None:
    saved = fitted(y * 1e200)
    saved.save(tmp_path)
    assert_same(load(tmp_path), saved)


def test_a_history_with_an_overflow_is_saved(tmp_path: Path) -> None:
    saved = fitted()
    saved.report_.history = [float("nan"), float("inf"), 1.5]
    saved.save(tmp_path)
    history = load(tmp_path).report_.history
    assert np.isnan(history[:2]).all()
    assert history[2] == 1.5


def test_models_of_earlier_versions_have_no_training_losses(folder: Path, regressor: DensityRegressor) -> None:
    assert load(folder).report_.train_history == regressor.report_.train_history != []
    forge(folder, lambda config: config.pop("train_history"))
    loaded = load(folder)
    assert loaded.report_.train_history == []
    assert loaded.report_.history == regressor.report_.history


def test_saving_needs_a_fitted_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        DensityRegressor().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_loading_leaves_the_random_generator_alone(folder: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    load(folder)
    assert torch.equal(torch.rand(4), expected)


def test_a_loaded_model_is_ready_to_predict(folder: Path) -> None:
    assert not load(folder).model_.training


def test_loading_does_not_import_torch_s_compiler(tmp_path: Path) -> None:
    """Nor does predicting: that import takes far longer than reading a model."""
    for estimator in (DensityRegressor, DeepEnsembleRegressor, EvidentialRegressor, MCDropoutRegressor):
        estimator(hidden=(4,), epochs=1, random_state=0).fit(X, y).save(tmp_path / estimator.__name__)
    check = """
        import pathlib, sys
        import numpy, density_regression
        for folder in pathlib.Path(sys.argv[1]).iterdir():
            density_regression.load(folder).predict(numpy.zeros((2, 2)), return_std=True)
            found = {"torch._dynamo", "sympy"} & sys.modules.keys()
            assert not found, (folder.name, found)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(check), str(tmp_path)], check=True, timeout=120)


# -- encoders of the user's own ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own() -> DensityRegressor:
    torch.manual_seed(0)
    return fitted(encoder=Net())


def test_own_encoder_is_given_again(own: DensityRegressor, tmp_path: Path) -> None:
    own.save(tmp_path)
    net = Net()
    before = copy.deepcopy(net.state_dict())
    loaded = load(tmp_path, encoder=net)
    assert_same(loaded, own)
    # The module that was given is a pattern: the saved weights go into a copy.
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_own_encoder_from_a_factory(tmp_path: Path) -> None:
    saved = fitted(encoder=lambda columns: Net(columns, 4))
    saved.save(tmp_path)
    assert_same(load(tmp_path, encoder=Net(2, 4)), saved)


def test_a_network_somebody_already_had(tmp_path: Path) -> None:
    saved = DensityRegressor.from_trained(Net().eval(), X, y, random_state=0)
    saved.save(tmp_path)
    assert_same(load(tmp_path, encoder=Net()), saved)


def test_own_encoder_missing(own: DensityRegressor, tmp_path: Path) -> None:
    own.save(tmp_path)
    with pytest.raises(ValueError, match="encoder of your own: give it again") as caught:
        load(tmp_path)
    assert not isinstance(caught.value, InvalidModelError)


def test_own_encoder_where_none_is_wanted(folder: Path) -> None:
    with pytest.raises(ValueError, match="package's own encoder; do not give another") as caught:
        load(folder, encoder=Net())
    assert not isinstance(caught.value, InvalidModelError)


class Positions(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[..., None]


class Broken(Net):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("something is missing")


@pytest.mark.parametrize(
    "encoder",
    [Net(width=7), Net(columns=3), nn.Sequential(nn.Linear(2, 5)), nn.Flatten(0), Positions(), Broken()],
    ids=["width", "columns", "layers", "output", "positions", "raises"],
)
def test_own_encoder_of_another_shape(encoder: nn.Module, own: DensityRegressor, tmp_path: Path) -> None:
    own.save(tmp_path)
    with pytest.raises(InvalidModelError):
        load(tmp_path, encoder=encoder)
