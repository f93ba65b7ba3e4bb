"""Bundles: current or made anew, whole, and made from nothing but what `save` wrote."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from density_regression import DensityRegressor
from density_regression.io.store import InvalidModelError
from density_regression.serve import bundle as bundles
from density_regression.serve import prepare as preparing
from density_regression.serve.bundle import Bundle, Prepared, current_bundle, model_name, prepare
from density_regression.serve.prepare import main, make_bundle
from density_regression.serve.scorer import Scorer


class Planted:
    """A pickle that leaves a file if it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def model(tmp_path: Path, numbers: DensityRegressor, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A saved model, not yet prepared, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    numbers.save(tmp_path / "model")
    return tmp_path / "model"


def test_made_once_and_reused(model: Path) -> None:
    assert current_bundle(model) is None
    place = make_bundle(model)
    assert place.parent == model / "serving"
    stamp = (place / "bundle.json").stat().st_mtime_ns
    assert make_bundle(model) == place
    assert (place / "bundle.json").stat().st_mtime_ns == stamp
    found = current_bundle(model)
    assert found is not None
    assert found.bundle.version == json.loads((model / "model.json").read_bytes())["sha256"][:16]
    assert Bundle.from_json(found.bundle.to_json()) == found.bundle


def test_another_model_in_the_folder_is_prepared_anew(model: Path, raw: DensityRegressor) -> None:
    make_bundle(model)
    before = current_bundle(model)
    raw.save(model)
    assert current_bundle(model) is None
    make_bundle(model)
    after = current_bundle(model)
    assert before is not None
    assert after is not None
    assert before.bundle.version != after.bundle.version
    assert after.bundle.interval == "conformal"


def test_few_bundles_are_kept(model: Path, raw: DensityRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "KEPT", 1)
    first = make_bundle(model)
    raw.save(model)
    second = make_bundle(model)
    assert second.is_dir()
    assert not first.exists()


def test_the_cache_where_the_folder_is_read_only(model: Path, tmp_path: Path) -> None:
    # A file where the folder would be: tests may run as root, whom no permission stops.
    (model / "serving").write_text("")
    place = make_bundle(model)
    assert (tmp_path / "cache") in place.parents
    assert current_bundle(model) is not None
    (tmp_path / "cache" / "density-regression" / "serving").rename(tmp_path / "gone")
    (tmp_path / "cache" / "density-regression" / "serving").write_text("")
    with pytest.raises(OSError, match="No bundle can be written beside"):
        make_bundle(model)


@pytest.mark.parametrize("name", ["bundle.json", "model.onnx"])
@pytest.mark.parametrize("change", ["truncate", "edit", "delete", "nonsense"])
def test_a_damaged_bundle_is_not_read(name: str, change: str, model: Path) -> None:
    path = make_bundle(model) / name
    content = path.read_bytes()
    if change == "delete":
        path.unlink()
    else:
        edited = content.replace(b'"law": "identity"', b'"law": "log"') if name == "bundle.json" else content[::-1]
        path.write_bytes({"truncate": content[:-1], "edit": edited, "nonsense": b"[1]"}[change])
    assert current_bundle(model) is None
    make_bundle(model)
    assert path.read_bytes() == content


def test_damaged_models_are_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = next(model.glob("weights-*"))
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InvalidModelError, match="checksum differs"):
        make_bundle(model)
    assert main([str(model)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    config = (model / "model.json").read_text()
    (model / "model.json").write_text(config.replace('"target": "identity"', '"target": "log"'))
    with pytest.raises(InvalidModelError, match="was edited"):
        current_bundle(model)
    with pytest.raises(FileNotFoundError, match="No model in"):
        current_bundle(model / "nothing")


def test_a_planted_pickle_is_never_read(model: Path, tmp_path: Path) -> None:
    planted = pickle.dumps(Planted(tmp_path / "read"))
    for name in ("model.pkl", "model.joblib", "weights.pt"):
        (model / name).write_bytes(planted)
    make_bundle(model)
    assert current_bundle(model) is not None
    next(model.glob("weights-*")).write_bytes(planted)
    with pytest.raises(InvalidModelError, match="checksum differs"):
        make_bundle_anew(model)
    assert not (tmp_path / "read").exists()


def make_bundle_anew(model: Path) -> None:
    shutil.rmtree(model / "serving")
    make_bundle(model)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "weights-0.pkl"])
def test_paths_outside_the_folder_are_refused(name: str, model: Path) -> None:
    body = json.loads((model / "model.json").read_bytes())
    (model.parent / "outside.safetensors").write_bytes(next(model.glob("weights-*")).read_bytes())
    del body["sha256"]
    body["weights"] = name
    from density_regression.io.store import _digest

    (model / "model.json").write_text(json.dumps({**body, "sha256": _digest(body)}))
    with pytest.raises(InvalidModelError, match="names weights outside its folder"):
        current_bundle(model)


def test_what_is_too_large_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bundle(model)
    size = next(model.glob("weights-*")).stat().st_size
    monkeypatch.setattr(bundles, "MOST_WEIGHTS", size - 1)
    with pytest.raises(InvalidModelError, match=f"has {size} bytes, more than the {size - 1} that are read"):
        current_bundle(model)
    monkeypatch.setattr(bundles, "MOST_CONFIG", 100)
    with pytest.raises(InvalidModelError, match=r"model\.json has"):
        current_bundle(model)
    monkeypatch.undo()
    monkeypatch.setattr(bundles, "MOST_GRAPH", 100)
    assert current_bundle(model) is None


def test_a_forged_graph_reads_no_other_file(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_bundle(model)
    found = current_bundle(model)
    assert found is not None
    (model / "secret.bin").write_bytes(b"\0" * 8)
    monkeypatch.chdir(model)
    for location in ("secret.bin", "../model/secret.bin", str(model / "secret.bin")):
        tensor = TensorProto(name="w", data_type=TensorProto.DOUBLE, dims=[1], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", location), ("offset", "0"), ("length", "8")):
            tensor.external_data.add(key=key, value=value)
        values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [1]) for name in ("X", "mean")]
        node = helper.make_node("Add", ["X", "w"], ["mean"])
        graph = helper.make_graph([node], "g", values[:1], values[1:], [tensor])
        opsets = [helper.make_opsetid("", 18)]
        proto: onnx.ModelProto = helper.make_model(graph, ir_version=10, opset_imports=opsets)
        with pytest.raises(Exception, match=r"(?i)external|initializ"):
            Scorer(Prepared(found.bundle, proto.SerializeToString()))


def test_names() -> None:
    assert model_name(Path("a/b/price-1.0")) == "price-1.0"
    assert model_name(Path()) == Path.cwd().name
    for name in ("a b", "ä", "-x", "a" * 200):
        with pytest.raises(ValueError, match="rename the folder"):
            model_name(Path(name))


def test_without_torch(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is prepared is served; what is not, says where it can be."""
    monkeypatch.setattr(bundles, "find_spec", lambda name: None)
    with pytest.raises(InvalidModelError, match=r"serve .*model --prepare-only' where it is, and copy the folder"):
        prepare(model)
    make_bundle(model)
    assert prepare(model).bundle.method == "DensityRegressor"


def test_reasons_of_the_other_process(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, whatever it wrote."""
    weights = next(model.glob("weights-*"))
    weights.write_bytes(b"")
    with pytest.raises(InvalidModelError, match=r"cannot be prepared: .*checksum differs\.$"):
        prepare(model)
    monkeypatch.setattr(bundles, "PATIENCE", 0.01)
    with pytest.raises(InvalidModelError, match=r"took more than 0\.01 s"):
        prepare(model)
