"""Configuration and tensors to disk and back: whole or not at all, and without running code from it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any, Final, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from density_regression._files import named, write_whole

__all__ = ["Checkpoints", "InvalidModelError", "check_writable", "checksum", "read_model", "write_model"]

FORMAT: Final = (1, 0)
"""Major and minor version of the folder's format; readers refuse a newer major one."""

CONFIG: Final = "model.json"

TRIES: Final = 100
"""Most times that a folder is read anew because other models are being saved into it."""

WEIGHTS: Final = re.compile(r"weights-[0-9a-f]{16}\.safetensors")
"""Names a weights file may have, which none outside the folder does."""


class InvalidModelError(ValueError):
    """A model folder that is truncated, edited, or from a newer version."""


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Make a folder and try to write to it: before hours of training, rather than after them.

    Raises
    ------
    OSError
        If either is impossible.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"{folder} cannot be made a folder, or not be written to: {error.strerror}.") from error


def checksum(tensors: dict[str, Tensor]) -> str:
    """Checksum of tensors and their names."""
    return hashlib.sha256(to_bytes(_plain(tensors))).hexdigest()


def write_model(folder: str | os.PathLike[str], config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a model folder: `model.json`, and the weights it names by their checksum.

    The weights come first and the JSON last, each by an atomic rename, so that whenever writing stops, the folder
    holds either the old model or the new one.
    """
    folder = named(folder, "folder")
    folder.mkdir(parents=True, exist_ok=True)
    content = to_bytes(_plain(tensors))
    digest = hashlib.sha256(content).hexdigest()
    weights = f"weights-{digest[:16]}.safetensors"
    body = {"format": list(FORMAT), "weights": weights, "weights_sha256": digest, **config}
    # NaN is not JSON; a setting that holds one would make a file that other readers refuse.
    document = json.dumps({**body, "sha256": _digest(body)}, indent=2, allow_nan=False).encode()
    already_there = (folder / weights).exists()
    write_whole(folder / weights, content)
    try:
        write_whole(folder / CONFIG, document)
    except BaseException:
        # Interrupted a moment after the rename, the folder is the new model's.
        if not (already_there or _holds(folder / CONFIG, document)):
            (folder / weights).unlink(missing_ok=True)
        raise
    for stale in folder.iterdir():
        if WEIGHTS.fullmatch(stale.name) and stale.name != weights:
            stale.unlink(missing_ok=True)


def read_model(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what `write_model` wrote: configuration and tensors, or an error that says what is wrong.

    Another model may be saved into the folder meanwhile: what is read is the old one or the new one, whole.
    """
    folder = named(folder, "folder")
    for _ in range(TRIES):
        config = _read_config(folder)
        path = folder / config["weights"]
        try:
            content = path.read_bytes()
            break
        except (FileNotFoundError, IsADirectoryError):
            # A save takes away the weights of the model before it: then the folder names others by now, or these again.
            if _read_config(folder) == config and not path.is_file():
                raise InvalidModelError(f"{folder} is incomplete: {path.name} is missing.") from None
    else:
        raise InvalidModelError(f"{folder} cannot be read: other models are saved into it all the time.")
    if hashlib.sha256(content).hexdigest() != config["weights_sha256"]:
        raise InvalidModelError(f"{path} is truncated or was edited: its checksum differs.")
    try:
        return config, from_bytes(content)
    # safetensors names a type that torch lacks by a KeyError.
    except (SafetensorError, KeyError) as error:
        raise InvalidModelError(f"{path} is not a readable safetensors file ({error}).") from error


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG).read_bytes(), parse_constant=_refuse)
        _check(config, folder)
    except InvalidModelError:
        raise
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise FileNotFoundError(f"No model in {folder}: there is no {CONFIG}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidModelError(f"{folder / CONFIG} is truncated or not JSON ({error}).") from error
    return dict(config)


def _check(config: Any, folder: Path) -> None:
    path = folder / CONFIG
    if not isinstance(config, dict) or "format" not in config:
        raise InvalidModelError(f"{path} does not describe a model of this package.")
    version = config["format"]
    if not (isinstance(version, list) and version and isinstance(version[0], int)):
        raise InvalidModelError(f"{path} has no readable format version, but {version!r}.")
    # First of all: of a later format nothing else is known, not even how its checksum is made.
    if version[0] > FORMAT[0]:
        raise InvalidModelError(
            f"{folder} has format {version[0]}, newer than the {FORMAT[0]} this version reads: "
            f"it was saved by density-regression {config.get('version', 'of a later version')}; please upgrade."
        )
    if not all(isinstance(config.get(key), str) for key in ("weights", "weights_sha256", "sha256")):
        raise InvalidModelError(f"{path} does not describe a model of this package: it names no weights or checksums.")
    if _digest({key: value for key, value in config.items() if key != "sha256"}) != config["sha256"]:
        raise InvalidModelError(f"{path} was edited: its checksum differs.")
    if not WEIGHTS.fullmatch(config["weights"]):
        raise InvalidModelError(f"{path} names weights outside its folder or unlike `save`: {config['weights']!r}.")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors on the CPU, each with memory of its own: safetensors refuses weights that a module has tied."""
    layout = torch.contiguous_format
    return {name: tensor.detach().cpu().clone(memory_format=layout) for name, tensor in tensors.items()}


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _tensors(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)


class Checkpoints:
    """State of a model after each training step, so that an interrupted fit goes on where it was.

    Parameters
    ----------
    folder : path or None
        Where to keep them; None keeps none.
    fingerprint : str
        What the fit depends on (data, settings). Checkpoints with another one are of another fit and are ignored.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, fingerprint: str = "") -> None:
        self._folder = None if folder is None else named(folder, "checkpoint_dir")
        self._fingerprint = fingerprint

    def save(self, step: int, state: dict[str, Tensor]) -> None:
        """Keep the state after `step`."""
        if self._folder is None:
            return
        write_whole(self._path(step), to_bytes(_plain(state), metadata={"fingerprint": self._fingerprint}))

    def latest(self, steps: int) -> tuple[int, dict[str, Tensor]]:
        """The furthest step of this fit, and the state after it; 0 and nothing if there is none.

        Raises
        ------
        OSError
            If steps are still to be kept, and the folder cannot be made or written to.
        """
        if self._folder is None:
            return 0, {}
        done = next((step for step in range(steps, 0, -1) if self._path(step).exists() and self._mine(step)), 0)
        if done < steps:
            check_writable(self._folder)
        return done, _tensors(self._path(done)) if done else {}

    def _mine(self, step: int) -> bool:
        try:
            with safe_open(self._path(step), framework="pt") as file:
                return (file.metadata() or {}).get("fingerprint") == self._fingerprint
        except (SafetensorError, OSError) as error:
            warnings.warn(f"Ignoring the unreadable checkpoint {self._path(step)} ({error}).", stacklevel=2)
            return False

    def _path(self, step: int) -> Path:
        if self._folder is None:
            raise ValueError("There is no checkpoint folder.")
        return self._folder / f"step-{step}.safetensors"
