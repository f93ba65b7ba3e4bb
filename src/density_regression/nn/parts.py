"""Classes that a saved model may name: the package's densities and temperings, and registered classes."""

import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from density_regression.io.store import InvalidModelError
from density_regression.nn import density as densities
from density_regression.nn import tempering
from density_regression.nn.density.base import Density, FittedModule
from density_regression.nn.runtime import kept_draws
from density_regression.nn.tempering import Tempering

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
    part.__name__: part
    for part in (*vars(densities).values(), *densities.DENSITIES.values(), *vars(tempering).values())
    if isinstance(part, type) and issubclass(part, Density | Tempering)
}
"""All densities and temperings of the package, by class name."""

_REGISTERED: dict[str, Any] = {}


def add(part: Any) -> None:
    """Register a class or function by its name; a redefinition at the same place, as in a notebook, replaces it."""
    name = part.__name__
    known = _REGISTERED.get(name)
    if known is not None and not is_registered(part):
        raise ValueError(f"{name} is the name of {known.__module__}.{known.__qualname__} already: choose another.")
    _REGISTERED[name] = part


def is_registered(part: Any) -> bool:
    """Whether a class or function, or an earlier definition of it, was registered."""
    known = _REGISTERED.get(getattr(part, "__name__", ""))
    return known is not None and (known.__module__, known.__qualname__) == (part.__module__, part.__qualname__)


def registered(kind: type[T]) -> dict[str, type[T]]:
    """Registered classes of a kind, by name."""
    return {name: part for name, part in _REGISTERED.items() if isinstance(part, type) and issubclass(part, kind)}


def to_json(value: Any) -> Any:
    """A setting as JSON: a density or tempering by class name and configuration; null if it has no such form."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if isinstance(value, dict):
        return {key: to_json(part) for key, part in value.items()}
    if hasattr(value, "__array__") and not isinstance(value, Tensor):
        return np.asarray(value).tolist()
    if isinstance(value, FittedModule):
        return {"type": type(value).__name__, "config": to_json(value.config())}
    return value if isinstance(value, str | int | float | bool | None) else None


def rebuilt(value: Any) -> FittedModule:
    """The density or tempering, not fitted, that `to_json` described."""
    name, config = value["type"], value["config"]
    known = {**PARTS, **registered(Density), **registered(Tempering)}
    if name not in known:
        raise InvalidModelError(
            f"The saved model has a part this version does not know: {name!r}. If it is a class of your own, register "
            "it first with density_regression.register."
        )
    return known[name](**{key: rebuilt(part) if isinstance(part, dict) else part for key, part in config.items()})


def described_encoder(encoder: Any) -> dict[str, Any] | None:
    """A registered encoder as JSON: a module by class name and configuration, a function by name; None for any other.

    The configuration is what its `config()` returns, or else the attributes named as the arguments of `__init__`. It
    must consist of numbers, strings and lists.
    """
    if not isinstance(encoder, nn.Module):
        return {"factory": encoder.__name__} if is_registered(encoder) else None
    config = _config(encoder) if is_registered(type(encoder)) else None
    return None if config is None else {"type": type(encoder).__name__, "config": config}


def check_encoder(described: Any) -> None:
    """Raise a ValueError if the encoder that `described_encoder` described is not registered."""
    if isinstance(described, dict) and _maker(described) is not None:
        return
    name = described.get("factory", described.get("type")) if isinstance(described, dict) else None
    remedy = f", or register {name!r} first" if name else ""
    raise ValueError(
        f"This model was saved with an encoder of your own: give it again, load(..., encoder=...){remedy}."
    )


def encoder_of(described: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Build the module, or look up the function, that `described_encoder` described.

    Raises an InvalidModelError if it would have more weights than `tensors` hold.
    """
    make = _maker(described)
    if make is None or "factory" in described:
        return make
    config = {name: tuple(value) if isinstance(value, list) else value for name, value in described["config"].items()}
    most = sum(tensor.numel() for tensor in tensors.values())
    # Checked on the meta device, so that a forged size cannot exhaust the memory.
    with suppress(NotImplementedError, RuntimeError), torch.device("meta"), kept_draws():
        if sum(tensor.numel() for tensor in make(**config).state_dict().values()) > most:
            raise InvalidModelError("The saved weights are too few for the saved encoder.")
    with kept_draws():
        return make(**config)


def _maker(described: dict[str, Any]) -> Callable[..., Any] | None:
    """The registered class or function that a description names."""
    name = described.get("factory", described.get("type"))
    part = _REGISTERED.get(name) if isinstance(name, str) else None
    if not isinstance(part, type):
        return part if "factory" in described else None
    # Neither a density nor a regressor is an encoder.
    return part if issubclass(part, nn.Module) and not issubclass(part, FittedModule) else None


def _config(encoder: nn.Module) -> dict[str, Any] | None:
    """Arguments that rebuild a module, if they consist of numbers, strings and lists."""
    own = getattr(encoder, "config", None)
    if callable(own):
        values = own()
    else:
        arguments = inspect.signature(type(encoder)).parameters.values()
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if any(argument.kind in variadic or not hasattr(encoder, argument.name) for argument in arguments):
            return None
        values = {argument.name: getattr(encoder, argument.name) for argument in arguments}
    return {name: to_json(value) for name, value in values.items()} if all(map(_plain, values.values())) else None


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, str | int | float | bool | np.generic)
