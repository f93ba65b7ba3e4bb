"""Reading of UCI tables and splits: on a made-up folder, and on the real one where there is one."""

import gzip
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from density_regression.datasets import UCI_NAMES, fetch, load_uci, own_tables, random_splits, standard_splits

VARIABLE = "DENSITY_REGRESSION_DATA"
REAL_FOLDER = os.environ.get(VARIABLE)
needs_data = pytest.mark.skipif(not REAL_FOLDER, reason=f"{VARIABLE} does not name the data folder")

SHAPES = {
    "boston": (506, 13),
    "concrete": (1030, 8),
    "energy": (768, 8),
    "kin8nm": (8192, 8),
    "naval": (11934, 16),
    "power": (9568, 4),
    "protein": (45730, 9),
    "wine_red": (1599, 11),
    "wine_white": (4898, 11),
    "yacht": (308, 6),
    "year": (515_345, 90),
    "year_partial_90feat": (1176, 90),
}
WITHOUT_SPLITS = ("wine_white", "year_partial_90feat")
FIRST_SPLIT = {
    "boston": (455, 51),
    "concrete": (927, 103),
    "energy": (691, 77),
    "kin8nm": (7373, 819),
    "naval": (10741, 1193),
    "power": (8611, 957),
    "protein": (41157, 4573),
    "wine_red": (1439, 160),
    "yacht": (277, 31),
    "year": (463_715, 51_630),
}


def write_table(folder: Path, name: str, text: str) -> None:
    (folder / "uci").mkdir(exist_ok=True)
    with gzip.open(folder / "uci" / f"{name}.csv.gz", "wt", encoding="utf-8") as file:
        file.write(text)


def write_splits(folder: Path, name: str, **arrays: object) -> None:
    (folder / "uci" / "splits").mkdir(parents=True, exist_ok=True)
    converted: dict[str, Any] = {key: np.array(value) for key, value in arrays.items()}
    np.savez(folder / "uci" / "splits" / f"{name}.npz", **converted)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    write_table(tmp_path, "yacht", "length,beam,drag\n1,2.5,-3\n4,5,6e1\n7,8,9\n")
    write_splits(tmp_path, "yacht", train_0=[0, 2], test_0=[1], train_1=[1, 2], test_1=[0])
    return tmp_path


def test_load_uci(folder: Path) -> None:
    data = load_uci("yacht", folder)
    np.testing.assert_array_equal(data.X, [[1, 2.5], [4, 5], [7, 8]])
    np.testing.assert_array_equal(data.y, [-3, 60, 9])
    assert data.X.dtype == data.y.dtype == np.float64
    assert data.feature_names == ("length", "beam")
    assert data.target_name == "drag"
    assert data._fields == ("X", "y", "feature_names", "target_name")


def test_one_row_is_still_a_table(folder: Path) -> None:
    write_table(folder, "boston", "rooms,price\n3,10\n")
    data = load_uci("boston", folder)
    assert data.X.shape == (1, 1)
    assert data.y.shape == (1,)


def test_standard_splits(folder: Path) -> None:
    splits = standard_splits("yacht", folder)
    assert [(train.tolist(), test.tolist()) for train, test in splits] == [([0, 2], [1]), ([1, 2], [0])]
    assert all(part.dtype == np.intp for split in splits for part in split)


def test_the_split_of_songs_is_that_of_their_authors() -> None:
    """The first 463,715 songs to train on and the last 51,630 to test on, so that no artist is in both."""
    ((train, test),) = standard_splits("year")
    assert np.array_equal(train, np.arange(463_715))
    assert np.array_equal(test, 463_715 + np.arange(51_630))


def test_splits_keep_their_number(folder: Path) -> None:
    # By name train_10 comes before train_2.
    write_splits(folder, "boston", **{f"{part}_{i}": [i] for i in range(12) for part in ("train", "test")})
    assert [int(train[0]) for train, _ in standard_splits("boston", folder)] == list(range(12))


def test_folder_may_be_a_string(folder: Path) -> None:
    assert load_uci("yacht", str(folder)).target_name == "drag"


def test_folder_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(folder))
    assert load_uci("yacht").target_name == "drag"
    assert len(standard_splits("yacht")) == 2


def test_argument_wins_over_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(folder / "elsewhere"))
    assert load_uci("yacht", folder).target_name == "drag"


