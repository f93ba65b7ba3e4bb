"""Density-Regression as a scikit-learn regressor."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from density_regression.estimators.base import MODERATE_COLUMNS, DeepRegressor
from density_regression.estimators.hooks import Run
from density_regression.estimators.prediction import PREDICTED_ROWS
from density_regression.estimators.settings import About, Settings
from density_regression.inference.fused import fused_form
from density_regression.io.sklearn_private import Interval, StrOptions
from density_regression.io.store import InvalidModelError
from density_regression.nn.density import DENSITIES, Density
from density_regression.nn.encoders import PiecewiseEmbedding, WithInputs, embedding_of, feature_width
from density_regression.nn.heads import HEADS, TEMPERINGS, Tempering
from density_regression.nn.model import Decomposition, DensityRegression
from density_regression.nn.runtime import TrainingOptions, kept_draws
from density_regression.tabular.table import Floats, TrainingRows
from density_regression.training.algorithm import fit_density_regression, fit_density_regressions_together
from density_regression.training.batches import TensorBatches
from density_regression.training.loop import TrainingReport
from density_regression.training.reach import PROBES, can_learn_reach

__all__ = ["DensityRegressor"]


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
    n_features_in_, feature_names_in_ : int and array of str
        Number of columns of X, and their names if X was a data frame with names.

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
        groups: ArrayLike | None = None,
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
        groups : array-like of shape (n,), optional
            Label of the group of each row; whole groups are then set aside, as in `fit`.
        **params
            Parameters of `DensityRegressor`.
        """
        if not isinstance(encoder, nn.Module):
            raise ValueError(f"encoder must be a trained torch module, got {type(encoder).__name__}.")
        regressor = cls(encoder=encoder, **params)
        return regressor._fit(X, y, sample_weight, held_out=held_out, groups=groups, pretrained=True)

    def score_samples(self, X: ArrayLike) -> NDArray[np.float32]:
        """Log-density of the features of each row, log p(z) in nats, (n,): how familiar an input is.

        In float32, in which it is computed.
        """
        (log_density,) = self._apply(X, lambda x: (self._log_density(x),))
        return log_density.astype(np.float32)

    def familiarity(self, X: ArrayLike) -> Floats:
        """Share of held-out training rows that are no more familiar than each row, (n,), between 0 and 1.

        A row below 0.01 is stranger than 99 in 100 rows that the model was checked on.
        """
        scores = self.score_samples(X)
        levels = self.model_.known_levels().cpu().numpy()
        return np.searchsorted(levels, scores, side="right") / len(levels)

    @property
    def held_out_levels_(self) -> NDArray[np.float32]:
        """Sorted log-densities of held-out rows (m,), or quantiles if those are many; none without a density."""
        levels = self.model_.familiar_levels
        return np.empty(0, np.float32) if levels is None else levels.cpu().numpy()

    def decompose(self, X: ArrayLike) -> Decomposition[Floats]:
        """Aleatoric and epistemic standard deviations, each (n,) or (n, k), in the target's units.

        The aleatoric part is the noise that the head expects of a typical input; the epistemic part is what a lower
        density adds. It measures the distance to the training data, not how many rows there were.
        """
        check_is_fitted(self)
        aleatoric, epistemic = self._apply(X, self.model_.decompose)
        epistemic = np.where(epistemic > 0, self._in_units(epistemic).reshape(epistemic.shape), 0.0)
        return Decomposition(self._in_units(aleatoric), epistemic.reshape(len(epistemic), *self.target_shape_))

    def _build(self, encoder: nn.Module, rows: TrainingRows) -> DensityRegression:
        features, targets = feature_width(encoder, rows.x[:2]), rows.y.shape[1]
        read = features
        if isinstance(encoder, WithInputs) and self._inputs_beside(rows.x.shape[1]) == "density":
            read = feature_width(encoder.encoder, rows.x[:2])
        head = HEADS[self.head](read, targets)
        head.noise_apart = self.encoder is None and rows.x.shape[1] > MODERATE_COLUMNS
        return DensityRegression(
            encoder,
            features=features,
            targets=targets,
            head=head,
            density=copy.deepcopy(self.density),
            tempering=copy.deepcopy(self.tempering),
        )

    def _encoder(self, inputs: int, embedding: PiecewiseEmbedding | None = None) -> nn.Module:
        encoder = super()._encoder(inputs, embedding)
        return WithInputs(encoder) if self._inputs_beside(inputs) else encoder

    def _inputs_beside(self, columns: int) -> bool | Literal["density"]:
        """Whether inputs stand beside the features of so many columns: for density and head, or the density alone."""
        if self.encoder is not None:
            return False
        if self.with_inputs == "auto":
            return True if columns <= MODERATE_COLUMNS else "density"
        return self.with_inputs

    def _options(self, seed: int, columns: int) -> TrainingOptions:
        return replace(super()._options(seed, columns), average=float(self.average))

    def _train(self, model: DensityRegression, train: TrainingRows, held_out: TrainingRows, run: Run) -> TrainingReport:
        return fit_density_regression(
            model,
            TensorBatches(*train, self._batch_size(len(train.x)), torch.Generator().manual_seed(run.seed)),
            TensorBatches(*held_out, PREDICTED_ROWS),
            options=self._options(run.seed, train.x.shape[1]),
            checkpoint_dir=self.checkpoint_dir,
            fingerprint=run.fingerprint,
            pretrained=run.pretrained,
            # Nobody knows which rows an encoder that was trained elsewhere has seen.
            probes=() if run.pretrained else self._probes(model, train, held_out, run.seed),
            probe_learning_rate=self._probe_rate(train.x.shape[1]),
            callbacks=self.callbacks or (),
            scale_targets=False,
            verbose=self.verbose,
        )

    def _train_together(
        self,
        models: Sequence[DensityRegression],
        trains: Sequence[TrainingRows],
        held_outs: Sequence[TrainingRows],
        runs: Sequence[Run],
        draws: Sequence[Tensor],
    ) -> list[TrainingReport] | None:
        size, columns = self._batch_size(len(trains[0].x)), trains[0].x.shape[1]
        shuffles = [torch.Generator().manual_seed(run.seed) for run in runs]
        given = zip(models, trains, held_outs, runs, strict=True)
        probes = [self._probes(model, train, held_out, run.seed) for model, train, held_out, run in given]
        return fit_density_regressions_together(
            models,
            [TensorBatches(*train, size, shuffle) for train, shuffle in zip(trains, shuffles, strict=True)],
            [TensorBatches(*held_out, PREDICTED_ROWS) for held_out in held_outs],
            options=self._options(runs[0].seed, columns),
            seeds=[run.seed for run in runs],
            probes=probes if all(probes) else (),
            probe_learning_rate=self._probe_rate(columns),
            verbose=self.verbose,
        )

    def _probes(
        self, model: DensityRegression, train: TrainingRows, held_out: TrainingRows, seed: int
    ) -> list[DensityRegression]:
        """Untrained networks of the model's shape, from which it learns its reach; none if it does not."""
        if not can_learn_reach(model, len(train.x) + len(held_out.x)):
            return []
        with kept_draws():
            torch.manual_seed(seed)
            embedding = embedding_of(model.encoder)
            return [self._build(self._encoder(train.x.shape[1], embedding), train) for _ in range(PROBES)]

    def _probe_rate(self, columns: int) -> float | None:
        """Learning rate of the probes: they have few steps, whatever rate the network was given."""
        if self.encoder is not None:
            return None
        return max(self._options(0, columns).learning_rate, self._usual_rate(columns))

    def _moments(self, x: Tensor) -> tuple[Tensor, ...]:
        fused = fused_form(self.model_, x.device, self.x_scaling_.limit)
        return self.model_.moments(x) if fused is None else fused(x)

    def _log_density(self, x: Tensor) -> Tensor:
        fused = fused_form(self.model_, x.device, self.x_scaling_.limit)
        return self.model_.log_density(x) if fused is None else fused.log_density(x)

    def _upgrade(self, tensors: dict[str, Tensor]) -> None:
        # Earlier versions kept the levels outside the module, and none as an empty tensor.
        levels = tensors.pop("held_out_levels", tensors.pop("familiar_levels", torch.empty(0)))
        if levels.ndim != 1 or (len(levels) > 0) != (self.density is not None) or not (levels.diff() >= 0).all():
            raise InvalidModelError("The saved log-densities of held-out rows are missing or not in order.")
        if self.density is not None:
            tensors["familiar_levels"] = levels
