"""Tables: scaling of columns, and rows ready for training."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from density_regression.io.store import InvalidModelError
from density_regression.tabular.arrays import Floats, Index

__all__ = [
    "INPUT_LIMIT",
    "Floats",
    "Index",
    "OwnUnits",
    "Scaling",
    "TrainingRows",
    "held_count",
    "refuse_non_numbers",
    "relative_weights",
    "split_rows",
]

INPUT_LIMIT: Final = 1e8
"""Bound on scaled inputs, in standard deviations; few networks overflow there."""

RAW_INPUT_LIMIT: Final = 1e30
"""Bound on unscaled inputs: float32 holds them, with room to multiply them by weights."""

COPIED_ROWS: Final = 65_536
"""Rows of a table that are copied at a time."""

OFFSET: Final = 1e-8
"""Deviation, relative to the size of a column, from which on it is computed relative to the column's first row."""

RESOLVED: Final = 4 * np.finfo(np.float64).eps
"""Deviation, relative to the size of a column, that a few roundings of a constant may leave."""


class Scaling(NamedTuple):
    """Centre and scale of each column."""

    center: Floats
    scale: Floats

    @classmethod
    def fit(cls, values: Floats, weight: Floats, rows: Index | None = None, *, of_constant: float = 0.0) -> Scaling:
        """Mean and standard deviation of the columns of (n, c), or of some of its rows.

        A constant column has none: it keeps its own units, or gets `of_constant` times its size (at least 1). So does
        one whose values differ by no more than rounding.
        """
        rows = np.arange(len(values)) if rows is None else rows
        center, deviation, size = _moments(values, weight, rows)
        offset = deviation <= OFFSET * size
        if offset.any():
            # Relative to the first row, so that rounding is that of the differences. Half of each, which is exact:
            # the difference of two huge numbers may overflow.
            first = values[rows[0], offset]
            moved, spread, _ = _moments(values, weight, rows, offset, 0.5 * first)
            center[offset], deviation[offset] = first + 2.0 * moved, 2.0 * spread
        # Subnormal columns may vary, and their standard deviation still underflow to zero.
        constant = (deviation <= RESOLVED * size) | (deviation == 0)
        # For columns of 1e18 the rounding of float64 alone is far larger than their own units.
        scale_of_constant = of_constant * np.maximum(size, 1.0) if of_constant else np.maximum(deviation, 1.0)
        return cls(center, np.where(constant, scale_of_constant, deviation))

    @classmethod
    def saved(cls, parts: Any) -> Scaling:
        """Centre and scale from a file, checked."""
        center, scale = (np.asarray(part, dtype=np.float64) for part in parts)
        if center.ndim != 1 or center.shape != scale.shape or not len(center):
            raise InvalidModelError(f"The saved scaling has shapes {center.shape} and {scale.shape}.")
        if not (np.isfinite(center).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise InvalidModelError("The saved scaling is not finite and positive.")
        return cls(center, scale)

    @property
    def limit(self) -> float:
        """Bound on scaled values."""
        return INPUT_LIMIT

    def apply(self, values: Floats) -> Tensor:
        """Scaled float32 values, within +-`limit`."""
        # Rows from a file that is only read, or in reverse, cannot be a tensor's.
        values = values if values.flags.carray else np.array(values, order="C")
        center, scale = torch.from_numpy(self.center), torch.from_numpy(self.scale)
        return torch.from_numpy(values).sub(center).div_(scale).clamp_(-self.limit, self.limit).float()

    def apply_to(self, values: Floats, rows: Index) -> Tensor:
        """Scaled float32 values of some rows, some at a time."""
        result = torch.empty(len(rows), values.shape[1])
        for start in range(0, len(rows), COPIED_ROWS):
            result[start : start + COPIED_ROWS] = self.apply(values[rows[start : start + COPIED_ROWS]])
        return result


class OwnUnits(Scaling):
    """Columns left as they are, for a network that knows their units."""

    @classmethod
    def of(cls, columns: int) -> OwnUnits:
        """For so many columns."""
        return cls(np.zeros(columns), np.ones(columns))

    @property
    def limit(self) -> float:
        """Bound on values."""
        return RAW_INPUT_LIMIT


def _moments(
    values: Floats, weight: Floats, rows: Index, columns: Any = None, shift: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Mean, standard deviation and size (largest absolute value, or 1) of columns; or of half of some, less a shift."""
    # Some rows at a time: a copy of all would double the memory of a large table.
    parts = [rows[start : start + COPIED_ROWS] for start in range(0, len(rows), COPIED_ROWS)]

    def read(part: Index) -> Floats:
        return values[part] if shift is None else 0.5 * values[part][:, columns] - shift

    # Of any finite size: squares of 1e200 overflow, so each column is brought to size one first.
    size = np.max([np.abs(read(part)).max(axis=0) for part in parts], axis=0)
    size = np.where(size == 0, 1.0, size)
    total = sum(weight[part].sum() for part in parts)
    center = sum((read(part) / size * weight[part, None]).sum(axis=0) for part in parts) / total
    squares = (((read(part) / size - center) ** 2 * weight[part, None]).sum(axis=0) for part in parts)
    return center * size, np.sqrt(sum(squares) / total) * size, size


class TrainingRows(NamedTuple):
    """Scaled rows ready for training: x (n, c), y (n, k) and weight (n,)."""

    x: Tensor
    y: Tensor
    weight: Tensor

    @classmethod
    def empty(cls, columns: int, targets: int) -> TrainingRows:
        """Two rows of zeros, for whoever asks for the shape alone."""
        return cls(torch.zeros(2, columns), torch.zeros(2, targets), torch.ones(2))

    @classmethod
    def scaled(
        cls, x: Floats, y: Floats, weight: Floats, scalings: tuple[Scaling, Scaling], rows: Index | None = None
    ) -> TrainingRows:
        """Rows in their own units, all or some of them, scaled."""
        rows = np.arange(len(x)) if rows is None else rows
        return cls(
            scalings[0].apply_to(x, rows),
            scalings[1].apply_to(y, rows),
            torch.from_numpy(weight[rows].astype(np.float32)),
        )


def split_rows(n: int, fraction: float, seed: int) -> tuple[Index, Index]:
    """Training and held-out rows; of few rows at least ten are held out, but never more than a quarter."""
    order = np.random.RandomState(seed).permutation(n)
    held = min(held_count(n, fraction), n - 2)
    return order[held:], order[:held]


def held_count(n: int, fraction: float) -> int:
    """Number of rows to hold out of n."""
    return max(round(fraction * n), min(10, n // 4)) if fraction > 0 else 0


def relative_weights(
    x: Any, y: Floats, weight: Floats, groups: Index | None = None
) -> tuple[Any, Floats, Floats, Index | None]:
    """Rows of a positive weight, their weights with mean 1, and their groups, if there are any.

    `x` is an array, or whatever else takes a mask of rows.
    """
    # By the largest first: weights may be of any size, and those that float32 cannot tell from none count as none.
    weight = weight / max(weight.max(), np.finfo(np.float64).tiny)
    counted = weight > 1e-12
    if counted.sum() < 2:
        raise ValueError("At least 2 rows with a positive sample_weight, and not a negligible one, are needed.")
    if not counted.all():
        x, y, weight = x[counted], y[counted], weight[counted]
        groups = None if groups is None else groups[counted]
    return x, y, weight / weight.mean(), groups


def refuse_non_numbers(values: Any, name: str) -> None:
    """Raise a `ValueError` for what is no table of numbers, though it may pass for one.

    Dates or times (missing ones would be -9e18), masked entries, and lazy frames, which hold no values yet.
    """
    if hasattr(values, "collect") and not hasattr(values, "__array__"):
        raise ValueError(f"{name} is a {type(values).__name__}, which holds no values yet: give {name}.collect().")
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} has masked entries, and what is under a mask means nothing: fill or drop them.")
    if hasattr(values, "columns") and hasattr(values, "dtypes"):
        kinds = {
            f"column {column!r} of {name}": dtype for column, dtype in zip(values.columns, values.dtypes, strict=True)
        }
    else:
        kinds = {name: values.dtype if hasattr(values, "dtype") else np.asarray(values).dtype}
    for place, dtype in kinds.items():
        # Types of numpy and pandas have a kind, those of polars are asked.
        if getattr(dtype, "kind", "O") in "mM" or (hasattr(dtype, "is_temporal") and dtype.is_temporal()):
            raise ValueError(f"{place} holds dates or times ({dtype}): give numbers, such as days since a first one.")
