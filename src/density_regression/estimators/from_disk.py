"""Fitting to a table on disk: columns, scaling and teacher from a sample, and the network from all rows."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from torch import Tensor

from density_regression.io.extras import import_extra
from density_regression.io.progress import RowProgress
from density_regression.nn.runtime import taking_turns, usual_torch
from density_regression.tabular.columns import Columns, read_frame
from density_regression.tabular.columns.coders import DateColumn
from density_regression.tabular.laws import Law, to_law
from density_regression.tabular.stream import RowGroups, Sampled, StreamBatches, scan
from density_regression.tabular.stream.batches import WINDOW, WINDOW_BYTES
from density_regression.tabular.stream.scan import Shares, has_targets
from density_regression.tabular.table import Floats, Scaling

if TYPE_CHECKING:
    from density_regression.estimators.density import DensityRegressor

__all__ = ["HELD_OUT", "SAMPLE", "RowsOnDisk", "fit_from_disk"]

SAMPLE: Final = 50_000
"""Most training rows in memory, drawn at random: as many as the teacher is trained on."""

HELD_OUT: Final = 20_000
"""About the most rows that are held out, and that are kept aside for conformal intervals."""

LARGEST_BATCH: Final = 2048
"""Rows of a batch with `batch_size="auto"`, unless a 32nd of all rows is less."""

CODED_BYTES: Final = 2**26
"""Most bytes of the float64 code of the rows that are coded at a time."""


class RowsOnDisk(NamedTuple):
    """Numbers of rows of a table on disk: in all, without a target, and that train.

    `first_without_target` is the number of the first without a target, in the order of the files; 1 is the first row.
    """

    read: int
    without_target: int
    first_without_target: int | None
    train: int


def fit_from_disk(
    regressor: DensityRegressor, X: Any, y: Any, *, conformal: float | None = None, drop: Sequence[str] = ()
) -> DensityRegressor:
    """Fit to a table on disk, in memory that does not grow with its rows.

    Parameters
    ----------
    regressor : DensityRegressor
        Fitted in place. Its network must be the plain one.
    X : path or pyarrow.dataset.Dataset
        Parquet file, or folder or data set of Parquet files.
    y : str or list of str
        Columns to predict.
    conformal : float, optional
        Share of the rows, by their hashes, to keep aside for `conformalize`; of more than `HELD_OUT` so many suffice.
    drop : sequence of str
        Columns not to use.

    Rows are held out by a hash of what they contain: the same ones whatever the order of rows, files and columns. They
    are a share of `validation_fraction`, but hardly more than `HELD_OUT`.
    """
    targets = [y] if isinstance(y, str) else list(y) if isinstance(y, list | tuple) else []
    _check(regressor, targets, y, conformal)
    groups = RowGroups(X, drop)
    for name in targets:
        if name not in groups.columns:
            raise ValueError(f"y names {name!r}, but {groups.name} has the columns {', '.join(groups.columns)}.")
    features = [name for name in groups.columns if name not in targets]
    if not features:
        raise ValueError(f"{groups.name} has no column to predict {', '.join(targets)} from.")
    most = HELD_OUT / groups.rows
    shares = Shares(min(regressor.validation_fraction, most), 0.0 if conformal is None else min(conformal, most))
    with RowProgress("reading", groups.rows, regressor.verbose) as bar:
        limits = (SAMPLE, 2 * HELD_OUT)
        seen = scan(groups, targets, shares, limits, positive=regressor.target == "log", on_rows=bar.advance)
    _check_sample(seen, groups, shares)
    with taking_turns(), usual_torch():
        held_out = None if seen.held_out is None else _parts(seen.held_out, features, targets)
        prepared = regressor._prepare(*_parts(seen.train, features, targets), None, held_out)
        _refuse_other_dates(regressor.columns_, seen)
        coding = _Coding(features, targets, regressor.columns_, prepared.scalings, prepared.target, shares)
        width = sum(map(len, (prepared.train.x[0], prepared.train.y[0])))
        rows = StreamBatches(
            groups,
            coding,
            min(max(groups.rows // 32, 16), LARGEST_BATCH) if regressor.batch_size == "auto" else regressor.batch_size,
            prepared.run.seed,
            window=min(WINDOW, WINDOW_BYTES // (4 * width)),
        )
        sizes = hashlib.sha256(repr([group.rows for group in groups.groups]).encode()).hexdigest()
        run = prepared.run._replace(rows=rows, fingerprint=f"{prepared.run.fingerprint} {sizes}")
        prepared = prepared._replace(run=run, profile=replace(prepared.profile, rows=seen.rows))
        regressor._take(*regressor._fit_prepared(prepared))
    regressor.rows_on_disk_ = RowsOnDisk(groups.rows, seen.without_target, seen.first_without_target, seen.rows)
    if conformal is not None:
        regressor.conformalize(*_parts(seen.aside, features, targets))
    return regressor


def _check(regressor: DensityRegressor, targets: list[str], y: Any, conformal: float | None) -> None:
    regressor._validate_params()
    if not targets or not all(isinstance(name, str) for name in targets) or len({*targets}) < len(targets):
        raise ValueError(f"X is on disk, so y must be the name of a column of it, or a list of several, got {y!r:.80}.")
    if regressor.encoder is not None:
        raise ValueError("Only the plain network is trained from disk: leave encoder out, or read X into memory.")
    if regressor.target == "auto":
        raise ValueError('target="auto" tries two fits, which from disk is not done: choose "identity" or "log".')
    if conformal is not None and not (isinstance(conformal, Real) and 0 < conformal < 1):
        raise ValueError(f"conformal must be a share of the rows, between 0 and 1, got {conformal!r}.")


def _check_sample(seen: Sampled, groups: RowGroups, shares: Shares) -> None:
    """Refuse what is too little to train on, and warn of rows without a target."""
    kept = {"train": shares, "held_out": shares.held_out, "aside": shares.aside}
    for name, wanted in kept.items():
        part = getattr(seen, name)
        if wanted and (part is None or len(part) < 2):
            raise ValueError(f"{groups.name} has too few rows ({groups.rows}) to train from disk: read it into memory.")
    if seen.without_target:
        first = f"the first is row {seen.first_without_target:,}"
        warnings.warn(
            f"{seen.without_target:,} of {groups.rows:,} rows have no target and are not used; {first}.",
            UserWarning,
            stacklevel=6,
        )


def _refuse_other_dates(columns: Columns | None, seen: Sampled) -> None:
    """Refuse text that is no date in a column whose sample has dates alone."""
    for coder in () if columns is None else columns.coders:
        if isinstance(coder, DateColumn) and (wrong := seen.no_dates.get((coder.name, coder.type))):
            raise ValueError(f"{wrong}, where the sample has {coder.type}s alone: correct it, or leave it empty.")


def _parts(table: Any, features: list[str], targets: list[str]) -> tuple[Any, Any]:
    arrow = import_extra("pyarrow", needed_by="Training from disk", extra="data")
    numbers = [table.column(name).cast(arrow.float64(), safe=False) for name in targets]
    return table.select(features), arrow.table(dict(zip(targets, numbers, strict=True)))


@dataclass(frozen=True)
class _Coding:
    """From Arrow tables to scaled inputs and targets of the rows that train."""

    features: list[str]
    targets: list[str]
    columns: Columns | None
    scalings: tuple[Scaling, Scaling]
    law: Law
    shares: Shares

    def __call__(self, table: Any) -> tuple[Tensor, ...]:
        train = self.shares.train(table) & has_targets(table, self.targets)
        if not train.all():
            table = table.filter(train)
        x, y = _parts(table, self.features, self.targets)
        target = to_law(np.column_stack([column.to_numpy() for column in y.columns]), self.law)
        return self.scalings[0].apply(self._coded(x)), self.scalings[1].apply(target)

    def _coded(self, x: Any) -> Floats:
        if not len(x):
            return np.empty((0, len(self.scalings[0].center)))
        if self.columns is None:
            return np.column_stack([values for _, values in read_frame(x).columns])
        each = max(CODED_BYTES // (8 * len(self.columns.names)), 1)
        parts = [self.columns.coded(read_frame(x.slice(i, each))) for i in range(0, len(x), each)]
        coded = np.concatenate(parts)
        # Rare values that the sample lacks are no reason for a row that trains to look strange.
        coded[:, -1] = 0.0
        return coded
