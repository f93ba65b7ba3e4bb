"""Traits that set strange rows apart, in words: values out of range, gaps, categories, shifted means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from density_regression.experiments.evaluation.columns import CUTS, KnownColumn
from density_regression.experiments.evaluation.strange import (
    OTHERS,
    STRANGE,
    CategoryTally,
    NumberTally,
    StrangeRows,
    Tally,
)
from density_regression.experiments.evaluation.words import number, percent
from density_regression.tabular.columns.dates import iso_texts

__all__ = ["Trait", "as_text", "traits"]

FEWEST_OTHERS: Final = 30
"""With fewer other rows, strange ones are compared with the training rows instead."""

SMALLEST_DIFFERENCE: Final = 0.1
"""Least difference of shares that makes a trait."""

CHANCE: Final = 4.0
"""Least difference of shares in standard errors: columns are many, and one of them differs by chance."""

NEARLY: Final = 0.8
"""A plainer trait of a column goes before one that sets rows apart better, if its difference is nearly as large."""

EXAMPLES: Final = 3


class Trait(NamedTuple):
    """What many strange rows have, and few others.

    Attributes
    ----------
    column : str
        Its name.
    words : str
        What rows have: "`km` above 250,000, the training maximum".
    strange, others : float
        Shares of the strange rows and of the others that have it. NaN for a shifted mean.
    against : str
        Who the others are: "others", or "training rows" if nearly all rows are strange.
    difference : float
        By which traits are ranked: that of the shares; for a shifted mean that of two Normals (total variation).
    """

    column: str
    words: str
    strange: float
    others: float
    against: str
    difference: float

    def sentence(self) -> str:
        """The trait in a sentence."""
        if math.isnan(self.strange):
            return f"{self.words}."
        more = f"of the {self.against} {percent(self.others)}"
        return f"{percent(self.strange)} of the strange rows have {self.words}; {more}."


def traits(found: StrangeRows, most: int = 5) -> list[Trait]:
    """The traits by which strange rows differ most, one for each column at most."""
    if not found.rows[STRANGE]:
        return []
    use_training = bool(found.rows[OTHERS] < FEWEST_OTHERS)
    best = [trait for tally in found.tallies if (trait := _plainest(tally, use_training)) is not None]
    return sorted(best, key=lambda trait: -trait.difference)[:most]


def _plainest(tally: Tally, use_training: bool) -> Trait | None:
    """The trait of a column that sets strange rows apart, or a plainer one that does so nearly as well."""
    against = "training rows" if use_training else "others"
    candidates = []
    for words, counts, training in _properties(tally):
        strange = tally.share(counts, STRANGE)
        others = training if use_training else tally.share(counts, OTHERS)
        if not math.isnan(others) and _is_certain(strange, others, tally.rows, use_training):
            candidates.append(Trait(tally.column.name, words, strange, others, against, strange - others))
    if not candidates:
        # Where training quantiles are not known.
        return _shifted_mean(tally) if isinstance(tally, NumberTally) else None
    enough = NEARLY * max(trait.difference for trait in candidates)
    return next(trait for trait in candidates if trait.difference >= enough)


def _properties(tally: Tally) -> Iterator[tuple[str, NDArray[np.int64], float]]:
    """What rows may have in words, the counts (2,) of those that have it, and its share in training: plainest first."""
    column = tally.column
    name = f"`{column.name}`"
    never = " (training rows all had one)" if column.gaps == 0 else ""
    yield f"no {name}{never}", tally.gaps, column.gaps
    if isinstance(tally, CategoryTally):
        examples = [value for value, _ in tally.new[STRANGE].most_common(EXAMPLES)]
        new = tally.never - tally.gaps * (column.gaps == 0)
        yield f"a {name} that training never had, such as {', '.join(examples)}", new, 0.0
        for value, _ in tally.known[STRANGE].most_common(EXAMPLES):
            yield f"{name} = “{value}”", np.array([counts[value] for counts in tally.known]), column.values[value]
    if isinstance(tally, NumberTally) and column.kind == "boolean":
        yield f"{name} = True", tally.true, math.nan
        yield f"{name} = False", tally.rows - tally.gaps - tally.true, math.nan
    elif isinstance(tally, NumberTally) and column.cuts is not None:
        # Ends first, then the inner quantiles.
        for i in (0, 7, 1, 6, 2, 5, 3, 4):
            share = min(CUTS[i], 1.0 - CUTS[i])
            yield f"{name} {_beyond(column, i)}", tally.beyond[:, i], share


def _beyond(column: KnownColumn, i: int) -> str:
    """Place beyond a training quantile, in words."""
    assert column.cuts is not None
    low = CUTS[i] < 0.5
    dated = column.kind in ("date", "time")
    side = ("before" if low else "after") if dated else ("below" if low else "above")
    end = ("the earliest" if low else "the latest") if dated else ("the smallest" if low else "the largest")
    where = f"{end} of training" if CUTS[i] in (0.0, 1.0) else f"the {100 * CUTS[i]:g} % quantile of training"
    return f"{side} {as_text(float(column.cuts[i]), column)} ({where})"


def _shifted_mean(tally: NumberTally) -> Trait | None:
    shift = tally.shift
    if math.isnan(shift) or tally.column.kind == "boolean":
        return None
    # By how much two Normals with this distance differ.
    difference = float(2.0 * ndtr(abs(shift) / 2.0) - 1.0)
    error = math.sqrt(1.0 / tally.rows[STRANGE] + 1.0 / tally.rows[OTHERS])
    if difference < SMALLEST_DIFFERENCE or abs(shift) < CHANCE * error or tally.rows[OTHERS] < FEWEST_OTHERS:
        return None
    name, (others, strange) = tally.column.name, (as_text(float(mean), tally.column, about=True) for mean in tally.mean)
    words = (
        f"The mean of `{name}` is {strange} in the strange rows and {others} in the others, "
        f"{abs(shift):.1f} standard deviations {'higher' if shift > 0 else 'lower'}"
    )
    return Trait(name, words, math.nan, math.nan, "others", difference)


def _is_certain(strange: float, others: float, rows: NDArray[np.int64], use_training: bool) -> bool:
    """Whether the share of the strange rows is larger by more than chance has it."""
    share = (strange + others) / 2
    weight = 1.0 / rows[STRANGE] + (0.0 if use_training else 1.0 / rows[OTHERS])
    error = math.sqrt(share * (1.0 - share) * weight)
    return strange - others >= max(SMALLEST_DIFFERENCE, CHANCE * error)


def as_text(value: float, column: KnownColumn, *, about: bool = False) -> str:
    """A value of a column: a number, or a date; a mean is said with few digits, `about` what it is."""
    if column.kind in ("date", "time"):
        text = str(iso_texts(np.array([value]), column.kind)[0])
        if about:
            return text[:10] if column.kind == "date" else text[:5]
        return text.removesuffix(".000000").removesuffix("T00:00:00").removesuffix(":00")
    return number(value, 3 if about else 6)
