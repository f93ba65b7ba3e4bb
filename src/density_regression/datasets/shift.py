"""Data under distribution shift: gaps and tails of one feature, and red wine against white."""

__all__ = ["Rows", "ShiftData", "ShiftSplit", "gap_splits", "load_wine_shift", "tail_splits"]

import os
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from density_regression.datasets.uci import load_uci, standard_splits

Indices = NDArray[np.intp]
Kind = Literal["gap", "tail"]


class Rows(NamedTuple):
    """Features X (n, d) and target y (n,), both float64 in their original units."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]


class ShiftData(NamedTuple):
    """Training rows, held-out rows of the same law where there are any, and test sets by name.

    The first test set is in distribution, the others are shifted.
    """

    name: str
    train: Rows
    held_out: Rows | None
    tests: dict[str, Rows]


class ShiftSplit(NamedTuple):
    """Row indices, sorted, of a split along one feature.

    `genuine` says that no test value of the feature occurs in training. Where many rows share a value, as in a
    column of counts, a split may cut through them, and the shift is then partly one in name only.
    """

    kind: Kind
    feature: str
    train: Indices
    test: Indices
    genuine: bool


def gap_splits(X: ArrayLike, feature_names: Sequence[str]) -> list[ShiftSplit]:
    """Hold out the middle third of each feature, so that a model must interpolate.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Finite features, n at least 6.
    feature_names : sequence of d str

    Returns
    -------
    list of ShiftSplit
        One for each feature that is not constant, in their order. With the rows sorted by the feature, ties in
        the order of rows, the test rows are the ``n // 3`` rows that follow the first ``n // 3``.
    """
    return _splits("gap", X, feature_names)


def tail_splits(X: ArrayLike, feature_names: Sequence[str]) -> list[ShiftSplit]:
    """Hold out the lowest and the highest sixth of each feature, so that a model must extrapolate.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Finite features, n at least 6.
    feature_names : sequence of d str

    Returns
    -------
    list of ShiftSplit
        One for each feature that is not constant, in their order. With the rows sorted by the feature, ties in
        the order of rows, the test rows are the first ``n // 6`` and the last ``n // 6``.
    """
    return _splits("tail", X, feature_names)


def load_wine_shift(split: int, data_dir: str | os.PathLike[str] | None = None) -> ShiftData:
    """Red wine to train on; red and white wine to test on.

    Parameters
    ----------
    split : int
        Number of the standard split of red wine, from 0 to 19.
    data_dir : path, optional
        Folder that holds ``uci/``, as for `load_uci`.

    Returns
    -------
    ShiftData
        Name ``"wine_red"``, no held-out rows, and the tests ``"wine_red"`` (the split's own) and ``"wine_white"``
        (all rows). The target is the quality, from 0 to 10.
    """
    splits = standard_splits("wine_red", data_dir)
    if split not in range(len(splits)):
        raise ValueError(f"split must be an integer from 0 to {len(splits) - 1}, got {split!r}.")
    red, white = load_uci("wine_red", data_dir), load_uci("wine_white", data_dir)
    if red.feature_names != white.feature_names:
        raise ValueError(f"Red and white wine must have one header, got {red.feature_names} and {white.feature_names}.")
    train, test = splits[split]
    tests = {"wine_red": Rows(red.X[test], red.y[test]), "wine_white": Rows(white.X, white.y)}
    return ShiftData("wine_red", Rows(red.X[train], red.y[train]), None, tests)


def _splits(kind: Kind, X: ArrayLike, feature_names: Sequence[str]) -> list[ShiftSplit]:
    table = np.asarray(X, dtype=np.float64)
    if table.ndim != 2 or len(table) < 6 or not np.isfinite(table).all():
        raise ValueError(f"X must be a finite table of at least 6 rows, got an array of shape {table.shape}.")
    if len(feature_names) != table.shape[1]:
        raise ValueError(f"feature_names must name the {table.shape[1]} columns of X, got {len(feature_names)} names.")
    n = len(table)
    tested = np.r_[n // 3 : 2 * (n // 3)] if kind == "gap" else np.r_[: n // 6, n - n // 6 : n]
    splits = []
    for name, values in zip(feature_names, table.T, strict=True):
        if (values == values[0]).all():
            continue
        in_test = np.zeros(n, dtype=bool)
        in_test[np.argsort(values, kind="stable")[tested]] = True
        genuine = not np.isin(values[in_test], values[~in_test]).any()
        splits.append(ShiftSplit(kind, name, np.flatnonzero(~in_test), np.flatnonzero(in_test), genuine))
    return splits
