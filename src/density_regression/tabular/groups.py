"""Groups of rows that belong together, and held-out rows that are whole groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from density_regression.tabular.table import Index, held_count

__all__ = ["group_codes", "split_groups"]


def group_codes(groups: Any, rows: int) -> Index:
    """Number of the group of each row, (rows,): 0, 1 and so on, in the order in which the labels first appear.

    Labels may be of any hashable type, and equal ones make one group. A `ValueError` is raised if they are missing, too
    few or too many, or all the same.
    """
    labels = _as_list(groups)
    if len(labels) != rows:
        raise ValueError(f"groups has {len(labels)} labels, but X has {rows} rows: give one label for each row.")
    codes: dict[Any, int] = {}
    result = np.empty(rows, dtype=np.intp)
    for row, label in enumerate(labels):
        if _is_missing(label):
            raise ValueError(
                f"groups has no label in row {row} (got {label!r}): drop the rows without one, or give each of them a "
                "label of its own."
            )
        try:
            result[row] = codes.setdefault(label, len(codes))
        except TypeError:
            raise ValueError(
                f"groups has a {type(label).__name__} as the label of row {row}: give one label for each row, such as "
                "a number, a string or a date."
            ) from None
    if len(codes) < 2:
        raise ValueError(
            f"groups has one group only ({next(iter(codes))!r}), and whole groups are held out: give at least 2 "
            "different labels, or held_out=(X, y) instead of groups."
        )
    return result


def split_groups(groups: Index, fraction: float, seed: int) -> tuple[Index, Index]:
    """Training and held-out rows, as `split_rows` gives them, but whole groups of them.

    Groups are visited in random order, and held out if that brings the number of held-out rows nearer to the one
    wanted. At least one group is held out, the smallest if all are too large; at least two rows train.

    Parameters
    ----------
    groups : array of int, shape (n,)
        Number of the group of each row. Which numbers they are does not matter, only which rows have the same.
    fraction : float
        Share of the rows to hold out, above 0.
    seed : int
        Seed of the random order.
    """
    n = len(groups)
    _, first, codes, sizes = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    if n < 3 or len(sizes) < 2:
        raise ValueError(
            f"groups has {len(sizes)} group(s) in {n} rows with a positive weight, and whole groups are held out: give "
            "at least 3 rows of at least 2 groups, or held_out=(X, y) instead of groups."
        )
    random = np.random.RandomState(seed)
    rows = random.permutation(n)
    # By their first rows, so that the numbers of the groups do not matter.
    order = random.permutation(np.argsort(first))
    wanted, held = held_count(n, fraction), 0
    chosen = np.zeros(len(sizes), dtype=bool)
    for group in order:
        size = sizes[group]
        if abs(held + size - wanted) < abs(held - wanted) and held + size <= n - 2:
            chosen[group] = True
            held += size
    if not held:
        chosen[order[np.argmin(sizes[order])]] = True
    aside = chosen[codes][rows]
    return rows[~aside], rows[aside]


def _as_list(groups: Any) -> list[Any]:
    shape = getattr(groups, "shape", None)
    if isinstance(groups, str | bytes | dict) or not hasattr(groups, "__len__") or shape == ():
        raise ValueError(f"groups must have one label for each row, got {groups!r}: give an array of shape (n,).")
    if shape is not None and len(shape) != 1:
        raise ValueError(f"groups must have shape (n,), got {tuple(shape)}: give one label for each row.")
    if getattr(getattr(groups, "dtype", None), "kind", "") in "mM" and isinstance(groups, np.ndarray):
        # As a list, nanoseconds are integers, and the missing one of them is a number too.
        return list(groups)
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(groups, method):
            return list(getattr(groups, method)())
    return list(groups)


def _is_missing(label: Any) -> bool:
    # Of missing values, not a number and no time differ from themselves, and pandas does not say whether its own do.
    if label is None or type(label).__name__ == "NAType":
        return True
    return isinstance(different := label != label, bool | np.bool_) and bool(different)  # noqa: PLR0124
