"""Classes that a saved model may name: the package's densities and temperings, and what somebody registers."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from density_regression import density as densities
from density_regression._numeric import FittedModule
from density_regression.density import Density, Tempering
from density_regression.loop import kept_draws
from density_regression.persistence import InvalidModelError

__all__ = [
    "PARTS",
    "add",
    "check_encoder",
    "described_encoder",
    "encoder_of",
    "is_registered",
    "rebuilt",
    "registered",
    "to_json",
]

T = TypeVar("T")

PARTS: Final[Mapping[str, type[FittedModule]]] = {
    name: part
    for name, part in vars(densities).items()
    if isinstance(part, type) and issubclass(part, Density | Tempering)
}
"""Every density and tempering of the package, by the name of its class."""

_REGISTERED: dict[str, Any] = {}


def add(part: Any) -> None:
    """Make a class or function known by its name; one that was defined anew in its place takes it over."""
    name = part.__name__
    known = _REGISTERED.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (part.__module__, part.__qualname__):
        raise ValueError(f"{name} is the name of {known.__module__}.{known.__qualname__} already: choose another.")
    _REGISTERED[name] = part


def is_registered(part: Any) -> bool:
    """Whether a class or function, or one that it replaced, was registered."""
    known = _REGISTERED.get(getattr(part, "__name__", ""))
    return known is not None and (known.__module__, known.__qualname__) == (part.__module__, part.__qualname__)


def registered(kind: type[T]) -> dict[str, type[T]]:
    """Registered classes of a kind, by name."""
    return {name: part for name, part in _REGISTERED.items() if isinstance(part, type) and issubclass(part, kind)}


def to_json(value: Any) -> Any:
    """A setting as JSON: an object by class and configuration, what has no such form as null."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if hasattr(value, "__array__") and not isinstance(value, Tensor):
        return np.asarray(value).tolist()
    if isinstance(value, FittedModule):
        return {
            "type": type(value).__name__,
            "config": {key: to_json(part) for key, part in value.config().items()},
        }
    return value if isinstance(value, str | int | float | bool | None) else None


def rebuilt(value: Any) -> FittedModule:
    """A density or tempering from what `to_json` made of it, not fitted."""
    name, config = value["type"], value["config"]
    known = {**PARTS, **registered(Density), **registered(Tempering)}
    if name not in known:
        raise InvalidModelError(
            f"The saved model has a part this version does not know: {name!r}. If it is a class of your own, register "
            "it first with density_regression.register."
        )
    return known[name](**{key: rebuilt(part) if isinstance(part, dict) else part for key, part in config.items()})


def described_encoder(encoder: Any) -> dict[str, Any] | None:
    """A registered encoder as JSON: a module by class and configuration, a function by name; None for any other.

    A module's configuration is what its `config()` returns; without one, the arguments of its `__init__`, each from the
    attribute of that name. A module that has neither in plain numbers, strings and lists has no such form.
    """
    if not isinstance(encoder, nn.Module):
        return {"factory": encoder.__name__} if is_registered(encoder) else None
    config = _config(encoder) if is_registered(type(encoder)) else None
    return None if config is None else {"type": type(encoder).__name__, "config": config}


def check_encoder(described: Any) -> None:
    """Raise a ValueError if nothing registered is what `described_encoder` described."""
    if isinstance(described, dict) and _maker(described) is not None:
        return
    name = described.get("factory", described.get("type")) if isinstance(described, dict) else None
    remedy = f", or register {name!r} first" if name else ""
    raise ValueError(
        f"This model was saved with an encoder of your own: give it again, load(..., encoder=...){remedy}."
    )


def encoder_of(described: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The registered encoder that `described_encoder` described: a new module, or a function.

    Raises
    ------
    InvalidModelError
        If it would have more weights than `tensors` hold.
    """
    make = _maker(described)
    if make is None or "factory" in described:
        return make
    config = {name: tuple(value) if isinstance(value, list) else value for name, value in described["config"].items()}
    most = sum(tensor.numel() for tensor in tensors.values())
    # Before anything is built: a few digits could otherwise ask for more memory than there is.
    with suppress(NotImplementedError, RuntimeError), torch.device("meta"), kept_draws():
        if sum(tensor.numel() for tensor in make(**config).state_dict().values()) > most:
            raise InvalidModelError("The saved weights are too few for the saved encoder.")
    with kept_draws():
        return make(**config)


def _maker(described: dict[str, Any]) -> Callable[..., Any] | None:
    """The registered class or function that a description names."""
    name = described.get("factory", described.get("type"))
    part = _REGISTERED.get(name) if isinstance(name, str) else None
    fits = callable(part) if "factory" in described else isinstance(part, type)
    # Neither a density nor a regressor is an encoder.
    return part if fits and (not isinstance(part, type) or _is_encoder(part)) else None


def _is_encoder(part: type) -> bool:
    return issubclass(part, nn.Module) and not issubclass(part, FittedModule)


def _config(encoder: nn.Module) -> dict[str, Any] | None:
    """Arguments that build a module anew, if they are plain numbers, strings and lists of them."""
    own = getattr(encoder, "config", None)
    if callable(own):
        values = own()
    else:
        parameters = inspect.signature(type(encoder)).parameters.values()
        if any(part.kind in (part.VAR_POSITIONAL, part.VAR_KEYWORD) for part in parameters):
            return None
        if not all(hasattr(encoder, part.name) for part in parameters):
            return None
        values = {part.name: getattr(encoder, part.name) for part in parameters}
    return {name: to_json(value) for name, value in values.items()} if all(map(_plain, values.values())) else None


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, str | int | float | bool | np.generic)
