"""The skeleton of a scikit-learn regressor around a torch module: settings, validation, scaling, and `fit`."""

import copy
import inspect
import os
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from torch import nn

from density_regression.estimators import fits
from density_regression.estimators.conformal import ConformalPrediction
from density_regression.estimators.export import Export
from density_regression.estimators.hooks import Run
from density_regression.estimators.profiling import held_out_quality, training_profile
from density_regression.estimators.serialisation import Serialisation
from density_regression.estimators.settings import About, name_parameters, unknown_parameter
from density_regression.estimators.tables import column_labels, training_rows
from density_regression.io.sklearn_private import Interval, StrOptions, _check_sample_weight
from density_regression.nn.encoders import MLP, Embedded, PiecewiseEmbedding, ResidualMLP
from density_regression.nn.runtime import (
    PRECISIONS,
    TrainingOptions,
    may_draw,
    own_draws,
    taking_turns,
    threads,
    usual_torch,
)
from density_regression.tabular.columns import Columns, Table
from density_regression.tabular.groups import group_codes, split_groups
from density_regression.tabular.laws import LAWS, candidate_laws, to_law
from density_regression.tabular.stream import is_on_disk
from density_regression.tabular.table import (
    Floats,
    Index,
    OwnUnits,
    Scaling,
    TrainingRows,
    refuse_non_numbers,
    relative_weights,
    split_rows,
)
from density_regression.training.callbacks import Callback
from density_regression.training.loop import TrainingReport

__all__ = ["MODERATE_COLUMNS", "DeepRegressor"]


MODERATE_COLUMNS: Final = 50
"""Most columns of a table for which the usual learning rates, and inputs beside the features, are meant."""


