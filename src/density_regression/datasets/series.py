"""Hourly series: windows of consecutive hours, and parts made of whole weeks."""

__all__ = [
    "Series",
    "Windows",
    "clock",
    "hours_of",
    "midnight",
    "numbers",
    "places",
    "read_table",
    "weekly_parts",
    "wind",
    "windows",
]

import gzip
import zlib
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.datasets.shift import Rows, ShiftData

Floats = NDArray[np.float64]
Hours = NDArray[np.int64]

_WEEK = 7 * 24
_GUARD = 24
# Weeks of one cycle by the run of equal weeks they belong to: train, train, held-out, train, train, test.
_RUNS = np.array([0, 0, 1, 2, 2, 3])
_PARTS = {"train": (0, 2), "held_out": (1,), "test": (3,)}


class Series(NamedTuple):
    """Hours since 1970 (n,), columns (n, c) and target (n,), in time order."""

    hours: Hours
    columns: Floats
    target: Floats


class Windows(NamedTuple):
    """Rows of windows, and the hour since 1970 of each target (n,)."""

    rows: Rows
    hours: Hours


def read_table(path: Path) -> tuple[list[str], list[str]]:
    """Names of the columns and lines of a CSV file with a header, plain or gzipped."""
    try:
        raw = path.read_bytes()
        header, *lines = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode().splitlines()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as a table; it may be damaged: {error}.") from error
    return header.split(","), lines


def numbers(path: Path, lines: list[str], columns: list[int]) -> Floats:
    """The given columns of the lines (n, c)."""
    if not lines:
        raise ValueError(f"{path} must have a row for each full hour, but has none.")
    try:
        return np.loadtxt(lines, delimiter=",", usecols=columns, comments=None, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers in every row: {error}") from error


def hours_of(path: Path, stamps: list[str]) -> Hours:
    """Hours since 1970 (n,) of time stamps ``yyyy-mm-ddThh``."""
    try:
        return np.array(stamps, dtype="datetime64[h]").astype(np.int64)
    except ValueError as error:
        raise ValueError(f"{path} must have a time stamp in every row: {error}.") from error


def places(path: Path, header: list[str], names: tuple[str, ...]) -> list[int]:
    """Index of each named column."""
    absent = [name for name in names if name not in header]
    if absent:
        raise ValueError(f"{path} must have the columns {', '.join(names)}; {', '.join(absent)} is not among them.")
    return [header.index(name) for name in names]


def midnight(series: Series) -> int:
    """Hour since 1970 at which the first day of the series begins."""
    return int(series.hours[0]) // 24 * 24


def wind(speed: Floats, degrees: Floats) -> Floats:
    """Wind as x and y components (n, 2), in the unit of the speed."""
    angle = np.deg2rad(degrees)
    return np.column_stack([speed * np.cos(angle), speed * np.sin(angle)])


def clock(hours: Hours) -> Floats:
    """Time of day and of year, each as sine and cosine (n, 4)."""
    angles = [2 * np.pi * hours / period for period in (24.0, 24.0 * 365.2425)]
    return np.column_stack([wave(angle) for angle in angles for wave in (np.sin, np.cos)])


def windows(series: Series, width: int) -> Windows:
    """The `width` hours before each hour, oldest first and flattened, against the target of that hour.

    Only hours that follow each other without a gap or a repetition make a window, and only where every column is
    finite: a row to be left out is one that holds NaN.
    """
    if not isinstance(width, Integral) or width < 1:
        raise ValueError(f"width must be an integer of at least 1, got {width!r}.")
    hours, columns, target = series
    count = max(len(hours) - int(width), 0)
    at = np.arange(count)[:, np.newaxis] + np.arange(int(width) + 1)
    usable = np.isfinite(columns).all(axis=1)
    whole = (np.diff(hours[at], axis=1) == 1).all(axis=1) & usable[at].all(axis=1)
    at, last = at[whole, :-1], at[whole, -1]
    return Windows(Rows(columns[at].reshape(len(at), at.shape[1] * columns.shape[1]), target[last]), hours[last])


def weekly_parts(found: Windows, width: int, origin: int) -> dict[str, Rows]:
    """Divide windows into ``train``, ``held_out`` and ``test`` by weeks, with a guard band between parts.

    Weeks are counted from the hour `origin`, in a cycle of six: train, train, held-out, train, train, test. A window
    with any hour, inputs or target, among the 24 hours before or after a border between parts is dropped.
    """
    last = found.hours - origin
    # Nothing lies before the origin, so there is no border to keep away from.
    first_run = _run(np.maximum(last - width - _GUARD, 0))
    clear = first_run == _run(last + _GUARD)
    parts = {}
    for name, runs in _PARTS.items():
        chosen = clear & np.isin(first_run % 4, runs)
        parts[name] = Rows(found.rows.X[chosen], found.rows.y[chosen])
    return parts


def checked(data: ShiftData) -> ShiftData:
    """The same, if every part has rows."""
    parts = {"train": data.train, "held_out": data.held_out} | data.tests
    empty = [name for name, rows in parts.items() if rows is not None and len(rows.y) == 0]
    if empty:
        raise ValueError(f"{data.name} is too short: no window is left for {', '.join(empty)}. Take a longer series.")
    return data


def _run(hours: Hours) -> Hours:
    weeks = hours // _WEEK
    return _RUNS[weeks % 6] + 4 * (weeks // 6)
