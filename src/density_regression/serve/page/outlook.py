"""All that the page shows of one row, from few calls of the scorer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.serve.page.asked import COVERAGES, Asked
from density_regression.serve.page.fields import Field, Value
from density_regression.serve.page.values import inputs

__all__ = ["PARTS", "Outlook", "Point", "Sweep", "known_coverages", "look", "values_along"]

STEPS: Final = 41
"""Values along a column."""

MOST_CATEGORIES: Final = 12
"""Most frequent values of a category that are tried."""

MOST_SWEEPS: Final = 30
"""Most columns along which the prediction is drawn; of a wide table the first."""

PARTS: Final = ("noise", "disagreement", "distance")


class Point(NamedTuple):
    """Prediction for one row: mean and interval (NaN where there is none)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Sweep:
    """Predictions along one column, all others as asked: at values (n,) in order."""

    field: Field
    values: tuple[Value, ...]
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Outlook:
    """What a model says of one row.

    Attributes
    ----------
    point : Point
        Mean and interval.
    std : float
        Standard deviation.
    intervals : dict
        The interval of each coverage for which the model has one.
    log_density, familiarity : float or None
        Of the row, if the model has a density.
    parts : dict
        Noise, disagreement and distance as standard deviations, if the model knows them.
    rises : dict
        By how much the log-density rises if a column has its typical value instead.
    sweeps : tuple of Sweep
        Predictions along the columns.
    """

    point: Point
    std: float
    intervals: dict[float, tuple[float, float]]
    log_density: float | None
    familiarity: float | None
    parts: dict[str, float]
    rises: dict[str, float]
    sweeps: tuple[Sweep, ...]


def look(scorer: Any, fields: Sequence[Field], asked: Asked) -> Outlook:
    """Score the row, the row with each column's typical value, and rows along each column, in one batch."""
    with_density = "log_density" in scorer.outputs
    typical = [part for part in fields if with_density and asked.row[part.name] != part.typical]
    along = [(part, values) for part in fields if len(values := values_along(part, asked.row[part.name])) > 1]
    along = along[:MOST_SWEEPS]
    changes = [(part, part.typical) for part in typical] + [(part, value) for part, values in along for value in values]
    wanted = [name for name in scorer.outputs if name not in ("low", "high")]
    known = known_coverages(scorer)
    if asked.coverage in known:
        wanted += ["low", "high"]
    found = scorer(_rows(fields, asked.row, changes), coverage=asked.coverage, outputs=wanted)
    one = {name: _target(values, asked.target) for name, values in found.items()}
    ends = [one.get(name, one["mean"] * math.nan).tolist() for name in _POINT]
    points = [Point(*row) for row in zip(*ends, strict=True)]
    density: list[float] = one["log_density"].tolist() if with_density else []
    rises = {part.name: density[1 + i] - density[0] for i, part in enumerate(typical)}
    sweeps, start = [], 1 + len(typical)
    for part, values in along:
        sweeps.append(Sweep(part, values, tuple(points[start : start + len(values)])))
        start += len(values)
    return Outlook(
        point=points[0],
        std=float(one["std"][0]),
        intervals={share: _interval(scorer, fields, asked, share) for share in known},
        log_density=density[0] if density else None,
        familiarity=float(one["familiarity"][0]) if "familiarity" in one else None,
        parts={name: float(one[name][0]) for name in PARTS if name in one},
        rises=rises,
        sweeps=tuple(sweeps),
    )


def known_coverages(scorer: Any) -> tuple[float, ...]:
    """Those of `COVERAGES` for which a model has intervals: few conformal rows are not enough for the largest."""
    return tuple(share for share in COVERAGES if "low" in scorer.outputs and _has(scorer, share))


def values_along(part: Field, now: Value) -> tuple[Value, ...]:
    """Values to try: over the span of a line, or the frequent categories, the present one, a new one and a gap."""
    if part.on_a_line:
        return () if part.span is None else tuple(np.linspace(*part.span, STEPS).tolist())
    known: list[Value] = list(part.values[:MOST_CATEGORIES]) if part.kind == "category" else [1.0, 0.0]
    if part.kind == "category":
        known.append(now if part.is_new(now) else new_text(part))
    others = [now, None] if part.takes_gaps else [now]
    return tuple(dict.fromkeys([*known, *others]))


def new_text(part: Field) -> str:
    """A text that no training row had."""
    text = "other"
    while text in part.values:
        text += "?"
    return text


_POINT: Final = ("mean", "low", "high")


def _rows(fields: Sequence[Field], row: Mapping[str, Value], changes: Sequence[tuple[Field, Value]]) -> dict[str, Any]:
    """Columns of the row, and of copies in each of which one value is another."""
    columns: dict[str, list[Value]] = {part.name: [row[part.name]] * (1 + len(changes)) for part in fields}
    for i, (part, value) in enumerate(changes, start=1):
        columns[part.name][i] = value
    return {part.name: inputs(part, columns[part.name]) for part in fields}


def _target(values: NDArray[Any], target: int) -> NDArray[Any]:
    return values if values.ndim == 1 else values[:, target]


def _has(scorer: Any, coverage: float) -> bool:
    try:
        scorer.half_width(coverage)
    except ValueError:
        return False
    return True


def _interval(scorer: Any, fields: Sequence[Field], asked: Asked, coverage: float) -> tuple[float, float]:
    found = scorer(_rows(fields, asked.row, []), coverage=coverage, outputs=["low", "high"])
    low, high = (float(_target(found[name], asked.target)[0]) for name in ("low", "high"))
    return low, high