class DeepRegressor(RegressorMixin, ConformalPrediction, Serialisation, Export):
    """Skeleton of a scikit-learn regressor around a torch module that predicts a Gaussian.

    A subclass names its own parameters in `__init__`, builds its module in `_build` and trains it in `_train`; see
    `RegressorHooks`.

    Parameters
    ----------
    encoder : nn.Module, callable or None
        Network from scaled inputs to features (n, d); or a function of the number of columns that returns one; or
        None for a plain network with layers `hidden`.
    hidden : sequence of int
        Widths of the plain network's layers.
    embedding : "piecewise" or None
        What the plain network reads. "piecewise": the columns smoothly clipped to three standard deviations, with
        piecewise-linear functions of each beside them, see `PiecewiseEmbedding`. None: the standardised columns alone.
    target : "identity", "log" or "auto"
        What is Normal: the target, or, for targets above 0 such as prices, its logarithm. With "log" all predictions
        follow the log-normal law, in the target's units; see `Prediction`. "auto" fits both, in twice the time, where
        all targets are above 0, and keeps the one under which the held-out rows are likelier, for all targets at once.
    epochs : int
        Most passes over the data for the network.
    batch_size : int or "auto"
        Rows in a mini-batch; "auto" takes a 32nd of the rows, but at least 16 and at most 1,024.
    learning_rate : float or "auto"
        Of AdamW; falls to zero along a cosine. "auto" takes the method's usual rate, `usual_rate`, for an encoder of
        one's own and for tables of up to 50 columns; for wider ones it is lower in proportion to the columns.
    weight_decay : float
        Of AdamW.
    patience : int or None
        Stop after this many epochs without a better held-out loss; None never stops early.
    validation_fraction : float
        Share of the rows held out for early stopping and the scale of the variance. 0: training rows serve instead.
    device : str
        "cpu", "cuda" (or "cuda:1" and so on), or "auto" for a GPU if there is one.
    precision : {"32-true", "16-mixed", "bf16-mixed"}
        Precision of the network's training.
    compile : bool
        Whether to compile the network's training.
    n_threads : int or None
        Threads torch may use; None leaves that as it is.
    checkpoint_dir : path or None
        Keep the state after each step of training there; the same fit, interrupted, goes on from the last one.
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
    plain_network: ClassVar[type[MLP | ResidualMLP]] = MLP

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "encoder": [nn.Module, callable, None],
        "hidden": ["array-like"],
        "embedding": [StrOptions({"piecewise"}), None],
        "target": [StrOptions({*LAWS, "auto"})],
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
        embedding: Literal["piecewise"] | None = "piecewise",
        target: Literal["identity", "log", "auto"] = "identity",
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
            raise TypeError(unknown_parameter(type(self), next(iter(unknown))))
        self.encoder = encoder
        self.hidden = hidden
        self.embedding = embedding
        self.target = target
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
            name_parameters(cls, {**own, **handed_on, **own})

    # -- fitting ------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        held_out: tuple[ArrayLike, ArrayLike] | None = None,
        groups: ArrayLike | None = None,
        conformal: float | None = None,
    ) -> Self:
        """Fit to a table.

        Parameters
        ----------
        X : array-like or data frame of shape (n, c), path or pyarrow.dataset.Dataset
            Inputs in their own units; scaled inside. A frame of pandas or polars, or a table of Arrow, may have
            numbers, booleans, text, categories, dates and times, and gaps in any of them; an array numbers and NaN.
            Of a path or data set of Parquet the default network is trained from disk; y then names its columns.
        y : array-like of shape (n,) or (n, k), or str or list of str
            One or several targets in their own units; scaled inside.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows, not negative.
        held_out : (X, y), optional
            Rows to hold out. Without them a share of `validation_fraction` is set aside, at random: give them to choose
            the rows yourself, or to compare methods on the same ones.
        groups : array-like of shape (n,), optional
            Label of the group of each row, such as a subject, a day or a place: numbers, strings or dates, no gaps.
            Whole groups are then set aside, chosen at random, so that they have about `validation_fraction` of the
            rows. Give them where rows of a group are alike and predictions are for new groups: single rows held out
            would have near copies in training, and the standard deviations would be too small.
        conformal : float, optional
            Share of the rows, at random, to keep aside for `conformalize`; whole groups of them, if there are groups.

        Returns
        -------
        self
        """
        with fits.unchanged_on_failure(self):
            if is_on_disk(X):
                fits.refuse_in_memory(sample_weight=sample_weight, held_out=held_out, groups=groups)
                return self._fit_from_disk(X, y, conformal=conformal)
            if conformal is None:
                return self._fit(X, y, sample_weight, held_out=held_out, groups=groups)
            rows = fits.keep_aside(self, conformal, X, y, sample_weight, groups)
            return self._fit(*rows.train, held_out=held_out, groups=rows.groups).conformalize(*rows.aside)

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        *,
        held_out: tuple[ArrayLike, ArrayLike] | None = None,
        groups: ArrayLike | None = None,
        pretrained: bool = False,
    ) -> Self:
        with taking_turns(), usual_torch():
            prepared = self._prepare(X, y, sample_weight, held_out, groups=groups, pretrained=pretrained)
            laws = [prepared] if prepared.other is None else [prepared, prepared.other]
            return self._take(*fits.likeliest([self._fit_prepared(part) for part in laws]))

    def _fit_prepared(self, prepared: fits.Prepared) -> fits.Fit:
        with threads(self.n_threads), own_draws() as restore_draws, fits.checkpoints_apart(self, prepared):
            model = self._built(prepared)
            if not may_draw(model):
                restore_draws()
            run = prepared.run
            if self.checkpoint_dir is not None:
                from density_regression.estimators.fingerprint import network_checksum

                run = run._replace(fingerprint=f"{run.fingerprint} {prepared.target} {network_checksum(model)}")
            return fits.Fit(model, self._train(model, prepared.train, prepared.held_out, run), prepared)

    def _prepare(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        held_out: tuple[ArrayLike, ArrayLike] | None,
        *,
        groups: ArrayLike | None = None,
        pretrained: bool = False,
    ) -> fits.Prepared:
        """Check rows, set some aside, and scale all by those that train."""
        self._validate_params()
        x, target = self._validate(X, y)
        refuse_non_numbers(sample_weight, "sample_weight")
        weight = _check_sample_weight(sample_weight, target, dtype=np.float64, ensure_non_negative=True)
        codes = None if groups is None else group_codes(groups, len(x))
        fits.refuse_groups(codes, held_out, self.validation_fraction)
        x, target, weight, codes = relative_weights(x, target, weight, codes)
        fits.refuse_no_pair(held_out)
        given = () if held_out is None else self._validate(*held_out, like=x)
        if given and given[1].shape[1] != target.shape[1]:
            raise ValueError(f"held_out has {given[1].shape[1]} target(s), but y has {target.shape[1]}.")
        parts = (x, target, weight, *given, *(() if codes is None else (codes,)))
        arrays = [array for part in parts for array in (part.arrays() if isinstance(part, Table) else [part])]
        fingerprint = "" if self.checkpoint_dir is None else self._fingerprint(pretrained, *arrays)
        seed = self._seed(fingerprint)
        if codes is None:
            train, held = split_rows(len(x), self.validation_fraction if held_out is None else 0.0, seed)
        else:
            train, held = split_groups(codes, self.validation_fraction, seed)
        if isinstance(x, Table) and pretrained:
            raise ValueError("X has text, dates or gaps, which a network that is trained already cannot read.")
        self.columns_ = Columns.fit(x[train], column_labels(self)) if isinstance(x, Table) else None
        profile = training_profile(self, X, y, (x, target), train)
        if self.columns_ is not None:
            x = self.columns_.coded(x)
            given = (self.columns_.coded(given[0]), given[1]) if given else ()
        x_scaling = OwnUnits.of(x.shape[1]) if pretrained else Scaling.fit(x, weight, train)
        prepared: fits.Prepared | None = None
        for law in reversed(candidate_laws(self.target, target, *given[1:])):
            own = to_law(target, law)
            # A network's errors about a constant target must stay small.
            scalings = (x_scaling, Scaling.fit(own, weight, train, of_constant=1e-6))
            rows = TrainingRows.scaled(x, own, weight, scalings, train)
            held_rows = TrainingRows.scaled(x, own, weight, scalings, held) if len(held) else rows
            if given:
                held_rows = TrainingRows.scaled(given[0], to_law(given[1], law), np.ones(len(given[0])), scalings)
            run = Run(seed, fingerprint, pretrained)
            prepared = fits.Prepared(rows, held_rows, scalings, run, profile, law, prepared)
        assert prepared is not None
        return prepared

    def _built(self, prepared: fits.Prepared) -> Any:
        """The untrained module, drawn from the fit's seed."""
        torch.manual_seed(prepared.run.seed)
        x, _, weight = prepared.train
        embeds = self.encoder is None and self.embedding is not None
        embedding = PiecewiseEmbedding.fit(x, weight) if embeds else None
        return self._build(self._encoder(x.shape[1], embedding), prepared.train)

    def _take(self, model: Any, report: TrainingReport, prepared: fits.Prepared) -> Self:
        """Make a trained module one's own."""
        self.report_ = report
        self.model_, self.any_parameter_ = model, next(model.parameters())
        self.x_scaling_, self.y_scaling_ = prepared.scalings
        self.target_, self.conformal_ = prepared.target, None
        self.fitted_params_ = self.get_params(deep=False)
        self.own_encoder_ = self.encoder is not None
        targets = prepared.train.y.shape[1]
        self.target_shape_ = (targets,) if targets > 1 else ()
        self.profile_ = prepared.profile.with_quality(held_out_quality(self, prepared))
        return self

    def _validate(self, X: ArrayLike, y: ArrayLike, *, like: Floats | Table | None = None) -> tuple[Any, Floats]:
        """Inputs (n, c), or a table to be coded, and targets (n, k), checked; with `like`, of the same kind."""
        if issparse(y):
            raise ValueError("y must be dense, got a sparse matrix: give y.toarray().")
        return training_rows(self, X, y, like=like)

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
        return self.usual_rate * (min(1.0, MODERATE_COLUMNS / columns) if self.encoder is None else 1.0)

    def _batch_size(self, rows: int) -> int:
        return min(max(rows // 32, 16), 1024) if self.batch_size == "auto" else self.batch_size

    def _encoder(self, inputs: int, embedding: PiecewiseEmbedding | None = None) -> nn.Module:
        if self.encoder is None:
            if embedding is None:
                return self.plain_network(inputs, tuple(self.hidden))
            return Embedded(copy.deepcopy(embedding), self.plain_network(embedding.width, tuple(self.hidden)))
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

    def _fingerprint(self, pretrained: bool, *arrays: Floats | Index) -> str:
        from density_regression.estimators.fingerprint import data_checksum

        return data_checksum(type(self).__name__, self._json_params(), self.random_state, pretrained, *arrays)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "report_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = True
        tags.target_tags.positive_only = self.target == "log"
        return tags


# Those that it does not know are no parameters.
name_parameters(DeepRegressor, inspect.signature(DeepRegressor.__init__).parameters)
