"""The state of a model after each training step, and within one, so that an interrupted fit resumes."""

import os
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from density_regression.io.files import named, write_whole
from density_regression.io.store import check_writable, checksum, plain
from density_regression.nn.density import Density
from density_regression.nn.model import DensityRegression
from density_regression.nn.runtime import TrainingOptions
from density_regression.nn.tempering import Tempering

__all__ = ["Checkpoints", "Unfinished", "fingerprint_of"]

SECONDS_BETWEEN: Final = 60.0
"""Between two states that are kept within a step."""


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
        """Keep the state after `step`; what was kept within it is removed."""
        if self._folder is None:
            return
        write_whole(self._path(step), to_bytes(plain(state), metadata={"fingerprint": self._fingerprint}))
        self._path(f"{step}-unfinished").unlink(missing_ok=True)

    def within(self, step: int | str) -> "Unfinished":
        """Where to keep the state within `step`, from time to time."""
        return Unfinished(self, f"{step}-unfinished")

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


class Unfinished:
    """The state within a step of training, kept from time to time until the step is over."""

    def __init__(self, checkpoints: Checkpoints, name: str) -> None:
        self._checkpoints = checkpoints
        self._name = name
        self._last = time.monotonic()

    def load(self) -> dict[str, Tensor]:
        """The state that was kept last; empty if there is none."""
        return self._checkpoints.of(self._name)

    def is_due(self) -> bool:
        """Whether it is time to keep another one."""
        return time.monotonic() - self._last >= SECONDS_BETWEEN

    def save(self, state: dict[str, Tensor]) -> None:
        """Keep a state in the place of the last one."""
        self._checkpoints.save(self._name, state)
        self._last = time.monotonic()


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
    anywhere = replace(options, device="", devices=1, num_nodes=1)
    return f"{model.encoder} {model.head} {parts} {anywhere} {pretrained} {weights}{taught}"
