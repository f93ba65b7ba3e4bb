"""What all deep regressors share: settings, validation, scaling, and the skeleton of a fit."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypedDict

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, validate_data
from torch import Tensor, nn

from density_regression.callbacks import Callback
from density_regression.encoders import MLP
from density_regression.export import ExportedEstimator
from density_regression.loop import (
    PRECISIONS,
    TrainingOptions,
    TrainingReport,
    may_draw,
    own_draws,
    taking_turns,
    usual_torch,
)
from density_regression.network import Predictor
from density_regression.persistence import checksum
from density_regression.predicting import PredictingEstimator, threads
from density_regression.saving import to_json
from density_regression.tables import Floats, OwnUnits, Scaling, Table, refuse_non_numbers, split_rows

__all__ = [
    "MODERATE",
    "About",
    "Decomposition",
    "DeepRegressor",
    "Run",
    "Settings",
    "network_checksum",
    "unchanged_on_failure",
]


MODERATE: Final = 50
"""Most columns of a table for which the usual learning rates, and inputs beside the features, are meant."""


class Settings(TypedDict, total=False):
    """The parameters that all regressors share, as `DeepRegressor` describes them."""

    encoder: nn.Module | Callable[[int], nn.Module] | None
    hidden: tuple[int, ...]
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


class Run(NamedTuple):
    """What one fit hands to its training: seed, checksum of data and settings, and whether to skip step 1."""

    seed: int
    fingerprint: str
    pretrained: bool


class Prepared(NamedTuple):
    """Scaled rows to train on and to hold out, the scaling of inputs and of targets, and the run they are for."""

    train: Table
    held_out: Table
    scalings: tuple[Scaling, Scaling]
    run: Run


class Decomposition(NamedTuple):
    """Standard deviations, in the target's units, of the two parts of the predictive variance.

    The parts add up as variances: aleatoric^2 + epistemic^2 = std^2.
    """

    aleatoric: Floats
    epistemic: Floats


class DeepRegressor(RegressorMixin, PredictingEstimator, ExportedEstimator, ABC):
    """Skeleton of a scikit-learn regressor around a torch module that predicts a Gaussian.

    A subclass names its own parameters in `__init__`, builds its module in `_build` and trains it in `_train`.

    Parameters
    ----------
    encoder : nn.Module, callable or None
        Network from scaled inputs to features (n, d); or a function of the number of columns that returns one; or
        None for a plain network with layers `hidden`.
    hidden : sequence of int
        Widths of the plain network's layers.
    epochs : int
        Most passes over the data for the network.
    batch_size : int or "auto"
        Rows in a mini-batch; "auto" takes a 32nd of the rows, but at least 16 and at most 1,024.
    learning_rate : float or "auto"
        Of AdamW; falls to zero along a cosine. "auto" takes the method's usual rate, `usual_rate`, for an encoder of
        one's own and for tables of up to 50 columns. For wider ones it is lower in proportion: AdamW moves every
        weight by about the rate, so the first layer's outputs move by the rate times the number of columns.
    weight_decay : float
        Of AdamW.
    patience : int or None
        Stop after this many epochs without a better held-out loss; None never stops early.
    validation_fraction : float
        Share of the rows held out for early stopping and whatever else training rows cannot tell. With 0, training
        rows serve, and the predictions will be too sure of themselves.
    device : str
        "cpu", "cuda" (or "cuda:1" and so on), or "auto" for a GPU if there is one.
    precision : {"32-true", "16-mixed", "bf16-mixed"}
        Precision of the network's training.
    compile : bool
        Whether to compile the network's training.
    n_threads : int or None
        Threads torch may use; None leaves that as it is.
    checkpoint_dir : path or None
        Keep the state after each step of training there (three of Density-Regression, one of its rivals); the same
        fit, interrupted and run again, goes on from the last one.
    callbacks : list of Callback or None
        Told the losses after each epoch, as `density_regression.Callback` describes; `CSVLogger` writes them to a file.
        They are not saved with the model.
    verbose : bool
        Show a progress bar, if there is a terminal to show it on.
    random_state : int, RandomState or None
        Seed of everything random.
    """

    about: ClassVar[About]
    usual_rate: ClassVar[float] = 1e-2
    model_: Predictor

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "encoder": [nn.Module, callable, None],
        "hidden": ["array-like"],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left"), None],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "device": [str],
        "precision": [StrOptions(set(PRECISIONS))],
        "compile": ["boolean"],
        # Far more than there are cores would end the process, and a saved model may ask for them.
        "n_threads": [Interval(Integral, 1, 1024, closed="both"), None],
        "checkpoint_dir": [str, os.PathLike, None],
        "callbacks": [list, tuple, None],
        "verbose": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        encoder: nn.Module | Callable[[int], nn.Module] | None = None,
        hidden: tuple[int, ...] = (100, 100),
        epochs: int = 400,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float = 0.1,
        patience: int | None = 50,
        validation_fraction: float = 0.15,
        device: str = "cpu",
        precision: str = "32-true",
        compile: bool = False,
        n_threads: int | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callback] | None = None,
        verbose: bool = True,
        random_state: Any = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise TypeError(_unknown_parameter(type(self), next(iter(unknown))))
        self.encoder = encoder
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.precision = precision
        self.compile = compile
        self.n_threads = n_threads
        self.checkpoint_dir = checkpoint_dir
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let the signature of `__init__` name the parameters that `**settings` hands on: scikit-learn asks it."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            handed_on = inspect.signature(super(cls, cls).__init__).parameters
            own = inspect.signature(cls.__init__).parameters
            _name_parameters(cls, {**own, **handed_on, **own})

    # -- fitting ------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        held_out: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> Self:
        """Fit to a table.

        Parameters
        ----------
        X : array-like or data frame of shape (n, c)
            Inputs in their own units; scaled inside.
        y : array-like of shape (n,) or (n, k)
            One or several targets in their own units; scaled inside.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows, not negative.
        held_out : (X, y), optional
            Rows to hold out. Without them a share of `validation_fraction` is set aside, at random: give them where
            rows next to each other are alike, or to compare methods on the same ones.

        Returns
        -------
        self
        """
        with unchanged_on_failure(self):
            return self._fit(X, y, sample_weight, held_out=held_out)

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        *,
        held_out: tuple[ArrayLike, ArrayLike] | None = None,
        pretrained: bool = False,
    ) -> Self:
        with taking_turns(), usual_torch(), ExitStack() as draws:
            prepared = self._prepare(X, y, sample_weight, held_out, pretrained=pretrained)
            with threads(self.n_threads):
                draws.enter_context(own_draws())
                model = self._built(prepared)
                if not may_draw(model):
                    draws.close()
                run = prepared.run
                if self.checkpoint_dir is not None:
                    run = run._replace(fingerprint=f"{run.fingerprint} {network_checksum(model)}")
                report = self._train(model, prepared.train, prepared.held_out, run)
                return self._take(model, report, prepared)

    def _prepare(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        held_out: tuple[ArrayLike, ArrayLike] | None,
        *,
        pretrained: bool = False,
    ) -> Prepared:
        """Check rows, set some aside, and scale all by those that train."""
        self._validate_params()
        x, target = self._validate(X, y, reset=True)
        refuse_non_numbers(sample_weight, "sample_weight")
        weight = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        # By the largest first: weights may be of any size, and those that float32 cannot tell from none count as none.
        weight = weight / max(weight.max(), np.finfo(np.float64).tiny)
        counted = weight > 1e-12
        if counted.sum() < 2:
            raise ValueError("At least 2 rows with a positive sample_weight, and not a negligible one, are needed.")
        if not counted.all():
            x, target, weight = x[counted], target[counted], weight[counted]
        weight = weight / weight.mean()
        if held_out is not None and not (isinstance(held_out, tuple | list) and len(held_out) == 2):
            got = f"{len(held_out)} parts" if isinstance(held_out, tuple | list) else type(held_out).__name__
            raise ValueError(f"held_out must be a pair (X, y), without weights; got {got}.")
        given = () if held_out is None else self._validate(*held_out, reset=False)
        if given and given[1].shape[1] != target.shape[1]:
            raise ValueError(f"held_out has {given[1].shape[1]} target(s), but y has {target.shape[1]}.")
        fingerprint = self._fingerprint(pretrained, x, target, weight, *given)
        seed = self._seed(fingerprint)
        train, held = split_rows(len(x), self.validation_fraction if held_out is None else 0.0, seed)
        scalings = (
            OwnUnits.of(x.shape[1]) if pretrained else Scaling.fit(x, weight, train),
            # What never varied is known well: a network's small errors about it must stay small.
            Scaling.fit(target, weight, train, of_constant=1e-6),
        )
        table = Table.scaled(x, target, weight, scalings, train)
        if given:
            held_table = Table.scaled(*given, np.ones(len(given[0])), scalings)
        else:
            held_table = Table.scaled(x, target, weight, scalings, held) if len(held) else table
        return Prepared(table, held_table, scalings, Run(seed, fingerprint, pretrained))

    def _built(self, prepared: Prepared) -> Any:
        """The untrained module, drawn from the fit's seed."""
        torch.manual_seed(prepared.run.seed)
        return self._build(self._encoder(prepared.train.x.shape[1]), prepared.train)

    def _take(self, model: Any, report: TrainingReport, prepared: Prepared) -> Self:
        """Make a trained module one's own."""
        self.report_ = report
        self.model_ = model
        self.x_scaling_, self.y_scaling_ = prepared.scalings
        self._ready()
        self._learn(prepared.held_out)
        self.fitted_params_ = self._json_params()
        self.own_encoder_ = self.encoder is not None
        targets = prepared.train.y.shape[1]
        self.target_shape_ = (targets,) if targets > 1 else ()
        return self

    def _validate(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Floats, Floats]:
        """Inputs (n, c) and targets (n, k), checked."""
        if issparse(y):
            raise ValueError("y must be dense, got a sparse matrix: give y.toarray().")
        refuse_non_numbers(X, "X")
        refuse_non_numbers(y, "y")
        x, target = validate_data(
            self,
            X,
            y,
            reset=reset,
            dtype=np.float64,
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=2 if reset else 1,
        )
        target = target.astype(np.float64).reshape(len(target), -1)
        # Of objects, scikit-learn sees neither None nor infinity.
        assert_all_finite(target, input_name="y")
        return x, target

    @abstractmethod
    def _train(self, model: Any, train: Table, held_out: Table, run: Run) -> TrainingReport:
        """Train what `_build` built, in place."""

    def _train_together(
        self,
        models: Sequence[Any],
        trains: Sequence[Table],
        held_outs: Sequence[Table],
        runs: Sequence[Run],
        draws: Sequence[Tensor],
    ) -> list[TrainingReport] | None:
        """Train what several estimators built, in place and as one computation; None if that cannot be.

        `draws` are the states of torch's generator after each was built.
        """
        return None

    def _learn(self, held_out: Table) -> None:
        """Learn what the module does not hold, once it is trained."""

    def _options(self, seed: int, columns: int) -> TrainingOptions:
        rate = self._usual_rate(columns) if self.learning_rate == "auto" else float(self.learning_rate)
        return TrainingOptions(
            epochs=self.epochs,
            learning_rate=rate,
            weight_decay=self.weight_decay,
            patience=self.patience,
            device=self.device,
            precision=self.precision,
            compile=self.compile,
            seed=seed,
        )

    def _usual_rate(self, columns: int) -> float:
        """The learning rate that suits a table of so many columns."""
        return self.usual_rate * (min(1.0, MODERATE / columns) if self.encoder is None else 1.0)

    def _batch_size(self, rows: int) -> int:
        return min(max(rows // 32, 16), 1024) if self.batch_size == "auto" else self.batch_size

    def _encoder(self, inputs: int) -> nn.Module:
        if self.encoder is None:
            return MLP(inputs, tuple(self.hidden))
        encoder = self.encoder if isinstance(self.encoder, nn.Module) else self.encoder(inputs)
        if not isinstance(encoder, nn.Module):
            raise ValueError(f"encoder must be or return a torch module, got {type(encoder).__name__}.")
        # A copy: fitting must not change a parameter, and two fits must not share a network, not even by a function
        # that returns the same one each time.
        return copy.deepcopy(encoder)

    def _seed(self, fingerprint: str) -> int:
        if self.random_state is None and self.checkpoint_dir is not None:
            # A fit that is to be resumed must split and shuffle as it did before it was interrupted.
            return int(fingerprint[:7], 16)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _fingerprint(self, pretrained: bool, *arrays: Floats) -> str:
        """Checksum of what the fit depends on, but for its network; empty where no checkpoints are to be told apart."""
        if self.checkpoint_dir is None:
            return ""
        ignored = {"checkpoint_dir", "device", "n_threads", "verbose", "encoder", "random_state"}
        params = {name: value for name, value in self._json_params().items() if name not in ignored}
        params["random_state"] = repr(self.random_state)
        if isinstance(self.random_state, np.random.RandomState):
            # Its address says nothing; its state says what it will draw next.
            state = self.random_state.get_state(legacy=False)["state"]
            params["random_state"] = [state["key"].tolist(), state["pos"]]
        digest = hashlib.sha256(json.dumps([type(self).__name__, params, pretrained], sort_keys=True).encode())
        for array in arrays:
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "report_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _name_parameters(estimator: type, parameters: Mapping[str, inspect.Parameter]) -> None:
    """Let the signature of `__init__` have these parameters, but for `**` ones."""
    named = [part for part in parameters.values() if part.kind != part.VAR_KEYWORD]
    estimator.__init__.__signature__ = inspect.Signature(named)  # type: ignore[misc]


# Those that it does not know are no parameters.
_name_parameters(DeepRegressor, inspect.signature(DeepRegressor.__init__).parameters)


def _unknown_parameter(estimator: type, name: str) -> str:
    known = inspect.signature(estimator).parameters
    nearest = get_close_matches(name, known, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(known)}."
    return f"{estimator.__name__} has no parameter {name!r}: {hint}"


def network_checksum(network: nn.Module) -> str:
    """Checksum of a network: its modules, weights, and the attributes that neither its state nor its `repr` shows."""
    tensors = dict(network.state_dict())
    settings = []
    for name, module in network.named_modules():
        shown = {key: value for key, value in vars(module).items() if not key.startswith("_") and key != "training"}
        tensors |= {f"{name}.{key}": value for key, value in shown.items() if isinstance(value, Tensor)}
        settings.append([name, {key: to_json(value) for key, value in shown.items()}])
    return hashlib.sha256(f"{network} {settings} {checksum(tensors)}".encode()).hexdigest()


@contextmanager
def unchanged_on_failure(estimator: BaseEstimator) -> Iterator[None]:
    """Leave an estimator as it was, fitted or not, if what is done to it fails or is interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
