"""Estimators to a folder and back."""

from __future__ import annotations

import copy
import inspect
import math
import os
from abc import abstractmethod
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from density_regression.loop import TrainingReport, kept_draws
from density_regression.network import Predictor
from density_regression.parts import described_encoder, is_registered, rebuilt, to_json
from density_regression.persistence import InvalidModelError, write_model
from density_regression.tables import OwnUnits, Scaling, Table

__all__ = ["SavedEstimator", "to_json"]

PROBE = 17
"""Rows of the prediction that tries a model just loaded."""


class SavedEstimator(BaseEstimator):
    """An estimator that `save` writes and `density_regression.load` builds anew; part of `DeepRegressor`."""

    encoder: Any
    hidden: tuple[int, ...]
    x_scaling_: Scaling
    y_scaling_: Scaling
    target_shape_: tuple[int, ...]
    model_: Predictor
    fitted_params_: dict[str, Any]
    own_encoder_: bool
    report_: TrainingReport

    @abstractmethod
    def _encoder(self, inputs: int) -> nn.Module:
        """The encoder for so many columns."""

    @abstractmethod
    def _build(self, encoder: nn.Module, table: Table) -> Predictor:
        """The untrained module, for rows like those of `table`."""

    def _moments(self, x: Tensor) -> tuple[Tensor, ...]:
        """Mean and log standard deviation (n, k) at scaled rows `x`, in units of the scaled target."""
        return self.model_.moments(x)

    def _ready(self) -> None:
        """Prepare predictions by the module as it is now."""
        # Tells the device that the module is on, wherever it is moved; to look for one takes longer than a layer.
        self.some_weight_ = next(self.model_.parameters())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a folder (safetensors and JSON), whole or not at all.

        Read it back with `density_regression.load`. An own encoder's weights are saved, its code is not: give the
        module to `load` again, or register its class with `density_regression.register`, as that of an own density,
        tempering or regressor.
        """
        check_is_fitted(self)
        own = type(self)
        if own.__module__.partition(".")[0] != __name__.partition(".")[0] and not is_registered(own):
            raise ValueError(
                f"{own.__name__} is a class of your own, which could not be loaded again: register it first, with "
                f"density_regression.register({own.__name__})."
            )
        # Where one fit kept its checkpoints is nobody else's business.
        params = self.fitted_params_ | {"checkpoint_dir": None}
        for name, value in params.items():
            if name == "encoder":
                continue
            try:
                self._from_json(value)
            except InvalidModelError as error:
                raise ValueError(
                    f"{name} is of a class of your own, which could not be loaded again: {error}"
                ) from error
        config = {
            "estimator": type(self).__name__,
            "version": version("density-regression"),
            "torch": torch.__version__,
            "params": params,
            "own_encoder": self.own_encoder_,
            "feature_names": getattr(self, "feature_names_in_", np.empty(0)).tolist(),
            "target_shape": list(self.target_shape_),
            "scaling": {
                "x": [self.x_scaling_.center.tolist(), self.x_scaling_.scale.tolist()],
                "y": [self.y_scaling_.center.tolist(), self.y_scaling_.scale.tolist()],
                "own_units": isinstance(self.x_scaling_, OwnUnits),
            },
            "seconds": self.report_.seconds,
            "history": _losses_to_json(self.report_.history),
            "train_history": _losses_to_json(self.report_.train_history),
        }
        write_model(folder, config, {**self.model_.state_dict(), **self._extra_tensors()})

    def _size(self, columns: int, targets: int) -> int:
        """Least number of weights of the module for so many columns and targets, counted without memory for them."""
        with torch.device("meta"), kept_draws():
            module = self._encoder(columns)
            # Parts of other packages may look at their numbers while they are built, and here they have none.
            with suppress(NotImplementedError, RuntimeError):
                module = self._build(module, Table.empty(columns, targets))
        return sum(tensor.numel() for tensor in module.state_dict().values())

    def _extra_tensors(self) -> dict[str, Tensor]:
        """Learnt state outside the module."""
        return {}

    def _take_extra_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `_extra_tensors` gave, removing it from `tensors`."""

    def _json_params(self) -> dict[str, Any]:
        """Hyper-parameters as JSON: objects by class and configuration, what has no such form as null.

        Callbacks are left out: they look on, and say nothing of the model.
        """
        params = self.get_params(deep=False).items()
        values = {name: to_json(value) for name, value in params if name != "callbacks"}
        return values | {"encoder": described_encoder(self.encoder)}

    @classmethod
    def _from_saved(cls, config: dict[str, Any], tensors: dict[str, Tensor], encoder: Any) -> Self:
        """Rebuild an estimator from what `save` wrote; any exception means that it wrote something else."""
        known = inspect.signature(cls).parameters
        unknown = sorted(config["params"].keys() - known.keys())
        if unknown:
            raise InvalidModelError(f"The saved model has settings this version does not know: {unknown}.")
        params = config["params"] | {"encoder": None}
        self = cls(**{name: cls._from_json(value) for name, value in params.items()})
        self.fitted_params_, self.own_encoder_ = config["params"], encoder is not None
        self.encoder = copy.deepcopy(encoder)
        self._validate_params()
        self.x_scaling_, self.y_scaling_ = (Scaling.saved(config["scaling"][part]) for part in ("x", "y"))
        columns, targets = len(self.x_scaling_.center), len(self.y_scaling_.center)
        # Models of earlier versions do not say, and were fitted without.
        if config["scaling"].get("own_units"):
            self.x_scaling_ = OwnUnits.of(columns)
        self.n_features_in_ = columns
        self.target_shape_ = (targets,) if targets > 1 else ()
        names = config["feature_names"]
        if config["target_shape"] != list(self.target_shape_) or len(names) not in (0, columns):
            raise InvalidModelError("The saved scaling has another number of columns than the model.")
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise InvalidModelError(f"The saved feature names are not a list of names, but {names!r}.")
        if names:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        tensors = dict(tensors)
        # Before anything is built: a few digits could otherwise ask for more memory than there is.
        if encoder is None and self._size(columns, targets) > sum(tensor.numel() for tensor in tensors.values()):
            raise InvalidModelError("The saved weights are too few for the saved settings.")
        self._take_extra_tensors(tensors)
        shape = Table.empty(columns, targets)
        with kept_draws():
            self.model_ = self._build(self._encoder(columns), shape)
        try:
            self.model_.load_state_dict(tensors)
        except RuntimeError as error:
            raise InvalidModelError(f"The saved weights do not fit the model: {error}") from error
        self.model_.eval()
        self._ready()
        with torch.inference_mode():
            moments = self._moments(torch.zeros(PROBE, columns))
        if any(part.shape != (PROBE, targets) for part in moments):
            raise InvalidModelError(f"The saved model does not predict {targets} target(s).")
        if not all(part.isfinite().all() for part in moments):
            raise InvalidModelError("The saved model does not predict finite numbers.")
        self.report_ = TrainingReport(
            {str(step): float(seconds) for step, seconds in config["seconds"].items()},
            _losses_from_json(config["history"]),
            # Models of earlier versions have none.
            _losses_from_json(config.get("train_history", [])),
        )
        return self

    @classmethod
    def _from_json(cls, value: Any) -> Any:
        """Undo `to_json` for one hyper-parameter."""
        if isinstance(value, dict):
            return rebuilt(value)
        return tuple(value) if isinstance(value, list) else value


def _losses_to_json(losses: list[float]) -> list[float | None]:
    """Losses as JSON, which has no number for those of epochs that ended in overflow."""
    return [loss if math.isfinite(loss) else None for loss in losses]


def _losses_from_json(losses: list[float | None]) -> list[float]:
    return [math.nan if loss is None else float(loss) for loss in losses]
