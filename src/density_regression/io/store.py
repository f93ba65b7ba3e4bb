"""Model folders: configuration as JSON and tensors as safetensors, written atomically, read without running code."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from density_regression.io.files import named, write_whole

# torch and safetensors are imported on use: a server reads configurations where torch is not installed.
if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "CONFIG",
    "InvalidModelError",
    "check_writable",
    "checksum",
    "holds_other",
    "plain",
    "read_config",
    "read_model",
    "read_verified",
    "write_model",
]

FORMAT: Final = (1, 0)
"""Major and minor version of the folder's format; readers refuse a newer major one."""

CONFIG: Final = "model.json"

MAX_READS: Final = 100
"""Most attempts to read a folder into which other models are being saved."""

WEIGHTS: Final = re.compile(r"weights-[0-9a-f]{16}\.safetensors")
"""Name of a weights file; it excludes paths outside the folder."""


class InvalidModelError(ValueError):
    """A model folder that is truncated, edited, or from a newer version."""


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Make a folder and write to it, so that an OSError comes before hours of training, not after them."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"{folder} cannot be made a folder, or not be written to: {error.strerror}.") from error


def holds_other(folder: str | os.PathLike[str]) -> str | None:
    """Name of a file that makes a folder something else than a model's: None of a model, and of an empty folder.

    Hidden files do not count, nor what an interrupted save leaves.
    """
    names = sorted(path.name for path in Path(folder).iterdir())
    if CONFIG in names:
        try:
            read_config(Path(folder))
        except InvalidModelError:
            return CONFIG
        return None
    return next((name for name in names if not (WEIGHTS.fullmatch(name) or name.startswith("."))), None)


def checksum(tensors: dict[str, Tensor]) -> str:
    """Checksum of tensors and their names."""
    from safetensors.torch import save as to_bytes

    return hashlib.sha256(to_bytes(plain(tensors))).hexdigest()


def write_model(folder: str | os.PathLike[str], config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a model folder: `model.json`, and a weights file named by its checksum.

    The weights are written first and the JSON last, each by an atomic rename, so that an interruption leaves either the
    old model or the new one.
    """
    from safetensors.torch import save as to_bytes

    folder = named(folder, "folder")
    folder.mkdir(parents=True, exist_ok=True)
    content = to_bytes(plain(tensors))
    digest = hashlib.sha256(content).hexdigest()
    weights = f"weights-{digest[:16]}.safetensors"
    body = {"format": list(FORMAT), "weights": weights, "weights_sha256": digest, **config}
    # NaN is not JSON, and other readers would refuse it.
    document = json.dumps({**body, "sha256": _digest(body)}, indent=2, allow_nan=False).encode()
    already_there = (folder / weights).exists()
    write_whole(folder / weights, content)
    try:
        write_whole(folder / CONFIG, document)
    except BaseException:
        # If interrupted just after the rename, the folder already holds the new model.
        written = (folder / CONFIG).is_file() and (folder / CONFIG).read_bytes() == document
        if not (already_there or written):
            (folder / weights).unlink(missing_ok=True)
        raise
    for stale in folder.iterdir():
        if WEIGHTS.fullmatch(stale.name) and stale.name != weights:
            stale.unlink(missing_ok=True)


def read_model(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and tensors that `write_model` wrote; also safe while another model is saved into the folder."""
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    config, content = read_verified(folder)
    try:
        return config, from_bytes(content)
    # A KeyError is raised for a type that torch lacks.
    except (SafetensorError, KeyError) as error:
        path = Path(folder) / config["weights"]
        raise InvalidModelError(f"{path} is not a readable safetensors file ({error}).") from error


def read_verified(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], bytes]:
    """Configuration, and the content of the weights file whose checksum it names."""
    folder = named(folder, "folder")
    for _ in range(MAX_READS):
        config = read_config(folder)
        path = folder / config["weights"]
        try:
            content = path.read_bytes()
            break
        except (FileNotFoundError, IsADirectoryError):
            # A concurrent save deletes the old weights, but changes the configuration or writes them again.
            if read_config(folder) == config and not path.is_file():
                raise InvalidModelError(f"{folder} is incomplete: {path.name} is missing.") from None
    else:
        raise InvalidModelError(f"{folder} cannot be read: other models are saved into it all the time.")
    if hashlib.sha256(content).hexdigest() != config["weights_sha256"]:
        raise InvalidModelError(f"{path} is truncated or was edited: its checksum differs.")
    return config, content


def read_config(folder: Path) -> dict[str, Any]:
    """Configuration that `write_model` wrote, checked; the weights are not read."""
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
    # Before the checksum, which a later format may compute in another way.
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


def plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors on the CPU, none of which share memory: safetensors refuses tied weights."""
    import torch

    layout = torch.contiguous_format
    return {name: tensor.detach().cpu().clone(memory_format=layout) for name, tensor in tensors.items()}


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()
