"""Values of a column: as a form has them, in words, and as a scorer takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from density_regression.serve.page.fields import Field, Value
from density_regression.serve.page.words import exact, plain, short
from density_regression.tabular.columns.dates import is_date, is_time, iso_texts, parsed

__all__ = ["form_text", "in_words", "inputs", "parse"]


GROUPED: Final = 10_000
"""In columns with so large values thousands are set apart."""


def form_text(field: Field, value: Value) -> str:
    """A value as a form and a link have it; no text at all for a gap."""
    if value is None or isinstance(value, str):
        return value or ""
    if field.kind == "boolean":
        return "true" if value else "false"
    return _moment(field, value) if field.kind in ("date", "time") else plain(value)


def parse(field: Field, text: str) -> Value:
    """The value that a form or a link has; a `ValueError` says what is wrong with it."""
    if field.kind == "category":
        return text or None
    text = text.strip()
    if not text:
        return None
    if field.kind == "boolean":
        if text not in ("true", "false"):
            raise ValueError(f"{text!r:.40} is neither true nor false.")
        return float(text == "true")
    if field.kind == "number":
        return _number(text)
    fits, example = (is_time, "22:20") if field.kind == "time" else (is_date, "2026-11-19")
    if not fits(text):
        raise ValueError(f"{text!r:.40} is no {field.kind}, such as {example}.")
    return float(parsed([text])[0])


def in_words(field: Field, value: Value) -> str:
    """A value for people."""
    if value is None:
        return "missing"
    if isinstance(value, str):
        return f"“{short(value)}”"
    if field.kind == "boolean":
        return "yes" if value else "no"
    if field.kind in ("date", "time"):
        return _moment(field, value).replace("T", " ")
    # Not in columns of years and the like.
    return exact(value, grouped=max(map(abs, (value, *(field.ends or ())))) >= GROUPED)


def inputs(field: Field, values: Sequence[Value]) -> Any:
    """Values (n,) as a scorer takes them."""
    if field.kind == "category":
        return list(values)
    numbers = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    return iso_texts(numbers, field.kind) if field.kind in ("date", "time") else numbers


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r:.40} is not a number.") from None
    if not math.isfinite(value):
        raise ValueError(f"{text!r:.40} is not a finite number.")
    return value


def _moment(field: Field, value: float) -> str:
    """A date or time as ISO text, to the minute."""
    if field.kind == "date" and field.whole:
        return str(iso_texts(np.array([math.floor(value)], dtype=np.float64), "date")[0])[:10]
    text = str(iso_texts(np.array([round(value * 1440) / 1440]), field.kind)[0])
    return text[:16] if field.kind == "date" else text[:5]
