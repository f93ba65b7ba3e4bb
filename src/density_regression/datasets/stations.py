"""Temperature of the next hour at five German weather stations."""

__all__ = ["load_stations"]

from pathlib import Path

import numpy as np

from density_regression.datasets import hourly
from density_regression.datasets.fetch import PathLike, find_file
from density_regression.datasets.shift import Rows, ShiftData

_INLAND = ("Kassel", "Essen", "Ulm")
_SHIFTED = ("Bremerhaven", "Kempten")
_COLUMNS = ("relativeHumidity", "p", "p0", "windSpeed", "windDirection", "cloudiness", "precipitation", "temperature")


def load_stations(data_dir: PathLike | None = None, width: int = 3) -> ShiftData:
    """German stations: predict the temperature of the next hour, inland, on the coast and near the Alps.

    The columns of an hour are relative humidity, pressure at sea level and at the station, wind as x and y
    components, cloudiness, precipitation, temperature, and time of day and of year as sine and cosine. Windows with a
    missing value (pressure or humidity 0, cloudiness -1) or a gap in time are left out.

    Parameters
    ----------
    data_dir : path, optional
        Folder that holds ``weather/german_stations_hourly.csv.gz``; by default that of the environment variable
        ``DENSITY_REGRESSION_DATA``.
    width : int, default=3
        Hours per row: all columns of each, oldest first.

    Returns
    -------
    ShiftData
        Name ``"german_stations"``, X of shape (n, 12 width), y the temperature in degrees Celsius. Kassel, Essen and
        Ulm, one after the other and each in time order, are divided by weeks in a cycle of six (train, train,
        held-out, train, train, test), less 24 hours on each side of a border; the weeks are the same at all three.
        The tests are ``"inland"`` and, shifted, ``"Bremerhaven"`` (coast) and ``"Kempten"`` (Alpine foothills).

    Examples
    --------
    >>> split = load_stations()  # doctest: +SKIP
    """
    series = _read_stations(find_file("weather/german_stations_hourly.csv.gz", data_dir))
    found = {station: hourly.windows(series[station], width) for station in series}
    midnight = min(int(series[station].hours[0]) for station in _INLAND) // 24 * 24
    divided = [hourly.weekly_parts(found[station], width, midnight) for station in _INLAND]
    train, held_out, inland = (_concatenate([part[key] for part in divided]) for key in ("train", "held_out", "test"))
    tests = {"inland": inland} | {station: found[station].rows for station in _SHIFTED}
    return hourly.check_parts(ShiftData("german_stations", train, held_out, tests))


def _read_stations(path: Path) -> dict[str, hourly.Series]:
    (station_at, time_at, *use), lines = hourly.read_lines(path, ("station", "time", *_COLUMNS))
    if (station_at, time_at) != (0, 1):
        raise ValueError(
            f"{path} must begin with the columns station and time, got them at {station_at} and {time_at}."
        )
    series = {}
    for station in (*_INLAND, *_SHIFTED):
        # Lines are NAME,yyyy-mm-dd hh:mm,...
        start = len(station) + 1
        own = [line for line in lines if line.startswith(f"{station},") and line[start + 13 : start + 17] == ":00,"]
        if not own:
            raise ValueError(f"{path} must have rows of {station} at full hours, but has none.")
        hours, table = hourly.parse_rows(path, own, [line[start : start + 13] for line in own], use)
        humidity, pressure, station_pressure, speed, direction, clouds, rain, temperature = table.T
        measured = [humidity, pressure, station_pressure, hourly.wind_xy(speed, direction), clouds, rain]
        columns = np.column_stack([*measured, temperature, hourly.time_features(hours)])
        columns[(humidity == 0) | (pressure == 0) | (station_pressure == 0) | (clouds == -1)] = np.nan
        series[station] = hourly.Series(hours, columns, temperature)
    return series


def _concatenate(parts: list[Rows]) -> Rows:
    return Rows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
