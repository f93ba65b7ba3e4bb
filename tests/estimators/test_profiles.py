"""The profile of a fitted regressor: the rows that trained, and its quality on those held out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

from density_regression import DensityRegressor, InvalidModelError, fit_together, load, metrics
from density_regression.baselines import GaussianRegressor
from density_regression.estimators import profiling
from density_regression.estimators.profiling import held_out_quality
from density_regression.registry import estimators
from density_regression.tabular.profile import LEVELS
from density_regression.tabular.table import TrainingRows
from estimators.helpers import quick

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "size": RNG.normal(size=90),
        "open": RNG.random(90) < 0.3,
        "town": RNG.choice(np.array(["Ulm", "Bonn", None], object), 90),
        "day": pd.date_range("2024-01-01", periods=90),
    }
)
PRICE = pd.Series(np.exp(FRAME["size"] + 0.3 * RNG.normal(size=90)), name="price")
NUMBERS = FRAME[["size", "open"]]


@pytest.mark.parametrize("name", estimators())
@pytest.mark.parametrize("target", ["identity", "log"])
def test_quality_is_that_of_the_public_predictions(name: str, target: str) -> None:
    reg = estimators()[name](hidden=(8,), epochs=2, random_state=0, target=target, n_threads=1)
    X, y = NUMBERS[60:], PRICE[60:].to_numpy().copy()
    reg.fit(NUMBERS[:60], PRICE[:60], held_out=(X, y))
    quality = reg.profile_.held_out
    assert quality.rows == 30
    law = reg.predict_dist(X)
    assert quality.nll == pytest.approx(metrics.nll_own(y, law), rel=1e-5)
    assert quality.rmse == pytest.approx(metrics.rmse(y, reg.predict(X)), rel=1e-5)
    low, high = reg.predict_interval(X, coverage=0.9)
    assert quality.coverage == pytest.approx(((low <= y) & (y <= high)).mean())
    own = metrics.crps if target == "identity" else metrics.crps_log_normal
    assert quality.crps == pytest.approx(own(y, law.loc.numpy(), law.scale.numpy()), rel=1e-5)


@pytest.mark.parametrize("frame", [FRAME, pl.from_pandas(FRAME), pa.Table.from_pandas(FRAME)], ids=["pd", "pl", "pa"])
def test_columns_of_a_frame_with_a_code(frame: object) -> None:
    profile = quick().fit(frame, PRICE).profile_
    assert profile.rows == 76
    assert profile.held_out.rows == 14
    assert [(column.name, column.kind) for column in profile.columns] == [
        ("size", "number"), ("open", "boolean"), ("town", "category"), ("day", "date")
    ]  # fmt: skip
    assert profile.columns[2].values == ("Bonn", "Ulm") or profile.columns[2].values == ("Ulm", "Bonn")
    assert profile.columns[2].gaps + sum(profile.columns[2].shares) == pytest.approx(1)
    assert profile.target.name == "price"


@pytest.mark.parametrize("frame", [NUMBERS, pl.from_pandas(NUMBERS), pa.Table.from_pandas(NUMBERS)])
def test_columns_of_plain_numbers(frame: object) -> None:
    reg = quick().fit(frame, PRICE.to_numpy())
    size, is_open = reg.profile_.columns
    assert reg.columns_ is None
    assert (size.name, size.kind, size.gaps) == ("size", "number", 0.0)
    assert (is_open.name, is_open.kind, is_open.values) == ("open", "boolean", ("True", "False"))
    assert reg.profile_.target.name == "y"


def test_only_rows_that_train_are_described() -> None:
    X = np.arange(20.0)[:, None]
    profile = quick().fit(X[:10], X[:10, 0], held_out=(X[10:], X[10:, 0])).profile_
    expected = tuple(np.quantile(np.arange(10.0), LEVELS, method="inverted_cdf"))
    assert (profile.rows, profile.columns[0].name) == (10, "0")
    assert profile.columns[0].quantiles == profile.target.quantiles == expected


def test_names_of_several_targets() -> None:
    X, Y = np.arange(40.0).reshape(20, 2), np.random.default_rng(0).normal(size=(20, 2))
    for given, names in ((Y, ["y0", "y1"]), (pd.DataFrame(Y, columns=["a", 7]), ["a", "7"])):
        reg = quick().fit(X, given)
        assert [target.name for target in reg.profile_.targets] == names
    first, second = (target.held_out for target in reg.profile_.targets)
    assert first.rows == second.rows == 5
    assert first.rmse != second.rmse


def test_no_quality_where_nothing_is_held_out() -> None:
    profile = quick(validation_fraction=0.0).fit(NUMBERS, PRICE).profile_
    assert (profile.rows, profile.held_out) == (90, None)


def test_weights_count_in_the_quality_and_rows_without_any_are_no_rows() -> None:
    X = np.random.default_rng(0).normal(size=(200, 1))
    wild = np.arange(200) % 4 == 0
    y = np.where(wild, 1e6, 0.0) + X[:, 0]
    reg = quick().fit(X, y, sample_weight=np.where(wild, 1e-10, 1.0))
    assert reg.profile_.rows + reg.profile_.held_out.rows == 200
    # Of a quarter of the rows it would be half a million.
    assert reg.profile_.held_out.rmse < 100
    assert reg.profile_.held_out.coverage > 0.9
    none = quick().fit(X, y, sample_weight=np.where(wild, 0.0, 1.0)).profile_
    assert none.rows + none.held_out.rows == 150
    assert none.target.quantiles[-1] < 10


@pytest.mark.parametrize("target", ["identity", "log"])
def test_a_row_of_weight_three_counts_as_three_rows(target: str) -> None:
    reg = quick(target=target)
    prepared = reg._prepare(NUMBERS, PRICE, None, (NUMBERS[:20], PRICE[:20]))
    reg.fit(NUMBERS, PRICE, held_out=(NUMBERS[:20], PRICE[:20]))
    x, y, _ = prepared.held_out
    count = torch.tensor([3, 1] * 10)
    weighted = TrainingRows(x, y, count.float())
    repeated = TrainingRows(x.repeat_interleave(count, 0), y.repeat_interleave(count, 0), torch.ones(40))
    (one,), (other,), (plain,) = (
        held_out_quality(reg, prepared._replace(held_out=rows)) for rows in (weighted, repeated, prepared.held_out)
    )
    assert (one.rows, other.rows) == (20, 40)
    for name in ("nll", "rmse", "crps"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-6)
        assert getattr(one, name) != pytest.approx(getattr(plain, name), rel=1e-3)
    assert one.coverage == pytest.approx(other.coverage)
    assert plain == reg.profile_.held_out


def test_auto_describes_the_law_it_chose() -> None:
    reg = quick(target="auto").fit(NUMBERS, PRICE, held_out=(NUMBERS[:30], PRICE[:30]))
    nll = metrics.nll_own(PRICE[:30].to_numpy(), reg.predict_dist(NUMBERS[:30]))
    assert reg.profile_.held_out.nll == pytest.approx(nll, rel=1e-5)


def test_of_many_rows_some_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MOST_ROWS", 10)
    for frame in (FRAME, NUMBERS):
        profile = quick().fit(frame, PRICE).profile_
        assert profile.rows == 76
        assert sum(profile.target.counts) == 10
        assert set(profile.columns[0].quantiles) <= set(FRAME["size"])
        # Not the first ones: they may be in an order.
        assert not set(profile.target.quantiles) <= set(PRICE[:20])


def test_fits_at_once_have_the_profiles_of_single_ones() -> None:
    together, alone = ([GaussianRegressor(hidden=(8,), epochs=2, random_state=seed) for seed in (0, 1)] for _ in "ab")
    fit_together(together, [(FRAME, PRICE), (FRAME[::-1], PRICE[::-1])])
    for one, other, step in zip(together, alone, (1, -1), strict=True):
        other.fit(FRAME[::step], PRICE[::step])
        assert one.profile_.columns == other.profile_.columns
        assert one.profile_.held_out.nll == pytest.approx(other.profile_.held_out.nll, rel=1e-3)


def test_a_network_that_was_trained_elsewhere_has_a_profile() -> None:
    reg = DensityRegressor.from_trained(nn.Linear(2, 3), NUMBERS, PRICE, epochs=2, random_state=0)
    assert [column.name for column in reg.profile_.columns] == ["size", "open"]
    assert reg.profile_.held_out.rows == 14


def test_conformalize_and_another_fit() -> None:
    reg = quick().fit(NUMBERS, PRICE, conformal=0.2)
    assert reg.profile_.rows + reg.profile_.held_out.rows == 72
    before = reg.profile_
    with pytest.raises(ValueError, match="NaN"):
        reg.fit(NUMBERS, PRICE * np.nan)
    assert reg.profile_ is before
    assert reg.fit(NUMBERS[:50], PRICE[:50]).profile_.rows == 40


class Drawing(nn.Module):
    """An encoder that draws when it predicts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + 1e-6 * torch.rand(3)


