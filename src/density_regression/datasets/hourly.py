"""Hourly time series: windows of consecutive hours, and train/test parts made of whole weeks."""

__all__ = [
    "Series",
    "Windows",
    "check_parts",
    "parse_rows",
    "read_lines",
    "time_features",
    "weekly_parts",
    "wind_xy",
    "windows",
]

import gzip
import zlib
from numbers import Integral
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.datasets.shift import Rows, ShiftData

Floats = NDArray[np.float64]
Hours = NDArray[np.int64]

_HOURS_PER_WEEK: Final = 7 * 24
_GUARD_HOURS: Final = 24
# Run of equal weeks that each of the six weeks of a cycle belongs to: train, train, held-out, train, train, test.
_RUNS = np.array([0, 0, 1, 2, 2, 3])
_RUNS_OF_PART: Final = {"train": (0, 2), "held_out": (1,), "test": (3,)}


class Series(NamedTuple):
    """Hours since 1970 (n,), columns (n, c) and target (n,), in time order."""

    hours: Hours
    columns: Floats
    target: Floats


class Windows(NamedTuple):
    """Rows of windows, and the hour since 1970 of each target (n,)."""

    rows: Rows
    hours: Hours


def read_lines(path: Path, names: tuple[str, ...]) -> tuple[list[int], list[str]]:
    """Indices of the named columns, and lines, of a CSV file with a header, plain or gzipped."""
    try:
        raw = path.read_bytes()
        header, *lines = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode().splitlines()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as a table; it may be damaged: {error}.") from error
    columns = header.split(",")
    if absent := [name for name in names if name not in columns]:
        raise ValueError(f"{path} must have the columns {', '.join(names)}; {', '.join(absent)} is not among them.")
    return [columns.index(name) for name in names], lines


def parse_rows(path: Path, lines: list[str], stamps: list[str], columns: list[int]) -> tuple[Hours, Floats]:
    """Hours since 1970 (n,) of time stamps ``yyyy-mm-ddThh`` and columns (n, c) of the lines, in time order."""
    if not lines:
        raise ValueError(f"{path} must have a row for each full hour, but has none.")
    try:
        table = np.loadtxt(lines, delimiter=",", usecols=columns, comments=None, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers in every row: {error}") from error
    try:
        hours = np.array(stamps, dtype="datetime64[h]").astype(np.int64)
    except ValueError as error:
        raise ValueError(f"{path} must have a time stamp in every row: {error}.") from error
    order = np.argsort(hours, kind="stable")
    return hours[order], table[order]


def wind_xy(speed: Floats, degrees: Floats) -> Floats:
    """Wind as x and y components (n, 2), in the unit of the speed."""
    angle = np.deg2rad(degrees)
    return np.column_stack([speed * np.cos(angle), speed * np.sin(angle)])


def time_features(hours: Hours) -> Floats:
    """Time of day and of year, each as sine and cosine (n, 4)."""
    angles = [2 * np.pi * hours / period for period in (24.0, 24.0 * 365.2425)]
    return np.column_stack([wave(angle) for angle in angles for wave in (np.sin, np.cos)])


def windows(series: Series, width: int) -> Windows:
    """The `width` hours before each hour, oldest first and flattened, and the target of that hour.

    Windows with a gap, a repeated hour or a value that is not finite are left out.
    """
    if not isinstance(width, Integral) or width < 1:
        raise ValueError(f"width must be an integer of at least 1, got {width!r}.")
    hours, columns, target = series
    count = max(len(hours) - int(width), 0)
    at = np.arange(count)[:, np.newaxis] + np.arange(int(width) + 1)
    finite = np.isfinite(columns).all(axis=1)
    whole = (np.diff(hours[at], axis=1) == 1).all(axis=1) & finite[at].all(axis=1)
    at, last = at[whole, :-1], at[whole, -1]
    return Windows(Rows(columns[at].reshape(len(at), at.shape[1] * columns.shape[1]), target[last]), hours[last])


def weekly_parts(found: Windows, width: int, origin: int) -> dict[str, Rows]:
    """Divide windows into ``train``, ``held_out`` and ``test`` by weeks that are counted from the hour `origin`.

    The cycle is train, train, held-out, train, train, test. Windows with any hour, inputs or target, less than 24
    hours from a border between parts are left out.
    """
    last = found.hours - origin
    # There is no border before the origin.
    first_run = _run(np.maximum(last - width - _GUARD_HOURS, 0))
    clear = first_run == _run(last + _GUARD_HOURS)
    chosen = {name: clear & np.isin(first_run % 4, runs) for name, runs in _RUNS_OF_PART.items()}
    return {name: Rows(found.rows.X[rows], found.rows.y[rows]) for name, rows in chosen.items()}


def _run(hours: Hours) -> Hours:
    weeks = hours // _HOURS_PER_WEEK
    return _RUNS[weeks % 6] + 4 * (weeks // 6)


def check_parts(data: ShiftData) -> ShiftData:
    """Return the data if every part has rows."""
    parts = {"train": data.train, "held_out": data.held_out} | data.tests
    if empty := [name for name, rows in parts.items() if rows is not None and len(rows.y) == 0]:
        raise ValueError(f"{data.name} is too short: no window is left for {', '.join(empty)}. Take a longer series.")
    return data
