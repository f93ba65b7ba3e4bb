"""Facts about models in words."""

from __future__ import annotations

from collections import Counter
from typing import Any

__all__ = ["counted", "gaps", "intervals", "kinds", "law", "number", "percent", "quality", "seconds", "values"]

PLURALS = {"category": "categories"}
LAWS = {"identity": "Normal", "log": "log-normal"}
SHOWN = 5
"""Most categories that are listed."""


def number(value: float) -> str:
    """A number in four digits, large ones in full."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def percent(share: float) -> str:
    """A share in per cent; one that is not 0 is never shown as 0."""
    shown = f"{100 * share:.0f}"
    return f"{100 * share:.1g} %" if shown == "0" and share else f"{shown} %"


def seconds(duration: float) -> str:
    """A duration."""
    return f"{duration:.1f} s" if duration < 100 else f"{duration:,.0f} s"


def gaps(column: dict[str, Any]) -> str:
    """The share of gaps in a column; empty where nobody knows."""
    share = column.get("gaps")
    return "" if share is None else percent(share) if share else "none"


def counted(count: int, what: str) -> str:
    """As many of something."""
    return f"{count:,} {what if count == 1 else PLURALS.get(what, what + 's')}"


def kinds(columns: list[dict[str, Any]]) -> str:
    """How many columns there are of each kind that the model uses."""
    counts = Counter(column["kind"] for column in columns if column["kind"] != "left out")
    return ", ".join(counted(count, kind) for kind, count in counts.items())


def law(facts: dict[str, Any]) -> str:
    """The law of the target."""
    return LAWS[facts["law"]]


def values(column: dict[str, Any]) -> str:
    """The values of a column in training: a range, or the frequent categories."""
    if column["kind"] == "left out":
        return f"not used: {column['why']}"
    if column["kind"] in ("category", "boolean") and column.get("values"):
        shares = column.get("shares") or [None] * len(column["values"])
        pairs = sorted(zip(column["values"], shares, strict=True), key=lambda pair: -(pair[1] or 0.0))
        shown = [value if share is None else f"{value} {percent(share)}" for value, share in pairs[:SHOWN]]
        more = len(pairs) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")
    ends = column.get("quantiles")
    if not ends:
        return "only gaps" if column.get("gaps") == 1 else "not known"
    low, middle, high = (end if isinstance(end, str) else number(end) for end in (ends[0], ends[4], ends[-1]))
    return f"always {low}" if low == high else f"{low} to {high}, median {middle}"


def quality(held_out: dict[str, Any]) -> str:
    """How good a model was on held-out rows."""
    return f"RMSE {number(held_out['rmse'])}; 90 % intervals hold {percent(held_out['coverage'])}"


def intervals(conformal: dict[str, Any]) -> str:
    """What conformal intervals promise."""
    rows, most = f"{conformal['rows']:,} rows kept aside", conformal["most_coverage"]
    effective = conformal["effective_rows"]
    worth = "" if effective is None else f" (as good as {effective:.0f} where inputs have shifted)"
    # Rounded down, as no more can be promised.
    return f"Intervals hold what they promise by {rows}{worth}: for coverages up to {int(most * 1000) / 1000:g}."
