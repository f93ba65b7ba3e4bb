"""A model prepared for serving: its ONNX graph and a description as JSON, read without torch."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from density_regression.io.store import CONFIG, InvalidModelError, read_config

__all__ = ["Bundle", "Input", "Prepared", "checked_config", "current_bundle", "model_name", "places", "prepare"]

FORMAT: Final = 1

FOLDER: Final = "serving"
"""Subfolder of a model's folder, or of the user's cache, in which bundles are kept."""

GRAPH: Final = "model.onnx"
ABOUT: Final = "bundle.json"

MOST_CONFIG: Final = 64 * 2**20
MOST_WEIGHTS: Final = 2 * 2**30
MOST_GRAPH: Final = 2 * 2**30
"""Largest files that are read, in bytes: `model.json` and `bundle.json`, the weights, the graph."""

PATIENCE: Final = 600.0
"""Seconds that preparing one model may take."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class Input:
    """A column that a model reads.

    Attributes
    ----------
    name : str
        Of the column; its position, where columns have no names.
    kind : str
        "number", "boolean", "category", "date" or "time".
    feed : str
        The input of the graph that holds it: "X" where all columns are one input, (n, c).
    """

    name: str
    kind: str
    feed: str


@dataclass(frozen=True)
class Bundle:
    """What a server knows of a model beside its graph.

    Attributes
    ----------
    model : str
        Checksum of the `model.json` that was prepared, which names that of the weights.
    method : str
        Class of the regressor.
    law : str
        "identity" or "log": what is Normal, the target or its logarithm.
    target_shape : tuple
        () for one target, (k,) for several.
    named : bool
        Whether columns have names.
    inputs : tuple of Input
        The columns that are read, in the order of training.
    columns : list or None
        Code of the columns as `Columns.to_json` has it; None for a model of numbers without gaps.
    levels : tuple of float or None
        Sorted log-densities of held-out rows, for the familiarity.
    interval : str
        What intervals follow: "law", "conformal", or "none" for conformal intervals of weighted rows, which depend on
        more than a graph says.
    scores : tuple of tuples or None
        Sorted conformal scores, (n, k).
    profile : dict or None
        Of the training table, if the model has one.
    graph : str
        Checksum of the graph.
    """

    model: str
    method: str
    law: str
    target_shape: tuple[int, ...]
    named: bool
    inputs: tuple[Input, ...]
    columns: list[dict[str, Any]] | None
    levels: tuple[float, ...] | None
    interval: str
    scores: tuple[tuple[float, ...], ...] | None
    profile: dict[str, Any] | None
    graph: str

    @property
    def version(self) -> str:
        """The first 16 digits of `model`: models may differ in their scaling alone, which is not in the weights."""
        return self.model[:16]

    @property
    def targets(self) -> int:
        """Number of targets."""
        return self.target_shape[0] if self.target_shape else 1

    @property
    def as_one(self) -> bool:
        """Whether all columns are one input of the graph."""
        return all(part.feed == "X" for part in self.inputs)

    def to_json(self) -> bytes:
        """As JSON, with a checksum."""
        body = {"format": FORMAT, **asdict(self)}
        return json.dumps({**body, "sha256": _digest(body)}, allow_nan=False).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Bundle:
        """What `to_json` wrote; an `InvalidModelError` for anything else."""
        try:
            document = json.loads(content)
            body = {name: value for name, value in document.items() if name != "sha256"}
            if body.pop("format") != FORMAT or document["sha256"] != _digest({"format": FORMAT, **body}):
                raise InvalidModelError(f"{ABOUT} was edited, or written by another version.")
            inputs = tuple(Input(**part) for part in body.pop("inputs"))
            shape, levels = tuple(body.pop("target_shape")), body.pop("levels")
            return cls(**body, inputs=inputs, target_shape=shape, levels=None if levels is None else tuple(levels))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise InvalidModelError(f"{ABOUT} is not as this version writes it: {error}") from error


@dataclass(frozen=True)
class Prepared:
    """A bundle and its graph, as bytes."""

    bundle: Bundle
    graph: bytes


def model_name(folder: Path) -> str:
    """Name under which a model is served: that of its folder."""
    name = folder.name or folder.resolve().name
    if not NAME.fullmatch(name):
        raise ValueError(f"{folder} cannot be a model's name: rename the folder to letters, digits, '.', '_' and '-'.")
    return name


def checked_config(folder: Path) -> dict[str, Any]:
    """The model's configuration, unless it or the weights are too large to be read."""
    _refuse_large(folder / CONFIG, MOST_CONFIG)
    config = read_config(folder)
    _refuse_large(folder / config["weights"], MOST_WEIGHTS)
    return config


def places(folder: Path, model: str) -> list[Path]:
    """Where the bundle of a model, by its checksum, may be kept: beside the model, or in the user's cache."""
    key = hashlib.sha256(f"{FORMAT} {version('density-regression')} {model}".encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return [folder / FOLDER / key, cache / "density-regression" / FOLDER / key]


def current_bundle(folder: Path) -> Prepared | None:
    """The bundle of the model as it is now; None if it is yet to be prepared."""
    model = checked_config(folder)["sha256"]
    for place in places(folder, model):
        try:
            prepared = _read(place)
        except (InvalidModelError, OSError):
            continue
        if prepared.bundle.model == model:
            return prepared
    return None


def prepare(folder: Path) -> Prepared:
    """The bundle of the model as it is now; made, if need be, by another process, which imports torch.

    An `InvalidModelError` says in one line why a model cannot be served.
    """
    if (prepared := current_bundle(folder)) is not None:
        return prepared
    if find_spec("torch") is None:
        raise InvalidModelError(
            f"{folder} is not prepared for this version, which needs torch, and that is not installed here: run "
            f"'density-regression serve {folder} --prepare-only' where it is, and copy the folder."
        )
    command = [sys.executable, "-m", "density_regression.serve.prepare", str(folder)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise InvalidModelError(f"{folder} took more than {PATIENCE:g} s to prepare.") from None
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        raise InvalidModelError(f"{folder} cannot be prepared: {lines[-1]}")
    if (prepared := current_bundle(folder)) is None:
        raise InvalidModelError(f"{folder} changed while it was prepared.")
    return prepared


def _refuse_large(path: Path, most: int) -> None:
    if path.is_file() and (size := path.stat().st_size) > most:
        raise InvalidModelError(f"{path} has {size} bytes, more than the {most} that are read.")


def _read(place: Path) -> Prepared:
    bundle = Bundle.from_json(_content(place / ABOUT, MOST_CONFIG))
    graph = _content(place / GRAPH, MOST_GRAPH)
    if hashlib.sha256(graph).hexdigest() != bundle.graph:
        raise InvalidModelError(f"{place / GRAPH} is truncated or was edited: its checksum differs.")
    return Prepared(bundle, graph)


def _content(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InvalidModelError(f"{path} has more than the {most} bytes that are read.")
    return content


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()
