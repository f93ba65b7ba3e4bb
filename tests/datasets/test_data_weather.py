"""Windows of hours against a slow loop, weeks and their guard bands, and the tables of Jena."""

import gzip
import math
import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from density_regression.datasets import load_weather
from density_regression.datasets.hourly import Series, Windows, time_features, weekly_parts, wind_xy, windows
from density_regression.datasets.shift import Rows

VARIABLE = "DENSITY_REGRESSION_DATA"
needs_data = pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not name the data folder")

AIR = "p (mbar),T (degC),Tpot (K),Tdew (degC),rh (%),VPmax (mbar),VPact (mbar),VPdef (mbar),sh (g/kg)"
JENA = f"Date Time,{AIR},H2OC (mmol/mol),rho (g/m**3),wv (m/s),max. wv (m/s),wd (deg)"


def write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    text = "\n".join([*lines, ""]).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)


def jena_rows(start: datetime, hours: int, seed: int = 0, gust: bool = True) -> list[str]:
    """Rows every ten minutes, the first ten minutes past `start`."""
    values = np.random.default_rng(seed).normal(size=(6 * hours, 14)).round(3)
    values[:, 11] = np.abs(values[:, 11])
    values[:, 13] = (100 * np.abs(values[:, 13])).round(1)
    if not gust:
        values = np.delete(values, 12, axis=1)
    stamps = [start + timedelta(minutes=10 * (i + 1)) for i in range(6 * hours)]
    pairs = zip(stamps, values.tolist(), strict=True)
    return [f"{stamp:%d.%m.%Y %H:%M:%S},{','.join(map(str, row))}" for stamp, row in pairs]


def slow_columns(fields: list[str], header: str) -> list[float]:
    row = dict(zip(header.split(","), fields, strict=True))
    stamp = datetime.strptime(row["Date Time"], "%d.%m.%Y %H:%M:%S")
    speed = 0.0 if float(row["wv (m/s)"]) == -9999 else float(row["wv (m/s)"])
    angle = float(row["wd (deg)"]) * math.pi / 180
    hours = (stamp - datetime(1970, 1, 1)) / timedelta(hours=1)
    waves = [f(2 * math.pi * hours / period) for period in (24, 24 * 365.2425) for f in (math.sin, math.cos)]
    air = [float(row[name]) for name in header.split(",")[1:12]]
    return [*air, speed * math.cos(angle), speed * math.sin(angle), *waves]


def slow_windows(lines: list[str], header: str, width: int) -> tuple[list[list[float]], list[float]]:
    """Blind every-sixth-row reading, as on regular data."""
    table = [slow_columns(line.split(","), header) for line in lines[5::6]]
    X = [[value for hour in table[i : i + width] for value in hour] for i in range(len(table) - width)]
    return X, [row[1] for row in table[width:]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "weather" / "jena_climate_2020.csv.gz", [JENA, *jena_rows(datetime(2020, 1, 1), 24 * 45)])
    shifted = jena_rows(datetime(2022, 7, 1), 30, seed=1, gust=False)
    write(tmp_path / "weather" / "jena_climate_2022_ood.csv.gz", [JENA.replace("max. wv (m/s),", ""), *shifted])
    return tmp_path


@pytest.mark.parametrize("width", [1, 3, 5])
def test_windows_against_a_loop(width: int) -> None:
    rng = np.random.default_rng(width)
    hours = np.sort(rng.choice(60, 70))
    columns, target = rng.normal(size=(70, 2)), rng.normal(size=70)
    columns[[7, 30], 1] = np.nan
    found = windows(Series(hours, columns, target), width)
    X, y, ends = [], [], []
    for i in range(70 - width):
        block = range(i, i + width + 1)
        if all(hours[j + 1] == hours[j] + 1 for j in block[:-1]) and all(np.isfinite(columns[j]).all() for j in block):
            X.append([columns[j, c] for j in block[:-1] for c in range(2)])
            y.append(target[i + width])
            ends.append(hours[i + width])
    assert found.rows.y.tolist() == y
    assert found.hours.tolist() == ends
    np.testing.assert_array_equal(found.rows.X, np.reshape(X, (-1, 2 * width)))


def test_some_windows_were_compared() -> None:
    hours = np.sort(np.random.default_rng(1).choice(60, 70))
    assert len(windows(Series(hours, np.zeros((70, 1)), np.zeros(70)), 1).hours) > 5


