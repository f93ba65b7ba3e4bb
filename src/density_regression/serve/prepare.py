"""Prepare models for serving, in a process with torch: `python -m density_regression.serve.prepare MODEL ...`."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from density_regression.io.files import write_whole
from density_regression.io.store import InvalidModelError, read_verified
from density_regression.serve.bundle import ABOUT, GRAPH, Bundle, Input, checked_config, current_bundle, places

__all__ = ["make_bundle"]

KEPT: Final = 4
"""Bundles of one model that are kept: models that take turns are prepared once."""


def make_bundle(folder: Path) -> Path:
    """Write the bundle of a saved model, beside it or, where that is read-only, into the cache; returns its folder.

    Of several processes that are asked at once one does it, and the others wait.
    """
    model = checked_config(folder)["sha256"]
    # Before torch is imported, which takes longer than to see that a model is broken.
    read_verified(folder)
    for place in places(folder, model):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = (place.parent / ".lock").open("w")
        except OSError as error:
            problem = error
            continue
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if current_bundle(folder) is None:
                _write(folder, model, place)
                _forget_old(place.parent)
        return place
    raise OSError(f"No bundle can be written beside {folder} or into the cache: {problem.strerror}.")


def _write(folder: Path, model: str, place: Path) -> None:
    from density_regression.registry import load

    regressor = load(folder)
    about, regressor.conformal_ = _about_interval(regressor), None
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / GRAPH
        regressor.to_onnx(path, parts=True)
        graph = path.read_bytes()
    config = checked_config(folder)
    if config["sha256"] != model:
        raise InvalidModelError(f"{folder} changed while it was prepared.")
    bundle = Bundle(
        model=model,
        method=type(regressor).__name__,
        law=regressor.target_,
        target_shape=regressor.target_shape_,
        named=hasattr(regressor, "feature_names_in_"),
        inputs=_inputs(regressor),
        columns=None if regressor.columns_ is None else regressor.columns_.to_json(),
        levels=_levels(regressor),
        profile=config.get("profile"),
        graph=hashlib.sha256(graph).hexdigest(),
        **about,
    )
    write_whole(place / GRAPH, graph)
    write_whole(place / ABOUT, bundle.to_json())


def _about_interval(regressor: Any) -> dict[str, Any]:
    conformal = regressor.conformal_
    if conformal is None:
        return {"interval": "law", "scores": None}
    if conformal.ratio is not None:
        return {"interval": "none", "scores": None}
    return {"interval": "conformal", "scores": tuple(map(tuple, conformal.scores.tolist()))}


def _inputs(regressor: Any) -> tuple[Input, ...]:
    """The columns that a regressor reads, each with its input of the graph."""
    from density_regression.estimators.tables import column_labels
    from density_regression.inference.onnx.graph import INPUT

    if (inputs := regressor._inputs("float64", parts=True)) is None:
        return tuple(Input(name, "number", INPUT) for name in column_labels(regressor))
    kinds = [getattr(coder, "type", coder.kind) for coder in inputs.coders]
    feeds = [INPUT] * len(kinds) if inputs.as_one else inputs.names
    names = [coder.name for coder in inputs.coders]
    return tuple(Input(*parts) for parts in zip(names, kinds, feeds, strict=True))


def _levels(regressor: Any) -> tuple[float, ...] | None:
    model = regressor.model_
    if getattr(model, "familiar_levels", None) is None:
        return None
    return tuple(model.known_levels().cpu().tolist())


def _forget_old(parent: Path) -> None:
    bundles = sorted(parent.glob(f"*/{ABOUT}"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in bundles[KEPT:]:
        shutil.rmtree(path.parent, ignore_errors=True)


def main(folders: list[str]) -> int:
    """Prepare each model; one line on standard error for the first that cannot be."""
    for folder in folders:
        try:
            print(make_bundle(Path(folder)))
        except (ImportError, OSError, ValueError) as error:
            print(" ".join(str(error).split()), file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
