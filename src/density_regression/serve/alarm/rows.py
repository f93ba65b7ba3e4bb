"""Rows as they are given to an alarm: columns by name, and what is missing from predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from density_regression.serve.alarm.ranks import Floats
from density_regression.serve.alarm.report import Watched
from density_regression.tabular.columns.frames import column_names, is_frame, read_frame
from density_regression.tabular.columns.values import Values, of_objects

__all__ = ["columns_of", "scores_of", "standardised", "watched_scores"]


def columns_of(X: Any, names: Sequence[str] | None, left_out: Sequence[str] = ()) -> dict[str, Values]:
    """Columns of a data frame, an array (n, c) or a mapping of names to values (n,): those of `names`, or all.

    Columns of an array go by their position, or by `names` if there are as many of them.
    """
    if isinstance(X, Mapping):
        found = {str(name): _values(values, str(name)) for name, values in X.items()}
    elif is_frame(X):
        given = [str(name) for name in column_names(X)]
        if names is not None and len(names) == len(given) and not set(names) & set(given):
            # The model was fitted to an array, and knows positions alone.
            given = list(names)
        wanted = [name for name in given if (names is None or name in names) and name not in left_out]
        if not wanted:
            return {}
        table = read_frame(X, [given.index(name) for name in wanted])
        return dict(zip(wanted, table.columns, strict=True))
    else:
        array = np.asarray(X)
        given = [str(i) for i in range(array.shape[1])] if array.ndim == 2 else []
        labels = names if names is not None and len(names) == len(given) else given
        found = {name: _values(array[:, i], name) for i, name in enumerate(labels)}
    return {name: found[name] for name in found if (names is None or name in names) and name not in left_out}


def _values(values: Any, name: str) -> Values:
    array = np.asarray(values)
    if array.dtype.kind in "iuf":
        return Values("number", array.astype(np.float64))
    return of_objects(array.tolist() if array.dtype.kind != "M" else list(array), f"column {name!r}")


def scores_of(values: ArrayLike, name: str, rows: int | None = None) -> Floats:
    """Scores (n,) as floats; with `rows` there must be so many, and NaN says that a row has none."""
    try:
        scores = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers, one for each row: {error}.") from error
    if scores.ndim != 1:
        raise ValueError(f"{name} must be one number for each row, of shape (n,), got shape {scores.shape}.")
    if rows is not None and len(scores) != rows:
        raise ValueError(f"{name} has {len(scores)} rows, but there are {rows}: give one for each row, NaN if unknown.")
    if rows is None and np.isnan(scores).any():
        raise ValueError(f"{name} is NaN in row {int(np.argmax(np.isnan(scores)))} of the batch: every row needs one.")
    return scores


def watched_scores(scores: ArrayLike | None, errors: ArrayLike | None) -> dict[Watched, Floats]:
    """Scores (n,) of each watch: low where a row is suspicious, for a bias low or high; NaN where it is not known."""
    watched: dict[Watched, Floats] = {}
    if scores is not None:
        watched["inputs"] = scores_of(scores, "scores")
    if errors is not None:
        table = np.asarray(errors, dtype=np.float64)
        table = table[:, None] if table.ndim == 1 else table
        rows = len(table) if scores is None else len(watched["inputs"])
        with np.errstate(over="ignore"):
            watched["errors"] = scores_of(-np.sqrt(np.mean(table**2, axis=1)), "errors", rows)
        watched["bias"] = scores_of(np.mean(table, axis=1), "errors", rows)
    if not watched:
        raise ValueError("Neither scores nor errors are given: give one or both, a number for each row.")
    return watched


def standardised(y: ArrayLike, mean: ArrayLike, std: ArrayLike, law: str = "identity") -> Floats:
    """Targets in standard deviations from the mean, (n,) or (n, k); with law "log", those of their logarithms.

    r = (y - mean) / std.

    The normal quantiles of the probability integral transform F(y), and so of the same ranks. Of a log-normal law,
    `mean` and `std` are the moments. NaN where a target is missing.

    Examples
    --------
    >>> standardised([3.0, 1.0], mean=[1.0, 1.0], std=[0.5, 0.5]).tolist()
    [4.0, 0.0]
    """
    y, mean, std = (np.asarray(part, dtype=np.float64) for part in (y, mean, std))
    if law == "log":
        variance = np.log1p((std / mean) ** 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            y = np.log(np.where(y >= 0, y, np.nan))
        mean, std = np.log(mean) - variance / 2.0, np.sqrt(variance)
    with np.errstate(invalid="ignore", over="ignore"):
        result: Floats = np.asarray((y - mean) / std)
    return result
