"""Regressors by name: the package's own and registered ones, and `load`, which builds them."""

import inspect
import os
import sys
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import Any, Final, TypeVar

from torch import nn

from density_regression.estimators.base import DeepRegressor
from density_regression.estimators.settings import About
from density_regression.io.store import InvalidModelError, read_model
from density_regression.nn import parts
from density_regression.nn.runtime import usual_torch

__all__ = ["Method", "estimators", "import_plugin", "load", "methods", "register"]

T = TypeVar("T")

ESTIMATORS: Final = {
    "DensityRegressor": "estimators.density",
    "DeterministicRegressor": "baselines.deterministic",
    "GaussianRegressor": "baselines.gaussian",
    "QuantileRegressor": "baselines.quantile",
    "MCDropoutRegressor": "baselines.dropout",
    "BayesianRegressor": "baselines.bayesian",
    "EvidentialRegressor": "baselines.evidential",
    "NaturalPosteriorRegressor": "baselines.natural_posterior",
    "SNGPRegressor": "baselines.sngp",
    "DUERegressor": "baselines.due",
    "DeepEnsembleRegressor": "baselines.ensemble",
}
"""Module of each regressor of the package, by the name of its class; imported on first use."""


@dataclass(frozen=True)
class Method(About):
    """A method of the comparison: its `About`, and its class `estimator`, with the contract of `DensityRegressor`."""

    estimator: type[DeepRegressor] = field(kw_only=True)


def methods() -> list[Method]:
    """All methods: Density-Regression, the ten it is compared with, and registered ones.

    Examples
    --------
    >>> import density_regression
    >>> [method.name for method in density_regression.methods() if method.passes == 5]
    ['Deep Ensembles']
    """
    return [Method(**asdict(estimator.about), estimator=estimator) for estimator in estimators().values()]


def estimators() -> dict[str, type[DeepRegressor]]:
    """All regressors by class name: those that `load` may build."""
    own = {name: _own(name) for name in ESTIMATORS}
    return {**own, **parts.registered(DeepRegressor)}  # type: ignore[type-abstract]


def _own(name: str) -> Any:
    return getattr(import_module(f"density_regression.{ESTIMATORS[name]}"), name)


def register(part: T) -> T:
    """Make a class of your own known to `save`, `load` and `bench` by its name; also a decorator.

    `load` builds only the package's own and registered classes, and imports nothing that a file names. Registration
    holds for one process: put the class in a module, and pass that module to `load` or `bench` as a plugin.

    Parameters
    ----------
    part : class or function
        A regressor (a `DeepRegressor`; `bench` lists it by the name in its `about`, or else by that of its class), a
        `Density`, a `Tempering`, an encoder (any other `nn.Module`), or a function from the number of columns to an
        encoder. Densities, temperings and encoders are rebuilt from what their `config()` returns; without one, from
        the arguments of `__init__`, each stored as an attribute of the same name. Register an encoder before fitting.

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
    """Check that the name of a method is unique; without one it gets that of its class."""
    if "about" not in vars(estimator):
        inherited = getattr(estimator, "about", About("", ""))
        estimator.about = replace(inherited, name=estimator.__name__, reference="")
    others = {other.about.name for name, other in estimators().items() if name != estimator.__name__}
    if estimator.about.name in others:
        name = estimator.about.name
        raise ValueError(f"{estimator.__name__} is called {name!r}, as another method is: change its `about`.")


def import_plugin(name: str) -> None:
    """Import a module that registers classes, by its name; also from the current folder."""
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
        Folder written by `save`.
    encoder : nn.Module, optional
        Your own encoder, if the estimator was fitted with one that is not registered; its weights are read.
    plugin : str, optional
        Name of a module to import first, which registers your own classes (see `register`).

    Raises
    ------
    InvalidModelError
        If the folder is truncated, edited, or from a newer major version; a `ValueError`.

    Examples
    --------
    >>> from density_regression import DensityRegressor
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(60, random_state=0)
    >>> reg = DensityRegressor(epochs=2, members=0, random_state=0).fit(X, y)
    >>> reg.save("model")
    >>> bool((load("model").predict(X) == reg.predict(X)).all())
    True
    """
    if plugin is not None:
        import_plugin(plugin)
    config, tensors = read_model(folder)
    name, own_encoder = config.get("estimator"), config.get("own_encoder")
    if name == "DepthRegressor":
        raise InvalidModelError(f"{folder} holds a model of images, not of tables: read it with DepthRegressor.load.")
    if config.get("module") == "DensityRegression":
        raise InvalidModelError(f"{folder} holds a torch module: read it with DensityRegression.load.")
    registered = parts.registered(DeepRegressor)  # type: ignore[type-abstract]
    if not isinstance(name, str) or name not in (*ESTIMATORS, *registered):
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
            estimator = registered[name] if name in registered else _own(name)
            return estimator._from_saved(config, tensors, own)
    except (ImportError, InvalidModelError):
        raise
    # A missing or wrong entry may fail in any way.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidModelError(f"{folder} does not describe a model that can be built ({reason}).") from error
