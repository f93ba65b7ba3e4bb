"""Numbers as people read them."""

from __future__ import annotations

import math

__all__ = ["count", "number", "percent"]


def number(value: float, digits: int = 6) -> str:
    """A number of so many significant digits at most; from 10,000 on with separators (less may be a year)."""
    size = abs(value)
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if value != 0 and not 1e-4 <= size < 1e15:
        return f"{value:.{digits}g}"
    rounded = float(f"{value:.{digits}g}")
    if rounded.is_integer():
        return f"{rounded:,.0f}" if size >= 9999.5 else f"{rounded:.0f}"
    return f"{rounded:,.{digits}g}" if size >= 9999.5 else f"{rounded:.{digits}g}"


def percent(share: float) -> str:
    """A share as a percentage: one decimal where it is below 10 %, or above 90 %."""
    if math.isnan(share):
        return "–"
    value = round(100 * share, 9)
    if 0 < value < 0.05:
        return "under 0.1 %"
    plain = value == round(value) or 10 <= value <= 90
    return f"{value:.0f} %" if plain else f"{value:.1f} %"


def count(rows: int, what: str = "row") -> str:
    """A number of things."""
    return f"{rows:,} {what}{'' if rows == 1 else 's'}"
