"""Data frames, lists and arrays of other types."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from torch import nn

from density_regression import DensityRegressor
from density_regression.datasets import make_cubic
from estimators.helpers import moments, quick


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    """Columns of several types, the target last."""
    rng = np.random.default_rng(0)
    size, count = rng.normal(size=150), rng.integers(0, 5, 150)
    old = rng.random(150) < 0.5
    return {"size": size, "count": count, "old": old, "price": size + count + old + rng.normal(0, 0.1, 150)}


@pytest.fixture(params=["pandas", "polars"])
def frame(request, columns):
    """The same columns as a data frame of each library."""
    return pd.DataFrame(columns) if request.param == "pandas" else pl.DataFrame(columns)


NAMES = ["size", "count", "old"]
DAYS = pd.date_range("2026-01-01", periods=150)


def test_frame_gives_what_arrays_give(frame, columns) -> None:
    array = np.column_stack([columns[name] for name in NAMES]).astype(float)
    from_frame = quick().fit(frame[NAMES], frame["price"])
    assert from_frame.feature_names_in_.tolist() == NAMES
    assert from_frame.n_features_in_ == 3
    from_array = quick().fit(array, columns["price"])
    assert not hasattr(from_array, "feature_names_in_")
    np.testing.assert_array_equal(moments(from_frame, frame[NAMES]), moments(from_array, array))
    assert from_frame.score(frame[NAMES], frame["price"]) == from_array.score(array, columns["price"])


def test_frame_with_other_columns_is_refused(frame) -> None:
    reg = quick().fit(frame[NAMES], frame["price"])
    with pytest.raises(ValueError, match="same order"):
        reg.predict(frame[NAMES[::-1]])
    with pytest.raises(ValueError, match="unseen at fit time"):
        reg.predict(frame[["size", "count", "price"]])
    with pytest.raises(ValueError, match="missing"):
        reg.score_samples(frame[["size", "count"]])
    with pytest.warns(UserWarning, match="valid feature names"):
        reg.predict(np.zeros((1, 3)))


def test_frame_of_targets(frame) -> None:
    reg = quick().fit(frame[NAMES], frame[["price", "size"]])
    assert reg.predict(frame[NAMES]).shape == (150, 2)


def test_names_are_forgotten_at_the_next_fit(frame, columns) -> None:
    reg = quick().fit(frame[NAMES], frame["price"])
    reg.fit(np.asarray(frame[NAMES], dtype=float), columns["price"])
    assert not hasattr(reg, "feature_names_in_")


def test_from_trained_keeps_names(frame) -> None:
    half = (frame[NAMES][:75], frame["price"][:75])
    held_out = (frame[NAMES][75:], frame["price"][75:])
    reg = DensityRegressor.from_trained(nn.Identity(), *half, held_out=held_out, random_state=0)
    assert reg.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="same order"):
        DensityRegressor.from_trained(nn.Identity(), *half, held_out=(frame[NAMES[::-1]], frame["price"]))


def test_text_and_dates_for_a_model_of_numbers_are_refused(frame) -> None:
    reg = quick().fit(frame[NAMES], frame["price"])
    is_pandas = isinstance(frame, pd.DataFrame)
    for values, message in (
        (["much"] * 150, "has text in column 'size' of X"),
        (DAYS, "column 'size' of X holds dates"),
    ):
        odd = frame.assign(size=values) if is_pandas else frame.with_columns(size=pl.Series(list(values)))
        with pytest.raises(ValueError, match=message):
            reg.predict(odd[NAMES])
        with pytest.raises(ValueError, match="y holds dates or times" if values is DAYS else "much"):
            quick().fit(frame[NAMES], odd["size"])


def test_gaps_for_a_model_without_are_refused(frame) -> None:
    reg = quick().fit(frame[NAMES], frame["price"])
    array = np.column_stack([frame[name] for name in NAMES]).astype(float)
    array[3, 1] = np.nan
    odd = pd.DataFrame(array, columns=NAMES) if isinstance(frame, pd.DataFrame) else pl.DataFrame(array, schema=NAMES)
    with pytest.raises(ValueError, match=r"column 'count' of X contains NaN \(row 3\), .* fit to rows"):
        reg.predict(odd)
    with pytest.raises(ValueError, match="contains NaN"):
        quick().fit(frame[NAMES], frame["price"], held_out=(odd, frame["price"]))


def test_pandas_own_types(columns) -> None:
    plain = pd.DataFrame(columns)
    typed = plain.convert_dtypes()
    expected = moments(quick().fit(plain[NAMES], plain["price"]), plain[NAMES])
    actual = moments(quick().fit(typed[NAMES], typed["price"]), typed[NAMES])
    np.testing.assert_array_equal(actual, expected)


def test_shuffled_index_is_ignored(columns) -> None:
    plain = pd.DataFrame(columns)
    shuffled = plain.set_index(np.random.default_rng(0).permutation(len(plain)))
    expected = quick().fit(plain[NAMES], plain["price"]).predict(plain[NAMES])
    np.testing.assert_array_equal(quick().fit(shuffled[NAMES], plain["price"]).predict(shuffled[NAMES]), expected)


def test_lists_and_other_types(cubic) -> None:
    X, y = cubic
    expected = moments(quick().fit(X, y), X)
    np.testing.assert_array_equal(moments(quick().fit(X.tolist(), y.tolist()), X.tolist()), expected)
    np.testing.assert_array_equal(moments(quick().fit(np.asfortranarray(X), y.astype(object)), X), expected)


def test_float32_is_taken_as_it_is(cubic) -> None:
    short = [part.astype(np.float32) for part in cubic]
    long = [part.astype(np.float64) for part in short]
    np.testing.assert_array_equal(moments(quick().fit(*short), short[0]), moments(quick().fit(*long), long[0]))


def test_integers() -> None:
    X, y = np.arange(100)[:, None], np.arange(100) * 3
    mean = quick(epochs=60).fit(X, y).predict(X)
    assert mean.dtype == np.float64
    assert np.abs(mean - y).max() < 0.15 * np.ptp(y)


def test_inputs_are_left_alone() -> None:
    X, y = make_cubic(50, random_state=0)
    weight = np.ones(50)
    for array in (X, y, weight):
        array.flags.writeable = False
    reg = quick().fit(X, y, weight)
    reg.predict(X)
    reg.score_samples(X)
