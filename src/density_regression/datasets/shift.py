"""Distribution shift: gaps and tails of one feature, and red wine against white."""

__all__ = ["Rows", "ShiftData", "ShiftSplit", "gap_splits", "load_wine_shift", "tail_splits"]

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from density_regression.datasets.fetch import PathLike
from density_regression.datasets.uci import load_uci, standard_splits

Kind = Literal["gap", "tail"]


class Rows(NamedTuple):
    """Features X (n, d) and target y (n,), both float64 in their original units."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]


class ShiftData(NamedTuple):
    """Training rows, held-out rows of the same distribution if any, and named tests, all but the first shifted."""

    name: str
    train: Rows
    held_out: Rows | None
    tests: dict[str, Rows]


class ShiftSplit(NamedTuple):
    """Sorted row indices of a split along one feature: `train` (n,) and `test` (m,).

    `genuine` is False if some test value of the feature also occurs in training, as in a column of counts.
    """

    kind: Kind
    feature: str
    train: NDArray[np.intp]
    test: NDArray[np.intp]
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
        One for each feature that is not constant, in their order. With the rows sorted by the feature (stably), the
        test rows are the ``n // 3`` rows that follow the first ``n // 3``.

    Examples
    --------
    >>> import numpy as np
    >>> (split,) = gap_splits(np.arange(9.0)[:, None], ["speed"])
    >>> split.test.tolist()
    [3, 4, 5]
    """
    return _splits("gap", X, feature_names)


def tail_splits(X: ArrayLike, feature_names: Sequence[str]) -> list[ShiftSplit]:
    """Hold out the lowest and the highest sixth of each feature, so that a model must extrapolate.

    Features `X` (n, d), in any units, and result are those of `gap_splits`; of the sorted rows the first and the last
    ``n // 6`` are test rows.

    Examples
    --------
    >>> import numpy as np
    >>> (split,) = tail_splits(np.arange(12.0)[:, None], ["speed"])
    >>> split.test.tolist()
    [0, 1, 10, 11]
    """
    return _splits("tail", X, feature_names)


def load_wine_shift(split: int, data_dir: PathLike | None = None) -> ShiftData:
    """Train on red wine, test on red and on white wine; the target is the quality, from 0 to 10.

    Parameters
    ----------
    split : int
        Number of the standard split of red wine, from 0 to 19. The tests are its test rows, ``"wine_red"``, and all
        rows of ``"wine_white"``; no rows are held out.
    data_dir : path, optional
        Folder that holds ``uci/``, as for `load_uci`.

    Examples
    --------
    >>> split = load_wine_shift()  # doctest: +SKIP
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
