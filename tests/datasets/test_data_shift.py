"""Gaps, tails and red against white wine, against slow and obvious constructions."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from density_regression.datasets import (
    UCI_NAMES,
    Rows,
    ShiftSplit,
    gap_splits,
    load_uci,
    load_wine_shift,
    standard_splits,
    tail_splits,
)

VARIABLE = "DENSITY_REGRESSION_DATA"
needs_data = pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} does not name the data folder")

Make = Callable[[np.ndarray, list[str]], list[ShiftSplit]]


def slow_test_rows(values: np.ndarray, kind: str) -> list[int]:
    """Places in the sorted order are given out one by one; ties go by row number."""
    n = len(values)
    ranked = sorted(range(n), key=lambda row: (values[row], row))
    rows = []
    for place, row in enumerate(ranked):
        middle = n // 3 <= place < n // 3 + n // 3
        outer = place < n // 6 or place >= n - n // 6
        if middle if kind == "gap" else outer:
            rows.append(row)
    return sorted(rows)


@pytest.mark.parametrize(("make", "kind"), [(gap_splits, "gap"), (tail_splits, "tail")])
@pytest.mark.parametrize("n", [6, 7, 8, 11, 12, 50, 101])
def test_against_a_slow_construction(make: Make, kind: str, n: int) -> None:
    rng = np.random.default_rng(n)
    X = np.column_stack([rng.normal(size=n), rng.integers(0, 4, n), np.ones(n), np.arange(n)[::-1]])
    X[:2, 1] = 0, 3
    splits = make(X, ["normal", "ties", "constant", "descending"])
    assert [split.feature for split in splits] == ["normal", "ties", "descending"]
    for split, column in zip(splits, (0, 1, 3), strict=True):
        assert split.kind == kind
        assert split.test.tolist() == slow_test_rows(X[:, column], kind)
        assert split.train.tolist() == sorted(set(range(n)) - set(split.test.tolist()))
        assert split.train.dtype == split.test.dtype == np.intp
        assert split.genuine == (not set(X[split.test, column]) & set(X[split.train, column]))


def test_gap_lies_inside_and_tails_outside() -> None:
    X = np.random.default_rng(0).normal(size=(60, 1))
    (gap,), (tail,) = gap_splits(X, ["a"]), tail_splits(X, ["a"])
    low, high = X[gap.test].min(), X[gap.test].max()
    assert not ((X[gap.train] >= low) & (X[gap.train] <= high)).any()
    low, high = X[tail.train].min(), X[tail.train].max()
    assert not ((X[tail.test] >= low) & (X[tail.test] <= high)).any()
    assert (X[tail.test] < low).sum() == (X[tail.test] > high).sum() == 10


def test_ties_within_a_part_are_genuine() -> None:
    X = np.repeat([0.0, 1.0, 2.0], 4)[:, np.newaxis]
    assert gap_splits(X, ["a"])[0].genuine
    assert not tail_splits(X, ["a"])[0].genuine


@pytest.mark.parametrize("make", [gap_splits, tail_splits])
@pytest.mark.parametrize(
    ("X", "names", "message"),
    [
        (np.zeros(9), ["a"], "X must be a finite table"),
        (np.zeros((5, 1)), ["a"], "at least 6 rows"),
        (np.full((9, 1), np.nan), ["a"], "finite"),
        (np.zeros((9, 2)), ["a"], "must name the 2 columns"),
    ],
)
def test_bad_tables(make: Make, X: np.ndarray, names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(X, names)


@pytest.fixture
def wine(tmp_path: Path) -> Path:
    (tmp_path / "uci" / "splits").mkdir(parents=True)
    for name, rows in (("wine_red", "1,2,5\n3,4,6\n5,6,7\n"), ("wine_white", "7,8,4\n9,10,3\n")):
        with gzip.open(tmp_path / "uci" / f"{name}.csv.gz", "wt", encoding="utf-8") as file:
            file.write(f"acid,alcohol,quality\n{rows}")
    arrays = {"train_0": [2, 0], "test_0": [1], "train_1": [0, 1], "test_1": [2]}
    np.savez(tmp_path / "uci" / "splits" / "wine_red.npz", **{name: np.array(rows) for name, rows in arrays.items()})
    return tmp_path


def same(rows: Rows, X: list[list[float]], y: list[float]) -> bool:
    return bool(np.array_equal(rows.X, X) and np.array_equal(rows.y, y))


def test_wine(wine: Path) -> None:
    data = load_wine_shift(0, wine)
    assert data.name == "wine_red"
    assert data.held_out is None
    assert list(data.tests) == ["wine_red", "wine_white"]
    assert same(data.train, [[5, 6], [1, 2]], [7, 5])
    assert same(data.tests["wine_red"], [[3, 4]], [6])
    assert same(data.tests["wine_white"], [[7, 8], [9, 10]], [4, 3])
    assert same(load_wine_shift(1, wine).tests["wine_red"], [[5, 6]], [7])


@pytest.mark.parametrize("split", [-1, 2, 0.5])
def test_no_such_split(wine: Path, split: int) -> None:
    with pytest.raises(ValueError, match="split must be an integer from 0 to 1"):
        load_wine_shift(split, wine)


def test_wines_of_other_columns(wine: Path) -> None:
    with gzip.open(wine / "uci" / "wine_white.csv.gz", "wt", encoding="utf-8") as file:
        file.write("alcohol,acid,quality\n7,8,4\n")
    with pytest.raises(ValueError, match="must have one header"):
        load_wine_shift(0, wine)


@needs_data
def test_real_wine() -> None:
    data = load_wine_shift(3)
    table, (train, test) = load_uci("wine_red"), standard_splits("wine_red")[3]
    assert np.array_equal(data.train.X, table.X[train])
    assert np.array_equal(data.tests["wine_red"].y, table.y[test])
    assert data.tests["wine_white"].X.shape == (4898, 11)


@needs_data
@pytest.mark.parametrize("name", [name for name in UCI_NAMES if name != "year"])
def test_real_splits_along_features(name: str) -> None:
    table = load_uci(name)
    n, moving = len(table.y), int((np.ptp(table.X, axis=0) > 0).sum())
    for splits, size in ((gap_splits(*table[::2]), n // 3), (tail_splits(*table[::2]), 2 * (n // 6))):
        assert len(splits) == moving
        assert all(len(split.test) == size and len(split.train) == n - size for split in splits)
