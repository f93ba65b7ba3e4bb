"""Dates and times as days since 1970 began, from numpy's type and from ISO text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from density_regression.tabular.arrays import Floats

__all__ = ["DATE", "PERIODS", "TIME", "days_of", "is_date", "is_time", "iso_texts", "looks_like_date", "parsed"]

PERIODS: Final = {"day": 1.0, "week": 7.0, "year": 365.2425}
"""Length of each cycle, in days; the year is the mean one of the calendar."""

_CLOCK: Final = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?"
TIME: Final = _CLOCK
"""Times of day, such as 22:20 or 22:20:15.5."""

DATE: Final = (
    rf"[0-9]{{4}}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]{_CLOCK}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?)?"
)
"""Dates in ISO form, such as 2026-11-19, 2026-11-19 22:20 or 2026-11-19T22:20:15+01:00."""

_IS_DATE, _IS_TIME = re.compile(DATE), re.compile(TIME)
_IS_PLAIN_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?)?")
_LIKE_DATE: Final = re.compile(
    r"([0-9]{1,2}[./-][0-9]{1,2}[./-]([0-9]{4}|[0-9]{2})|[0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2})\b"
)
_SHIFT: Final = re.compile(r"([+-])([0-9]{2}):([0-9]{2})$")
_MICROSECONDS: Final = 86_400_000_000


def is_date(text: str) -> bool:
    """Whether a text is a date of the calendar in ISO form, with or without a time."""
    return _IS_DATE.fullmatch(text) is not None and not np.isnan(_date(text))


def looks_like_date(text: str) -> bool:
    """Whether a text has day, month and year, in any order, but is not in ISO form: 24/03/2019 or 5.11.26, say."""
    return _LIKE_DATE.match(text) is not None and not is_date(text)


def is_time(text: str) -> bool:
    """Whether a text is a time of day."""
    return _IS_TIME.fullmatch(text) is not None


def parsed(texts: Iterable[str | None], kind: str | None = None) -> Floats:
    """Days since 1970 began, or share of the day where there is a time alone; NaN for gaps and all other text.

    With the kind "date" or "time", text of the other kind is other text.
    """
    texts = list(texts)
    known = _parsed_each(list(set(texts)), kind)
    return np.array([known[text] for text in texts], dtype=np.float64)


def days_of(moments: NDArray[Any]) -> Floats:
    """Days since 1970 began of moments (n,) of numpy's type datetime64, NaN for missing ones."""
    counts = moments.astype("datetime64[us]")
    return np.where(np.isnat(counts), np.nan, counts.astype(np.int64) / _MICROSECONDS)


def iso_texts(days: Floats, kind: str) -> list[str | None]:
    """Dates (n,), or with the kind "time" times of day, as ISO text to the microsecond; None for NaN."""
    counts = np.round(np.nan_to_num(days) * _MICROSECONDS).astype(np.int64).astype("datetime64[us]")
    texts = [text if kind == "date" else text.partition("T")[2] for text in counts.astype(str).tolist()]
    return [None if gap else text for text, gap in zip(texts, np.isnan(days), strict=True)]


def _parsed_each(texts: list[str | None], kind: str | None) -> dict[str | None, float]:
    """Days of different texts."""
    plain = [text for text in texts if text is not None and kind != "time" and _IS_PLAIN_DATE.fullmatch(text)]
    try:
        # All at once, which is far quicker; not if one of them is a day that there is not.
        known = dict(zip(plain, days_of(np.array(plain, dtype="datetime64[us]")).tolist(), strict=True))
    except ValueError:
        known = {}
    return {text: known[text] if text in known else _days(text, kind) for text in texts}


def _days(text: str | None, kind: str | None) -> float:
    if text is None or (kind is not None and (kind == "time") != is_time(text)):
        return np.nan
    if _IS_TIME.fullmatch(text):
        hours, minutes, *seconds = text.split(":")
        return (int(hours) * 3600 + int(minutes) * 60 + float(seconds[0] if seconds else 0)) / 86400
    return _date(text) if _IS_DATE.fullmatch(text) else np.nan


def _date(text: str) -> float:
    shift = _SHIFT.search(text) if len(text) > len("2026-11-19") else None
    offset = 0.0
    if shift is not None:
        sign, hours, minutes = shift.groups()
        offset = float(f"{sign}1") * (int(hours) * 60 + int(minutes)) / 1440
        text = text[: shift.start()]
    try:
        return float(days_of(np.array([np.datetime64(text.removesuffix("Z"))]))[0]) - offset
    except ValueError:
        # No such day, as the 30th of February.
        return float("nan")
