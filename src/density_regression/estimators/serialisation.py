"""Regressors to a folder and back."""

import copy
import inspect
import math
import os
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from density_regression.estimators.conformal import Conformal
from density_regression.estimators.hooks import RegressorHooks
from density_regression.io.store import InvalidModelError, write_model
from density_regression.nn.encoders import PiecewiseEmbedding
from density_regression.nn.parts import described_encoder, is_registered, rebuilt, to_json
from density_regression.nn.runtime import kept_draws
from density_regression.tabular.columns import Columns
from density_regression.tabular.laws import LAWS, Law
from density_regression.tabular.profile import Profile
from density_regression.tabular.table import OwnUnits, Scaling, TrainingRows
from density_regression.training.loop import TrainingReport

__all__ = ["Serialisation"]

CONFORMAL: Final = "conformal."
"""Prefix of the names of what `conformalize` learnt."""

TRIAL_ROWS: Final = 17
"""Rows of the prediction that tries a model just loaded."""


class Serialisation(RegressorHooks):
    """`save`, and what `density_regression.load` needs."""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a folder (safetensors and JSON), whole or not at all.

        Read it back with `density_regression.load`. The code of an own encoder, density, tempering or regressor is not
        saved: register its class with `density_regression.register`, or give the encoder to `load` again.
        """
        check_is_fitted(self)
        own = type(self)
        if own.__module__.partition(".")[0] != __name__.partition(".")[0] and not is_registered(own):
            name = own.__name__
            remedy = f"register it first, with density_regression.register({name})"
            raise ValueError(f"{name} is a class of your own, which could not be loaded again: {remedy}.")
        # Where one fit kept its checkpoints is nobody else's business.
        params = self._json_params(self.fitted_params_) | {"checkpoint_dir": None}
        for name, value in params.items():
            if name == "encoder":
                continue
            try:
                self._from_json(value)
            except InvalidModelError as error:
                reason = "is of a class of your own, which could not be loaded again"
                raise ValueError(f"{name} {reason}: {error}") from error
        config = {
            "estimator": type(self).__name__,
            "version": version("density-regression"),
            "torch": torch.__version__,
            "params": params,
            "own_encoder": self.own_encoder_,
            "feature_names": getattr(self, "feature_names_in_", np.empty(0)).tolist(),
            "target_shape": list(self.target_shape_),
            "target": self.target_,
            "scaling": {
                "x": [self.x_scaling_.center.tolist(), self.x_scaling_.scale.tolist()],
                "y": [self.y_scaling_.center.tolist(), self.y_scaling_.scale.tolist()],
                "own_units": isinstance(self.x_scaling_, OwnUnits),
            },
            "seconds": self.report_.seconds,
            "history": _losses_to_json(self.report_.history),
            "train_history": _losses_to_json(self.report_.train_history),
        }
        if self.columns_ is not None:
            config["columns"] = self.columns_.to_json()
        if self.profile_ is not None:
            config["profile"] = self.profile_.to_json()
        conformal = {} if self.conformal_ is None else self.conformal_.tensors()
        aside = {f"{CONFORMAL}{name}": tensor for name, tensor in conformal.items()}
        write_model(folder, config, {**self.model_.state_dict(), **aside})

    def _size(self, columns: int, targets: int, embedding: PiecewiseEmbedding | None = None) -> int:
        """Least number of weights of the module for so many columns and targets, counted without memory for them."""
        with torch.device("meta"), kept_draws():
            module = self._encoder(columns, embedding)
            # Parts of other packages may look at their numbers while they are built, and here they have none.
            with suppress(NotImplementedError, RuntimeError):
                module = self._build(module, TrainingRows.empty(columns, targets))
        return sum(tensor.numel() for tensor in module.state_dict().values())

    def _json_params(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Hyper-parameters as JSON: objects by class and configuration, what has no such form as null.

        Callbacks are left out, as they are no part of the model.
        """
        params = self.get_params(deep=False) if params is None else params
        values = {name: to_json(value) for name, value in params.items() if name != "callbacks"}
        encoder = params["encoder"]
        # That of a loaded model is described already.
        return values | {"encoder": encoder if isinstance(encoder, dict) else described_encoder(encoder)}

    @torch.inference_mode()
    def _try_to_predict(self, columns: int, targets: int) -> None:
        """Raise an InvalidModelError if a saved model does not predict so many numbers for a row."""
        moments = self._moments(torch.zeros(TRIAL_ROWS, columns))
        if any(part.shape != (TRIAL_ROWS, targets) for part in moments):
            raise InvalidModelError(f"The saved model does not predict {targets} target(s).")
        if not all(part.isfinite().all() for part in moments):
            raise InvalidModelError("The saved model does not predict finite numbers.")

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
        self.target_ = _saved_law(config)
        self.columns_ = _saved_columns(config, columns)
        self.n_features_in_ = columns if self.columns_ is None else len(self.columns_.coders)
        self.target_shape_ = (targets,) if targets > 1 else ()
        self.profile_ = _saved_profile(config, self.n_features_in_, targets)
        names = config["feature_names"]
        if config["target_shape"] != list(self.target_shape_) or len(names) not in (0, self.n_features_in_):
            raise InvalidModelError("The saved scaling has another number of columns than the model.")
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise InvalidModelError(f"The saved feature names are not a list of names, but {names!r}.")
        if names:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        tensors, conformal = _apart(tensors)
        weights = sum(tensor.numel() for tensor in tensors.values())
        embedding = _saved_embedding(tensors, columns) if encoder is None else None
        if "embedding" not in config["params"]:
            # Models of earlier versions do not say, and have none.
            self.embedding = None if embedding is None else "piecewise"
        self._upgrade_settings(config["params"])
        # Before anything is built: a few digits could otherwise ask for more memory than there is.
        if encoder is None and self._size(columns, targets, embedding) > weights:
            raise InvalidModelError("The saved weights are too few for the saved settings.")
        self._upgrade(tensors)
        shape = TrainingRows.empty(columns, targets)
        with kept_draws():
            self.model_ = self._build(self._encoder(columns, embedding), shape)
        try:
            self.model_.load_state_dict(tensors)
        except RuntimeError as error:
            raise InvalidModelError(f"The saved weights do not fit the model: {error}") from error
        self.model_.eval()
        self.any_parameter_ = next(self.model_.parameters())
        self._try_to_predict(columns, targets)
        self.conformal_ = self._saved_conformal(conformal)
        self.report_ = TrainingReport(
            {str(step): float(seconds) for step, seconds in config["seconds"].items()},
            _losses_from_json(config["history"]),
            # Models of earlier versions have none.
            _losses_from_json(config.get("train_history", [])),
        )
        return self

    def _saved_conformal(self, tensors: dict[str, Tensor]) -> Conformal | None:
        """What `conformalize` learnt, if it was called."""
        if not tensors:
            return None
        try:
            conformal = Conformal.saved(tensors)
        except ValueError as error:
            raise InvalidModelError(f"What conformalize learnt cannot be read: {error}") from error
        if conformal.scores.shape[1] != len(self.y_scaling_.center):
            raise InvalidModelError("The saved scores of conformalize are of another number of targets.")
        density = getattr(self.model_, "density", None)
        if conformal.ratio is not None and (
            density is None or len(conformal.ratio.slope) != density.whitening.kept + 1
        ):
            raise InvalidModelError("The saved weights of conformalize are not those of the saved density.")
        return conformal

    @classmethod
    def _from_json(cls, value: Any) -> Any:
        """Undo `to_json` for one hyper-parameter."""
        if isinstance(value, dict):
            return rebuilt(value)
        return tuple(value) if isinstance(value, list) else value


