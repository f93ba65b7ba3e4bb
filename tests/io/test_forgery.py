"""Forged folders are refused, and run no code."""

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from saved_models import Config, Tensors, X, assert_refused, config_of, fitted, forge, inert
from torch import Tensor

from density_regression import (
    DensityRegressor,
    FlowDensity,
    GaussianDensity,
    InvalidModelError,
    RadialFlowDensity,
    load,
)

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


NETWORK = "encoder.encoder.encoder"
"""Layers of the plain network, behind its embedding and without the inputs beside it."""

FORGED_TENSORS: dict[str, Callable[[Tensors], Any]] = {
    "missing": lambda tensors: tensors.pop(f"{NETWORK}.0.weight"),
    "missing head": lambda tensors: tensors.pop("head.offset"),
    "missing density": lambda tensors: tensors.pop("density.factor"),
    "missing levels": lambda tensors: tensors.pop("familiar_levels"),
    "added": lambda tensors: tensors.update({"__class__": torch.zeros(1)}),
    "added inside": lambda tensors: tensors.update({f"{NETWORK}.0.forward": torch.zeros(1)}),
    "renamed": lambda tensors: tensors.update({f"{NETWORK}.9.weight": tensors.pop(f"{NETWORK}.0.weight")}),
    "none at all": lambda tensors: tensors.clear(),
    "encoder shape": replace(f"{NETWORK}.0.weight", lambda t: t.T),
    "encoder shape empty": replace(f"{NETWORK}.0.weight", lambda t: t[:0]),
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
    "encoder not a number": replace(f"{NETWORK}.0.weight", lambda t: t * torch.nan),
    "density not a number": replace("density.factor", lambda t: t * torch.nan),
    "head not finite": replace("head.linear.bias", lambda t: t / 0),
    "levels shape": replace("familiar_levels", lambda t: t[None]),
    "levels empty": replace("familiar_levels", lambda t: t[:0]),
    "levels not in order": replace("familiar_levels", lambda t: t.flip(0)),
    "levels not a number": replace("familiar_levels", lambda t: t * torch.nan),
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


def test_an_own_class_of_regressor_cannot_be_saved(tmp_path):
    class Own(DensityRegressor):
        pass

    X = np.linspace(-1, 1, 40)[:, None]
    reg = Own(epochs=1, random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="Own is a class of your own"):
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
