"""Verdict of a comparison in words: which methods are not told apart, which are worse, and which to take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from density_regression.experiments.compare.summary import Difference, Summary
from density_regression.experiments.evaluation.words import number, percent
from density_regression.experiments.report.head_to_head import MARGIN

__all__ = ["verdict"]

OFF: Final = 0.05
"""Distance of a coverage from 90 % from which on a warning is given."""

MOST_NAMED: Final = 4
"""Most methods that are named one by one for their intervals."""

QUICKER: Final = 3.0
"""Ratio of seconds from which on a method is called quicker or slower."""

COSTS: Final = ("fit", "predict")


def verdict(of: Summary) -> list[str]:
    """Sentences, a line each."""
    return [*_ranking(of), *_intervals(of), _choice(of)]


def _ranking(of: Summary) -> Iterator[str]:
    nll = of.means["nll_own"]
    if not of.others:
        yield f"{of.best} is the only method: NLL {number(nll[of.best], 3)}."
        return
    if of.splits < 2:
        second = of.others[0]
        yield (
            f"{of.best} has the lowest NLL ({number(nll[of.best], 3)}), {second.method} the second lowest "
            f"({number(nll[second.method], 3)}); one fold says little: ask for more."
        )
        return
    alike = [one for one in of.others if not one.is_worse and one.mean <= MARGIN]
    unclear = [one for one in of.others if not one.is_worse and one.mean > MARGIN]
    worse = [one for one in of.others if one.is_worse]
    yield f"{of.best} has the lowest NLL, {number(nll[of.best], 3)} nats a row."
    if alike:
        yield f"About the same: {_above(alike)}."
    if unclear:
        yield f"Higher, but {of.splits} folds do not tell it from chance: {_above(unclear)}."
    if worse:
        parts = [f"{one.method} by {number(one.mean, 3)} ({_p_value(one.p_value)})" for one in worse]
        yield f"Worse: {', '.join(parts)}."


def _above(differences: list[Difference]) -> str:
    return ", ".join(f"{one.method} (+{one.mean:.2f})" for one in differences)


def _p_value(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def _intervals(of: Summary) -> Iterator[str]:
    coverage = of.means["coverage_90"]
    usable = [of.best, *(one.method for one in of.others if not one.is_worse)]
    narrow = {name: coverage[name] for name in usable if coverage[name] < 0.9 - OFF}
    wide = {name: coverage[name] for name in usable if coverage[name] > 0.9 + OFF}
    for found, what in ((narrow, "too narrow"), (wide, "too wide")):
        if found:
            whose = ", ".join(f"{name} {percent(share)}" for name, share in found.items())
            if len(found) > MOST_NAMED:
                low, high = min(found.values()), max(found.values())
                whose = f"{len(found)} of {len(usable)} methods, {percent(low)} to {percent(high)}"
            yield f"90 % intervals are {what}: {whose}. `conformalize` mends that for rows like those it is given."


def _choice(of: Summary) -> str:
    """The best method, and one that is about as good and quicker, in one way at least and in no way much slower."""
    text = f"Take {of.best} ({_costs(of, of.best)})"
    for one in of.others if of.splits > 1 else ():
        ways = [way for way in COSTS if of.means[way][one.method] * QUICKER < of.means[way][of.best]]
        slow = any(of.means[way][one.method] > QUICKER * of.means[way][of.best] for way in COSTS)
        if ways and not (slow or one.is_worse or one.mean > MARGIN):
            quick = " and ".join(f"to {way}" for way in ways)
            return f"{text}, or {one.method}, which is quicker {quick} ({_costs(of, one.method)})."
    return f"{text}."


def _costs(of: Summary, name: str) -> str:
    return f"{number(of.means['fit'][name], 2)} s to fit, {number(of.means['predict'][name], 2)} ms for 1,000 rows"