def test_nothing_is_drawn_for_a_profile() -> None:
    reg = quick(encoder=Drawing())
    numpy, own = np.random.get_state()[1].copy(), torch.get_rng_state()
    reg.fit(NUMBERS, PRICE)
    assert torch.equal(own, torch.get_rng_state())
    np.testing.assert_array_equal(numpy, np.random.get_state()[1])


def test_saved_and_loaded(tmp_path: Path) -> None:
    reg = quick().fit(FRAME, PRICE)
    reg.save(tmp_path)
    assert load(tmp_path).profile_ == reg.profile_
    saved = json.loads((tmp_path / "model.json").read_text())
    assert saved["profile"]["rows"] == 76


def test_models_of_earlier_versions_have_no_profile(tmp_path: Path) -> None:
    reg = quick().fit(FRAME, PRICE)
    reg.profile_ = None
    reg.save(tmp_path)
    assert "profile" not in json.loads((tmp_path / "model.json").read_text())
    assert load(tmp_path).profile_ is None
    fixture = Path(__file__).parents[1] / "fixtures" / "saved-06ae3e5" / "density"
    assert load(fixture).profile_ is None


def test_a_profile_of_another_model_is_refused(tmp_path: Path) -> None:
    reg = quick().fit(FRAME, PRICE)
    reg.profile_ = quick().fit(NUMBERS, PRICE).profile_
    reg.save(tmp_path)
    with pytest.raises(InvalidModelError, match="another number of columns or targets"):
        load(tmp_path)
