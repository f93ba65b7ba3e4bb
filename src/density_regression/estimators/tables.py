"""Rows as estimators are given them: arrays, or data frames whose columns may need a code."""

import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_X_y, validate_data

from density_regression.estimators.hooks import RegressorHooks
from density_regression.tabular.columns import Columns, Table, column_names, is_frame, of_array, read_frame
from density_regression.tabular.table import Floats, refuse_non_numbers

__all__ = ["CodedRows", "column_labels", "rows_to_predict", "table_to_predict", "training_rows"]

OF_TARGETS: Final[dict[str, Any]] = {"dtype": np.float64, "multi_output": True, "y_numeric": True}


class CodedRows:
    """Rows of a table that are coded when they are asked for, some at a time."""

    def __init__(self, columns: Columns, table: Table) -> None:
        self._columns = columns
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, rows: slice) -> Floats:
        return self._columns.code(self._table[rows])


def training_rows(
    estimator: RegressorHooks, X: ArrayLike, y: ArrayLike, *, like: Floats | Table | None = None
) -> tuple[Floats | Table, Floats]:
    """Inputs and targets (n, k) to fit to, or with `like` to hold out, checked.

    Inputs are an array (n, c) if they are finite numbers alone, and otherwise a `Table`; those to hold out are what the
    inputs to fit to are.
    """
    refuse_non_numbers(y, "y")
    least = 2 if like is None else 1
    table = None
    if isinstance(like, Table):
        table = _matching(estimator, X, range(len(like.columns)))
    elif like is None and is_frame(X):
        table = read_frame(X)
        # Numbers alone are taken as scikit-learn takes them.
        table = None if table.is_plain else table
        if table is not None:
            _refuse_twice(column_names(X))
            validate_data(estimator, X, skip_check_array=True)
    if table is None:
        refuse_non_numbers(X, "X")
        x, target = validate_data(
            estimator, X, y, reset=like is None, ensure_min_samples=least, ensure_all_finite="allow-nan", **OF_TARGETS
        )
        if like is not None:
            _refuse_gaps(estimator, x)
        elif np.isnan(x).any():
            table = of_array(x, _labels(estimator, x.shape[1]))
    if table is not None:
        table.refuse_infinity()
        x = table
        _, target = check_X_y(np.zeros((len(table), 1)), y, ensure_min_samples=least, estimator=estimator, **OF_TARGETS)
    target = target.astype(np.float64).reshape(len(target), -1)
    # Of objects, scikit-learn sees neither None nor infinity.
    assert_all_finite(target, input_name="y")
    return x, target


def rows_to_predict(estimator: RegressorHooks, X: ArrayLike) -> Floats | CodedRows:
    """Rows to predict, checked."""
    if estimator.columns_ is not None:
        return CodedRows(estimator.columns_, table_to_predict(estimator, X))
    rows = _numbers(estimator, X)
    _refuse_gaps(estimator, rows)
    return rows


def table_to_predict(estimator: RegressorHooks, X: ArrayLike) -> Table:
    """The columns of rows to predict that an estimator's code reads."""
    assert estimator.columns_ is not None
    return _matching(estimator, X, estimator.columns_.used)


def column_labels(estimator: RegressorHooks) -> list[str]:
    """Names of the columns that an estimator was fitted to, or their positions."""
    return [str(name) for name in getattr(estimator, "feature_names_in_", range(estimator.n_features_in_))]


def _matching(estimator: RegressorHooks, X: ArrayLike, used: Sequence[int]) -> Table:
    """The columns of X that stand at the `used` positions of the training table: by name if they have names."""
    names = getattr(estimator, "feature_names_in_", None)
    if not is_frame(X) or names is None:
        if is_frame(X):
            validate_data(estimator, X, reset=False, skip_check_array=True)
            return read_frame(X, used)
        x = _numbers(estimator, X)
        table = of_array(x, _labels(estimator, x.shape[1]))
        return Table(tuple(table.labels[i] for i in used), tuple(table.columns[i] for i in used))
    given = column_names(X)
    needed = [names[i] for i in used]
    if missing := [name for name in needed if name not in given]:
        raise ValueError(
            f"X lacks {_listed(missing)}, which the model was fitted to: add {'it' if len(missing) == 1 else 'them'}, "
            "empty where a value is not known."
        )
    if extra := [name for name in given if name not in names]:
        warnings.warn(f"X has {_listed(extra)}, unknown when the model was fitted: ignored.", UserWarning, stacklevel=2)
    _refuse_twice([name for name in given if name in needed])
    return read_frame(X, [given.index(name) for name in needed])


def _refuse_gaps(estimator: RegressorHooks, rows: Floats) -> None:
    """Raise a `ValueError` for gaps in rows for a model that was fitted to none."""
    gaps = np.isnan(rows)
    if gaps.any():
        row, column = np.argwhere(gaps)[0]
        raise ValueError(
            f"{_labels(estimator, rows.shape[1])[column]} contains NaN (row {row}), and rows to fit to had no gaps: "
            "fill or drop them, or fit to rows of which some have gaps."
        )


def _labels(estimator: RegressorHooks, columns: int) -> list[str]:
    """How an error names each column of X."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"column {i} of X" if names is None else f"column {names[i]!r} of X" for i in range(columns)]


def _numbers(estimator: RegressorHooks, X: ArrayLike) -> Floats:
    """Rows to predict of numbers alone, NaN for gaps."""
    refuse_non_numbers(X, "X")
    try:
        rows: Floats = validate_data(estimator, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        if estimator.columns_ is not None:
            raise ValueError(
                f"X is no table of numbers ({error}): give a data frame, as the model was fitted to."
            ) from error
        named = [label for label, (kind, _) in _columns_of(X) if kind not in ("number", "boolean")]
        where = f" in {named[0]}" if named else ""
        raise ValueError(f"The model was fitted to numbers alone, but X has text{where}: {error}.") from error
    return rows


def _columns_of(X: ArrayLike) -> list[Any]:
    table = read_frame(X) if is_frame(X) else None
    return [] if table is None else list(zip(table.labels, table.columns, strict=True))


def _listed(names: Sequence[Any]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"the column{'s' * (len(names) > 1)} {shown}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"


def _refuse_twice(names: Sequence[Any]) -> None:
    if twice := sorted({str(name) for name in names if names.count(name) > 1}):
        raise ValueError(f"X has several columns named {twice[0]!r}: rename them, as columns are found by their names.")
