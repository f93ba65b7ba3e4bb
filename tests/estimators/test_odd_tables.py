"""Tables that are odd or refused, and fits that fail."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from torch import nn

from density_regression import GaussianDensity
from estimators.helpers import X20, Y20, Interrupting, assert_sound, everything, moments, quick

# -- odd tables: a finite answer --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e300, 1e-300, 1e200, 1e-200])
def test_values_of_any_size(cubic, size: float) -> None:
    X, y = cubic.X / 4, cubic.y / 60
    expected = moments(quick().fit(X, y), X)
    large_X = quick().fit(size * X, y)
    np.testing.assert_allclose(moments(large_X, size * X), expected, rtol=1e-6, atol=1e-6)
    large_y = quick().fit(X, size * y)
    np.testing.assert_allclose(moments(large_y, X) / size, expected, rtol=1e-6, atol=1e-6)
    assert_sound(large_y, X)
    assert_sound(large_y, 1e20 * X)
    assert_sound(large_X, X)
    assert_sound(quick().fit(X, y), size * X)


@pytest.mark.parametrize("rows", [*range(2, 21)])
def test_few_rows(friedman, rows: int) -> None:
    X, y = friedman.X[:rows], friedman.y[:rows]
    assert_sound(quick(epochs=3).fit(X, y), friedman.X)
    assert_sound(quick(epochs=3, validation_fraction=0.0).fit(X[:, :1], y), friedman.X[:, :1])


def test_constant_column(cubic) -> None:
    X = np.column_stack([cubic.X, np.full(200, 0.1), np.full(200, 1e12), np.zeros(200)])
    reg = quick(epochs=15).fit(X, cubic.y)
    assert reg.score(X, cubic.y) > 0.9
    assert_sound(reg, X)
    moved = X.copy()
    moved[:, 1] += 100.0
    assert_sound(reg, moved)
    assert (moments(reg, moved)[1] > moments(reg, X)[1]).all()


def test_constant_column_with_weights(cubic) -> None:
    """A weighted mean of equal numbers may miss them by a rounding, which is no spread to divide by."""
    X = np.column_stack([cubic.X, np.full(200, 0.1)])
    reg = quick().fit(X, cubic.y, np.random.default_rng(0).uniform(0.1, 1.0, 200))
    np.testing.assert_allclose(moments(reg, X + np.array([0.0, 1e-6])), moments(reg, X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [0.0, 0.1, -3e7])
def test_constant_target(cubic, value: float) -> None:
    reg = quick(epochs=400).fit(cubic.X, np.full(200, value))
    np.testing.assert_allclose(reg.predict(cubic.X), value, rtol=1e-6, atol=1e-6)
    assert_sound(reg, cubic.X)
    std = moments(reg, cubic.X)[1]
    assert np.median(std) < 1e-3 + 1e-8 * abs(value)
    # The variance begins to grow at the outermost rows.
    assert std.max() < 1e-2 + 1e-7 * abs(value)


def test_column_of_the_smallest_number(cubic) -> None:
    """Its standard deviation is no number above 0: as good as constant."""
    tiny = 5e-324 * (np.arange(len(cubic.X)) % 2)
    reg = quick().fit(np.column_stack([cubic.X, tiny]), cubic.y)
    assert_sound(reg, np.column_stack([cubic.X, tiny]))
    assert_sound(quick().fit(cubic.X, tiny), cubic.X)


def test_nothing_to_learn_from(cubic) -> None:
    assert_sound(quick().fit(np.full((50, 2), 7.0), np.full(50, -1.0)), [[7.0, 7.0], [0.0, 1e9]])
    assert_sound(quick().fit(np.ones((200, 1)), cubic.y), cubic.X)
    one_of_two_constant = np.column_stack([cubic.y, np.ones(200)])
    reg = quick(epochs=15).fit(cubic.X, one_of_two_constant)
    assert_sound(reg, cubic.X)
    assert np.corrcoef(reg.predict(cubic.X)[:, 0], cubic.y)[0, 1] > 0.9


def test_repeated_rows(cubic) -> None:
    X, y = np.repeat(cubic.X[:5], 40, axis=0), np.repeat(cubic.y[:5], 40)
    assert_sound(quick().fit(X, y), cubic.X)


def test_wide_table() -> None:
    rng = np.random.default_rng(0)
    reg = quick().fit(rng.normal(size=(12, 200)), rng.normal(size=12))
    assert_sound(reg, rng.normal(size=(30, 200)))


# -- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.where(X20 > 0.9, np.inf, X20), Y20, "contains infinity"),
        ([["red"]] * 20, Y20, "red"),
        (X20[:0], Y20[:0], "0 sample"),
        (X20[:1], Y20[:1], "1 sample.* minimum of 2"),
        (X20[:, :0], Y20, "0 feature"),
        (X20[:, 0], Y20, "Expected 2D array"),
        (X20[:, :, None], Y20, "dim 3"),
        (X20, Y20[:-1], "inconsistent numbers of samples"),
        (X20, np.where(Y20 > 2.9, np.nan, Y20), "contains NaN"),
        (X20, np.where(Y20 > 2.9, -np.inf, Y20), "contains infinity"),
        (X20, ["red"] * 20, "red"),
        (X20, np.zeros((20, 2, 2)), "dim 3"),
        (X20, np.zeros((20, 0)), "0 feature"),
        (X20, None, "requires y"),
    ],
)
def test_bad_tables(X: object, y: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(X, y)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[np.nan]], "contains NaN"),
        ([[-np.inf]], "contains infinity"),
        ([["red"]], "red"),
        (np.zeros((0, 1)), "0 sample"),
        ([1.0, 2.0], "Expected 2D array"),
        ([[1.0, 2.0]], "X has 2 features, but DensityRegressor is expecting 1 features"),
    ],
)
@pytest.mark.parametrize("method", ["predict", "score_samples", "sample", "decompose"])
def test_bad_rows(fitted, method: str, X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(fitted, method)(X)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("density", "gauss"),
        ("density", GaussianDensity),
        ("tempering", "warm"),
        ("tempering", None),
        ("head", "tail"),
        ("hidden", ()),
        ("hidden", (16, 0)),
        ("hidden", (-3,)),
        ("hidden", (10.5,)),
        ("hidden", ("wide",)),
        ("hidden", 16),
        ("epochs", 0),
        ("epochs", 2.5),
        ("batch_size", 0),
        ("batch_size", "big"),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("weight_decay", -1e-3),
        ("patience", 0),
        ("validation_fraction", 1),
        ("validation_fraction", -0.1),
        ("precision", "8-bit"),
        ("n_threads", 0),
        ("verbose", "loud"),
        ("random_state", "lucky"),
        ("encoder", "transformer"),
        ("encoder", 3),
        ("encoder", lambda inputs: inputs),
        ("encoder", nn.Flatten(0)),
        ("encoder", nn.LSTM(1, 4)),
    ],
)
def test_bad_parameters(name: str, value: object) -> None:
    """The message names the parameter."""
    with pytest.raises(ValueError, match=name):
        quick(**{name: value}).fit(X20, Y20)


def test_held_out_rows_have_no_weights() -> None:
    with pytest.raises(ValueError, match=r"held_out must be a pair \(X, y\), without weights; got 3 parts"):
        quick().fit(X20, Y20, held_out=(X20, Y20, np.ones(20)))


@pytest.mark.parametrize("share", [0.2, {"X": X20, "y": Y20}, "Xy", X20])
def test_held_out_is_a_pair(share: object) -> None:
    with pytest.raises(ValueError, match=rf"held_out must be a pair .*got {type(share).__name__}"):
        quick().fit(X20, Y20, held_out=share)


@pytest.mark.parametrize("gap", [None, np.inf, "nan"])
def test_gaps_among_targets_that_are_objects(gap: object) -> None:
    y = Y20.astype(object)
    y[3] = gap
    with pytest.raises(ValueError, match="Input y contains"):
        quick().fit(X20, y)
    with pytest.raises(ValueError, match="Input y contains"):
        quick().fit(X20, Y20, held_out=(X20, y))


def test_masked_entries_are_no_numbers() -> None:
    """What is under a mask is anything, such as the -9999 of a sensor that was off."""
    masked_X, masked_y = (np.ma.masked_greater(values, 0.9) for values in (X20, Y20))
    with pytest.raises(ValueError, match="X has masked entries"):
        quick().fit(masked_X, Y20)
    with pytest.raises(ValueError, match="y has masked entries"):
        quick().fit(X20, masked_y)
    with pytest.raises(ValueError, match="sample_weight has masked entries"):
        quick().fit(X20, Y20, masked_y)
    nothing_masked = np.ma.masked_greater(X20, 1.1)
    reg = quick().fit(nothing_masked, Y20)
    np.testing.assert_array_equal(moments(reg, nothing_masked), moments(quick().fit(X20, Y20), X20))
    with pytest.raises(ValueError, match="X has masked entries"):
        reg.predict(masked_X)


def test_lazy_frames_hold_no_values(fitted) -> None:
    polars = pytest.importorskip("polars")
    lazy_X, lazy_y = polars.LazyFrame({"a": X20[:, 0]}), polars.LazyFrame({"y": Y20})
    with pytest.raises(ValueError, match=r"X is a LazyFrame.*give X\.collect\(\)"):
        quick().fit(lazy_X, Y20)
    with pytest.raises(ValueError, match=r"y is a LazyFrame.*give y\.collect\(\)"):
        quick().fit(X20, lazy_y)
    with pytest.raises(ValueError, match="sample_weight is a LazyFrame"):
        quick().fit(X20, Y20, lazy_y)
    with pytest.raises(ValueError, match="X is a LazyFrame"):
        fitted.predict(lazy_X)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("epoch", "did you mean 'epochs'"), ("tempring", "did you mean 'tempering'"), ("C", "it has head")],
)
def test_unknown_parameters_are_told_from_known_ones(name: str, hint: str) -> None:
    with pytest.raises(TypeError, match=f"^DensityRegressor has no parameter {name!r}: {hint}"):
        quick(**{name: 3})


def test_the_other_gpu_lacks_float64() -> None:
    with pytest.raises(ValueError, match=r"got 'mps'.*float64"):
        quick(device="mps").fit(X20, Y20)


def test_sparse_targets() -> None:
    with pytest.raises(ValueError, match=r"y must be dense.*toarray"):
        quick().fit(X20, csr_matrix(Y20[:, None]))


@pytest.mark.parametrize("unit", ["M8[s]", "m8[s]"])
def test_dates_are_no_numbers(unit: str) -> None:
    """One that is missing would be -9e18."""
    times = np.array(["NaT", *range(19)], dtype=unit)
    with pytest.raises(ValueError, match="y holds dates or times"):
        quick().fit(X20, times)
    with pytest.raises(ValueError, match="y holds dates or times"):
        quick().fit(X20, list(times))
    with pytest.raises(ValueError, match="X holds dates or times"):
        quick().fit(times[:, None], Y20)


def test_encoder_of_the_wrong_shape_is_told_what_to_return() -> None:
    with pytest.raises(ValueError, match=r"encoder must return features of shape \(batch, d\)"):
        quick(encoder=nn.Flatten(0)).fit(X20, Y20)
    with pytest.raises(ValueError, match=r"encoder must return features .* got tuple"):
        quick(encoder=nn.LSTM(1, 4)).fit(X20, Y20)
    with pytest.raises(ValueError, match="encoder must be or return a torch module, got int"):
        quick(encoder=int).fit(X20, Y20)


def test_per_position_features_do_not_suit_a_table() -> None:
    positions = nn.Sequential(nn.Linear(1, 6), nn.Unflatten(1, (3, 2)))
    with pytest.raises(ValueError, match="the model predicts"):
        quick(encoder=positions).fit(X20, Y20)


def test_diverging_training_is_an_error() -> None:
    with pytest.raises(ValueError, match="learning_rate"):
        quick(learning_rate=1e12, head="mean").fit(X20, Y20)


# -- a refit that fails loses nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "factor", "error"),
    [
        ({}, np.nan, ValueError),
        ({"hidden": ()}, 3.0, ValueError),
        ({"epochs": 0}, 3.0, ValueError),
        ({"learning_rate": 1e12, "head": "mean"}, 3.0, ValueError),
        ({"encoder": nn.Flatten(0)}, 3.0, ValueError),
        ({"encoder": Interrupting()}, 3.0, KeyboardInterrupt),
    ],
    ids=["input", "late parameter", "early parameter", "divergence", "encoder", "interrupt"],
)
def test_failed_refit_keeps_what_was_learnt(cubic, params: dict[str, object], factor: float, error: type) -> None:
    reg = quick().fit(*cubic)
    before = everything(reg, cubic.X)
    with pytest.raises(error):
        reg.set_params(**params).fit(factor * cubic.X + 1.0, np.column_stack([cubic.y, 7 * cubic.y]))
    for old, new in zip(before, everything(reg, cubic.X), strict=True):
        np.testing.assert_array_equal(new, old)


def test_failed_refit_to_a_table_of_another_width(cubic, friedman) -> None:
    reg = quick().fit(*cubic)
    before = moments(reg, cubic.X)
    with pytest.raises(ValueError, match="hidden"):
        reg.set_params(hidden=()).fit(*friedman)
    np.testing.assert_array_equal(moments(reg, cubic.X), before)


def test_failed_first_fit_leaves_it_unfitted() -> None:
    reg = quick(encoder=nn.Flatten(0))
    with pytest.raises(ValueError, match="encoder"):
        reg.fit(X20, Y20)
    with pytest.raises(ValueError, match="not fitted"):
        reg.predict(X20)
