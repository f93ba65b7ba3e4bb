"""Parameters that all regressors share, their description of themselves, and the signature of `__init__`."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypedDict

from torch import nn

from density_regression.training.callbacks import Callback

__all__ = ["About", "Settings", "name_parameters", "unknown_parameter"]


class Settings(TypedDict, total=False):
    """The parameters that all regressors share, as `DeepRegressor` describes them."""

    encoder: nn.Module | Callable[[int], nn.Module] | None
    hidden: tuple[int, ...]
    embedding: Literal["piecewise"] | None
    target: Literal["identity", "log", "auto"]
    epochs: int
    batch_size: int | Literal["auto"]
    learning_rate: float | Literal["auto"]
    weight_decay: float
    patience: int | None
    validation_fraction: float
    device: str
    precision: str
    compile: bool
    n_threads: int | None
    checkpoint_dir: str | os.PathLike[str] | None
    callbacks: Sequence[Callback] | None
    verbose: bool
    random_state: Any


@dataclass(frozen=True)
class About:
    """What `density_regression.methods` says of a method.

    Attributes
    ----------
    name : str
        As the paper's tables have it.
    reference : str
        Authors and year.
    passes : int
        Forward passes for one prediction, by default.
    needs_prior : bool
        Whether somebody has to choose a prior.
    """

    name: str
    reference: str
    passes: int = 1
    needs_prior: bool = False


def name_parameters(estimator: type, parameters: Mapping[str, inspect.Parameter]) -> None:
    """Give `__init__` a signature of these parameters, except `**` ones; scikit-learn reads it."""
    named = [part for part in parameters.values() if part.kind != part.VAR_KEYWORD]
    estimator.__init__.__signature__ = inspect.Signature(named)  # type: ignore[misc]


def unknown_parameter(estimator: type, name: str) -> str:
    """The message for a parameter that an estimator does not have."""
    known = inspect.signature(estimator).parameters
    nearest = get_close_matches(name, known, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(known)}."
    return f"{estimator.__name__} has no parameter {name!r}: {hint}"