@pytest.mark.parametrize("value", [None, ""])
def test_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fetch, "sources", dict)
    if value is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, value)
    for read in (load_uci, standard_splits):
        with pytest.raises(FileNotFoundError, match=rf"data_dir=.*{VARIABLE}"):
            read("yacht")


def test_file_not_there(folder: Path) -> None:
    for read in (load_uci, standard_splits):
        with pytest.raises(FileNotFoundError, match=rf"energy.*data_dir=.*{VARIABLE}"):
            read("energy", folder)


def test_unknown_name(folder: Path) -> None:
    for read in (load_uci, standard_splits):
        with pytest.raises(ValueError, match="known UCI table") as error:
            read("../yacht", folder)
        assert all(name in str(error.value) for name in UCI_NAMES)


def test_tables_of_the_user(folder: Path) -> None:
    (folder / "uci" / "sales.csv").write_text("\ufeffprice,sold\n1,2\n3,4.5\n", encoding="utf-8")
    with gzip.open(folder / "uci" / "v1.2.csv.gz", "wt") as file:
        file.write("a,b,c\n1,2,3\n")
    (folder / "uci" / "notes.txt").touch()
    assert own_tables(folder) == ("sales", "v1.2")
    assert own_tables(folder / "elsewhere") == ()
    table = load_uci("sales", folder)
    assert table.feature_names == ("price",)
    assert table.target_name == "sold"
    assert table.y.tolist() == [2.0, 4.5]
    assert load_uci("v1.2", folder).X.tolist() == [[1.0, 2.0]]


def test_a_copy_beside_a_table_is_another_table(folder: Path) -> None:
    (folder / "uci" / "sales.csv").write_text("price,sold\n1,2\n")
    (folder / "uci" / "sales.csv.old.csv").write_text("price,sold\n3,4\n")
    assert own_tables(folder) == ("sales", "sales.csv.old")
    assert load_uci("sales", folder).y.tolist() == [2.0]
    assert load_uci("sales.csv.old", folder).y.tolist() == [4.0]


def test_a_table_that_is_there_twice_is_refused(folder: Path) -> None:
    (folder / "uci" / "sales.csv").write_text("price,sold\n1,2\n")
    (folder / "uci" / "sales.csv.gz").write_bytes(gzip.compress(b"price,sold\n3,4\n"))
    assert own_tables(folder) == ("sales",)
    with pytest.raises(ValueError, match=r"'sales' is there twice, as .*sales\.csv and .*sales\.csv\.gz; keep one"):
        load_uci("sales", folder)


