"""`DensityRegression` saved to a folder and loaded from it."""

import copy
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from density_regression.io.store import InvalidModelError, read_model, write_model
from density_regression.nn.heads import HEADS, Head
from density_regression.nn.parts import check_encoder, described_encoder, encoder_of, rebuilt, to_json
from density_regression.nn.runtime import kept_draws, usual_torch

__all__ = ["SavedModule"]

KIND = "DensityRegression"


class SavedModule(nn.Module):
    """`save` and `load` of `DensityRegression`."""

    if TYPE_CHECKING:
        features: int
        targets: int
        head: Head
        encoder: nn.Module

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model to a folder (safetensors and JSON) atomically; read it with `load`.

        The encoder's weights are saved, not its code. Your own density or tempering must be registered with
        `density_regression.register`.
        """
        if type(self).__name__ != KIND:
            raise ValueError(f"{type(self).__name__} is a class of its own: keep its state_dict() instead.")
        heads = {head: name for name, head in HEADS.items()}
        if type(self.head) not in heads:
            raise ValueError(f"{type(self.head).__name__} is a head of your own, which could not be loaded again.")
        config: dict[str, Any] = {
            "module": KIND,
            "version": version("density-regression"),
            "torch": torch.__version__,
            "features": self.features,
            "targets": self.targets,
            "head": [heads[type(self.head)], self.head.features],
            "encoder": described_encoder(self.encoder),
            **{name: to_json(getattr(self, name)) for name in ("density", "tempering")},
        }
        for name in ("density", "tempering"):
            try:
                _rebuilt(config[name])
            except InvalidModelError as error:
                raise ValueError(f"The {name} is of a class of your own: {error}") from error
        state = self.state_dict()
        for name, value in state.items():
            if not isinstance(value, Tensor):
                raise ValueError(f"save writes tensors, but {name} of the model is a {type(value).__name__}.")
        write_model(folder, config, state)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], encoder: nn.Module | None = None) -> Self:
        """Read a model that `save` wrote, to the CPU and in eval mode. No code from the folder is run.

        Parameters
        ----------
        folder : path
            Folder written by `save`.
        encoder : nn.Module, optional
            A module of the encoder's architecture, which is copied; its weights are read. Needed unless its class was
            registered with `density_regression.register` before the model was saved.

        Raises
        ------
        InvalidModelError
            If the folder is truncated, edited, or from a newer major version; a `ValueError`.
        """
        config, tensors = read_model(folder)
        if config.get("module") != KIND:
            raise InvalidModelError(f"{folder} holds no {KIND}, but {config.get('estimator')!r}.")
        if encoder is None:
            check_encoder(config.get("encoder"))
        try:
            with usual_torch(), kept_draws():
                return cls._from_saved(config, tensors, encoder)
        except InvalidModelError:
            raise
        # A missing or wrong entry may fail in any way.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise InvalidModelError(f"{folder} does not describe a model that can be built ({reason}).") from error

    @classmethod
    def _from_saved(cls, config: dict[str, Any], tensors: dict[str, Tensor], encoder: nn.Module | None) -> Self:
        features, targets, (head, width) = config["features"], config["targets"], config["head"]
        weight = tensors["head.linear.weight"]
        disagreement = "head.ratio_low" in tensors
        # Checked before the model is built, so that a forged size cannot exhaust the memory.
        if tuple(weight.shape) != ((3 if disagreement else 2) * targets, width):
            raise InvalidModelError("The saved weights do not fit the saved settings.")
        encoder = encoder_of(config["encoder"], tensors) if encoder is None else copy.deepcopy(encoder)
        parts = {name: _rebuilt(config[name]) for name in ("density", "tempering")}
        model: Any = cls(
            encoder, features, targets, head=HEADS[head](width, targets, disagreement=disagreement), **parts
        )
        for part in (model.head, model.density, model.tempering):
            if part is not None:
                part.to(weight.dtype)
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise InvalidModelError(f"The saved weights do not fit the model: {error}") from error
        loaded: Self = model.cpu().eval()
        return loaded


def _rebuilt(value: Any) -> Any:
    return None if value is None else rebuilt(value)
