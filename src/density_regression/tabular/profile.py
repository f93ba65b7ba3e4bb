"""What a model was fitted to: quantiles and shares of columns and targets, and its quality on held-out rows.

Nothing here needs torch, so that a process that only serves a model can read its profile.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LEVELS",
    "MOST_ROWS",
    "ColumnKind",
    "ColumnProfile",
    "HeldOut",
    "Profile",
    "TargetProfile",
    "quantiles",
]

LEVELS: Final = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
"""Levels of the quantiles; the first and the last are the smallest and the largest value."""

MOST_ROWS: Final = 100_000
"""Most training rows of which a profile is made; of more it is made of so many random ones."""

BINS: Final = 20
"""Bins of a target's histogram between its first and its last percentile; one more on either side has the rest."""

INTERVAL: Final = 0.9
"""Nominal coverage of the intervals that are tried on held-out rows."""

ColumnKind = Literal["number", "boolean", "date", "time", "category", "left out"]

_ISO: Final = re.compile(r"-?[0-9]{4,}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?)?")
_CLOCK: Final = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ColumnProfile:
    """One column of the training rows.

    Attributes
    ----------
    name : str
        Of the column; its position, where columns have no names.
    kind : str
        "number", "boolean", "date", "time", "category", or "left out" for text that the model does not use.
    gaps : float
        Share of rows without a value.
    quantiles : tuple
        Of numbers, booleans (0 and 1), dates and times, at `LEVELS`, as values that occur: numbers, or dates and times
        as ISO text, in UTC. Empty for text, and where there are gaps alone.
    values, shares : tuple
        Frequent values of categories and the two of booleans, and the share of all rows that has each.
    """

    name: str
    kind: ColumnKind
    gaps: float
    quantiles: tuple[float | str, ...] = ()
    values: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """Undo `to_json` of `Profile`; a `ValueError` for what it does not write."""
        parts: Any = {name: tuple(part) if isinstance(part, list) else part for name, part in saved.items()}
        column = cls(**parts)
        kind, name = column.kind, column.name
        _require(isinstance(name, str) and kind in get_args(ColumnKind), f"column {name!r} has kind {kind!r}")
        _require(_is_share(column.gaps), f"column {name!r} has {column.gaps!r} gaps")
        line, of_text = kind in ("number", "boolean"), kind in ("category", "left out")
        valid = not of_text and len(column.quantiles) == len(LEVELS)
        if line:
            valid = valid and _ascend(column.quantiles)
        else:
            form = _CLOCK if kind == "time" else _ISO
            valid = valid and all(isinstance(text, str) and form.fullmatch(text) for text in column.quantiles)
        _require(column.quantiles == () or valid, f"column {name!r} has quantiles {column.quantiles!r:.80}")
        counted = kind in ("category", "boolean") or not column.values
        _require(counted and all(isinstance(value, str) for value in column.values), f"values of column {name!r}")
        shared = len(column.shares) == len(column.values) and all(map(_is_share, column.shares))
        _require(shared and sum(column.shares) <= 1 + 1e-6, f"shares of column {name!r}")
        return column


@dataclass(frozen=True)
class HeldOut:
    """Quality of a model on its held-out rows, for one target and in its units, by the law that `predict_dist` gives.

    These rows have also stopped the training and set the scale of the standard deviation, so it flatters a little: rows
    that the model has never seen are the better judges.

    Attributes
    ----------
    rows : int
        How many there were. Their weights count.
    nll : float
        Mean negative log-likelihood, in nats.
    rmse : float
        Root mean squared error of the mean.
    crps : float
        Mean continuous ranked probability score.
    coverage : float
        Share of targets in the intervals that `predict_interval` gives for a coverage of 0.9, before `conformalize`.
    """

    rows: int
    nll: float
    rmse: float
    crps: float
    coverage: float

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """Undo `to_json` of `Profile`; a `ValueError` for what it does not write."""
        quality = cls(**saved)
        numbers = (quality.nll, quality.rmse, quality.crps)
        _require(_is_count(quality.rows) and quality.rows > 0, "number of held-out rows")
        _require(all(map(_is_number, numbers)) and quality.rmse >= 0 and quality.crps >= 0, "held-out quality")
        _require(_is_share(quality.coverage), "held-out coverage")
        return quality


