"""Density-Regression as a scikit-learn regressor."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Literal, Self, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from density_regression.estimators.base import MODERATE_COLUMNS, DeepRegressor
from density_regression.estimators.density_ratio import Familiarity
from density_regression.estimators.fits import Prepared
from density_regression.estimators.hooks import Run
from density_regression.estimators.prediction import PREDICTED_ROWS
from density_regression.estimators.settings import About, Settings
from density_regression.inference.fused import fused_form
from density_regression.io.sklearn_private import Interval, StrOptions
from density_regression.io.store import InvalidModelError
from density_regression.nn.density import DENSITIES, Density, MixtureDensity
from density_regression.nn.encoders import (
    PiecewiseEmbedding,
    WithInputs,
    embedding_of,
    feature_width,
    ignore_last_column,
)
from density_regression.nn.heads import HEADS
from density_regression.nn.model import Decomposition, DensityRegression
from density_regression.nn.processes import join
from density_regression.nn.runtime import TrainingOptions, find_device, kept_draws
from density_regression.nn.tempering import TEMPERINGS, Tempering
from density_regression.tabular.table import Floats, TrainingRows
from density_regression.training.algorithm import fit_density_regression, fit_density_regressions_together
from density_regression.training.batches import TensorBatches
from density_regression.training.loop import TrainingReport
from density_regression.training.reach import PROBES, can_learn_reach

__all__ = ["DensityRegressor"]

USUAL_MEMBERS: Final = 8
"""Networks that the default learns from."""

BACKGROUND: Final = 0.02
MOST_COMPONENTS: Final = 4
CENTERS: Final = 128
"""Of the mixture where networks disagree: weight of the background, most components in few dimensions, and in many."""


class DensityRegressor(DeepRegressor):
    """Deep regression with a predictive distribution that widens away from the training data, in one forward pass.

    An encoder f, a density p(z) on its features, and a Gaussian head whose precision is multiplied by that density,
    trained in three steps: network, density, head again. By default the network learns from several, which are trained
    first and then discarded, and the density multiplies their disagreement.

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
    members : int or "auto"
        Number of networks from which the plain network learns: their mean, their noise and their disagreement, on the
        training rows and on made-up ones around them. They share most of their weights, and are trained for a quarter
        of `epochs`, the network for the others. 0 trains the network alone by its likelihood, as in the paper. "auto"
        is 8, but 0 for an encoder of one's own and for any tempering but "robust".
    average : float
        Epochs over which a running mean of the network's weights reaches; it makes the mean nearly as accurate as an
        ensemble's. 0 for none.
    with_inputs : bool, "density" or "auto"
        Whether the features of the plain network have its inputs beside them, so that the density sees also what the
        network did not need: True for density and head, which then has a linear part; "density" for the density
        alone; False for neither. "auto" is True for up to 50 columns and "density" for more, where a linear part
        would fit noise. An encoder of one's own is taken as it is.
    weight_decay : float
        Of AdamW.
    devices, num_nodes : int
        Processes on each machine, and machines, that fit one model together. With more than one, torchrun must have
        started them, each with the same script and `random_state`.
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
    profile_ : Profile or None
        Quantiles and shares of the columns and targets of the rows that trained, and the quality on held-out rows; None
        for a model that an earlier version saved.
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
    trains_from_disk = True
    model_: DensityRegression

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DeepRegressor._parameter_constraints,
        "head": [StrOptions(set(HEADS))],
        "density": [StrOptions(set(DENSITIES)), Density, None],
        "tempering": [StrOptions(set(TEMPERINGS)), Tempering],
        "members": [Interval(Integral, 0, 1000, closed="both"), StrOptions({"auto"})],
        "average": [Interval(Real, 0, None, closed="left")],
        "with_inputs": ["boolean", StrOptions({"density", "auto"})],
        "devices": [Interval(Integral, 1, None, closed="left")],
        "num_nodes": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(  # type: ignore[misc]
        self,
        *,
        head: str = "mean",
        density: str | Density | None = "mixture",
        tempering: str | Tempering = "robust",
        members: int | Literal["auto"] = "auto",
        average: float = 5.0,
        with_inputs: bool | Literal["density", "auto"] = "auto",
        weight_decay: float = 0.03,
        devices: int = 1,
        num_nodes: int = 1,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(weight_decay=weight_decay, **settings)
        self.head = head
        self.density = density
        self.tempering = tempering
        self.members = members
        self.average = average
        self.with_inputs = with_inputs
        self.devices = devices
        self.num_nodes = num_nodes

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
        return self._shares_below(self.score_samples(X))

    def _shares_below(self, log_density: NDArray[Any]) -> Floats:
        levels = self.model_.known_levels().cpu().numpy()
        return np.searchsorted(levels, log_density.astype(np.float32), side="right") / len(levels)

    @property
    def held_out_levels_(self) -> NDArray[np.float32]:
        """Sorted log-densities of held-out rows (m,), or quantiles if those are many; none without a density."""
        levels = self.model_.familiar_levels
        return np.empty(0, np.float32) if levels is None else levels.cpu().numpy()

    def _familiar(self, X: ArrayLike) -> Familiarity:
        density = self.model_.density
        if density is None:
            raise ValueError("shifted asks for weights by the model's density, but it was fitted with density=None.")
        whitened, log_density = self._apply(X, lambda x: (density._whiten(self.model_.encode(x)), self._log_density(x)))
        return Familiarity(whitened, log_density)

    def decompose(self, X: ArrayLike) -> Decomposition[Floats]:
        """Standard deviations of the parts of the predictive variance, each (n,) or (n, k), in the target's units.

        `aleatoric` is the noise of the target. `epistemic` has two parts: `disagreement` is by how much the networks
        differ that this one learnt from, and shrinks as rows are added (it is 0 without `members`); `distance` is what
        a lower density adds, far from the training data, and does not. With ``target="log"`` each has the share of the
        variance of y that it has of that of log y.
        """
        check_is_fitted(self)
        parts = self._apply(X, self._decompose)
        # A part may be none at all, but no part of the total is.
        units = [np.where(part > 0, self._unscaled(torch.from_numpy(part)).numpy(), 0.0) for part in parts]
        units = [part.reshape(len(part), *self.target_shape_) for part in units]
        return Decomposition(*(self._shares(X, units) if self.target_ == "log" else units))

    def _decompose(self, x: Tensor) -> tuple[Tensor, ...]:
        noise, epistemic, disagreement, distance = self.model_.decompose(x)
        assert disagreement is not None
        assert distance is not None
        return noise, epistemic, disagreement, distance

    def _build(self, encoder: nn.Module, rows: TrainingRows) -> DensityRegression:
        taught = self._members() > 0
        features, targets = feature_width(encoder, rows.x[:2]), rows.y.shape[1]
        read = features
        if isinstance(encoder, WithInputs) and self._inputs_beside(rows.x.shape[1]) == "density":
            read = feature_width(encoder.encoder, rows.x[:2])
        elif isinstance(encoder, WithInputs) and self._watches(encoder):
            read = feature_width(encoder.encoder, rows.x[:2]) + rows.x.shape[1] - 1
        head = HEADS[self.head](read, targets, disagreement=taught)
        density = copy.deepcopy(self.density)
        if taught and density == "mixture":
            density = MixtureDensity(max_components=MOST_COMPONENTS, background=BACKGROUND, centers=CENTERS)
        head.noise_apart = self.encoder is None and rows.x.shape[1] > MODERATE_COLUMNS
        return DensityRegression(
            encoder,
            features=features,
            targets=targets,
            head=head,
            density=density,
            tempering=copy.deepcopy(self.tempering),
        )

    def _members(self) -> int:
        """Number of networks to learn from."""
        if self.members == "auto":
            return USUAL_MEMBERS if self.encoder is None and self.tempering == "robust" else 0
        if self.members and self.encoder is not None:
            raise ValueError(
                f"members={self.members} networks share the weights of the plain network, which an encoder of your own "
                'does not have: set members to 0 or "auto".'
            )
        return self.members

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
        options = super()._options(seed, columns)
        return replace(options, average=float(self.average), devices=self.devices, num_nodes=self.num_nodes)

    def _seed(self, fingerprint: str) -> int:
        # Drawn without a random_state, it must be the same in all processes.
        drawn = super()._seed(fingerprint)
        if self.devices * self.num_nodes == 1:
            return drawn
        processes = join(self.devices, self.num_nodes, find_device(self.device).type)
        return processes.from_first(lambda: drawn)

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
            members=self._members(),
            rows=run.rows,
            callbacks=self.callbacks or (),
            scale_targets=False,
            verbose=self.verbose,
        )

    def _take(self, model: DensityRegression, report: TrainingReport, prepared: Prepared) -> Self:
        if self._watches(model.encoder):
            ignore_last_column(model.encoder)
        return super()._take(model, report, prepared)

    def _watches(self, encoder: nn.Module) -> bool:
        """Whether the last input is for the density alone: what a row has that training never had."""
        return self.columns_ is not None and isinstance(encoder, WithInputs)

    def _train_together(
        self,
        models: Sequence[DensityRegression],
        trains: Sequence[TrainingRows],
        held_outs: Sequence[TrainingRows],
        runs: Sequence[Run],
        draws: Sequence[Tensor],
    ) -> list[TrainingReport] | None:
        if self._members() or self.devices * self.num_nodes > 1:
            # The members of a teacher are one computation already.
            return None
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

    def _all_parts(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.model_.density is None:
            return super()._all_parts(x)
        fused = fused_form(self.model_, x.device, self.x_scaling_.limit)
        moments, log_density = (self.model_.moments_and_density if fused is None else fused.with_density)(x)
        return *self._without_scale(*moments), log_density

    def _upgrade_settings(self, params: dict[str, Any]) -> None:
        if "members" not in params:
            self.members = 0

    def _upgrade(self, tensors: dict[str, Tensor]) -> None:
        # Earlier versions kept the levels outside the module, and none as an empty tensor.
        levels = tensors.pop("held_out_levels", tensors.pop("familiar_levels", torch.empty(0)))
        if levels.ndim != 1 or (len(levels) > 0) != (self.density is not None) or not (levels.diff() >= 0).all():
            raise InvalidModelError("The saved log-densities of held-out rows are missing or not in order.")
        if self.density is not None:
            tensors["familiar_levels"] = levels
