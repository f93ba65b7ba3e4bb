"""Tables with text, dates and gaps: all eleven fit them, and scikit-learn's tools work with them."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_transformer
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

from density_regression import DensityRegressor, InvalidModelError, fit_together, load
from density_regression.nn.encoders import WithInputs, embedding_of
from density_regression.registry import estimators
from estimators.helpers import everything, moments, quick

ROWS = 240


def table(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Columns of every kind, with gaps in some; the target depends on size, town, day and clock."""
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2024-01-01")
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=rows),
            "old": rng.random(rows) < 0.5,
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], rows),
            "day": start + pd.to_timedelta(rng.integers(0, 700, rows), unit="D"),
            "clock": [f"{hour:02}:30" for hour in rng.integers(0, 24, rows)],
            "rooms": rng.integers(1, 5, rows).astype(float),
            "version": "v1",
        }
    )
    effect = frame["town"].map({"Ulm": 0.0, "Bonn": 2.0, "Kiel": 4.0})
    frame["y"] = frame["size"] + effect + frame["rooms"] + rng.normal(0, 0.1, rows)
    frame.loc[rng.random(rows) < 0.2, "rooms"] = np.nan
    frame.loc[rng.random(rows) < 0.1, "town"] = None
    return frame


FRAME = table()
TARGET = FRAME.pop("y")
NAMES = list(FRAME.columns)


@pytest.fixture(scope="module")
def reg() -> DensityRegressor:
    return quick(epochs=30).fit(FRAME, TARGET)


@pytest.fixture(params=estimators().values(), ids=list(estimators()))
def estimator(request: pytest.FixtureRequest) -> BaseEstimator:
    """Each of the eleven, to be fitted in a moment."""
    return request.param(epochs=15, hidden=(16,), n_threads=1, verbose=False, random_state=0)


