"""Temperature of the next hour in Jena, tested on other years than those of training."""

__all__ = ["load_weather"]

from itertools import pairwise
from pathlib import Path

import numpy as np

from density_regression.datasets import hourly
from density_regression.datasets.fetch import PathLike, find_file, local_file
from density_regression.datasets.shift import Rows, ShiftData

_FULL = "jena_climate_2009_2016"
_STAND_IN = "jena_climate_2020"
_SHIFTED = "jena_climate_2022_ood"
# Air, then speed and direction of the wind.
_COLUMNS = (
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
    "wv (m/s)",
    "wd (deg)",
)


def load_weather(data_dir: PathLike | None = None, width: int = 3) -> ShiftData:
    """Jena: predict the temperature of the next hour, in other years than those of training.

    Of a row every ten minutes, the full hours are kept. The columns of an hour are eleven of the air, wind as x and y
    components (a missing speed, -9999, counts as calm), and time of day and of year as sine and cosine. The strongest
    gust is left out, since the shifted table lacks it, and so are windows with a gap in time or a repeated hour.

    Parameters
    ----------
    data_dir : path, optional
        Folder that holds ``weather/``; by default that of the environment variable ``DENSITY_REGRESSION_DATA``.
    width : int, default=3
        Hours per row: all columns of each, oldest first.

    Returns
    -------
    ShiftData
        Rows in time order, X of shape (n, 17 width), y the temperature in degrees Celsius. If the folder has
        ``jena_climate_2009_2016.csv`` or ``.csv.gz``, that is the name, and its hours are divided 70/20/10 in time
        order. Otherwise it is the stand-in ``jena_climate_2020``, of one year, divided by weeks in a cycle of six
        (train, train, held-out, train, train, test), less 24 hours on each side of a border. The shifted test set is
        ``jena_climate_2022_ood``.

    Examples
    --------
    >>> split = load_weather()  # doctest: +SKIP
    """
    path = _training_file(data_dir)
    series = _read_jena(path)
    if path.name.startswith(_FULL):
        name, parts = _FULL, _chronological_parts(series, width)
    else:
        name, midnight = _STAND_IN, int(series.hours[0]) // 24 * 24
        parts = hourly.weekly_parts(hourly.windows(series, width), width, midnight)
    shifted = hourly.windows(_read_jena(find_file(f"weather/{_SHIFTED}.csv.gz", data_dir)), width).rows
    tests = {name: parts["test"], _SHIFTED: shifted}
    return hourly.check_parts(ShiftData(name, parts["train"], parts["held_out"], tests))


def _training_file(data_dir: PathLike | None) -> Path:
    for suffix in ("", ".gz"):
        if (path := local_file(f"weather/{_FULL}.csv{suffix}", data_dir)) is not None:
            return path
    try:
        return find_file(f"weather/{_STAND_IN}.csv.gz", data_dir)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} Or better, one that holds weather/{_FULL}.csv.") from error


def _read_jena(path: Path) -> hourly.Series:
    use, lines = hourly.read_lines(path, _COLUMNS)
    # Lines are dd.mm.yyyy hh:mm:ss,...
    lines = [line for line in lines if line[13:19] == ":00:00"]
    stamps = [f"{line[6:10]}-{line[3:5]}-{line[:2]}T{line[11:13]}" for line in lines]
    hours, table = hourly.parse_rows(path, lines, stamps, use)
    air, speed, direction = table[:, :-2], table[:, -2], table[:, -1]
    wind = hourly.wind_xy(np.where(speed == -9999.0, 0.0, speed), direction)
    columns = np.column_stack([air, wind, hourly.time_features(hours)])
    return hourly.Series(hours, columns, air[:, _COLUMNS.index("T (degC)")])


def _chronological_parts(series: hourly.Series, width: int) -> dict[str, Rows]:
    hours, columns, target = series
    n = len(hours)
    parts = {}
    for name, (low, high) in zip(
        ("train", "held_out", "test"), pairwise([0, 7 * n // 10, 9 * n // 10, n]), strict=True
    ):
        part = hourly.Series(hours[low:high], columns[low:high], target[low:high])
        parts[name] = hourly.windows(part, width).rows
    return parts
