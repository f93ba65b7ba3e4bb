"""Labels of groups of any type, and splits into whole groups."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from density_regression.tabular.groups import group_codes, split_groups
from density_regression.tabular.table import held_count

DAYS = np.array(["2020-02-01", "2020-01-01", "2020-02-01", "2021-01-01"], dtype="datetime64[D]")


# -- the split --------------------------------------------------------------------------------------------------


@st.composite
def grouped_rows(draw: st.DrawFn) -> np.ndarray:
    """Numbers of groups, at least two of them, in random order."""
    sizes = draw(st.lists(st.integers(1, 30), min_size=2, max_size=12).filter(lambda sizes: sum(sizes) > 2))
    codes = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(draw(st.integers(0, 99))).permutation(codes)


@given(grouped_rows(), st.floats(0.01, 0.95), st.integers(0, 2**31 - 2))
@settings(deadline=None, max_examples=200)
def test_whole_groups_as_near_as_can_be_to_the_share(codes: np.ndarray, fraction: float, seed: int) -> None:
    train, held = split_groups(codes, fraction, seed)
    n, wanted = len(codes), held_count(len(codes), fraction)
    assert sorted([*train, *held]) == list(range(n))
    assert not set(codes[train]) & set(codes[held])
    assert len(train) >= 2
    assert len(held) >= 1
    off = abs(len(held) - wanted)
    _, sizes = np.unique(codes[train], return_counts=True)
    for size in sizes:
        assert abs(len(held) + size - wanted) >= off or len(train) - size < 2
    # More than are wanted by half the last group at most, unless that is the smallest of all.
    _, chosen = np.unique(codes[held], return_counts=True)
    assert len(held) - wanted <= chosen.max() / 2 or len(chosen) == 1
    for again, first in zip(split_groups(codes, fraction, seed), (train, held), strict=True):
        np.testing.assert_array_equal(again, first)
    # Other numbers for the same groups change nothing.
    for renamed, first in zip(split_groups(1000 - 7 * codes, fraction, seed), (train, held), strict=True):
        np.testing.assert_array_equal(renamed, first)


def test_equal_groups_give_the_share_itself() -> None:
    codes = np.arange(2000) % 200
    train, held = split_groups(codes, 0.15, 0)
    assert (len(train), len(held)) == (1700, 300)
    # Shuffled, not group by group.
    assert len(set(codes[held[:30]])) > 15


def test_too_large_groups_are_left_in_training() -> None:
    codes = np.repeat([0, 1, 2, 3], [500, 30, 60, 410])
    for seed in range(20):
        assert set(codes[split_groups(codes, 0.15, seed)[1]]) == {1, 2}
        assert set(codes[split_groups(codes, 0.01, seed)[1]]) == {1}


def test_each_of_equal_groups_is_held_out_at_times() -> None:
    codes = np.repeat(np.arange(3), 20)
    assert {int(codes[split_groups(codes, 0.15, seed)[1]][0]) for seed in range(30)} == {0, 1, 2}


def test_too_few_rows_or_groups() -> None:
    with pytest.raises(ValueError, match=r"groups has 2 group.s. in 2 rows.*give at least 3 rows"):
        split_groups(np.array([0, 1]), 0.15, 0)
    with pytest.raises(ValueError, match=r"groups has 1 group.s. in 5 rows with a positive weight.*held_out="):
        split_groups(np.zeros(5, dtype=int), 0.15, 0)


# -- labels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "groups",
    [
        [7, 3, 7, 10],
        (7.5, -1.0, 7.5, np.inf),
        ["b", "", "b", "a"],
        np.array([7, 3, 7, 10], dtype=np.uint8),
        np.array(["b", "c", "b", "a"]),
        np.array(["b", 1, "b", "1"], dtype=object),
        ["1", 1, "1", 2],
        [("b", 1), ("b", 2), ("b", 1), ("a", 1)],
        DAYS,
        DAYS.astype("datetime64[ns]"),
        DAYS.tolist(),
        [datetime.timedelta(hours=hours) for hours in (1, 2, 1, 0)],
        pd.Series(["b", "c", "b", "a"], index=[9, 8, 7, 6]),
        pd.Series(["b", "c", "b", "a"], dtype="category"),
        pd.Series(pd.array([2, 1, 2, 3], dtype="Int64")),
        pd.Series(DAYS),
        pd.Index(["b", "c", "b", "a"]),
        pl.Series(["b", "c", "b", "a"]),
        torch.tensor([7, 3, 7, 10]),
    ],
    ids=lambda groups: f"{type(groups).__name__} {getattr(groups, 'dtype', '')}",
)
def test_equal_labels_of_any_type_are_one_group(groups: Any) -> None:
    np.testing.assert_array_equal(group_codes(groups, 4), [0, 1, 0, 2])


@pytest.mark.parametrize(
    "groups",
    [
        ["a", None, "b"],
        ["a", float("nan"), "b"],
        np.array([1.0, np.nan, 2.0]),
        np.array([1, None, 2], dtype=object),
        np.array(["2020-01-01", "NaT", "2021-01-01"], dtype="datetime64[ns]"),
        np.ma.masked_array([1, 2, 3], mask=[False, True, False]),
        pd.Series(["a", None, "b"]),
        pd.Series(["a", pd.NA, "b"], dtype="string"),
        pd.Series(["a", None, "b"], dtype="category"),
        pd.Series(pd.to_datetime(["2020-01-01", None, "2021-01-01"])),
        pl.Series(["a", None, "b"]),
    ],
    ids=lambda groups: f"{type(groups).__name__} {getattr(groups, 'dtype', '')}",
)
def test_a_gap_is_refused(groups: Any) -> None:
    with pytest.raises(ValueError, match=r"groups has no label in row 1 \(got .*\): drop the rows without one"):
        group_codes(groups, 3)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1, 2], "groups has 2 labels, but X has 3 rows: give one label for each row"),
        (np.arange(6).reshape(3, 2), r"groups must have shape \(n,\), got \(3, 2\)"),
        (pd.DataFrame({"day": [1, 2, 3]}), r"groups must have shape \(n,\), got \(3, 1\)"),
        ("day", "groups must have one label for each row, got 'day': give an array"),
        (3, "groups must have one label for each row, got 3: give an array"),
        (np.array(3), "groups must have one label for each row"),
        ([[1], [2], [3]], "groups has a list as the label of row 0: give one label"),
        (["a", "a", "a"], r"groups has one group only \('a'\).*at least 2 different labels, or held_out"),
    ],
)
def test_what_is_no_label_for_each_row(groups: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group_codes(groups, 3)