def test_all_eleven(estimator: BaseEstimator, tmp_path) -> None:
    estimator.fit(FRAME, TARGET)
    assert estimator.n_features_in_ == 7
    assert estimator.feature_names_in_.tolist() == NAMES
    mean, std = estimator.predict(FRAME, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert np.corrcoef(mean, TARGET)[0, 1] > 0.5
    estimator.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.columns_ == estimator.columns_
    assert loaded.n_features_in_ == 7
    if not getattr(estimator, "n_samples", None):
        np.testing.assert_array_equal(loaded.predict(FRAME), mean)


def test_every_library_gives_the_same(reg: DensityRegressor) -> None:
    expected = moments(reg, FRAME)
    arrow = pa.Table.from_pandas(FRAME)
    for other in (pl.from_pandas(FRAME), arrow, FRAME.convert_dtypes(), arrow.to_pandas(types_mapper=pd.ArrowDtype)):
        np.testing.assert_array_equal(moments(reg, other), expected)
    again = quick(epochs=30).fit(pl.from_pandas(FRAME), TARGET)
    assert again.columns_ == reg.columns_
    np.testing.assert_array_equal(moments(again, arrow), expected)


def test_everything_of_a_row(reg: DensityRegressor) -> None:
    for answer in everything(reg, FRAME.head(3)):
        assert np.isfinite(answer).all()
    # A table is coded some rows at a time.
    many = pd.concat([FRAME] * 40, ignore_index=True)
    assert len(many) > 8192
    np.testing.assert_array_equal(reg.predict(many)[-ROWS:], reg.predict(FRAME))
    np.testing.assert_array_equal(reg.predict(FRAME.head(1)), reg.predict(FRAME)[:1])


def test_columns_are_found_by_name(reg: DensityRegressor) -> None:
    expected = reg.predict(FRAME)
    np.testing.assert_array_equal(reg.predict(FRAME[NAMES[::-1]]), expected)
    with pytest.warns(UserWarning, match="X has the columns 'id', 'note', unknown when the model was fitted: ignored"):
        np.testing.assert_array_equal(reg.predict(FRAME.assign(id=1, note=[[1]] * ROWS)), expected)
    with pytest.raises(ValueError, match=r"X lacks the columns 'old', 'day', which .* add them, empty where"):
        reg.predict(FRAME.drop(columns=["day", "old"]))
    with pytest.raises(ValueError, match="several columns named 'size'"):
        reg.predict(pd.concat([FRAME, FRAME[["size"]]], axis=1))
    with pytest.raises(ValueError, match="several columns named 'size'"):
        quick().fit(pd.concat([FRAME, FRAME[["size"]]], axis=1), TARGET)


def test_columns_that_are_left_out_are_not_needed() -> None:
    with pytest.warns(UserWarning, match="Left out of X: 'id'"):
        reg = quick().fit(FRAME.assign(id=[f"a{i}" for i in range(ROWS)]), TARGET)
    assert reg.n_features_in_ == 8
    with warnings.catch_warnings(action="error"):
        expected = reg.predict(FRAME.assign(id=None))
        np.testing.assert_array_equal(reg.predict(FRAME), expected)


GAPS = ["size", "old", "day", "clock", "version"]


def test_what_training_never_had_is_unfamiliar(reg: DensityRegressor) -> None:
    rows = FRAME.head(60)
    log_density, mean, familiarity = reg.score_samples(rows), reg.predict(rows), reg.familiarity(rows).mean()
    changed = [rows.assign(**{name: None}) for name in GAPS] + [rows.assign(town="Rome"), rows.assign(version="v2")]
    for odd in changed:
        # At least about twice the log of the improbability of what one row in 206 might have, of those that trained.
        assert np.median(log_density - reg.score_samples(odd)) > np.log(206)
        assert reg.familiarity(odd).mean() < 0.2 * familiarity
    # Two at once are stranger than one, and a column that never varied moves no mean.
    assert (reg.score_samples(rows.assign(version="v2", old=None)) < reg.score_samples(rows.assign(version="v2"))).all()
    np.testing.assert_allclose(reg.predict(rows.assign(version="v2")), mean, rtol=1e-5, atol=1e-5)
    # What training had is familiar: gaps in a column with gaps.
    assert reg.familiarity(rows.assign(rooms=np.nan)).mean() > 0.3 * familiarity


@pytest.mark.parametrize("members", [0, "auto"])
@pytest.mark.parametrize("with_inputs", ["auto", "density", False])
def test_the_column_for_the_density_is_none_of_the_network_s(members: Any, with_inputs: Any) -> None:
    reg = quick(members=members, with_inputs=with_inputs).fit(FRAME, TARGET)
    encoder = reg.model_.encoder
    first = next(part for part in encoder.modules() if isinstance(part, nn.Linear))
    last = embedding_of(encoder).columns - 1
    assert bool(first.weight[:, last].any()) == (with_inputs is False)
    read = reg.model_.head.features
    if isinstance(encoder, WithInputs):
        assert read == 16 + (last if with_inputs == "auto" else 0)
    assert reg.score_samples(FRAME.assign(version="v2")).mean() < reg.score_samples(FRAME).mean()


def test_held_out_rows_and_groups(reg: DensityRegressor) -> None:
    half, rest = (FRAME[:120], TARGET[:120]), (FRAME[120:], TARGET[120:])
    one = quick().fit(*half, held_out=rest)
    np.testing.assert_array_equal(
        moments(quick().fit(*half, held_out=(rest[0][NAMES[::-1]], rest[1])), FRAME), moments(one, FRAME)
    )
    # The code is that of the rows that train.
    assert one.columns_.coders[0].rows == 120
    assert reg.columns_.coders[0].rows == 204
    with pytest.raises(ValueError, match="X lacks the column 'size'"):
        quick().fit(*half, held_out=(rest[0].drop(columns="size"), rest[1]))
    grouped = quick().fit(FRAME, TARGET, groups=FRAME["day"].dt.month)
    assert np.isfinite(grouped.predict(FRAME)).all()
    # Held-out rows may have what the others have not.
    new = quick().fit(*half, held_out=(rest[0].assign(town="Rome", size=np.nan), rest[1]))
    assert np.isfinite(everything(new, FRAME)[0]).all()


def test_weights(reg: DensityRegressor) -> None:
    weight = np.r_[np.ones(200), np.zeros(40)]
    odd = FRAME.copy()
    odd.loc[200:, "size"] = np.nan
    np.testing.assert_array_equal(
        moments(quick().fit(odd, TARGET, weight), FRAME), moments(quick().fit(FRAME[:200], TARGET[:200]), FRAME)
    )


def test_arrays_with_gaps(friedman) -> None:
    X = friedman.X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    X[:, 4:] = friedman.X[:, 4:]
    reg = quick(epochs=30).fit(X, friedman.y)
    assert reg.columns_.names[:3] == ("0", "0 (missing)", "1")
    assert not hasattr(reg, "feature_names_in_")
    assert reg.n_features_in_ == 10
    assert reg.score(X, friedman.y) > 0.3
    np.testing.assert_array_equal(reg.predict(X.tolist()), reg.predict(X))
    np.testing.assert_array_equal(reg.predict(np.where(np.isnan(X), None, X)), reg.predict(X))
    gap = X.copy()
    gap[:, 7] = np.nan
    assert (reg.score_samples(gap) < reg.score_samples(X)).mean() > 0.9
    with pytest.raises(ValueError, match="X has 9 features, but DensityRegressor is expecting 10"):
        reg.predict(X[:, 1:])
    with pytest.raises(ValueError, match="infinity"):
        reg.predict(np.where(np.isnan(X), np.inf, X))
    with pytest.warns(UserWarning, match="X has feature names"):
        np.testing.assert_array_equal(reg.predict(pd.DataFrame(X).add_prefix("x")), reg.predict(X))
    np.testing.assert_array_equal(quick(epochs=30).fit(pd.DataFrame(X), friedman.y).predict(X), reg.predict(X))


def test_an_array_for_a_model_of_a_frame(reg: DensityRegressor) -> None:
    with (
        pytest.warns(UserWarning, match="valid feature names"),
        pytest.raises(ValueError, match=r"X is no table of numbers .* give a data frame"),
    ):
        reg.predict(FRAME.to_numpy())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": [np.inf] * ROWS}, r"column 'size' of X contains infinity \(row 0\)"),
        ({"size": ["a"] + [1] * (ROWS - 1)}, "column 'size' of X has mixed types"),
        ({"size": [[1]] * ROWS}, "column 'size' of X holds a list"),
    ],
)
def test_bad_columns_are_refused(reg: DensityRegressor, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(FRAME.assign(**change), TARGET)
    with pytest.raises(ValueError, match=message):
        reg.predict(FRAME.assign(**change))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (FRAME.head(0), TARGET.head(0), "0 sample"),
        (FRAME.head(1), TARGET.head(1), "minimum of 2"),
        (FRAME, TARGET[:-1], "inconsistent numbers of samples"),
        (FRAME, TARGET.where(TARGET > 0), "y contains NaN"),
        (FRAME, None, "requires y|target y is None"),
        (FRAME[["size", "town"]].assign(size=np.nan, town=None), TARGET, "only gaps"),
        (np.full((9, 2), np.nan), np.arange(9.0), "only gaps"),
        (pl.from_pandas(FRAME).lazy(), TARGET, r"give X.collect\(\)"),
    ],
)
def test_bad_tables_are_refused(X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(X, y)


def test_a_failed_fit_leaves_the_regressor_as_it_was(reg: DensityRegressor) -> None:
    one = clone(reg).fit(FRAME, TARGET)
    with pytest.raises(ValueError, match="inconsistent"):
        one.fit(FRAME[["size", "town"]], TARGET[:-1])
    np.testing.assert_array_equal(one.predict(FRAME), reg.predict(FRAME))


def test_a_fit_to_numbers_forgets_the_columns(cubic) -> None:
    reg = quick().fit(FRAME, TARGET).fit(*cubic)
    assert reg.columns_ is None
    np.testing.assert_array_equal(reg.predict(cubic.X), quick().fit(*cubic).predict(cubic.X))


def test_a_trained_network_takes_numbers_alone() -> None:
    with pytest.raises(ValueError, match="a network that is trained already cannot read"):
        DensityRegressor.from_trained(nn.Identity(), FRAME, TARGET)


def test_own_encoder() -> None:
    def encoder(columns: int) -> nn.Module:
        return nn.Sequential(nn.Linear(columns, 8), nn.Tanh())

    reg = quick(encoder=encoder).fit(FRAME, TARGET)
    assert reg.model_.encoder[0].in_features == len(reg.columns_.names)
    assert np.isfinite(reg.predict(FRAME)).all()


def test_resumed_fit_is_that_of_the_same_table(tmp_path) -> None:
    one = quick(checkpoint_dir=tmp_path, random_state=None).fit(FRAME, TARGET)
    again = quick(checkpoint_dir=tmp_path, random_state=None).fit(pl.from_pandas(FRAME), TARGET)
    assert again.report_.seconds["pretrain"] == 0
    np.testing.assert_array_equal(again.predict(FRAME), one.predict(FRAME))
    other = quick(checkpoint_dir=tmp_path, random_state=None).fit(FRAME.assign(version="v2"), TARGET)
    assert other.report_.seconds["pretrain"] > 0


def test_fit_together() -> None:
    regs = [quick(members=0, random_state=seed) for seed in range(2)]
    fit_together(regs, [(FRAME, TARGET)] * 2)
    for seed, one in enumerate(regs):
        alone = quick(members=0, random_state=seed).fit(FRAME, TARGET)
        np.testing.assert_allclose(moments(one, FRAME), moments(alone, FRAME), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("change", [[], [{"kind": "number"}], "nothing", {"a": 1}])
def test_an_edited_folder_is_refused(reg: DensityRegressor, change: Any) -> None:
    config: dict[str, Any] = {}

    def keep(folder: object, content: dict[str, Any], tensors: object) -> None:
        config.update(content, tensors=tensors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("density_regression.estimators.serialisation.write_model", keep)
        reg.save("nowhere")
    tensors = config.pop("tensors")
    assert DensityRegressor._from_saved(config, tensors, None).columns_ == reg.columns_
    with pytest.raises(InvalidModelError, match="saved columns"):
        DensityRegressor._from_saved(config | {"columns": change}, tensors, None)


def test_a_folder_without_columns_has_no_word_about_them(fitted, tmp_path) -> None:
    fitted.save(tmp_path / "model")
    assert "columns" not in json.loads((tmp_path / "model" / "model.json").read_text(encoding="utf-8"))


# -- scikit-learn's tools ------------------------------------------------------------------------------------------


def test_model_selection() -> None:
    scores = cross_val_score(quick(epochs=30), FRAME, TARGET, cv=2)
    assert scores.min() > 0.3
    search = GridSearchCV(quick(), {"hidden": [(4,), (16,)]}, cv=2, error_score="raise").fit(FRAME, TARGET)
    assert search.n_features_in_ == 7
    assert np.isfinite(search.predict(FRAME)).all()


def test_pipeline_with_frames_between_steps(reg: DensityRegressor) -> None:
    scale = make_column_transformer(
        (StandardScaler(), ["size"]), remainder="passthrough", verbose_feature_names_out=False
    )
    for output in ("pandas", "polars"):
        given = FRAME if output == "pandas" else pl.from_pandas(FRAME)
        pipeline = make_pipeline(scale.set_output(transform=output), quick(epochs=30)).fit(given, TARGET)
        np.testing.assert_allclose(pipeline.predict(given), reg.predict(FRAME), rtol=1e-3, atol=1e-3)
    kept = make_pipeline(FunctionTransformer(), quick(epochs=30)).fit(FRAME, TARGET)
    np.testing.assert_array_equal(kept.predict(FRAME), reg.predict(FRAME))


def test_permutation_importance(reg: DensityRegressor) -> None:
    result = permutation_importance(reg, FRAME, TARGET, n_repeats=3, random_state=0)
    importance = dict(zip(NAMES, result.importances_mean, strict=True))
    assert importance["town"] > max(importance["old"], importance["version"], 0.1)
    assert importance["version"] == 0


def test_partial_dependence(reg: DensityRegressor) -> None:
    town = partial_dependence(
        reg, FRAME.assign(town=FRAME["town"].fillna("Ulm")), ["town"], categorical_features=["town"]
    )
    effect = dict(zip(town["grid_values"][0], town["average"][0], strict=True))
    assert effect["Ulm"] < effect["Bonn"] < effect["Kiel"]
    size = partial_dependence(reg, FRAME, ["size"], grid_resolution=5)
    assert size["average"][0][-1] > size["average"][0][0]


def test_arrays_need_no_library_of_frames() -> None:
    code = """
import builtins
usual = builtins.__import__
def without(name, *args):
    if name.partition(".")[0] in ("pandas", "polars", "pyarrow"):
        raise ModuleNotFoundError(name)
    return usual(name, *args)
builtins.__import__ = without
import numpy as np
from density_regression import DensityRegressor
from density_regression.estimators.tables import training_rows
from density_regression.tabular.columns import Columns
X = np.array([[1.0, np.nan], [2.0, 3.0], [np.nan, 1.0], [4.0, 4.0]] * 5)
table, _ = training_rows(DensityRegressor(), X, np.arange(20.0))
assert np.isfinite(Columns.fit(table, ["a", "b"]).coded(table)).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
