"""Folds of one's own table: at random, whole groups, and forward in time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from density_regression.experiments.compare.table import Fold, OwnTable


def table(rows: int, **more: object) -> OwnTable:
    return OwnTable("t", pa.table({"a": np.arange(float(rows))}), np.arange(float(rows)), **more)


def together(fold: Fold) -> np.ndarray:
    return np.sort(np.concatenate(fold))


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(24, 80), folds=st.integers(2, 5))
def test_random_folds_test_each_row_once_and_use_every_other(rows: int, folds: int) -> None:
    found = table(rows).folds(folds)
    np.testing.assert_array_equal(np.sort(np.concatenate([fold.test for fold in found])), np.arange(rows))
    for fold in found:
        np.testing.assert_array_equal(together(fold), np.arange(rows))
        assert abs(len(fold.test) - rows / folds) < 1
        assert len(fold.held_out) > 0


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(4, 12), min_size=5, max_size=9), folds=st.integers(2, 4), seed=st.integers(0, 99))
def test_groups_are_never_divided(sizes: list[int], folds: int, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes)).tolist()
    found = table(len(labels), groups=labels).folds(folds)
    np.testing.assert_array_equal(np.sort(np.concatenate([fold.test for fold in found])), np.arange(len(labels)))
    for fold in found:
        parts = [{labels[row] for row in part} for part in fold]
        assert all(parts)
        assert not (parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2])
        np.testing.assert_array_equal(together(fold), np.arange(len(labels)))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), folds=st.integers(2, 4), moments=st.integers(20, 60))
def test_what_is_tested_comes_after_what_trains(seed: int, folds: int, moments: int) -> None:
    time = np.random.default_rng(seed).integers(0, moments, 100).astype(float)
    found = table(100, time=time).folds(folds)
    assert len(found) == folds
    for fold in found:
        assert time[fold.train].max() < time[fold.held_out].min()
        assert time[fold.held_out].max() < time[fold.test].min()
    tested = np.concatenate([fold.test for fold in found])
    assert len(np.unique(tested)) == len(tested)
    # All that is not tested are the first rows.
    first = np.setdiff1d(np.arange(100), tested)
    assert time[first].max() < time[tested].min()


def test_the_last_part_of_what_came_before_is_held_out() -> None:
    for fold in table(400, time=np.arange(400.0)[::-1]).folds(3):
        before = len(fold.train) + len(fold.held_out)
        assert len(fold.held_out) == round(0.15 * before)
        assert len(fold.test) == 100


def test_groups_are_spread_evenly() -> None:
    labels = np.repeat(np.arange(7), [40, 20, 20, 10, 10, 10, 10]).tolist()
    sizes = [len(fold.test) for fold in table(120, groups=labels).folds(3)]
    assert sizes == [40, 40, 40]


def test_too_few_rows_moments_or_two_divisions_are_refused() -> None:
    with pytest.raises(ValueError, match="10 rows are too few for 5 folds: give 24 or more"):
        table(10).folds(5)
    with pytest.raises(ValueError, match="There are 3 groups, too few for 3 folds"):
        table(30, groups=[0, 1, 2] * 10).folds(3)
    with pytest.raises(ValueError, match="time has 2 different values"):
        table(40, time=np.repeat([1.0, 2.0], 20)).folds(3)
    with pytest.raises(ValueError, match="2 or more"):
        table(40).folds(1)
    with pytest.raises(ValueError, match="leave one of them out"):
        table(4, groups=[1, 2, 3, 4], time=np.arange(4.0))


def test_a_sample_is_always_the_same_and_in_order() -> None:
    whole = table(100, groups=[str(i) for i in range(100)])
    part = whole.sampled(30)
    np.testing.assert_array_equal(part.y, whole.sampled(30).y)
    assert (np.diff(part.y) > 0).all()
    assert part.groups == [f"{value:.0f}" for value in part.y]
    assert part.X["a"].to_pylist() == part.y.tolist()
    assert whole.sampled(100) is whole


def test_the_checksum_knows_values_groups_and_times_but_no_pieces() -> None:
    one = table(20)
    halves = OwnTable("t", pa.concat_tables([one.X.slice(0, 7), one.X.slice(7)]), one.y)
    assert halves.checksum == one.checksum
    others = [
        OwnTable("t", one.X, one.y + 1),
        OwnTable("t", one.X.rename_columns(["b"]), one.y),
        table(20, groups=[0] * 10 + [1] * 10),
        table(20, time=np.arange(20.0)),
        table(20, time=-np.arange(20.0)),
    ]
    assert len({one.checksum, *(other.checksum for other in others)}) == 6
