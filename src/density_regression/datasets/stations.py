"""Temperature of the next hour at five German stations: inland, on the coast and near the Alps."""

__all__ = ["load_stations"]

import os
from pathlib import Path

import numpy as np

from density_regression.datasets.fetch import find_file
from density_regression.datasets.series import (
    Floats,
    Hours,
    Series,
    checked,
    clock,
    hours_of,
    midnight,
    numbers,
    places,
    read_table,
    weekly_parts,
    wind,
    windows,
)
from density_regression.datasets.shift import Rows, ShiftData

_FILE = "weather/german_stations_hourly.csv.gz"
_INLAND = ("Kassel", "Essen", "Ulm")
_ELSEWHERE = ("Bremerhaven", "Kempten")
_COLUMNS = (
    "relativeHumidity",
    "p",
    "p0",
    "windSpeed",
    "windDirection",
    "cloudiness",
    "precipitation",
    "temperature",
)


def load_stations(data_dir: str | os.PathLike[str] | None = None, width: int = 3) -> ShiftData:
    """German stations: predict the temperature of the next hour, inland, on the coast and near the Alps.

    Parameters
    ----------
    data_dir : path, optional
        Folder that holds ``weather/german_stations_hourly.csv.gz``. If omitted, the environment variable
        ``DENSITY_REGRESSION_DATA`` names it.
    width : int, default=3
        Hours that a row shows: all columns of each, oldest first.

    Returns
    -------
    ShiftData
        Name ``"german_stations"``, X of shape (n, 12 width), y the temperature in degrees Celsius. Kassel, Essen and
        Ulm, one after the other and each in time order, are divided by weeks in a cycle of six (train, train,
        held-out, train, train, test), less 24 hours on each side of a border; a week is in the same part at all
        three. The tests are ``"inland"`` and, shifted, ``"Bremerhaven"`` (coast) and ``"Kempten"`` (Alpine foothills).

    Notes
    -----
    The columns of an hour are relative humidity, pressure at sea level and at the station, wind as x and y
    components, cloudiness, precipitation, temperature, and time of day and of year as sine and cosine. An hour with
    a missing value (pressure or humidity 0, cloudiness -1) is in no window, and no window spans a gap in time.
    """
    series = _stations(find_file(_FILE, data_dir))
    origin = min(midnight(series[station]) for station in _INLAND)
    divided = [weekly_parts(windows(series[station], width), width, origin) for station in _INLAND]
    train, held_out, inland = (_joined([parts[part] for parts in divided]) for part in ("train", "held_out", "test"))
    tests = {"inland": inland} | {station: windows(series[station], width).rows for station in _ELSEWHERE}
    return checked(ShiftData("german_stations", train, held_out, tests))


def _stations(path: Path) -> dict[str, Series]:
    header, lines = read_table(path)
    first, second, *use = places(path, header, ("station", "time", *_COLUMNS))
    if (first, second) != (0, 1):
        raise ValueError(f"{path} must begin with the columns station and time, got {header[0]} and {header[1]}.")
    series = {}
    for station in (*_INLAND, *_ELSEWHERE):
        # NAME,yyyy-mm-dd hh:mm,
        start = len(station) + 1
        own = [line for line in lines if line.startswith(f"{station},") and line[start + 13 : start + 17] == ":00,"]
        if not own:
            raise ValueError(f"{path} must have rows of {station} at full hours, but has none.")
        hours = hours_of(path, [line[start : start + 13] for line in own])
        series[station] = _series(hours, numbers(path, own, use))
    return series


def _series(hours: Hours, table: Floats) -> Series:
    order = np.argsort(hours, kind="stable")
    hours, table = hours[order], table[order]
    humidity, pressure, station_pressure, speed, direction, clouds, rain, temperature = table.T
    missing = (humidity == 0) | (pressure == 0) | (station_pressure == 0) | (clouds == -1)
    measured = [humidity, pressure, station_pressure, wind(speed, direction), clouds, rain, temperature]
    columns = np.column_stack([*measured, clock(hours)])
    columns[missing] = np.nan
    return Series(hours, columns, temperature)


def _joined(parts: list[Rows]) -> Rows:
    return Rows(np.concatenate([rows.X for rows in parts]), np.concatenate([rows.y for rows in parts]))
