"""Density-Regression as a scikit-learn regressor."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from density_regression.base import MODERATE, About, Decomposition, DeepRegressor, Run, Settings
from density_regression.density import DENSITIES, TEMPERINGS, Density, Tempering
from density_regression.encoders import WithInputs, feature_width
from density_regression.head import HEADS
from density_regression.lean import LeanRegression
from density_regression.model import DensityRegression
from density_regression.persistence import InvalidModelError
from density_regression.predicting import CHUNK
from density_regression.reach import can_learn_reach, learn_reach
from density_regression.tables import Floats, Table
from density_regression.training import (
    TrainingOptions,
    TrainingReport,
    fit_density_regression,
    fit_density_regressions_together,
)

__all__ = ["DensityRegressor"]

LEVELS = 1001
"""Most held-out log-densities kept, as quantiles, for `familiarity`."""


class DensityRegressor(DeepRegressor):
    """Deep regression with a predictive distribution that widens away from the training data, in one forward pass.

    An encoder f, a density p(z) on its features, and a Gaussian head whose precision is multiplied by that density,
    trained in three steps: network, density, head again.

    Parameters
    ----------
    head : "mean" or "natural"
        The mean itself linear in the features, or, as in the paper, the natural parameters, whose ratio it is.
    density : "mixture", "gaussian", "kernel", "flow", "maf", "nsf", "radial", Density or None
        Density on the features. The flows but for "radial" need `pip install density-regression[flow]`. None leaves
        a plain Gaussian network, to compare with.
    tempering : "robust", "exact", "rescaled" or Tempering
        How the density enters: "robust" lets the variance grow like a power of the distance, as fast as rows say that
        are hidden from a few small networks; "exact" takes the paper's formula to the letter; "rescaled" as the
        authors' code does.
    average : float
        Epochs over which a running mean of the network's weights reaches; it makes the mean nearly as accurate as an
        ensemble's. 0 for none.
    with_inputs : bool, "density" or "auto"
        Whether the features of the plain network have its inputs beside them, so that the density sees also what the
        network did not need: True for density and head, which then has a linear part; "density" for the density
        alone; False for neither. "auto" is True for up to 50 columns and "density" for more, where a linear part
        would fit noise. An encoder of one's own is taken as it is.
    **settings
        What all regressors share (encoder, epochs, random_state and so on): see `DeepRegressor`. Held-out rows also
        serve for the density's levels and for the scale of the variance.

    Attributes
    ----------
    model_ : DensityRegression
        The trained torch module, in scaled units. Predictions follow it if its weights are trained or loaded anew, not
        if whole parts of it are replaced.
    report_ : TrainingReport
        Seconds of each step, and the training and held-out losses after each epoch.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : array of str
        Their names, if X was a data frame with names.

    Examples
    --------
    >>> from density_regression import DensityRegressor
    >>> from density_regression.datasets import make_cubic
    >>> X, y = make_cubic(n=200, random_state=0)
    >>> reg = DensityRegressor(epochs=20, random_state=0).fit(X, y)
    >>> mean, std = reg.predict([[0.0], [100.0]], return_std=True)
    >>> bool(std[1] > std[0])
    True
    """

    about = About("Density-Regression", "Bui & Liu, 2024")
    model_: DensityRegression

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DeepRegressor._parameter_constraints,
        "head": [StrOptions(set(HEADS))],
        "density": [StrOptions(set(DENSITIES)), Density, None],
        "tempering": [StrOptions(set(TEMPERINGS)), Tempering],
        "average": [Interval(Real, 0, None, closed="left")],
        "with_inputs": ["boolean", StrOptions({"density", "auto"})],
    }

    def __init__(
        self,
        *,
        head: str = "mean",
        density: str | Density | None = "mixture",
        tempering: str | Tempering = "robust",
        average: float = 5.0,
        with_inputs: bool | Literal["density", "auto"] = "auto",
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(**settings)
        self.head = head
        self.density = density
        self.tempering = tempering
        self.average = average
        self.with_inputs = with_inputs

    @classmethod
    def from_trained(
        cls,
        encoder: nn.Module,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        held_out: tuple[ArrayLike, ArrayLike] | None = None,
        **params: Any,
    ) -> Self:
        """Give a network somebody already has a predictive distribution: steps 2 and 3 only.

        Parameters
        ----------
        encoder : nn.Module
            Trained network from inputs (n, c), in the units of X and as float32, to features (n, d): usually a
            network without its last layer. It is copied and left as it is.
        X, y : arrays of shape (n, c) and (n,) or (n, k)
            Rows to learn density and head from; those the network was trained on will do.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.
        held_out : (X, y), optional
            Rows that the network has never seen, for the density's levels and the scale of the variance. Without
            them part of X and y is set aside; if the network knows those rows, it will be too sure of itself.
        **params
            Parameters of `DensityRegressor`.
        """
        if not isinstance(encoder, nn.Module):
            raise ValueError(f"encoder must be a trained torch module, got {type(encoder).__name__}.")
        return cls(encoder=encoder, **params)._fit(X, y, sample_weight, held_out=held_out, pretrained=True)

    def score_samples(self, X: ArrayLike) -> NDArray[np.float32]:
        """Log-density of the features of each row, log p(z) in nats, (n,): how familiar an input is.

        In float32, in which it is computed: more digits would only promise more than there are.
        """
        (log_density,) = self._apply(X, lambda x: (self._log_density(x),))
        return log_density.astype(np.float32)

    def familiarity(self, X: ArrayLike) -> Floats:
        """Share of held-out training rows that are no more familiar than each row, (n,), between 0 and 1.

        A row below 0.01 is stranger than 99 in 100 rows that the model was checked on.
        """
        scores = self.score_samples(X)
        return np.searchsorted(self.held_out_levels_, scores, side="right") / len(self.held_out_levels_)

    def decompose(self, X: ArrayLike) -> Decomposition:
        """Aleatoric and epistemic standard deviations, each (n,) or (n, k), in the target's units.

        The aleatoric part is the noise that the head expects of a typical input; the epistemic part is what a lower
        density adds. It measures the distance to the training data, not how many rows there were.
        """
        check_is_fitted(self)
        aleatoric, epistemic = self._apply(X, self.model_.decompose)
        epistemic = np.where(epistemic > 0, self._in_units(epistemic).reshape(epistemic.shape), 0.0)
        return Decomposition(self._in_units(aleatoric), epistemic.reshape(len(epistemic), *self.target_shape_))

    def _build(self, encoder: nn.Module, table: Table) -> DensityRegression:
        features, targets = feature_width(encoder, table.x[:2]), table.y.shape[1]
        read = features
        if isinstance(encoder, WithInputs) and self._inputs_beside(table.x.shape[1]) == "density":
            read = feature_width(encoder.encoder, table.x[:2])
        head = HEADS[self.head](read, targets)
        head.noise_apart = self.encoder is None and table.x.shape[1] > MODERATE
        return DensityRegression(
            encoder,
            features=features,
            targets=targets,
            head=head,
            density=copy.deepcopy(self.density),
            tempering=copy.deepcopy(self.tempering),
        )

    def _encoder(self, inputs: int) -> nn.Module:
        encoder = super()._encoder(inputs)
        return WithInputs(encoder) if self._inputs_beside(inputs) else encoder

    def _inputs_beside(self, columns: int) -> bool | Literal["density"]:
        """Whether inputs stand beside the features of so many columns: for density and head, or the density alone."""
        if self.encoder is not None:
            return False
        if self.with_inputs == "auto":
            return True if columns <= MODERATE else "density"
        return self.with_inputs

    def _options(self, seed: int, columns: int) -> TrainingOptions:
        return replace(super()._options(seed, columns), average=float(self.average))

    def _train(self, model: DensityRegression, train: Table, held_out: Table, run: Run) -> TrainingReport:
        report = fit_density_regression(
            model,
            train.batches(self._batch_size(len(train.x)), torch.Generator().manual_seed(run.seed)),
            held_out.batches(CHUNK),
            options=self._options(run.seed, train.x.shape[1]),
            checkpoint_dir=self.checkpoint_dir,
            fingerprint=run.fingerprint,
            pretrained=run.pretrained,
            callbacks=self.callbacks or (),
            scale_targets=False,
            verbose=self.verbose,
        )
        # Of an encoder that was trained elsewhere nobody knows what it has seen.
        if not run.pretrained:
            self._learn_reach([model], [train], [held_out], [run], report)
        return report

    def _train_together(
        self,
        models: Sequence[DensityRegression],
        trains: Sequence[Table],
        held_outs: Sequence[Table],
        runs: Sequence[Run],
        draws: Sequence[Tensor],
    ) -> list[TrainingReport] | None:
        size = self._batch_size(len(trains[0].x))
        shuffles = [torch.Generator().manual_seed(run.seed) for run in runs]
        reports = fit_density_regressions_together(
            models,
            [train.batches(size, shuffle) for train, shuffle in zip(trains, shuffles, strict=True)],
            [held_out.batches(CHUNK) for held_out in held_outs],
            options=self._options(runs[0].seed, trains[0].x.shape[1]),
            seeds=[run.seed for run in runs],
            verbose=self.verbose,
        )
        if reports is not None:
            self._learn_reach(models, trains, held_outs, runs, *reports)
        return reports

    def _learn_reach(
        self,
        models: Sequence[DensityRegression],
        trains: Sequence[Table],
        held_outs: Sequence[Table],
        runs: Sequence[Run],
        *reports: TrainingReport,
    ) -> None:
        train = trains[0]
        if not can_learn_reach(models[0], len(train.x) + len(held_outs[0].x)):
            return
        start = time.perf_counter()
        options = self._options(runs[0].seed, train.x.shape[1])
        if self.encoder is None:
            # Few steps must do, whatever rate the network itself was given.
            options = replace(options, learning_rate=max(options.learning_rate, self._usual_rate(train.x.shape[1])))
        learn_reach(
            models,
            trains,
            held_outs,
            lambda: self._build(self._encoder(train.x.shape[1]), train),
            options,
            [run.seed for run in runs],
        )
        for report in reports:
            report.seconds["learn_reach"] = (time.perf_counter() - start) / len(models)

    def _ready(self) -> None:
        super()._ready()
        self.lean_ = LeanRegression.of(self.model_, farthest=self.x_scaling_.farthest)

    def _moments(self, x: Tensor) -> tuple[Tensor, ...]:
        lean = self._lean_on(x.device)
        return self.model_.moments(x) if lean is None else lean(x)[:2]

    def _log_density(self, x: Tensor) -> Tensor:
        lean = self._lean_on(x.device)
        return self.model_.log_density(x) if lean is None else lean(x).log_density

    def _lean_on(self, device: torch.device) -> LeanRegression | None:
        # Whoever moves the module to another device, or trains it further, does so to it alone.
        usable = self.lean_ is not None and self.lean_.device == device and self.lean_.current
        return self.lean_ if usable else None

    def _learn(self, held_out: Table) -> None:
        self.held_out_levels_ = self._levels(held_out.x) if self.density is not None else np.empty(0)

    @torch.inference_mode()
    def _levels(self, x: Tensor) -> Floats:
        """Sorted log-densities of scaled rows, at most `LEVELS` of them."""
        x = x.to(self.some_weight_.device)
        log_density = torch.cat([self._log_density(part) for part in x.split(CHUNK)])
        levels = np.sort(log_density.double().cpu().numpy())
        return levels if len(levels) <= LEVELS else np.quantile(levels, np.linspace(0, 1, LEVELS))

    def _extra_tensors(self) -> dict[str, Tensor]:
        return {"held_out_levels": torch.from_numpy(self.held_out_levels_)}

    def _take_extra_tensors(self, tensors: dict[str, Tensor]) -> None:
        levels = tensors.pop("held_out_levels").double()
        if levels.ndim != 1 or (len(levels) > 0) != (self.density is not None) or not (levels.diff() >= 0).all():
            raise InvalidModelError("The saved log-densities of held-out rows are missing or not in order.")
        self.held_out_levels_ = levels.numpy()
