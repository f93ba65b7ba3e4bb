"""The column coder against a table worked out by hand, and what test rows may not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from density_regression.datasets import ColumnCoder
from density_regression.datasets.columns import MAX_VALUES

TRAIN = pd.DataFrame(
    {
        "age": [1.0, np.nan, 3.0, 8.0],
        "town": ["Ulm", "Bonn", None, "Ulm"],
        "day": ["1970-01-02", "1970-01-03T12:00", "1970-01-01", "1970-01-02"],
        "open": [True, False, True, True],
        "constant": [7, 7, 7, 7],
        "rank": [4, 3, 2, 1],
    }
)


def test_by_hand() -> None:
    coder = ColumnCoder().fit(TRAIN)
    assert coder.names == ("age", "age (missing)", "town=Ulm", "town=Bonn", "town (missing)", "day", "open", "rank")
    expected = [
        [1, 0, 1, 0, 0, 1.0, 1, 4],
        [3, 1, 0, 1, 0, 2.5, 0, 3],
        [3, 0, 0, 0, 1, 0.0, 1, 2],
        [8, 0, 1, 0, 0, 1.0, 1, 1],
    ]
    np.testing.assert_array_equal(coder.transform(TRAIN), expected)


def test_values_that_training_did_not_see() -> None:
    later = pd.DataFrame(
        {
            "rank": ["many", np.inf],
            "open": [None, "false"],
            "day": ["soon", "1971-01-01"],
            "town": ["Kiel", "Bonn"],
            "age": [-1.0, np.nan],
            "constant": [8, 9],
        }
    )
    coded = ColumnCoder().fit(TRAIN).transform(later)
    # Medians of training: rank 2.5, open 1, day 1. Kiel has no code, as "other" is constant in training.
    np.testing.assert_array_equal(coded, [[-1, 0, 0, 0, 0, 1, 1, 2.5], [3, 1, 0, 1, 0, 365, 0, 2.5]])


def test_the_most_frequent_values_have_codes_of_their_own() -> None:
    words = [f"w{number:02}" for number in range(MAX_VALUES + 3) for _ in range(2)] + ["zz"] * 3
    coder = ColumnCoder().fit(pd.DataFrame({"word": words}))
    # zz is the most frequent; of those that tie the first by the alphabet.
    assert coder.names == ("word=zz", *(f"word=w{number:02}" for number in range(MAX_VALUES - 1)), "word (other)")
    coded = coder.transform(pd.DataFrame({"word": ["w22", "never", "w00", "zz"]}))
    np.testing.assert_array_equal(coded.sum(axis=1), 1)
    np.testing.assert_array_equal(coded.argmax(axis=1), [MAX_VALUES, MAX_VALUES, 1, 0])


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([None, None, None], ()),
        (["2020-01-01", "2020-02-30", "2020-01-03"], ("x=2020-01-01", "x=2020-01-03", "x=2020-02-30")),
        (["2020", "2021", "2022"], ("x",)),
        (["1_000", "2", "3"], ("x=1_000", "x=2", "x=3")),
        ([True, None, False], ("x", "x (missing)")),
        ([1, "2", None], ("x", "x (missing)")),
        ([np.inf, 1.0, 2.0], ("x", "x (missing)")),
        ([1, 1, 1], ()),
    ],
)
def test_the_kind_of_a_column_is_that_of_its_values(values: list[Any], names: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"x": pd.Series(values, dtype="object")})
    coder = ColumnCoder().fit(frame)
    assert coder.names == names
    assert coder.transform(frame).shape == (3, len(names))
    assert np.isfinite(coder.transform(frame)).all()


def test_types_that_pandas_knows_are_coded_alike() -> None:
    plain = pd.DataFrame({"town": ["a", "b", "a"], "day": ["2020-01-01", "2020-01-02", "2020-01-05"]})
    typed = pd.DataFrame({"town": plain["town"].astype("category"), "day": pd.to_datetime(plain["day"])})
    one, other = (ColumnCoder().fit(frame) for frame in (plain, typed))
    assert one.names == other.names
    np.testing.assert_array_equal(one.transform(plain), other.transform(typed))


def test_a_frame_without_a_column_is_refused() -> None:
    with pytest.raises(ValueError, match=r"frame lacks the column\(s\) age, town"):
        ColumnCoder().fit(TRAIN).transform(TRAIN.drop(columns=["age", "town"]))
