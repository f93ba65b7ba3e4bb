"""What the parts of a regressor know of each other: its fitted attributes, and the hooks that a method implements."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self, cast

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from density_regression.nn.encoders import PiecewiseEmbedding
from density_regression.nn.network import Predictor
from density_regression.tabular.columns import Columns
from density_regression.tabular.laws import Law
from density_regression.tabular.profile import Profile
from density_regression.tabular.stream import StreamBatches
from density_regression.tabular.table import Scaling, TrainingRows
from density_regression.training.loop import TrainingReport

__all__ = ["RegressorHooks", "Run"]


class Run(NamedTuple):
    """What one fit hands to its training: seed, checksum of data and settings, and whether to skip step 1.

    `rows` are all rows, where those in memory are a sample of them.
    """

    seed: int
    fingerprint: str
    pretrained: bool
    rows: StreamBatches | None = None


class RegressorHooks(BaseEstimator, ABC):
    """Base of the classes that fit, predict, save and export; `DeepRegressor` unites them.

    A method implements `_build` and `_train`, and may override the others.
    """

    trains_from_disk: ClassVar[bool] = False

    encoder: Any
    embedding: str | None
    n_threads: int | None
    random_state: Any

    model_: Predictor
    any_parameter_: Tensor
    report_: TrainingReport
    x_scaling_: Scaling
    y_scaling_: Scaling
    target_: Law
    conformal_: Any
    target_shape_: tuple[int, ...]
    n_features_in_: int
    columns_: Columns | None = None
    profile_: Profile | None = None
    fitted_params_: dict[str, Any]
    own_encoder_: bool
    rows_on_disk_: Any

    @abstractmethod
    def _encoder(self, inputs: int, embedding: PiecewiseEmbedding | None = None) -> nn.Module:
        """The untrained encoder for so many columns; the plain network reads a copy of `embedding`, if there is one."""

    @abstractmethod
    def _build(self, encoder: nn.Module, rows: TrainingRows) -> Predictor:
        """The untrained module around an encoder, for rows like these."""

    @abstractmethod
    def _train(self, model: Any, train: TrainingRows, held_out: TrainingRows, run: Run) -> TrainingReport:
        """Train what `_build` built, in place."""

    def _fit_from_disk(self, X: Any, y: Any, *, conformal: float | None) -> Self:
        """Fit to a table that is not in memory."""
        if not self.trains_from_disk:
            raise ValueError(
                f"X is {X!r:.80}, and {type(self).__name__} fits what is in memory: give a data frame or an array, or "
                "take DensityRegressor, which also trains from disk."
            )
        from density_regression.estimators.from_disk import fit_from_disk

        return fit_from_disk(cast(Any, self), X, y, conformal=conformal)

    def _train_together(
        self,
        models: Sequence[Any],
        trains: Sequence[TrainingRows],
        held_outs: Sequence[TrainingRows],
        runs: Sequence[Run],
        draws: Sequence[Tensor],
    ) -> list[TrainingReport] | None:
        """Train what several estimators built, in place and as one computation; None if that cannot be.

        `draws` are the states of torch's generator after each was built.
        """
        return None

    @abstractmethod
    def _rows(self, X: ArrayLike) -> Any:
        """Rows to predict, checked."""

    def _moments(self, x: Tensor) -> tuple[Tensor, ...]:
        """Mean and log standard deviation (n, k) at scaled rows `x`, in units of the scaled target."""
        return self.model_.moments(x)

    def _upgrade(self, tensors: dict[str, Tensor]) -> None:
        """Name a saved module's tensors, in place, as this version does; refuse what no version wrote."""

    def _upgrade_settings(self, params: dict[str, Any]) -> None:
        """Choose settings that a saved model does not name, because it is of an earlier version."""
