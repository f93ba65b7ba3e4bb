"""What the columns of a file are to be read as for a fitted regressor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from density_regression.tabular.columns.coders import CategoryColumn, DateColumn, NumberColumn

__all__ = ["column_kinds"]


def column_kinds(regressor: Any, columns: Sequence[str] = ()) -> dict[str, str]:
    """Kind of each column that a fitted regressor reads, by name: "number", "boolean", "text", "date" or "time".

    Parameters
    ----------
    regressor : DeepRegressor
        A fitted one.
    columns : sequence of str
        Names of a table's columns, for a regressor that was fitted to an array and knows no names: it reads the first.

    Returns
    -------
    dict of str to str
        In the order of the training table; columns that were left out of it are not among them.
    """
    count = regressor.n_features_in_
    names = [str(name) for name in getattr(regressor, "feature_names_in_", columns[:count])]
    if len(names) < count:
        raise ValueError(f"The model was fitted to {count} columns without names, but there are {len(names)}.")
    if regressor.columns_ is None:
        return dict.fromkeys(names, "number")
    kinds: dict[str, str] = {}
    for name, coder in zip(names, regressor.columns_.coders, strict=True):
        if isinstance(coder, NumberColumn | DateColumn):
            kinds[name] = coder.type
        elif isinstance(coder, CategoryColumn):
            kinds[name] = "text"
    return kinds
