"""Natural shifts: which rows of a table train and test, what training may not know, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from density_regression.datasets import ShiftTable, load_natural_shift, natural_shifts

ROWS = 200
ENTRY = {"train": "year < 2015", "test": "year >= 2016", "target": "price", "drop": ["year"]}


def frame() -> pd.DataFrame:
    """A table of all kinds of columns; every row has its own number, in `id`."""
    rng = np.random.default_rng(0)
    number = np.arange(ROWS)
    size = rng.normal(size=ROWS).round(3)
    return pd.DataFrame(
        {
            "year": 2010 + number % 8,
            "id": number,
            "size": np.where(number % 9 == 0, np.nan, size),
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], ROWS),
            "day": pd.Series(pd.date_range("2020-01-01", periods=ROWS)).dt.strftime("%Y-%m-%d"),
            "price": np.where(number % 50 == 7, np.nan, size + number / 100),
        }
    )


def write(folder: Path, table: pd.DataFrame, entry: dict[str, Any] = ENTRY, name: str = "homes") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / f"{name}.csv", index=False)
    (folder / "shifts.json").write_text(json.dumps({name: entry}))
    return folder


def own(tmp_path: Path, **changes: Any) -> ShiftTable:
    frame().to_csv(tmp_path / "homes.csv", index=False)
    return ShiftTable("homes", str(tmp_path / "homes.csv"), "year < 2015", "year >= 2016", "price", ("year",))._replace(
        **changes
    )


def test_the_sides_of_a_split(tmp_path: Path) -> None:
    data = load_natural_shift(own(tmp_path), random_state=3)
    table = frame()
    known = table[table["price"].notna()]
    train_side = set(known.query("year < 2015")["id"])
    trained, tested = set(data.train.X[:, 0]), set(data.tests["in distribution"].X[:, 0])
    assert list(data.tests) == ["in distribution", "shifted"]
    assert len(tested) == len(train_side) // 10
    assert trained | tested == train_side
    assert not trained & tested
    np.testing.assert_array_equal(data.tests["shifted"].X[:, 0], known.query("year >= 2016")["id"])
    for X, y in (data.train, *data.tests.values()):
        np.testing.assert_array_equal(y, table["price"][X[:, 0].astype(int)])
        assert X.shape == (len(y), 7)
        assert np.isfinite(X).all()


def test_frames_of_the_same_rows_with_text_dates_and_gaps(tmp_path: Path) -> None:
    coded, plain = (load_natural_shift(own(tmp_path), random_state=3, coded=coded) for coded in (True, False))
    for (X, y), (frames, targets) in zip(
        (coded.train, *coded.tests.values()), (plain.train, *plain.tests.values()), strict=True
    ):
        assert list(frames.columns) == ["id", "size", "town", "day"]
        np.testing.assert_array_equal(frames["id"], X[:, 0])
        np.testing.assert_array_equal(targets, y)
    assert plain.train.X["size"].isna().any()


def test_a_split_depends_on_its_seed_alone(tmp_path: Path) -> None:
    table = own(tmp_path)
    one, same, other = (load_natural_shift(table, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.train.X, same.train.X)
    assert not np.array_equal(one.train.y, other.train.y)
    np.testing.assert_array_equal(one.tests["shifted"].y, other.tests["shifted"].y)


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    table = own(tmp_path)
    before = load_natural_shift(table)
    frame().iloc[:150].to_csv(table.path, index=False)
    assert len(load_natural_shift(table).train.y) < len(before.train.y)


def test_at_most_so_many_rows_train_and_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("density_regression.datasets.natural.MAX_TEST_ROWS", 8)
    table = own(tmp_path)
    data, other = (load_natural_shift(table, random_state=seed, max_rows=30) for seed in (0, 1))
    assert [len(rows.y) for rows in (data.train, *data.tests.values())] == [30, 8, 8]
    np.testing.assert_array_equal(data.tests["shifted"].y, other.tests["shifted"].y)
    with pytest.raises(ValueError, match="max_rows must be 20 or more, to train and hold out, got 19"):
        load_natural_shift(table, max_rows=19)


def test_test_rows_change_nothing_for_training(tmp_path: Path) -> None:
    before = load_natural_shift(own(tmp_path), random_state=2, max_rows=60)
    table = frame().astype({"id": "object", "size": "object"})
    used = set(before.train.X[:, 0])
    others = ~table["id"].isin(used)
    # Even of another type, so that pandas reads whole columns as text.
    table.loc[others, ["size", "town", "day"]] = ["huge", "Rome", "later"]
    table.loc[others & (table["year"] >= 2015), "id"] = "none"
    table.to_csv(tmp_path / "other.csv", index=False)
    after = load_natural_shift(own(tmp_path, path=str(tmp_path / "other.csv")), random_state=2, max_rows=60)
    np.testing.assert_array_equal(before.train.X, after.train.X)
    np.testing.assert_array_equal(before.train.y, after.train.y)
    # Gaps of the shifted rows have the medians of these training rows.
    known = frame()["size"][sorted(int(number) for number in used)].dropna()
    np.testing.assert_array_equal(after.tests["shifted"].X[:, 1], known.median())
    np.testing.assert_array_equal(after.tests["shifted"].X[:, 0], np.median(list(used)))


@pytest.mark.parametrize("place", ["", "shift"])
def test_tables_of_a_folder(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / place, frame())
    known = natural_shifts(tmp_path)
    assert known == {"homes": ShiftTable("homes", str(folder / "homes.csv"), *list(ENTRY.values())[:3], ("year",))}
    one = load_natural_shift("homes", tmp_path)
    (folder / "homes.csv.gz").write_bytes(gzip.compress((folder / "homes.csv").read_bytes()))
    with pytest.raises(ValueError, match=r"'homes' is there twice, as .*homes.csv and .*homes.csv.gz; keep one"):
        natural_shifts(tmp_path)
    (folder / "homes.csv").unlink()
    monkeypatch.setenv("DENSITY_REGRESSION_DATA", str(tmp_path))
    np.testing.assert_array_equal(load_natural_shift("homes").train.X, one.train.X)
    with pytest.raises(ValueError, match=r"'flats' is not in the folder's shifts\.json; choose one of homes"):
        load_natural_shift("flats")


def test_a_folder_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DENSITY_REGRESSION_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"No data folder was given: pass data_dir= \(--data-dir"):
        natural_shifts()
    with pytest.raises(
        FileNotFoundError, match=r"There is no file .*shifts.json, nor .*shift/shifts.json: pass data_dir"
    ):
        natural_shifts(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"shifts.json must be JSON in UTF-8: .*Correct the file"),
        ("[]", r"must be a JSON object that describes one table or more by name, got \[\]"),
        ('{"homes": 3}', "entry 'homes': must be an object with the keys train, test, target, drop, got 3"),
        ('{"homes": {"train": "a", "test": "b"}}', "the key 'target' must be a text that is not empty, got None"),
        ('{"homes": {"train": " ", "test": "b", "target": "y"}}', "the key 'train' must be a text that is not empty"),
        ('{"homes": {"train": "a", "test": "b", "target": "y", "drop": "x"}}', "'drop' must be a list of names"),
        (
            '{"homes": {"train": "a", "test": "b", "target": "y", "dropp": []}}',
            "has the unknown key 'dropp'; the keys are",
        ),
        ('{"../homes": {"train": "a", "test": "b", "target": "y"}}', "a name is that of a file beside shifts.json"),
    ],
)
def test_a_wrong_description_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "shifts.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        natural_shifts(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"path": "none.csv"}, "There is no file none.csv: give the path of a .csv or .csv.gz file"),
        ({"target": "cost"}, "target names the column 'cost', which .* does not have; it has year, id"),
        ({"drop": ("area",)}, "drop names the column 'area', which .* does not have; it has year, id"),
        ({"drop": ("year", "id", "size", "town", "day")}, "no column beside target and drop"),
        ({"train": "yeer < 2015"}, "train 'yeer < 2015' is no query that pandas can run on .*; columns are year, id"),
        ({"test": "year <"}, "test 'year <' is no query that pandas can run"),
        ({"train": "@pd.NA"}, "train '@pd.NA' is no query that pandas can run"),
        ({"test": "year"}, "test 'year' must be true or false for each row"),
        ({"test": "'a' == 'a'"}, "must be true or false for each row"),
        ({"train": "year < 2017"}, "train 'year < 2017' and test 'year >= 2016' both choose 25 rows"),
        ({"train": "id < 20 and year < 2015"}, "train .* chooses 14 rows of .* that have a target, but 20 are needed"),
        ({"test": "id > 190 and year > 2015"}, r"test .* chooses \d rows of .* that have a target, but 10 are needed"),
        ({"target": "town"}, r"target 'town' of .* must be numbers, got '\w+'"),
    ],
)
def test_what_cannot_be_loaded_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_natural_shift(own(tmp_path, **changes))


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    for name, content in (("a.csv", b""), ("b.csv.gz", b"no gzip"), ("c.csv", b"\xff\xfe\x00a,b\n1,2")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read as a table"):
            load_natural_shift(own(tmp_path, path=str(tmp_path / name)))


def test_a_table_without_a_varying_column_is_refused(tmp_path: Path) -> None:
    frame().assign(a=1)[["year", "a", "price"]].to_csv(tmp_path / "flat.csv", index=False)
    with pytest.raises(ValueError, match="has no column that varies in its training rows"):
        load_natural_shift(own(tmp_path, path=str(tmp_path / "flat.csv")))


def test_the_real_tables() -> None:
    folder = os.environ.get("DENSITY_REGRESSION_DATA", "")
    if not any((Path(folder) / place / "shifts.json").is_file() for place in ("", "shift")) or not folder:
        pytest.skip("DENSITY_REGRESSION_DATA names no folder with shifts.json")
    for name in natural_shifts(folder):
        data = load_natural_shift(name, folder)
        assert len(data.train.y) <= 5000
        for X, y in (data.train, *data.tests.values()):
            assert len(X) == len(y) >= 10
            assert np.isfinite(X).all()
            assert np.isfinite(y).all()