@pytest.mark.parametrize(
    "text",
    [
        '"größe","b, x",y\n"0.1257",2,3\n4,"5",6\n',
        '"größe", "b, x", y\n0.1257, 2, 3\n4, 5, 6\n',
        '\ufeff"größe","b, x",y\r\n0.1257,2,3\r\n4,5,6\r\n\r\n\r\n',
    ],
    ids=["quotes", "spaces", "as Excel writes it"],
)
@pytest.mark.parametrize("file", ["sales.csv", "sales.csv.gz"])
def test_ways_to_write_a_table(folder: Path, file: str, text: str) -> None:
    content = text.encode()
    (folder / "uci" / file).write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
    table = load_uci("sales", folder)
    assert table.feature_names == ("größe", "b, x")
    assert table.target_name == "y"
    assert table.X.tolist() == [[0.1257, 2], [4, 5]]
    assert table.y.tolist() == [3, 6]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,a,b,b,y\n1,2,3,4,5\n", "names of columns must differ: a, b"),
        ("a,b,a\n1,2,3\n", "names of columns must differ: a"),
        (",a,y\n0,1,2\n1,3,4\n", "column 1 has no name; an index that was written along is no feature"),
        ("a,b,y,\n1,2,3,\n", "column 4 has no name"),
        ("1,2.5,-3e4\n4,5,6\n", "its first line is numbers, not names of columns"),
        ("a;b;y\n1;2;3\n", "its header must name two columns or more, separated by commas, got 'a;b;y'"),
        ("a\tb\ty\n1\t2\t3\n", r"its header must name two columns or more, separated by commas, got 'a\tb\ty'"),
        ("", "it has no rows"),
        ("\n\n", "it has no rows"),
        ("a,b,y\n", "it has no rows"),
        ("a,b,y\n\n\n", "it has no rows"),
        ("a,b,y\n# first\n1,2,3\n", "could not convert string '# first'"),
        ("a,b,y\n1,2,3 # note\n", "could not convert string '3 # note'"),
        ('"a,b,y\n1,2,3\n', "unexpected end of data"),
    ],
)
def test_a_table_that_is_refused_is_told_why(folder: Path, text: str, reason: str) -> None:
    (folder / "uci" / "sales.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"sales\.csv cannot be read as a table of numbers: {re.escape(reason)}"):
        load_uci("sales", folder)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_missing_values_are_named(folder: Path, value: str) -> None:
    (folder / "uci" / "sales.csv").write_text(f"price,size,sold\n1,{value},2\n3,4,5\n")
    with pytest.raises(ValueError, match=r"sales\.csv has values that are missing or infinite, in size\."):
        load_uci("sales", folder)


@pytest.mark.parametrize(("rows", "test"), [(2, 1), (57, 5), (60, 6)])
def test_random_splits(rows: int, test: int) -> None:
    splits = random_splits(rows, count=3)
    assert [len(own) for _, own in splits] == [test] * 3
    for train, own in splits:
        assert sorted([*train, *own]) == list(range(rows))
    again = random_splits(rows, count=3)
    assert all(np.array_equal(one[1], other[1]) for one, other in zip(splits, again, strict=True))


@pytest.mark.parametrize("name", WITHOUT_SPLITS)
def test_tables_without_splits(folder: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"has no standard splits; choose one of boston"):
        standard_splits(name, folder)


@pytest.mark.parametrize("text", ["a,b\n1,2,3\n", "a\n1\n", "a,b,c\n1,2\n", "a,b\n1,2\n3\n", "a,b\n1,x\n"])
def test_not_a_table(folder: Path, text: str) -> None:
    write_table(folder, "boston", text)
    with pytest.raises(ValueError):  # noqa: PT011 - NumPy words some of these
        load_uci("boston", folder)


@pytest.mark.parametrize(
    "content", [b"", b"no gzip", gzip.compress(b"a,b\n1,2\n")[:-9]], ids=["empty", "no gzip", "cut short"]
)
def test_damaged_files(folder: Path, content: bytes) -> None:
    (folder / "uci" / "yacht.csv.gz").write_bytes(content)
    (folder / "uci" / "splits" / "yacht.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"yacht\.csv\.gz"):
        load_uci("yacht", folder)
    with pytest.raises(ValueError, match="cannot be read as splits"):
        standard_splits("yacht", folder)


@pytest.mark.parametrize("arrays", [{}, {"train_0": [0]}, {"train_0": [0], "test_1": [1]}, {"train": [0], "test": [1]}])
def test_not_splits(folder: Path, arrays: dict[str, list[int]]) -> None:
    write_splits(folder, "boston", **arrays)
    with pytest.raises(ValueError, match="must hold train_0, test_0"):
        standard_splits("boston", folder)


def test_pickled_splits_are_refused(folder: Path) -> None:
    objects = np.array([{"not": "indices"}], dtype=object)
    write_splits(folder, "boston", train_0=objects, test_0=objects)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        standard_splits("boston", folder)


def test_expectations_name_every_table() -> None:
    assert set(SHAPES) == set(UCI_NAMES)
    assert set(FIRST_SPLIT) == set(UCI_NAMES) - set(WITHOUT_SPLITS)


@needs_data
@pytest.mark.parametrize("name", UCI_NAMES)
def test_real_table(name: str) -> None:
    if fetch.local_file(f"uci/{name}.csv.gz") is None:
        pytest.skip(f"{VARIABLE} has no uci/{name}.csv.gz")
    data = load_uci(name)
    assert data.X.shape == SHAPES[name]
    assert data.y.shape == SHAPES[name][:1]
    assert len(set(data.feature_names)) == SHAPES[name][1]
    assert data.target_name not in data.feature_names
    assert np.isfinite(data.X).all()
    assert np.isfinite(data.y).all()


@needs_data
@pytest.mark.parametrize("name", sorted(FIRST_SPLIT))
def test_real_splits(name: str) -> None:
    splits = standard_splits(name)
    assert len(splits) == {"protein": 5, "year": 1}.get(name, 20)
    assert tuple(len(part) for part in splits[0]) == FIRST_SPLIT[name]
    rows = np.arange(SHAPES[name][0])
    for train, test in splits:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), rows)
