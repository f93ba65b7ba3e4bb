"""Temperature of the next hour in Jena, in other years than those of training."""

__all__ = ["load_weather"]

import os
from itertools import pairwise
from pathlib import Path

import numpy as np

from density_regression.datasets.fetch import find_file, local_file
from density_regression.datasets.series import (
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

_FULL = "jena_climate_2009_2016"
_STAND_IN = "jena_climate_2020"
_SHIFTED = "jena_climate_2022_ood"
_AIR = (
    "p (mbar)",
    "T (degC)",
    "Tpot (K)",
    "Tdew (degC)",
    "rh (%)",
    "VPmax (mbar)",
    "VPact (mbar)",
    "VPdef (mbar)",
    "sh (g/kg)",
    "H2OC (mmol/mol)",
    "rho (g/m**3)",
)
_JENA_WIND = ("wv (m/s)", "wd (deg)")


def load_weather(data_dir: str | os.PathLike[str] | None = None, width: int = 3) -> ShiftData:
    """Jena: predict the temperature of the next hour, in other years than those of training.

    Parameters
    ----------
    data_dir : path, optional
        Folder that holds ``weather/``. If omitted, the environment variable ``DENSITY_REGRESSION_DATA`` names it.
    width : int, default=3
        Hours that a row shows: all columns of each, oldest first.

    Returns
    -------
    ShiftData
        Rows in time order, X of shape (n, 17 width), y the temperature in degrees Celsius. If the folder has
        ``jena_climate_2009_2016.csv`` or ``.csv.gz``, that is the name, and its hours are divided 70/20/10 in time
        order. Otherwise the stand-in ``jena_climate_2020`` is read, under that name; being one year, it is divided
        by weeks in a cycle of six (train, train, held-out, train, train, test), less 24 hours on each side of a
        border. The shifted test set is ``jena_climate_2022_ood``.

    Notes
    -----
    The tables have a row every ten minutes, of which the full hours are kept. The columns of an hour are eleven of
    the air, wind as x and y components (a missing speed, -9999, counts as calm), and time of day and of year as sine
    and cosine. The strongest gust is left out, since the shifted table lacks it. No window spans a gap in time or
    a repeated hour.
    """
    path = _training_file(data_dir)
    series = _jena(path)
    if path.name.startswith(_FULL):
        name, parts = _FULL, _chronological(series, width)
    else:
        name, parts = _STAND_IN, weekly_parts(windows(series, width), width, midnight(series))
    shifted = windows(_jena(find_file(f"weather/{_SHIFTED}.csv.gz", data_dir)), width).rows
    return checked(ShiftData(name, parts["train"], parts["held_out"], {name: parts["test"], _SHIFTED: shifted}))


def _training_file(data_dir: str | os.PathLike[str] | None) -> Path:
    for suffix in ("", ".gz"):
        path = local_file(f"weather/{_FULL}.csv{suffix}", data_dir)
        if path is not None:
            return path
    try:
        return find_file(f"weather/{_STAND_IN}.csv.gz", data_dir)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} Or better, one that holds weather/{_FULL}.csv.") from error


def _jena(path: Path) -> Series:
    header, lines = read_table(path)
    use = places(path, header, (*_AIR, *_JENA_WIND))
    # dd.mm.yyyy hh:mm:ss
    lines = [line for line in lines if line[13:19] == ":00:00"]
    table = numbers(path, lines, use)
    stamps = [f"{line[6:10]}-{line[3:5]}-{line[:2]}T{line[11:13]}" for line in lines]
    hours = hours_of(path, stamps)
    order = np.argsort(hours, kind="stable")
    hours, table = hours[order], table[order]
    speed = np.where(table[:, -2] == -9999.0, 0.0, table[:, -2])
    columns = np.column_stack([table[:, : len(_AIR)], wind(speed, table[:, -1]), clock(hours)])
    return Series(hours, columns, table[:, _AIR.index("T (degC)")])


def _chronological(series: Series, width: int) -> dict[str, Rows]:
    n = len(series.hours)
    ends = [0, 7 * n // 10, 9 * n // 10, n]
    hours, columns, target = series
    slices = [Series(hours[low:high], columns[low:high], target[low:high]) for low, high in pairwise(ends)]
    return {part: windows(each, width).rows for part, each in zip(("train", "held_out", "test"), slices, strict=True)}