@dataclass(frozen=True)
class TargetProfile:
    """One target of the training rows, in its own units.

    Attributes
    ----------
    name : str
        Of the target; "y", where it has no name, or "y0", "y1" and so on.
    quantiles : tuple of float
        At `LEVELS`, as values that occur.
    edges, counts : tuple
        A histogram: edges (b + 1,) of bins, from the smallest to the largest value, and the rows (b,) in each.
    held_out : HeldOut or None
        Quality on held-out rows; None if there were none.
    """

    name: str
    quantiles: tuple[float, ...]
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    held_out: HeldOut | None = None

    @classmethod
    def of(cls, name: str, values: Floats) -> Self:
        """From values (n,)."""
        ends = quantiles(values)
        low, high = ends[1], ends[-2]
        # Differences of huge numbers may overflow, so bins are shares of both ends.
        inner = [low * (1 - i / BINS) + high * (i / BINS) for i in range(BINS + 1)]
        edges = np.unique(np.clip([ends[0], *inner, ends[-1]], ends[0], ends[-1]))
        if len(edges) == 1:
            edges = np.repeat(edges, 2)
        place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
        counts = np.bincount(place, minlength=len(edges) - 1)
        return cls(name, ends, tuple(edges.tolist()), tuple(counts.tolist()))

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Self:
        """Undo `to_json` of `Profile`; a `ValueError` for what it does not write."""
        lists = {name: tuple(saved[name]) for name in ("quantiles", "edges", "counts")}
        quality = None if saved["held_out"] is None else HeldOut.from_json(saved["held_out"])
        target = cls(**{**saved, **lists, "held_out": quality})
        name = target.name
        _require(isinstance(name, str), f"name {name!r}")
        _require(len(target.quantiles) == len(LEVELS) and _ascend(target.quantiles), f"quantiles of target {name!r}")
        bins = len(target.counts)
        _require(bins > 0 and len(target.edges) == bins + 1 and _ascend(target.edges), f"edges of target {name!r}")
        _require(all(map(_is_count, target.counts)), f"counts of target {name!r}")
        return target


@dataclass(frozen=True)
class Profile:
    """What a regressor was fitted to, and how good it was on held-out rows: `profile_`.

    Attributes
    ----------
    rows : int
        Number of rows that trained; held-out ones are not among them, nor those without weight. Each counts once,
        whatever its weight.
    columns : tuple of ColumnProfile
        In the order of the training table.
    targets : tuple of TargetProfile
        One for each target.
    """

    rows: int
    columns: tuple[ColumnProfile, ...]
    targets: tuple[TargetProfile, ...]

    @property
    def target(self) -> TargetProfile:
        """The target; of several the first."""
        return self.targets[0]

    @property
    def held_out(self) -> HeldOut | None:
        """Quality on held-out rows, of several targets that of the first; None if no rows were held out."""
        return self.target.held_out

    def with_quality(self, quality: Sequence[HeldOut]) -> Profile:
        """A copy with the held-out quality of each target; no quality, if there is none."""
        if not quality:
            return self
        judged = zip(self.targets, quality, strict=True)
        return replace(self, targets=tuple(replace(target, held_out=one) for target, one in judged))

    def to_json(self) -> dict[str, Any]:
        """The profile as plain numbers and strings."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Any) -> Self:
        """The profile that `to_json` described; an `InvalidModelError` if it is another."""
        try:
            _require(_is_count(saved["rows"]) and saved["rows"] > 0, f"{saved['rows']!r} rows")
            columns = tuple(ColumnProfile.from_json(part) for part in saved["columns"])
            targets = tuple(TargetProfile.from_json(part) for part in saved["targets"])
            _require(bool(columns and targets) and saved.keys() == {"rows", "columns", "targets"}, "parts")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            from density_regression.io.store import InvalidModelError

            raise InvalidModelError(f"The saved profile is not as this version writes it: {error}.") from error
        return cls(saved["rows"], columns, targets)


def quantiles(values: Floats) -> tuple[float, ...]:
    """Quantiles at `LEVELS` of values (n,), each the smallest that such a share of the rows does not exceed."""
    places = np.clip(np.ceil(np.array(LEVELS) * len(values) - 1e-9).astype(np.intp) - 1, 0, None)
    return tuple(np.partition(values, np.unique(places))[places].tolist())


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"{what} cannot be")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _ascend(values: Sequence[Any]) -> bool:
    return all(map(_is_number, values)) and list(values) == sorted(values)
