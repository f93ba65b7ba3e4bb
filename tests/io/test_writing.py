"""Files are written whole or not at all, and damage is noticed."""

import contextlib
import copy
import errno
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from saved_models import Config, assert_refused, assert_same, config_of, fitted, forge, weights_of

import density_regression
from density_regression import DensityRegressor, InvalidModelError, load
from density_regression.io import store
from density_regression.io.store import write_model
from density_regression.training.checkpoints import Checkpoints

# -- writing ----------------------------------------------------------------------------------------------------------


def test_a_folder_is_one_json_and_one_safetensors_file(folder: Path) -> None:
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors"]
    config = config_of(folder)
    assert config["format"] == list(store.FORMAT)
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


@pytest.mark.parametrize("call", [1, 2], ids=["weights", "config"])
def test_an_interruption_just_after_a_file_is_in_place_leaves_a_whole_model(
    call: int, folder: Path, regressor: DensityRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = fitted(random_state=1)
    original = os.replace
    calls = []

    def interrupted(*args: Any) -> None:
        original(*args)
        calls.append(args)
        if len(calls) == call:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            new.save(folder)
    assert_same(load(folder), new if call == 2 else regressor)
    new.save(folder)
    assert len(list(folder.iterdir())) == 2


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


def test_a_model_saved_while_another_is_read(
    folder: Path, regressor: DensityRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a reader's two files: it has the old JSON, and the old weights are gone."""
    new, original = fitted(random_state=1), Path.read_bytes
    saves = [new, regressor]

    def overtaken(path: Path) -> bytes:
        if path.suffix == ".safetensors" and saves:
            saves.pop(0).save(folder)
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", overtaken)
    assert_same(load(folder), regressor)
    assert not saves


def test_a_model_saved_again_while_it_is_read(
    folder: Path, regressor: DensityRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights were gone for a moment, and the JSON that names them is the same again."""
    weights, original = weights_of(folder), Path.read_bytes
    weights.rename(folder / "elsewhere")

    def gone(path: Path) -> bytes:
        try:
            return original(path)
        finally:
            if path == weights and not path.exists():
                regressor.save(folder)

    monkeypatch.setattr(Path, "read_bytes", gone)
    assert_same(load(folder), regressor)


def test_a_folder_that_is_saved_into_all_the_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, original = fitted(random_state=1), Path.read_bytes

    def overtaken(path: Path) -> bytes:
        if path.suffix == ".safetensors":
            forge(folder, lambda config: config.update(weights=f"weights-{len(reads):016x}.safetensors"))
            reads.append(path)
            raise FileNotFoundError
        return original(path)

    reads: list[Path] = []
    other.save(folder)
    monkeypatch.setattr(Path, "read_bytes", overtaken)
    assert_refused(folder, "saved into it all the time")
    assert len(reads) == store.MAX_READS


def test_an_empty_path_is_refused(regressor: DensityRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be the current folder."""
    monkeypatch.chdir(tmp_path)
    for call in (regressor.save, load, regressor.to_onnx, Checkpoints):
        with pytest.raises(ValueError, match=r"must not be empty; give a path, such as '\.'"):
            call("")
    assert list(tmp_path.iterdir()) == []
    regressor.save(".")
    assert_same(load("."), regressor)


def test_a_full_disk_says_which_file_had_no_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*weights-\w+\.safetensors"):
        fitted(random_state=1).save(folder)


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
