"""Names to classes, and `load`, which needs them."""

from __future__ import annotations

import inspect
import os
import sys
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import TypeVar

from torch import nn

from density_regression import baselines, parts
from density_regression.base import About, DeepRegressor
from density_regression.estimator import DensityRegressor
from density_regression.loop import usual_torch
from density_regression.persistence import InvalidModelError, read_model

__all__ = ["Method", "estimators", "import_plugin", "load", "methods", "register"]

T = TypeVar("T")

ESTIMATORS: dict[str, type[DeepRegressor]] = {
    estimator.__name__: estimator
    for estimator in (
        DensityRegressor,
        baselines.DeterministicRegressor,
        baselines.GaussianRegressor,
        baselines.QuantileRegressor,
        baselines.MCDropoutRegressor,
        baselines.BayesianRegressor,
        baselines.EvidentialRegressor,
        baselines.NaturalPosteriorRegressor,
        baselines.SNGPRegressor,
        baselines.DUERegressor,
        baselines.DeepEnsembleRegressor,
    )
}
"""Every class of the package that `load` may build."""


@dataclass(frozen=True)
class Method(About):
    """A method of the comparison: what it says about itself, and its class.

    Attributes
    ----------
    estimator : type
        Its class, with the contract of `DensityRegressor`.
    """

    estimator: type[DeepRegressor] = field(kw_only=True)


def methods() -> list[Method]:
    """Every method there is: Density-Regression, the ten it is compared with, and those that were registered.

    Examples
    --------
    >>> import density_regression
    >>> [method.name for method in density_regression.methods() if method.passes == 5]
    ['Deep Ensembles']
    """
    return [Method(**asdict(estimator.about), estimator=estimator) for estimator in estimators().values()]


def estimators() -> dict[str, type[DeepRegressor]]:
    """Every class that `load` may build, by name; a saved folder can name no other."""
    return {**ESTIMATORS, **parts.registered(DeepRegressor)}  # type: ignore[type-abstract]


def register(part: T) -> T:
    """Make a class of your own known to `save`, `load` and `bench`, by its name; also as a decorator.

    `load` builds only what the package has or what was registered before, and imports nothing that a file names. Each
    process registers for itself: put the class in a module, and name that module to `load` or to `bench` as a plugin.

    Parameters
    ----------
    part : class or function
        A regressor (a `DeepRegressor`; `bench` lists it by the name in its `about`, or else by that of its class), a
        `Density`, a `Tempering`, an encoder (any other `nn.Module`), or a function from the number of columns to an
        encoder. Densities, temperings and encoders are built again from what their `config()` returns; without one,
        from the arguments of `__init__`, each of which is to be kept as an attribute of that name. Register an encoder
        before fitting with it.

    Returns
    -------
    The same class or function.

    Examples
    --------
    >>> from density_regression import GaussianDensity, register
    >>> @register
    ... class NarrowDensity(GaussianDensity):
    ...     def __init__(self, max_dims=2):
    ...         super().__init__(max_dims=max_dims)
    """
    kind: type = part if isinstance(part, type) else object
    if not (issubclass(kind, DeepRegressor | nn.Module) or inspect.isfunction(part)):
        raise ValueError(f"register takes a regressor, density, tempering or encoder, each a class, got {part!r}.")
    name = getattr(part, "__name__", "")
    if name in (*ESTIMATORS, *parts.PARTS, "DepthRegressor") or not name.isidentifier():
        raise ValueError(f"{name!r} cannot be registered: it is the package's own, or no name. Choose another.")
    if issubclass(kind, DeepRegressor):
        _check_about(kind)
    parts.add(part)
    return part


def _check_about(estimator: type[DeepRegressor]) -> None:
    """See that a method has a name of its own, or give it that of its class."""
    if "about" not in vars(estimator):
        inherited = getattr(estimator, "about", About("", ""))
        estimator.about = replace(inherited, name=estimator.__name__, reference="")
    others = {other.about.name for name, other in estimators().items() if name != estimator.__name__}
    if estimator.about.name in others:
        name = estimator.about.name
        raise ValueError(f"{estimator.__name__} is called {name!r}, as another method is: change its `about`.")


def import_plugin(name: str) -> None:
    """Import a module, by a name that the caller gives, so that it registers what it has; also from the current folder.

    Raises
    ------
    ImportError
        If it cannot be imported.
    """
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        import_module(name)
    except ImportError as error:
        raise ImportError(f"The plugin {name!r} cannot be imported: {error}.") from error


def load(
    folder: str | os.PathLike[str], encoder: nn.Module | None = None, *, plugin: str | None = None
) -> DeepRegressor:
    """Read an estimator that `save` wrote. No code from the folder is run.

    Parameters
    ----------
    folder : path
        What `save` wrote.
    encoder : nn.Module, optional
        The encoder, if the estimator was fitted with one of your own that is not registered; its weights come from the
        folder.
    plugin : str, optional
        Name of a module to import first, which registers classes of your own (see `register`).

    Raises
    ------
    InvalidModelError
        If the folder is truncated, edited, or from a newer major version; a `ValueError`.
    """
    if plugin is not None:
        import_plugin(plugin)
    config, tensors = read_model(folder)
    name, own_encoder = config.get("estimator"), config.get("own_encoder")
    if name == "DepthRegressor":
        raise InvalidModelError(f"{folder} holds a model of images, not of tables: read it with DepthRegressor.load.")
    if config.get("module") == "DensityRegression":
        raise InvalidModelError(f"{folder} holds a torch module: read it with DensityRegression.load.")
    if not isinstance(name, str) or name not in estimators():
        raise InvalidModelError(
            f"{folder} holds an estimator this version does not know: {name!r}. If it is a class of your own, register "
            "it first, or name its module: load(..., plugin=...)."
        )
    if not isinstance(own_encoder, bool):
        raise InvalidModelError(f"{folder} does not say whether its encoder is one of your own.")
    params = config.get("params")
    described = params.get("encoder") if isinstance(params, dict) else None
    if own_encoder and encoder is None:
        parts.check_encoder(described)
    if not own_encoder and encoder is not None:
        raise ValueError("This model was saved with the package's own encoder; do not give another.")
    try:
        with usual_torch():
            own = encoder if encoder is not None or not own_encoder else parts.encoder_of(described, tensors)
            return estimators()[name]._from_saved(config, tensors, own)
    except (ImportError, InvalidModelError):
        raise
    # What is missing or of the wrong kind may fail anywhere, in any way; to the caller it is all the same.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidModelError(f"{folder} does not describe a model that can be built ({reason}).") from error
