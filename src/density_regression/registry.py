"""Names to classes, and `load`, which needs them."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field

from torch import nn

from density_regression import baselines
from density_regression.base import About, DeepRegressor
from density_regression.estimator import DensityRegressor
from density_regression.loop import usual_torch
from density_regression.persistence import InvalidModelError, read_model

__all__ = ["Method", "load", "methods"]

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
"""Every class that `load` may build; a saved folder can name no other."""


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
    """Every method there is: Density-Regression and the ten it is compared with.

    Examples
    --------
    >>> import density_regression
    >>> [method.name for method in density_regression.methods() if method.passes == 5]
    ['Deep Ensembles']
    """
    return [Method(**asdict(estimator.about), estimator=estimator) for estimator in ESTIMATORS.values()]


def load(folder: str | os.PathLike[str], encoder: nn.Module | None = None) -> DeepRegressor:
    """Read an estimator that `save` wrote. No code from the folder is run.

    Parameters
    ----------
    folder : path
        What `save` wrote.
    encoder : nn.Module, optional
        The encoder, if the estimator was fitted with one of your own; its weights come from the folder.

    Raises
    ------
    InvalidModelError
        If the folder is truncated, edited, or from a newer major version; a `ValueError`.
    """
    config, tensors = read_model(folder)
    name, own_encoder = config.get("estimator"), config.get("own_encoder")
    if name == "DepthRegressor":
        raise InvalidModelError(f"{folder} holds a model of images, not of tables: read it with DepthRegressor.load.")
    if not isinstance(name, str) or name not in ESTIMATORS:
        raise InvalidModelError(f"{folder} holds an estimator this version does not know: {name!r}.")
    if not isinstance(own_encoder, bool):
        raise InvalidModelError(f"{folder} does not say whether its encoder is one of your own.")
    if own_encoder and encoder is None:
        raise ValueError("This model was saved with an encoder of your own: give it again, load(..., encoder=...).")
    if not own_encoder and encoder is not None:
        raise ValueError("This model was saved with the package's own encoder; do not give another.")
    try:
        with usual_torch():
            return ESTIMATORS[name]._from_saved(config, tensors, encoder)
    except (ImportError, InvalidModelError):
        raise
    # What is missing or of the wrong kind may fail anywhere, in any way; to the caller it is all the same.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidModelError(f"{folder} does not describe a model that can be built ({reason}).") from error
