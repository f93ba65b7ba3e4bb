"""The state of a model after each training step, so that an interrupted fit resumes."""

import os
import warnings
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from density_regression.io.files import named, write_whole
from density_regression.io.store import check_writable, checksum, plain
from density_regression.nn.density import Density
from density_regression.nn.model import DensityRegression
from density_regression.nn.runtime import TrainingOptions
from density_regression.nn.tempering import Tempering

__all__ = ["Checkpoints", "fingerprint_of"]


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

    def save(self, step: int | str, state: dict[str, Tensor]) -> None:
        """Keep the state after `step`."""
        if self._folder is None:
            return
        write_whole(self._path(step), to_bytes(plain(state), metadata={"fingerprint": self._fingerprint}))

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

    def of(self, step: int | str) -> dict[str, Tensor]:
        """The state that this fit kept after `step`; empty if it kept none."""
        if self._folder is None or not self._path(step).exists() or not self._mine(step):
            return {}
        return _tensors(self._path(step))

    def _mine(self, step: int | str) -> bool:
        try:
            with safe_open(self._path(step), framework="pt") as file:
                return (file.metadata() or {}).get("fingerprint") == self._fingerprint
        except (SafetensorError, OSError) as error:
            warnings.warn(f"Ignoring the unreadable checkpoint {self._path(step)} ({error}).", stacklevel=2)
            return False

    def _path(self, step: int | str) -> Path:
        if self._folder is None:
            raise ValueError("There is no checkpoint folder.")
        return self._folder / f"step-{step}.safetensors"


def fingerprint_of(model: DensityRegression, options: TrainingOptions, *, pretrained: bool, members: int = 0) -> str:
    """All that a fit depends on but its data and its device."""
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"checkpoint_dir keeps tensors, but {name} of the model is a {type(value).__name__}: fit without it."
            )
    # Also those within others: of a scene, and of its pixels.
    parts = [(type(p).__name__, p.config()) for p in model.modules() if isinstance(p, Density | Tempering)]
    weights = checksum(model.encoder.state_dict()) if pretrained else ""
    taught = f" taught by {members}" if members else ""
    return f"{model.encoder} {model.head} {parts} {replace(options, device='')} {pretrained} {weights}{taught}"