def test_series_shorter_than_a_window() -> None:
    found = windows(Series(np.arange(2), np.zeros((2, 4)), np.zeros(2)), 3)
    assert found.rows.X.shape == (0, 12)


@pytest.mark.parametrize("width", [0, -1, 1.5])
def test_bad_width(folder: Path, width: int) -> None:
    with pytest.raises(ValueError, match="width must be an integer of at least 1"):
        load_weather(folder, width)


@pytest.mark.parametrize("width", [1, 3, 30, 200])
def test_weeks_and_guard_bands(width: int) -> None:
    origin, n = 1000, 168 * 20 + 50
    last = origin + np.arange(n)
    parts = weekly_parts(Windows(Rows(last[:, np.newaxis].astype(float), last.astype(float)), last), width, origin)
    cycle = ["train", "train", "held_out", "train", "train", "test"]
    whose = [cycle[hour // 168 % 6] for hour in range(n + 100)]
    expected: dict[str, list[int]] = {"train": [], "held_out": [], "test": []}
    for hour in range(n):
        # Each hour of the window, and the 24 before and after it, belong to one part.
        around = range(max(hour - width - 24, 0), hour + 25)
        if len({whose[h] for h in around}) == 1:
            expected[whose[hour]].append(origin + hour)
    assert {name: rows.y.tolist() for name, rows in parts.items()} == expected
    if width < 100:
        assert all(expected.values())


def test_parts_keep_their_distance() -> None:
    last = np.arange(168 * 18)
    parts = weekly_parts(Windows(Rows(last[:, np.newaxis].astype(float), last.astype(float)), last), 3, 0)
    for one, other in (("train", "test"), ("train", "held_out"), ("held_out", "test")):
        targets, inputs = parts[one].y, parts[other].y
        apart = np.abs(targets[:, np.newaxis] - inputs).min() - 3
        assert apart >= 48


def test_wind_and_clock() -> None:
    np.testing.assert_allclose(wind_xy(np.array([2.0, 3.0]), np.array([0.0, 90.0])), [[2, 0], [0, 3]], atol=1e-12)
    day = time_features(np.array([0, 6, 12, 24]))
    np.testing.assert_allclose(day[:, :2], [[0, 1], [1, 0], [0, -1], [0, 1]], atol=1e-12)
    year = time_features(np.array([0, 365 * 24 // 4, 365 * 24]))[:, 2:]
    np.testing.assert_allclose(year, [[0, 1], [1, 0], [0, 1]], atol=0.01)


@pytest.mark.parametrize("width", [1, 3])
def test_full_hours_are_every_sixth_row_of_regular_data(folder: Path, width: int) -> None:
    header = JENA.replace("max. wv (m/s),", "")
    X, y = slow_windows(jena_rows(datetime(2022, 7, 1), 30, seed=1, gust=False), header, width)
    rows = load_weather(folder, width).tests["jena_climate_2022_ood"]
    assert rows.X.shape == (30 - width, 17 * width)
    np.testing.assert_allclose(rows.X, X, atol=1e-9)
    np.testing.assert_array_equal(rows.y, y)


def test_stand_in(folder: Path) -> None:
    data = load_weather(folder)
    assert data.name == "jena_climate_2020"
    assert list(data.tests) == ["jena_climate_2020", "jena_climate_2022_ood"]
    X, y = slow_windows(jena_rows(datetime(2020, 1, 1), 24 * 45), JENA, 3)
    # The first row is of 01:00; the first border is after two weeks, and the guard band before it a day.
    last = 2 * 168 - 24 - 1
    held_out = range(2 * 168 + 24, 3 * 168 - 24 - 3)
    first = slice(0, last - 3)
    np.testing.assert_array_equal(data.train.y[first], y[first])
    assert data.train.y[last - 3] == y[4 * 168 + 24 - 168 - 1]
    assert data.held_out is not None
    np.testing.assert_allclose(data.held_out.X, X[held_out[0] - 1 : held_out[-1]], atol=1e-9)
    assert len(data.tests["jena_climate_2020"].y) == 168 - 48 - 3


def test_gaps_repetitions_and_missing_wind(folder: Path) -> None:
    lines = jena_rows(datetime(2022, 7, 1), 30, seed=1, gust=False)
    # Hours 1 to 30. Hour 8 is lost, as are rows between 15 and 16 that matter to nobody; hour 20 comes twice.
    at = {hour: 6 * hour - 1 for hour in range(1, 31)}
    calm = lines[at[2]].split(",")
    calm[12] = "-9999.0"
    lines[at[2]] = ",".join(calm)
    kept = [line for i, line in enumerate(lines) if i != at[8] and not at[15] < i < at[16]]
    twice = kept.index(lines[at[20]])
    kept.insert(twice, kept[twice])
    write(folder / "weather" / "jena_climate_2022_ood.csv.gz", [JENA.replace("max. wv (m/s),", ""), *kept])
    rows = load_weather(folder).tests["jena_climate_2022_ood"]
    targets = [*range(4, 8), *range(12, 21), *range(23, 31)]
    temperature = {hour: float(lines[at[hour]].split(",")[2]) for hour in at}
    assert rows.y.tolist() == [temperature[hour] for hour in targets]
    # In the first window, of the hours 1 to 3, the second is calm.
    assert rows.X[0, 17 + 11 : 17 + 13].tolist() == [0, 0]
    assert rows.X[:, [1, 18, 35]].tolist() == [[temperature[hour - back] for back in (3, 2, 1)] for hour in targets]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_original_comes_first(folder: Path, suffix: str) -> None:
    lines = jena_rows(datetime(2009, 1, 1), 100, seed=2)
    write(folder / "weather" / f"jena_climate_2009_2016{suffix}", [JENA, *lines])
    data = load_weather(folder)
    assert data.name == "jena_climate_2009_2016"
    assert list(data.tests) == ["jena_climate_2009_2016", "jena_climate_2022_ood"]
    temperature = [float(line.split(",")[2]) for line in lines[5::6]]
    assert data.train.y.tolist() == temperature[3:70]
    assert data.held_out is not None
    assert data.held_out.y.tolist() == temperature[73:90]
    assert data.tests["jena_climate_2009_2016"].y.tolist() == temperature[93:]


def test_rows_out_of_order_are_sorted(folder: Path) -> None:
    lines = jena_rows(datetime(2022, 7, 1), 30, seed=1, gust=False)
    before = load_weather(folder).tests["jena_climate_2022_ood"]
    shuffled = np.random.default_rng(0).permutation(lines).tolist()
    write(folder / "weather" / "jena_climate_2022_ood.csv.gz", [JENA.replace("max. wv (m/s),", ""), *shuffled])
    np.testing.assert_array_equal(load_weather(folder).tests["jena_climate_2022_ood"].X, before.X)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([JENA.replace("rh (%)", "humidity")], r"rh \(%\) is not among them"),
        ([JENA], "row for each full hour"),
        ([JENA, "01.01.2020 01:00:00,1,2"], "must hold numbers in every row"),
        ([JENA, "01.13.2020 01:00:00" + 14 * ",1"], "time stamp in every row"),
        ([JENA, *jena_rows(datetime(2020, 1, 1), 24 * 20)], "too short: no window is left for jena_climate_2020"),
    ],
)
def test_not_a_weather_table(folder: Path, lines: list[str], message: str) -> None:
    path = folder / "weather" / "jena_climate_2020.csv.gz"
    write(path, lines)
    with pytest.raises(ValueError, match=message):
        load_weather(folder)


@pytest.mark.parametrize(
    "content", [b"", b"no gzip", gzip.compress(b"a,b\n1,2\n")[:-9]], ids=["empty", "no gzip", "cut short"]
)
def test_damaged_file(folder: Path, content: bytes) -> None:
    (folder / "weather" / "jena_climate_2020.csv.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"jena_climate_2020\.csv\.gz cannot be read as a table"):
        load_weather(folder)


def test_no_weather_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"jena_climate_2020.*jena_climate_2009_2016\.csv"):
        load_weather(tmp_path)


@needs_data
def test_real_jena() -> None:
    data = load_weather()
    if data.name != "jena_climate_2020":
        pytest.skip("the folder has the original, whose counts are not known here")
    assert data.held_out is not None
    shapes = [rows.X.shape for rows in (data.train, data.held_out, *data.tests.values())]
    assert shapes == [(5051, 51), (1053, 51), (936, 51), (4411, 51)]
    for rows in (data.train, data.held_out, *data.tests.values()):
        assert np.isfinite(rows.X).all()
        assert np.abs(rows.y - rows.X[:, 17 * 2 + 1]).max() < 15
        assert -30 < rows.y.min() < rows.y.max() < 45
