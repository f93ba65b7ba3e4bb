"""The German stations: on made-up tables, and on the real one where there is one."""

import gzip
import math
import os
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from density_regression.datasets import load_stations

VARIABLE = "DENSITY_REGRESSION_DATA"
needs_data = pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not name the data folder")

STATIONS = "station,time,relativeHumidity,p,p0,windSpeed,windDirection,cloudiness,precipitation,temperature"
NAMES = ("Kassel", "Essen", "Ulm", "Bremerhaven", "Kempten")


def write(folder: Path, lines: list[str]) -> None:
    path = folder / "weather" / "german_stations_hourly.csv.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode(), 1))


def station_rows(name: str, start: datetime, hours: int, seed: int) -> list[str]:
    """Rows every hour; the temperature counts them."""
    stamps = [start + timedelta(hours=i) for i in range(hours)]
    return [
        f"{name},{stamp:%Y-%m-%d %H:%M},{1 + i % 100},1010.5,{980 + i % 7},2.0,30,8,0.1,{i + seed}"
        for i, stamp in enumerate(stamps)
    ]


@pytest.fixture
def stations(tmp_path: Path) -> Path:
    # Ulm begins ten days later than the others.
    starts = {name: datetime(2014, 1, 1) for name in NAMES} | {"Ulm": datetime(2014, 1, 11)}
    lines = [line for i, name in enumerate(NAMES) for line in station_rows(name, starts[name], 24 * 45, 10_000 * i)]
    write(tmp_path, [STATIONS, *lines])
    return tmp_path


def test_stations(stations: Path) -> None:
    data = load_stations(stations)
    assert data.name == "german_stations"
    assert list(data.tests) == ["inland", "Bremerhaven", "Kempten"]
    hour = {"Kassel": 0, "Essen": 10_000, "Ulm": 20_000 - 240}
    assert data.held_out is not None
    week = range(2 * 168 + 24 + 3, 3 * 168 - 24)
    assert data.held_out.y.tolist() == [start + h for start in hour.values() for h in week]
    week = range(5 * 168 + 24 + 3, 6 * 168 - 24)
    assert data.tests["inland"].y.tolist() == [start + h for start in hour.values() for h in week]
    early = [*range(3, 312), *range(3 * 168 + 27, 5 * 168 - 24), *range(6 * 168 + 27, 45 * 24)]
    late = [*range(243, 312), *range(3 * 168 + 27, 5 * 168 - 24), *range(6 * 168 + 27, 55 * 24)]
    assert data.train.y.tolist() == [*early, *(10_000 + h for h in early), *(hour["Ulm"] + h for h in late)]
    assert data.tests["Kempten"].y.tolist() == [40_000 + h for h in range(3, 45 * 24)]


def test_columns_of_stations(stations: Path) -> None:
    row = load_stations(stations, width=2).tests["Bremerhaven"].X[5]
    for columns, hour in zip(row.reshape(2, 12), (5, 6), strict=True):
        measured = [1 + hour, 1010.5, 980 + hour, 3**0.5, 1, 8, 0.1, 30_000 + hour]
        np.testing.assert_allclose(columns[:8], measured)
        angle = 2 * math.pi * hour / 24
        np.testing.assert_allclose(columns[8:10], [math.sin(angle), math.cos(angle)], atol=1e-9)


@pytest.mark.parametrize(("field", "code"), [(2, "0"), (3, "0.0"), (4, "0.0"), (7, "-1")])
def test_missing_values_are_in_no_window(stations: Path, field: int, code: str) -> None:
    path = stations / "weather" / "german_stations_hourly.csv.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("Kempten")) + 20
    fields = lines[at].split(",")
    fields[field] = code
    lines[at] = ",".join(fields)
    write(stations, lines)
    lost = [40_000 + h for h in range(20, 24)]
    assert load_stations(stations).tests["Kempten"].y.tolist() == [
        y for y in range(40_003, 40_000 + 45 * 24) if y not in lost
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["time,station," + STATIONS[13:]], "must begin with the columns station and time"),
        ([STATIONS, *station_rows("Kassel", datetime(2014, 1, 1), 5, 0)], "must have rows of Essen"),
        ([STATIONS.replace("p0", "p1")], "p0 is not among them"),
    ],
)
def test_not_a_table_of_stations(tmp_path: Path, lines: list[str], message: str) -> None:
    write(tmp_path, lines)
    with pytest.raises(ValueError, match=message):
        load_stations(tmp_path)


def test_no_stations(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"german_stations_hourly\.csv\.gz: pass data_dir="):
        load_stations(tmp_path)


@needs_data
def test_real_stations() -> None:
    data = load_stations()
    assert data.held_out is not None
    every = {"train": data.train, "held_out": data.held_out} | data.tests
    counts = {name: len(rows.y) for name, rows in every.items()}
    assert counts == {"train": 67017, "held_out": 13821, "inland": 14003, "Bremerhaven": 41582, "Kempten": 41865}
    for rows in every.values():
        assert np.isfinite(rows.X).all()
        assert rows.X[:, [0, 1, 2]].min() > 0
        assert set(rows.X[:, 5]) <= set(range(9))