def _saved_columns(config: dict[str, Any], width: int) -> Columns | None:
    """The code of the columns, if they need one; it must have as many columns as the scaling."""
    columns = Columns.from_json(config["columns"]) if "columns" in config else None
    if columns is not None and len(columns.names) != width:
        raise InvalidModelError("The saved columns and the saved scaling do not match.")
    return columns


def _saved_profile(config: dict[str, Any], columns: int, targets: int) -> Profile | None:
    """What the model was fitted to; models of earlier versions do not say."""
    profile = Profile.from_json(config["profile"]) if "profile" in config else None
    if profile is not None and (len(profile.columns), len(profile.targets)) != (columns, targets):
        raise InvalidModelError("The saved profile has another number of columns or targets than the model.")
    return profile


def _apart(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Tensors of the model, and of what `conformalize` learnt."""
    of_model = {name: tensor for name, tensor in tensors.items() if not name.startswith(CONFORMAL)}
    return of_model, {name.removeprefix(CONFORMAL): tensors[name] for name in tensors.keys() - of_model.keys()}


def _saved_law(config: dict[str, Any]) -> Law:
    """The law of the target; models of earlier versions do not say, and know no other."""
    law = config.get("target", "identity")
    if law not in LAWS:
        raise InvalidModelError(f"The saved law of the target is not one of {LAWS}, but {law!r}.")
    return law  # type: ignore[no-any-return]


def _saved_embedding(tensors: dict[str, Tensor], columns: int) -> PiecewiseEmbedding | None:
    """An embedding of the shape of the saved one, if there is one."""
    bins = [len(tensor) for name, tensor in tensors.items() if name.endswith("embedding.low")]
    return PiecewiseEmbedding(columns, bins[0]) if bins else None


def _losses_to_json(losses: list[float]) -> list[float | None]:
    """Losses as JSON, which has no NaN or infinity."""
    return [loss if math.isfinite(loss) else None for loss in losses]


def _losses_from_json(losses: list[float | None]) -> list[float]:
    return [math.nan if loss is None else float(loss) for loss in losses]
