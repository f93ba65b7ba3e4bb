"""A model folder: what was saved comes back bit for bit, and anything else is refused without running a line of it."""

import contextlib
import copy
import hashlib
import json
import os
import pickle
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

import density_regression
from density_regression import (
    DensityRegressor,
    FlowDensity,
    GaussianDensity,
    InvalidModelError,
    KernelDensity,
    MixtureDensity,
    RadialFlowDensity,
    load,
    persistence,
)
from density_regression._numeric import FittedModule
from density_regression.density import RescaledTempering, RobustTempering
from density_regression.persistence import read_model, write_model

Config = dict[str, Any]
Tensors = dict[str, Tensor]


def rows(n: int = 60, columns: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(5.0, 2.0, (n, columns))
    return X, 100.0 + X[:, 0] ** 2 + rng.normal(size=n)


X, y = rows()
FAR = np.concatenate([X, 30.0 * X, -1e6 * X[:5]])


def fitted(target: np.ndarray = y, **params: Any) -> DensityRegressor:
    return DensityRegressor(**{"hidden": (8, 6), "epochs": 2, "random_state": 0, **params}).fit(X, target)


class Net(nn.Module):
    """An encoder that the package could not build itself, with statistics and tied weights."""

    def __init__(self, columns: int = 2, width: int = 5) -> None:
        super().__init__()
        self.first = nn.Linear(columns, width)
        self.norm = nn.BatchNorm1d(width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.third.weight = self.second.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.third(torch.tanh(self.second(self.norm(self.first(x)))))


def assert_same(loaded: DensityRegressor, saved: DensityRegressor, points: Any = FAR) -> None:
    np.testing.assert_array_equal(loaded.predict(points, return_std=True), saved.predict(points, return_std=True))
    np.testing.assert_array_equal(loaded.predict_quantiles(points, [0.9]), saved.predict_quantiles(points, [0.9]))
    np.testing.assert_array_equal(loaded.decompose(points), saved.decompose(points))
    if saved.density is not None:
        np.testing.assert_array_equal(loaded.score_samples(points), saved.score_samples(points))
        np.testing.assert_array_equal(loaded.familiarity(points), saved.familiarity(points))
    assert plain(loaded) == plain(saved)
    assert loaded.n_features_in_ == saved.n_features_in_
    assert loaded.report_ == saved.report_


def plain(regressor: DensityRegressor) -> Config:
    """Hyper-parameters in a form that compares by value; the encoder is the caller's affair."""
    params = {name: value for name, value in regressor.get_params().items() if name != "encoder"}
    return {
        name: (type(value), value.config()) if isinstance(value, FittedModule) else value
        for name, value in params.items()
    }


@pytest.fixture(scope="module")
def regressor() -> DensityRegressor:
    return fitted()


@pytest.fixture
def folder(regressor: DensityRegressor, tmp_path: Path) -> Path:
    regressor.save(tmp_path / "model")
    return tmp_path / "model"


@contextmanager
def inert() -> Iterator[None]:
    """Whatever could run code from a file fails loudly."""

    def forbidden(*args: Any, **kwargs: Any) -> None:
        pytest.fail(f"loading called something it must not, with {args!r}")

    with pytest.MonkeyPatch.context() as patch:
        for module, names in ((pickle, ("load", "loads", "Unpickler")), (os, ("system", "popen", "execv"))):
            for name in names:
                patch.setattr(module, name, forbidden)
        patch.setattr(torch, "load", forbidden)
        patch.setattr(subprocess, "Popen", forbidden)
        yield


def assert_refused(folder: Path, match: str | None = None) -> None:
    """Loading says no in one way only, and has run nothing by then."""
    with inert(), pytest.raises(InvalidModelError, match=match):
        load(folder)


def weights_of(folder: Path) -> Path:
    (path,) = folder.glob("*.safetensors")
    return path


def config_of(folder: Path) -> Config:
    config: Config = json.loads((folder / "model.json").read_text())
    return config


def forge(
    folder: Path,
    config: Callable[[Config], None] | None = None,
    tensors: Callable[[Tensors], None] | None = None,
    content: bytes | None = None,
) -> None:
    """Change a folder and make all its checksums right again, as somebody who knows the format would."""
    body = config_of(folder)
    body.pop("sha256")
    old = weights_of(folder)
    if tensors is not None:
        changed = tensors_from_bytes(old.read_bytes())
        tensors(changed)
        content = tensors_to_bytes(changed)
    if content is not None:
        old.unlink()
        body["weights_sha256"] = hashlib.sha256(content).hexdigest()
        body["weights"] = f"weights-{body['weights_sha256'][:16]}.safetensors"
        (folder / body["weights"]).write_bytes(content)
    if config is not None:
        config(body)
    body["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(body))


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


# -- writing ----------------------------------------------------------------------------------------------------------


def test_a_folder_is_one_json_and_one_safetensors_file(folder: Path) -> None:
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors"]
    config = config_of(folder)
    assert config["format"] == list(persistence.FORMAT)
    assert config["version"] == density_regression.__version__
    assert {"params", "scaling", "feature_names", "torch"} <= config.keys()
    size = struct.unpack("<Q", weights_of(folder).read_bytes()[:8])[0]
    json.loads(weights_of(folder).read_bytes()[8 : 8 + size])


def test_saving_pickles_nothing(regressor: DensityRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((pickle, "dump"), (pickle, "dumps"), (pickle, "Pickler"), (torch, "save")):
        monkeypatch.setattr(module, name, lambda *args, **kwargs: pytest.fail("saving called pickle"))
    regressor.save(tmp_path)


def test_saved_files_are_as_readable_as_any_other(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    expected = (tmp_path / "other").stat().st_mode
    assert {path.stat().st_mode for path in folder.iterdir()} == {expected}


def test_overwriting_leaves_only_the_new_model(folder: Path) -> None:
    new = fitted(random_state=1)
    new.save(folder)
    assert len(list(folder.iterdir())) == 2
    assert_same(load(folder), new)


def test_overwriting_with_other_settings_and_the_same_weights(folder: Path, regressor: DensityRegressor) -> None:
    other = copy.deepcopy(regressor)
    other.fitted_params_["learning_rate"] = 0.5
    other.save(folder)
    assert len(list(folder.iterdir())) == 2
    assert load(folder).learning_rate == 0.5


def test_a_folder_with_other_files_keeps_them(tmp_path: Path, regressor: DensityRegressor) -> None:
    (tmp_path / "README.md").write_text("mine")
    regressor.save(tmp_path)
    regressor.save(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["disk full", "interrupted"])
@pytest.mark.parametrize("call", [1, 2], ids=["weights", "config"])
@pytest.mark.parametrize("function", ["replace", "fsync", "chmod"])
def test_a_crash_while_writing_leaves_the_old_model(
    function: str,
    call: int,
    error: BaseException,
    folder: Path,
    regressor: DensityRegressor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    new = fitted(random_state=1)
    original = getattr(os, function)
    calls = []

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == call:
            raise error
        return original(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, function, failing)
        with pytest.raises(type(error)):
            new.save(folder)
    assert len(calls) == call
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert_same(load(folder), regressor)
    new.save(folder)
    assert_same(load(folder), new)


def test_a_crash_that_changes_only_settings_keeps_the_weights(
    folder: Path, regressor: DensityRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old and new model share their weights file here: cleaning up must not take it away."""
    original = os.replace

    def failing(source: str, target: Path) -> None:
        if Path(target).suffix == ".json":
            raise OSError("disk full")
        original(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="disk full"):
        copy.deepcopy(regressor).set_params(learning_rate=0.5).save(folder)
    assert_same(load(folder), regressor)


def test_what_is_not_json_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_model(tmp_path, {"a": float("nan")}, {"t": torch.zeros(1)})
    assert list(tmp_path.iterdir()) == []


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, 0.3, 0.5, 0.9, -1])
def test_truncated_weights(keep: float, folder: Path) -> None:
    path = weights_of(folder)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    assert_refused(folder, r"weights-\w+\.safetensors is truncated or was edited")


def test_a_flipped_bit_anywhere_in_the_weights(folder: Path) -> None:
    path = weights_of(folder)
    content = path.read_bytes()
    for position in range(0, len(content), max(len(content) // 97, 1)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        assert_refused(folder, "was edited: its checksum differs")
    path.write_bytes(content)
    load(folder)


def test_truncated_json(folder: Path) -> None:
    path = folder / "model.json"
    content = path.read_bytes()
    for keep in range(0, len(content), 23):
        path.write_bytes(content[:keep])
        assert_refused(folder, r"model\.json is truncated or not JSON")


def test_a_flipped_bit_anywhere_in_the_json(folder: Path) -> None:
    path = folder / "model.json"
    content = path.read_bytes()
    refused = 0
    for position in range(0, len(content), 7):
        edited = content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
        # The last of seventeen digits may change without changing the number.
        with contextlib.suppress(ValueError):
            if json.loads(edited) == json.loads(content):
                continue
        path.write_bytes(edited)
        assert_refused(folder)
        refused += 1
    assert refused > 0.9 * len(content) / 7


EDITS: dict[str, Callable[[Config], Any]] = {
    "hyper-parameter": lambda config: config["params"].update(epochs=3),
    "scaling": lambda config: config["scaling"]["y"][1].__setitem__(0, 1e-3),
    "estimator": lambda config: config.update(estimator="DeepEnsembleRegressor"),
    "weights": lambda config: config.update(weights_sha256="0" * 64),
    "addition": lambda config: config.update(note="harmless"),
    "removal": lambda config: config.pop("history"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_edited_json(edit: Callable[[Config], Any], folder: Path) -> None:
    config = config_of(folder)
    edit(config)
    (folder / "model.json").write_text(json.dumps(config))
    assert_refused(folder, r"model\.json was edited: its checksum differs")


def test_reformatted_json_is_the_same_model(folder: Path, regressor: DensityRegressor) -> None:
    (folder / "model.json").write_text(json.dumps(config_of(folder)))
    assert_same(load(folder), regressor)


def test_weights_missing(folder: Path) -> None:
    path = weights_of(folder)
    path.unlink()
    assert_refused(folder, rf"is incomplete: {path.name} is missing")
    path.mkdir()
    assert_refused(folder, "is missing")


def test_weights_of_another_model(folder: Path, tmp_path: Path) -> None:
    fitted(random_state=1).save(tmp_path / "other")
    shutil.copy(weights_of(tmp_path / "other"), weights_of(folder))
    assert_refused(folder, "checksum differs")


OUTSIDE = ["../x", "/x", "..", ".", "", "model.json", "sub/x.safetensors", "a\0b", 7, None, []]


@pytest.mark.parametrize("weights", OUTSIDE, ids=repr)
def test_weights_outside_the_folder(weights: Any, folder: Path) -> None:
    shutil.copy(weights_of(folder), folder.parent / "x")
    forge(folder, lambda config: config.update(weights=weights))
    assert_refused(folder, r"outside its folder|names no weights")


def test_a_newer_major_format(folder: Path) -> None:
    forge(folder, lambda config: config.update(format=[2, 0], version="9.1"))
    with pytest.raises(InvalidModelError, match=r"format 2, newer than the 1 .* density-regression 9\.1; .*upgrade"):
        load(folder)


def test_a_newer_major_format_of_which_nothing_else_is_known(folder: Path) -> None:
    (folder / "model.json").write_text(json.dumps({"format": [3], "everything": "else is new"}))
    assert_refused(folder, "newer than")


def test_a_newer_minor_format(folder: Path, regressor: DensityRegressor) -> None:
    forge(folder, lambda config: config.update(format=[1, 99], added_later={"a": [1]}))
    assert_same(load(folder), regressor)


@pytest.mark.parametrize("version", [None, "1", [], [None], {}, ["1"]])
def test_no_format_version(version: Any, folder: Path) -> None:
    forge(folder, lambda config: config.update(format=version))
    assert_refused(folder, "no readable format version")


@pytest.mark.parametrize("content", ["[]", "{}", '{"a": 1}', "7", "null", '"model"', '{"format": [1, 0]}'])
def test_json_that_is_no_model(content: str, folder: Path) -> None:
    (folder / "model.json").write_text(content)
    assert_refused(folder, "does not describe a model of this package")


@pytest.mark.parametrize(
    "content",
    [b"", b"\x80\x04K\x01.", b"\xff\xfe\x00", b"[" * 100_000, b'{"format": NaN}', b'{"format": ' + b"9" * 9999 + b"}"],
    ids=["empty", "pickle", "binary", "deep", "nan", "long number"],
)
def test_no_json_at_all(content: bytes, folder: Path) -> None:
    (folder / "model.json").write_bytes(content)
    assert_refused(folder, "truncated or not JSON")


def test_json_nested_too_deeply_to_be_checked(folder: Path) -> None:
    """Reading stops a little deeper than writing does, and the checksum is made by writing."""
    start = b'{"format": [1, 0], "weights": "", "weights_sha256": "", "sha256": "", "note": '
    for depth in range(800, 1050):
        (folder / "model.json").write_bytes(start + b"[" * depth + b"]" * depth + b"}")
        assert_refused(folder)


def test_no_model(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(FileNotFoundError, match=r"No model in .*: there is no model\.json"):
            load(path)


# -- forgery ----------------------------------------------------------------------------------------------------------


def params(**changes: Any) -> Callable[[Config], None]:
    return lambda config: config["params"].update(changes)


def scaling(part: str, value: Any) -> Callable[[Config], None]:
    return lambda config: config["scaling"].update({part: value})


def without(key: str) -> Callable[[Config], None]:
    return lambda config: config.pop(key)


FORGED: dict[str, Callable[[Config], Any]] = {
    "estimator os.system": lambda config: config.update(estimator="os.system"),
    "estimator of the module": lambda config: config.update(estimator="DeepRegressor"),
    "estimator list": lambda config: config.update(estimator=["DensityRegressor"]),
    "estimator dict": lambda config: config.update(estimator={"DensityRegressor": 1}),
    "no estimator": without("estimator"),
    "unknown setting": params(shell="touch forged"),
    "dunder setting": params(__class__="os"),
    "settings list": lambda config: config.update(params=["hidden"]),
    "no settings": without("params"),
    "density builtins": params(density={"type": "__builtins__", "config": {}}),
    "density eval": params(density={"type": "eval", "config": {"source": "1"}}),
    "density DENSITIES": params(density={"type": "DENSITIES", "config": {}}),
    "density annotations": params(density={"type": "annotations", "config": {}}),
    "density partial": params(density={"type": "partial", "config": {"func": "os.system"}}),
    "density submodule": params(density={"type": "flow", "config": {}}),
    "density abstract": params(density={"type": "Density", "config": {}}),
    "density whitening": params(density={"type": "Whitening", "config": {}}),
    "density tempering": params(density={"type": "RobustTempering", "config": {}}),
    "tempering density": params(tempering={"type": "MixtureDensity", "config": {}}),
    "density unhashable": params(density={"type": ["MixtureDensity"], "config": {}}),
    "density without type": params(density={"config": {}}),
    "density without config": params(density={"type": "MixtureDensity"}),
    "density config list": params(density={"type": "MixtureDensity", "config": [1]}),
    "density unknown config": params(density={"type": "MixtureDensity", "config": {"command": "true"}}),
    "density wrong config": params(density={"type": "MixtureDensity", "config": {"components": "many"}}),
    "density bad config": params(density={"type": "MixtureDensity", "config": {"variance": 7.0}}),
    "density name": params(density="os"),
    "other density": params(density="kernel"),
    "no density": params(density=None),
    "other tempering": params(tempering="rescaled"),
    "head": params(head="os.system"),
    "hidden text": params(hidden="rm"),
    "hidden texts": params(hidden=["a", "b"]),
    "hidden none": params(hidden=None),
    "hidden empty": params(hidden=[]),
    "hidden negative": params(hidden=[-8, 6]),
    "hidden fraction": params(hidden=[8.5, 6]),
    "hidden other": params(hidden=[8, 7]),
    "hidden longer": params(hidden=[8, 6, 6]),
    "hidden huge": params(hidden=[10**9, 10**9]),
    "hidden enormous": params(hidden=[10**30, 10**30]),
    "epochs": params(epochs="many"),
    "learning rate": params(learning_rate=-1.0),
    "random state": params(random_state={"a": 1}),
    "threads": params(n_threads=10**6),
    "no scaling": without("scaling"),
    "no y scaling": lambda config: config["scaling"].pop("y"),
    "scaling text": lambda config: config.update(scaling="x"),
    "scaling texts": scaling("x", [["a", "b"], ["c", "d"]]),
    "scaling ragged": scaling("x", [[1.0, 2.0], [1.0]]),
    "scaling nested": scaling("x", [[[1.0], [2.0]], [[1.0], [1.0]]]),
    "scaling three": scaling("x", [[1.0, 2.0], [1.0, 1.0], [0.0, 0.0]]),
    "scaling empty": scaling("x", [[], []]),
    "scaling of another width": scaling("x", [[1.0], [1.0]]),
    "scaling of another target": scaling("y", [[1.0, 1.0], [1.0, 1.0]]),
    "scaling by zero": scaling("x", [[1.0, 2.0], [1.0, 0.0]]),
    "scaling negative": scaling("y", [[1.0], [-1.0]]),
    "scaling null": scaling("y", [[None], [1.0]]),
    "scaling huge": scaling("y", [[10**400], [1.0]]),
    "no target shape": without("target_shape"),
    "target shape": lambda config: config.update(target_shape=[3]),
    "target shape text": lambda config: config.update(target_shape="x"),
    "no feature names": without("feature_names"),
    "feature names text": lambda config: config.update(feature_names="ab"),
    "feature names numbers": lambda config: config.update(feature_names=[1, 2]),
    "feature names too many": lambda config: config.update(feature_names=["a", "b", "c"]),
    "feature names null": lambda config: config.update(feature_names=None),
    "own encoder": lambda config: config.update(own_encoder="yes"),
    "no own encoder": without("own_encoder"),
    "history": lambda config: config.update(history={"a": 1}),
    "history texts": lambda config: config.update(history=["low"]),
    "no history": without("history"),
    "seconds": lambda config: config.update(seconds=[1, 2]),
    "seconds texts": lambda config: config.update(seconds={"pretrain": "long"}),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED.keys())
def test_forged_json(change: Callable[[Config], Any], folder: Path) -> None:
    forge(folder, change)
    assert_refused(folder)


def replace(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: change(tensors[name]).contiguous()})


FORGED_TENSORS: dict[str, Callable[[Tensors], Any]] = {
    "missing": lambda tensors: tensors.pop("encoder.encoder.0.weight"),
    "missing head": lambda tensors: tensors.pop("head.offset"),
    "missing density": lambda tensors: tensors.pop("density.factor"),
    "missing levels": lambda tensors: tensors.pop("held_out_levels"),
    "added": lambda tensors: tensors.update({"__class__": torch.zeros(1)}),
    "added inside": lambda tensors: tensors.update({"encoder.encoder.0.forward": torch.zeros(1)}),
    "renamed": lambda tensors: tensors.update({"encoder.encoder.9.weight": tensors.pop("encoder.encoder.0.weight")}),
    "none at all": lambda tensors: tensors.clear(),
    "encoder shape": replace("encoder.encoder.0.weight", lambda t: t.T),
    "encoder shape empty": replace("encoder.encoder.0.weight", lambda t: t[:0]),
    "head shape": replace("head.linear.weight", lambda t: t[:1]),
    "head bounds": replace("head.s_low", lambda t: t.repeat(2)),
    "center shape": replace("density.whitening.center", lambda t: t[:-1]),
    "center rank": replace("density.whitening.center", lambda t: t[None].repeat(17, 1)),
    "projection shape": replace("density.whitening.projection", lambda t: t[:-1]),
    "projection rank": replace("density.whitening.projection", lambda t: t[None]),
    "residual shape": replace("density.whitening.residual_scale", lambda t: t.repeat(17)),
    "log det shape": replace("density.whitening.log_det", lambda t: t.repeat(17)),
    "factor shape": replace("density.factor", lambda t: t[:, :-1]),
    "factor rank": replace("density.factor", lambda t: t.flatten()),
    "norm shape": replace("density.log_norm", lambda t: t.repeat(2)),
    "reference shape": replace("tempering.reference", lambda t: t.repeat(17)),
    "exponent shape": replace("tempering.exponent", lambda t: t.repeat(2, 2)),
    "levels shape": replace("held_out_levels", lambda t: t[None]),
    "levels empty": replace("held_out_levels", lambda t: t[:0]),
    "levels not in order": replace("held_out_levels", lambda t: t.flip(0)),
    "levels not a number": replace("held_out_levels", lambda t: t * torch.nan),
}


@pytest.mark.parametrize("change", FORGED_TENSORS.values(), ids=FORGED_TENSORS.keys())
def test_forged_tensors(change: Callable[[Tensors], Any], folder: Path) -> None:
    forge(folder, tensors=change)
    assert_refused(folder)


def safetensors(shape: list[int], kind: str = "F32", data: bytes = b"\0" * 4) -> bytes:
    header = json.dumps({"encoder.0.weight": {"dtype": kind, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        pickle.dumps({"a": 1}),
        struct.pack("<Q", 2**63) + b"{}",
        safetensors([2**40, 2**40]),
        safetensors([-1]),
        safetensors([1], "Q9"),
        safetensors([2], "F4", b"\0"),
        safetensors([0, 2**62], data=b""),
    ],
    ids=["empty", "pickle", "long header", "huge shape", "negative shape", "no type", "type torch lacks", "empty huge"],
)
def test_forged_weights_file(content: bytes, folder: Path) -> None:
    forge(folder, content=content)
    assert_refused(folder)


def test_no_flow_is_built_for_a_width_that_no_weights_have(tmp_path: Path) -> None:
    """A tensor without elements can have any shape, and a flow is built for the shape it finds."""
    fitted(density=FlowDensity(transforms=1, hidden=(8,), epochs=1)).save(tmp_path)
    forge(tmp_path, tensors=replace("density.whitening.projection", lambda t: torch.zeros(0, 2**40)))
    assert_refused(tmp_path)


@pytest.mark.parametrize(
    "config",
    [{"layers": 10**18}, {"layers": "two"}, {"layers": 3}, {"layers": 2.0}, {"layers": 2, "epochs": None}],
    ids=str,
)
def test_forged_flow(config: Config, tmp_path: Path) -> None:
    fitted(density=RadialFlowDensity(layers=2, epochs=1)).save(tmp_path)
    forge(tmp_path, params(density={"type": "RadialFlowDensity", "config": config}))
    assert_refused(tmp_path)


WEIRD: list[Any] = [None, True, 0, -1, 2**70, 1e300, "x", "", [], [[]], {}, {"type": "os"}, [None], ["x"], [1, 2, 3]]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON document."""
    inner: list[tuple[Any, ...]] = []
    if isinstance(value, dict):
        inner = [place for key, part in value.items() for place in places(part, (*path, key))]
    elif isinstance(value, list):
        inner = [place for index, part in enumerate(value) for place in places(part, (*path, index))]
    return ([path] if path else []) + inner


def test_a_weird_value_anywhere_in_the_json(folder: Path) -> None:
    """Whatever is put wherever, a folder is refused with a ValueError or gives a model that predicts."""
    pristine = (folder / "model.json").read_bytes()
    total = accepted = 0
    for place in places(config_of(folder)):
        for value in WEIRD:
            (folder / "model.json").write_bytes(pristine)

            def change(config: Config, place: tuple[Any, ...] = place, value: Any = value) -> None:
                *path, last = place
                inner: Any = config
                for key in path:
                    inner = inner[key]
                inner[last] = value

            forge(folder, change)
            if not (place == ("own_encoder",) and value is True):
                accepted += predicts_or_is_refused(folder, (place, value))
                total += 1
    assert 0 < accepted < total / 2
    assert total > 500


def predicts_or_is_refused(folder: Path, what: Any) -> bool:
    with inert():
        try:
            loaded = load(folder)
        except InvalidModelError:
            return False
    mean, std = loaded.predict(X, return_std=True)
    assert np.isfinite(mean).all(), what
    assert (std > 0).all(), what
    return True


def test_an_own_class_of_density_cannot_be_saved(tmp_path):
    class Own(GaussianDensity):
        pass

    X = np.linspace(-1, 1, 40)[:, None]
    reg = DensityRegressor(density=Own(), epochs=1, random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="density is of a class of your own"):
        reg.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_checkpoint_folder_is_not_saved(tmp_path):
    X = np.linspace(-1, 1, 40)[:, None]
    reg = DensityRegressor(epochs=1, random_state=0, checkpoint_dir=tmp_path / "steps").fit(X, X[:, 0])
    reg.save(tmp_path / "model")
    assert load(tmp_path / "model").checkpoint_dir is None


def test_settings_changed_since_the_fit_are_not_saved(tmp_path):
    X = np.linspace(-1, 1, 40)[:, None]
    reg = DensityRegressor(epochs=1, hidden=(6,), random_state=0).fit(X, X[:, 0])
    before = reg.predict(X)
    reg.set_params(hidden=(9, 9), density=None, head="mean").save(tmp_path)
    again = load(tmp_path)
    np.testing.assert_array_equal(again.predict(X), before)
    assert again.hidden == (6,)


def test_files_of_others_are_left_alone(tmp_path):
    (tmp_path / "weights-of-mine.safetensors").write_text("mine")
    X = np.linspace(-1, 1, 40)[:, None]
    reg = DensityRegressor(epochs=1, random_state=0).fit(X, X[:, 0])
    reg.save(tmp_path)
    reg.fit(X, -X[:, 0]).save(tmp_path)
    assert (tmp_path / "weights-of-mine.safetensors").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3
