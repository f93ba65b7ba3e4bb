"""What training rows had in each column, and the columns of new rows read as the model reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from density_regression.estimators.base import DeepRegressor
from density_regression.estimators.tables import CodedRows, column_labels, rows_to_predict, table_to_predict
from density_regression.tabular.columns.coders import CategoryColumn, Coder, DateColumn, NumberColumn
from density_regression.tabular.columns.dates import parsed
from density_regression.tabular.profile import LEVELS, ColumnProfile

__all__ = ["CUTS", "KnownColumn", "known_columns", "read_columns"]

CUTS: Final = (0.0, 0.01, 0.05, 0.25, 0.75, 0.95, 0.99, 1.0)
"""Levels of the training quantiles beyond which rows are counted: below those under 0.5, above the others."""

Kind = Literal["number", "boolean", "date", "time", "category"]


@dataclass(frozen=True)
class KnownColumn:
    """One column as training rows had it.

    Attributes
    ----------
    name : str
        Of the column; its position, where columns have no names.
    kind : str
        Dates are days since 1970 began, times shares of a day, booleans 0 and 1; categories are text.
    gaps : float
        Share of training rows without a value; NaN if only known to be above 0.
    cuts : array of shape (8,) or None
        Quantiles of the training rows at `CUTS`; None of categories, and of models that do not know them.
    values : dict
        Of categories, the values that training rows had, and the share of rows with each (NaN if not known).
    """

    name: str
    kind: Kind
    gaps: float = 0.0
    cuts: NDArray[np.float64] | None = None
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether values are text."""
        return self.kind == "category"


def known_columns(regressor: DeepRegressor) -> list[KnownColumn]:
    """The columns that a regressor reads."""
    profile = regressor.profile_
    profiles = [None] * regressor.n_features_in_ if profile is None else profile.columns
    if regressor.columns_ is None:
        return [_number(name, "number", 0.0, one) for name, one in zip(column_labels(regressor), profiles, strict=True)]
    return [_coded(regressor.columns_.coders[i], profiles[i]) for i in regressor.columns_.used]


def read_columns(regressor: DeepRegressor, X: ArrayLike) -> list[NDArray[Any]]:
    """Values (n,) of each of the `known_columns` in rows X: text with None for gaps, else float64 with NaN."""
    if regressor.columns_ is None:
        rows = rows_to_predict(regressor, X)
        assert not isinstance(rows, CodedRows)
        return list(rows.T)
    table = table_to_predict(regressor, X)
    coders = [regressor.columns_.coders[i] for i in regressor.columns_.used]
    columns = zip(coders, table.columns, table.labels, strict=True)
    return [_as_values(coder).read(column, label) for coder, column, label in columns]


def _coded(coder: Coder, profile: ColumnProfile | None) -> KnownColumn:
    gaps = 1.0 - coder.known / coder.rows if coder.rows else 0.0
    if isinstance(coder, CategoryColumn):
        shares = {} if profile is None else dict(zip(profile.values, profile.shares, strict=True))
        known = {value: shares.get(value, float("nan")) for value in (*coder.values, *coder.rare)}
        return KnownColumn(coder.name, "category", gaps, values=known)
    assert isinstance(coder, NumberColumn | DateColumn)
    return _number(coder.name, coder.type, gaps, profile)


def _number(name: str, kind: Kind, gaps: float, profile: ColumnProfile | None) -> KnownColumn:
    if profile is None or not profile.quantiles:
        return KnownColumn(name, kind, gaps)
    # Booleans of a table without text, dates or gaps are known to the profile alone.
    kind = "boolean" if profile.kind == "boolean" else kind
    found = profile.quantiles
    numbers = parsed(map(str, found)) if kind in ("date", "time") else np.asarray(found, dtype=np.float64)
    return KnownColumn(name, kind, gaps, numbers[[LEVELS.index(level) for level in CUTS]])


def _as_values(coder: Coder) -> NumberColumn | DateColumn | CategoryColumn:
    assert isinstance(coder, NumberColumn | DateColumn | CategoryColumn)
    return coder
