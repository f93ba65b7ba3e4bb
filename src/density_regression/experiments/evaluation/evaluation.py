"""Evaluation of a regressor on rows with targets, batch by batch in constant memory."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from density_regression import metrics
from density_regression.estimators.base import DeepRegressor
from density_regression.experiments.evaluation.bins import UNFAMILIAR, ErrorBin, ErrorsByFamiliarity, ErrorsByStd
from density_regression.experiments.evaluation.column_rows import ColumnRow, column_rows
from density_regression.experiments.evaluation.columns import known_columns, read_columns
from density_regression.experiments.evaluation.forecast import forecast
from density_regression.experiments.evaluation.sample import RowSample
from density_regression.experiments.evaluation.strange import OTHERS, STRANGE, StrangeRows
from density_regression.experiments.evaluation.totals import IntervalQuality, Totals
from density_regression.experiments.evaluation.traits import Trait, traits
from density_regression.tabular.table import Floats

__all__ = ["SAMPLE_ROWS", "Evaluation", "Evaluator", "FamiliarityQuality", "ModelSummary"]

SAMPLE_ROWS: Final = 20_000
"""Most rows from which ranks are correlated and figures are drawn; with fewer in all, these are all."""

STD_GROUPS: Final = 10


@dataclass(frozen=True)
class ModelSummary:
    """What was evaluated.

    `columns` is the number of columns that the model reads, `law` "Normal" or "log-normal", `training_rows` None of
    models that do not know it, `conformal_rows` the number of rows of `conformalize`, and `held_out` the quality on
    rows held out in training, by the names of the metrics, empty if it is not known.
    """

    method: str
    target: str
    law: str
    columns: int
    training_rows: int | None
    conformal_rows: int
    held_out: dict[str, float]


@dataclass(frozen=True)
class FamiliarityQuality:
    """Errors by familiarity, and what strange rows (below 0.01) have in common.

    `histogram` (20,) counts rows by familiarity, `unfamiliar` the strange ones; `outside` are the shares of the strange
    rows and of the others that have any value that training never had (NaN of no rows).
    """

    histogram: tuple[int, ...]
    unfamiliar: int
    bins: tuple[ErrorBin, ...]
    familiar: ErrorBin | None
    outside: tuple[float, float]
    traits: tuple[Trait, ...]
    columns: tuple[ColumnRow, ...]


@dataclass(frozen=True)
class Evaluation:
    """Quality of a model on rows with targets.

    Attributes
    ----------
    model : ModelSummary
    rows, without_target : int
        Rows that count, and rows that had no target and were left out.
    metrics : dict
        As `Totals.metrics` has them, with `spearman`, the rank correlation of absolute error and standard deviation.
    intervals, conformal : tuple of IntervalQuality
        Of the law's intervals; and of those of `conformalize`, if it was called.
    curve : tuple of float
        Calibration curve: fraction of targets below the predicted quantiles at evenly spaced levels.
    pit : tuple of int
        Histogram of F(y), twenty bins.
    by_std : tuple of ErrorBin
        Errors in groups of rows by their standard deviation.
    familiarity : FamiliarityQuality or None
        None of methods without that notion.
    sample : dict
        Columns y, mean, std, z, low, high (of 90 % intervals) and familiarity of `SAMPLE_ROWS` rows at random.
    """

    model: ModelSummary
    rows: int
    without_target: int
    metrics: dict[str, float]
    intervals: tuple[IntervalQuality, ...]
    conformal: tuple[IntervalQuality, ...]
    curve: tuple[float, ...]
    pit: tuple[int, ...]
    by_std: tuple[ErrorBin, ...]
    familiarity: FamiliarityQuality | None
    sample: dict[str, Floats]

    def to_json(self) -> dict[str, Any]:
        """All but the sample, as plain numbers and strings; None for what is infinite or not a number."""
        result = {name: value for name, value in vars(self).items() if name != "sample"}
        plain: dict[str, Any] = _plain(result)
        return plain


class Evaluator:
    """Evaluates a regressor of one target on rows that are given batch by batch."""

    def __init__(self, regressor: DeepRegressor, target: str = "") -> None:
        self._regressor = regressor
        self._target = target
        self._totals, self._by_std, self._by_familiarity = Totals(), ErrorsByStd(), ErrorsByFamiliarity()
        self._strange = StrangeRows(known_columns(regressor))
        self._sample = RowSample(SAMPLE_ROWS)
        self._without_target = 0

    def skip(self, rows: int) -> None:
        """Count rows that have no target."""
        self._without_target += rows

    def update(self, X: ArrayLike, y: Floats) -> None:
        """Add rows X (n, c) with targets y (n,), finite; n is 1 or more."""
        rows = forecast(self._regressor, X, y)
        self._totals.update(rows)
        self._by_std.update(rows)
        low, high = rows.interval(0.9)
        more = {}
        if rows.familiarity is not None:
            self._by_familiarity.update(rows, rows.familiarity)
            self._strange.update(read_columns(self._regressor, X), rows.familiarity < UNFAMILIAR)
            more["familiarity"] = rows.familiarity
        self._sample.update(y=rows.y, mean=rows.mean, std=rows.std, z=rows.z, low=low, high=high, **more)

    def result(self) -> Evaluation:
        """The evaluation of all rows so far."""
        totals = self._totals
        if not totals.rows:
            without = f" {self._without_target} rows have none." if self._without_target else ""
            raise ValueError(f"There is no row with a target to evaluate on.{without}")
        sample = self._sample.columns()
        spearman = metrics.spearman(sample["y"], sample["mean"], sample["std"])
        return Evaluation(
            self._summary(),
            totals.rows,
            self._without_target,
            totals.metrics() | {"spearman": spearman},
            tuple(totals.intervals()),
            tuple(totals.intervals(conformal=True)),
            tuple(totals.curve()[1].tolist()),
            tuple(totals.pit.tolist()),
            tuple(self._by_std.groups(STD_GROUPS)),
            self._familiarity(),
            sample,
        )

    def _familiarity(self) -> FamiliarityQuality | None:
        found = self._by_familiarity
        if not found.rows.any():
            return None
        strange = self._strange
        shares = [strange.share(strange.never, group) for group in (STRANGE, OTHERS)]
        return FamiliarityQuality(
            tuple(found.histogram.tolist()),
            found.unfamiliar,
            tuple(found.bins()),
            found.familiar(),
            (shares[0], shares[1]),
            tuple(traits(strange)),
            tuple(column_rows(strange)),
        )

    def _summary(self) -> ModelSummary:
        regressor, profile = self._regressor, self._regressor.profile_
        held_out = None if profile is None else profile.held_out
        return ModelSummary(
            regressor.about.name,
            self._target,
            "log-normal" if regressor.target_ == "log" else "Normal",
            len(self._strange.tallies),
            None if profile is None else profile.rows,
            0 if regressor.conformal_ is None else regressor.conformal_.rows,
            {} if held_out is None else asdict(held_out),
        )


def _plain(value: Any) -> Any:
    """Numbers, strings, lists and dictionaries, without what JSON lacks."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif hasattr(value, "__dataclass_fields__"):
        value = dict(vars(value))
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value
