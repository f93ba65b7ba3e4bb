"""Numbers, shares and values of columns in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

__all__ = ["exact", "listed", "number", "of_hundred", "plain", "resolution", "short"]


MOST_DIGITS: Final = 7
"""Numbers with more digits are rounded, unless they are whole."""

FINEST: Final = 1e-12
"""No digits are shown below this share of a number."""

LEAST_PLAIN, MOST_PLAIN = 1e-6, 1e12
"""Below and above numbers are written with a power of ten."""


def number(value: float, step: float | None = None) -> str:
    """A number for people: rounded to a step, or to four digits; thousands are set apart."""
    if not math.isfinite(value):
        return "not a finite number"
    size = abs(value)
    if size >= MOST_PLAIN or 0 < size < LEAST_PLAIN:
        return f"{value:.3g}"
    if step is None:
        return _without_zeros(number(value, 10.0 ** (math.floor(math.log10(size)) - 3) if size else 1.0))
    step = max(step, FINEST * size)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    text = f"{round(value / step) * step:,.{decimals}f}"
    return text if any(digit in text for digit in "123456789") else text.removeprefix("-")


def exact(value: float, grouped: bool = True) -> str:
    """A number that somebody has given: whole if it has few digits, else four of them.

    Thousands are set apart or, as in years, not.
    """
    few = sum(letter.isdigit() for letter in f"{value:.10g}".lstrip("-0.")) <= MOST_DIGITS
    whole = value == math.floor(value) and abs(value) < MOST_PLAIN
    if not (few or whole):
        return number(value)
    digits = 15 if whole else 10
    return f"{value + 0.0:,.{digits}g}" if grouped else f"{value + 0.0:.{digits}g}"


def resolution(std: float) -> float | None:
    """The step to which numbers with such a standard deviation are rounded: three of its digits."""
    if not (math.isfinite(std) and std > 0):
        return None
    return float(10.0 ** (math.floor(math.log10(std)) - 2))


def plain(value: float) -> str:
    """A number as a form has it: all its digits, nothing set apart."""
    return str(int(value)) if value == math.floor(value) and abs(value) < 1e15 else repr(value)


def of_hundred(share: float) -> str:
    """A share as so many of a hundred; a small one as so many of a thousand."""
    if share <= 0:
        return "none"
    for whole in (100, 1000, 10_000):
        if share * whole >= 0.95:
            return f"{round(share * whole)} of {whole:,}"
    return "fewer than 1 of 10,000"


def short(text: str, most: int = 40) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def listed(words: Sequence[str]) -> str:
    """Words one after the other, with an "and" before the last."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
