"""The code of a whole table: its columns, and how strange a row is by values that training never had."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import numpy as np

from density_regression.io.store import InvalidModelError
from density_regression.tabular.arrays import Floats
from density_regression.tabular.columns.coders import (
    CategoryColumn,
    Coder,
    DateColumn,
    LeftOut,
    NumberColumn,
    fit_coder,
)
from density_regression.tabular.columns.dates import PERIODS, looks_like_date
from density_regression.tabular.columns.values import Table

__all__ = ["NEVER_SEEN", "Columns"]

NEVER_SEEN: Final = "(never seen)"
"""Name of the last coded column."""

_KINDS: Final[dict[str, type[Coder]]] = {
    coder.kind: coder for coder in (NumberColumn, CategoryColumn, DateColumn, LeftOut)
}


@dataclass(frozen=True)
class Columns:
    """Code of a table with text, dates or gaps, as its training rows are.

    The last coded column is zero in training. It is for the density: a network learns nothing from it. It grows with
    the improbability of those values of a row that training never had, such as a gap in a column without gaps, an
    unknown category, or another value of a constant column. If each has a probability p, it is sqrt(4 C sum log(1/p)),
    with C coded columns. A density sees what never varied in the residual of its whitening (`Whitening`), whose
    variance is hardly more than C, as columns are standardised: so the log-density falls by about 2 sum log(1/p), or
    more.

    Attributes
    ----------
    coders : tuple of Coder
        How each column is coded, in the order of the training table.

    Examples
    --------
    >>> import numpy as np
    >>> from density_regression.tabular.columns import Columns, of_array
    >>> table = of_array(np.array([[1.0, 5.0], [np.nan, 6.0], [3.0, 7.0]]), ["a", "b"])
    >>> columns = Columns.fit(table, ["a", "b"])
    >>> columns.names
    ('a', 'a (missing)', 'b', '(never seen)')
    >>> columns.code(table)[1]
    array([2., 1., 6., 0.])
    """

    coders: tuple[Coder, ...]

    @classmethod
    def fit(cls, table: Table, names: Sequence[str]) -> Self:
        """Learn the code from training rows; a warning names the columns that are left out."""
        coders = tuple(fit_coder(name, column) for name, column in zip(names, table.columns, strict=True))
        left_out = [coder for coder in coders if isinstance(coder, LeftOut)]
        if len(left_out) == len(coders):
            raise ValueError(
                f"X has no column to learn from: {_described(left_out)}. Give numbers, categories or dates."
            )
        if left_out:
            warnings.warn(f"Left out of X: {_described(left_out)}.", UserWarning, stacklevel=5)
        for coder in coders:
            if isinstance(coder, CategoryColumn) and coder.values and all(map(looks_like_date, coder.values)):
                what = f"{coder.name!r} of X is taken for categories, but looks like dates ({coder.values[0]!r})"
                remedy = "if it holds dates, convert it, by pandas.to_datetime for instance"
                warnings.warn(f"{what}: {remedy}.", UserWarning, stacklevel=5)
        if not any(coder.known for coder in coders):
            raise ValueError("X has no column to learn from: there is no value in any of its columns, only gaps.")
        return cls(coders)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coded columns, such as "age", "age (missing)", "town=Ulm" and "town (rare)"."""
        return (*(name for coder in self.coders for name in coder.codes), NEVER_SEEN)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Places in the code of the values of number columns."""
        starts = np.cumsum([0, *(len(coder.codes) for coder in self.coders)])
        varying = [isinstance(coder, NumberColumn) and not coder.constant for coder in self.coders]
        return tuple(int(start) for start, varies in zip(starts, varying, strict=False) if varies)

    @property
    def used(self) -> list[int]:
        """Positions of the columns that are not left out."""
        return [i for i, coder in enumerate(self.coders) if not isinstance(coder, LeftOut)]

    def coded(self, table: Table) -> Floats:
        """Coded rows (n, c) of a table with all columns."""
        used = self.used
        return self.code(Table(tuple(table.labels[i] for i in used), tuple(table.columns[i] for i in used)))

    def code(self, table: Table) -> Floats:
        """Coded rows (n, c), finite, of a table with the columns that are `used`."""
        table.refuse_infinity()
        coders = [self.coders[i] for i in self.used]
        result, strange = np.empty((len(table), len(self.names))), np.zeros(len(table))
        start = 0
        for coder, column, label in zip(coders, table.columns, table.labels, strict=True):
            end = start + len(coder.codes)
            coder.write(column, label, result[:, start:end], strange)
            start = end
        result[:, -1] = np.sqrt(4.0 * result.shape[1] * strange)
        return result

    def to_json(self) -> list[dict[str, Any]]:
        """The code as plain numbers and strings."""
        return [{"kind": coder.kind, **asdict(coder)} for coder in self.coders]

    @classmethod
    def from_json(cls, saved: Any) -> Self:
        """The code that `to_json` described; an `InvalidModelError` if it is another."""
        try:
            return cls(tuple(_from_json(**entry) for entry in saved))
        except (TypeError, KeyError, ValueError) as error:
            raise InvalidModelError(f"The saved columns are not as this version writes them: {error}") from error


def _from_json(kind: str, **values: Any) -> Coder:
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    coder = _KINDS[kind](**values)
    counts = [coder.rows, coder.known, *([coder.once] if isinstance(coder, CategoryColumn) else [])]
    texts = [coder.name]
    if isinstance(coder, CategoryColumn):
        texts += [*coder.values, *coder.rare]
    if isinstance(coder, NumberColumn | DateColumn):
        allowed = ("number", "boolean") if isinstance(coder, NumberColumn) else ("date", "time")
        if not math.isfinite(coder.median) or not isinstance(coder.constant, bool) or coder.type not in allowed:
            raise ValueError(f"column {coder.name!r} is no {' or '.join(allowed)}.")
    if isinstance(coder, DateColumn) and not set(coder.cycles) <= PERIODS.keys():
        raise ValueError(f"column {coder.name!r} has unknown cycles {coder.cycles}.")
    if not (
        all(isinstance(text, str) for text in texts) and all(type(count) is int and count >= 0 for count in counts)
    ):
        raise ValueError(f"column {coder.name!r} has a value of another type.")
    return coder


def _described(left_out: Sequence[LeftOut]) -> str:
    """Columns that are left out, in words."""
    parts = []
    for coder in left_out:
        hint = ""
        if looks_like_date(coder.example):
            hint = "; these look like dates: convert them, by pandas.to_datetime for instance"
        if coder.numbers > 0.5:
            hint = "; most are numbers as text: convert them, by pandas.to_numeric(..., errors='coerce') for instance"
        count = f"{coder.different} different texts in {coder.known} rows"
        parts.append(f"{coder.name!r} ({count}, such as {coder.example!r:.40}{hint})")
    return ", ".join(parts)
