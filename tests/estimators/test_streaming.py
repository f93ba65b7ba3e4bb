"""All that is predicted in one pass, and in batches of rows from files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from density_regression import DensityRegressor
from density_regression.estimators.kinds import column_kinds
from density_regression.estimators.streaming import stream_predictions
from density_regression.inference.fused import FusedRegression
from density_regression.tabular.files import TableError, open_table

from .helpers import quick

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = np.exp(X[:, 0] + 0.1 * RNG.normal(size=120))
FAR = np.concatenate([X[:40], 30 * X[:40]])


def fitted(kind: str) -> Any:
    if kind == "own encoder":
        return quick(encoder=nn.Sequential(nn.Linear(3, 6), nn.Tanh()), members=0).fit(X, Y)
    if kind == "two targets":
        return quick().fit(X, np.stack([Y, 1e3 * X[:, 1]], 1))
    if kind == "weighted":
        return quick().fit(X, Y).conformalize(X, Y, shifted=X + 0.3)
    settings: dict[str, dict[str, Any]] = {
        "no density": {"density": None},
        "exact": {"tempering": "exact"},
        "log": {"target": "log"},
    }
    reg = quick(**settings.get(kind, {})).fit(X, Y)
    return reg.conformalize(X, Y) if kind == "conformal" else reg


KINDS = ("default", "no density", "exact", "log", "conformal", "weighted", "own encoder", "two targets")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:.*rows are too unlike", "ignore:.*intervals are vague")
def test_one_pass_gives_what_the_methods_give(kind: str) -> None:
    reg = fitted(kind)
    found = reg._predict_all(FAR, 0.8)
    mean, std = reg.predict(FAR, return_std=True)
    low, high = reg.predict_interval(FAR, 0.8)
    for part, expected in zip(found[:4], (mean, std, low, high), strict=True):
        np.testing.assert_array_equal(part, expected)
    if kind == "no density":
        assert found.familiarity is None
    else:
        np.testing.assert_array_equal(found.familiarity, reg.familiarity(FAR))
        assert len(np.unique(found.familiarity)) > 5


@pytest.mark.parametrize(("kind", "part"), [("default", FusedRegression), ("own encoder", nn.Linear)])
def test_the_network_runs_once(kind: str, part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reg, calls = fitted(kind), []
    method = "_products" if part is FusedRegression else "forward"
    original = getattr(part, method)

    def counted(module: Any, x: torch.Tensor) -> Any:
        calls.append(module)
        return original(module, x)

    monkeypatch.setattr(part, method, counted)
    reg._predict_all(FAR, 0.9)
    # Each layer once.
    assert 1 <= len(calls) == len(set(calls))


def test_fused_and_not(monkeypatch: pytest.MonkeyPatch) -> None:
    reg = fitted("default")
    fused = reg._predict_all(X, 0.9)
    monkeypatch.setattr("density_regression.estimators.density.fused_form", lambda *_: None)
    for part, other in zip(fused, reg._predict_all(X, 0.9), strict=True):
        np.testing.assert_allclose(part, other, rtol=1e-3, atol=0.01)


def test_coverage_is_checked() -> None:
    with pytest.raises(ValueError, match="coverage must lie strictly between 0 and 1"):
        fitted("default")._predict_all(X, 1.0)


def frame(rows: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 600, rows), unit="D")
    data = pd.DataFrame(
        {
            "size": rng.normal(50, 9, rows).round(2),
            "town": rng.choice(["Ulm", "Bonn", "Rome, I"], rows),
            "day": days.strftime("%Y-%m-%d"),
            "hour": [f"{hour:02d}:30" for hour in rng.integers(0, 24, rows)],
            "lift": rng.random(rows) < 0.5,
            "name": [f"flat {i}" for i in range(rows)],
        }
    )
    data.loc[rng.random(rows) < 0.1, ["size", "town"]] = None
    return data


def fitted_to_frame(data: pd.DataFrame, **params: object) -> DensityRegressor:
    with warnings.catch_warnings(action="ignore"):
        return quick(**params).fit(data, np.linspace(0, 1, len(data)))


def test_kinds_of_columns() -> None:
    data = frame()
    expected = {"size": "number", "town": "text", "day": "date", "hour": "time", "lift": "boolean"}
    assert column_kinds(fitted_to_frame(data)) == expected
    assert column_kinds(quick().fit(data[["lift"]].assign(n=1.0 + data.index), data.index)) == {
        "lift": "number",
        "n": "number",
    }
    plain = quick().fit(X, Y)
    assert column_kinds(plain, ["a", "b", "c", "target"]) == dict.fromkeys("abc", "number")
    with pytest.raises(ValueError, match="fitted to 3 columns without names, but there are 2"):
        column_kinds(plain, ["a", "b"])
    gaps = X.copy()
    gaps[::9, 1] = np.nan
    assert column_kinds(quick().fit(gaps, Y), ["a", "b", "c"]) == dict.fromkeys("abc", "number")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_batches_of_a_file_are_predicted_as_its_frame(suffix: str, tmp_path: Path) -> None:
    data = frame()
    reg = fitted_to_frame(data)
    new = frame(400).sample(frac=1, random_state=0)[["name", "lift", "day", "town", "size", "hour"]]
    new.loc[new.index[3], "town"] = "Oslo"
    path = tmp_path / f"rows.{suffix}"
    new.to_csv(path, index=False) if suffix == "csv" else new.to_parquet(path, index=False)
    parts = [predicted for _, predicted in stream_predictions(reg, open_table(path), 0.9, rows=64)]
    assert [len(part.mean) for part in parts] == [64] * 6 + [16]
    expected = reg._predict_all(new, 0.9)
    for i, values in enumerate(expected):
        np.testing.assert_array_equal(np.concatenate([part[i] for part in parts]), values)


def test_plain_models_with_and_without_names(tmp_path: Path) -> None:
    data = pd.DataFrame(X, columns=["a", "b", "c"])
    data.assign(target=Y)[["target", "c", "a", "b"]].to_csv(tmp_path / "named.csv", index=False)
    data.assign(target=Y).to_csv(tmp_path / "first.csv", index=False)
    reg = quick().fit(X, Y)
    named = quick().fit(data, Y)
    for model, file in ((reg, "first.csv"), (named, "named.csv"), (named, "first.csv")):
        ((_, predicted),) = stream_predictions(model, open_table(tmp_path / file), 0.9)
        np.testing.assert_array_equal(predicted.mean, reg.predict(X))
    gaps = X.copy()
    gaps[::9, 1] = np.nan
    coded = quick().fit(gaps, Y)
    pd.DataFrame(gaps).to_csv(tmp_path / "gaps.csv", index=False)
    ((_, predicted),) = stream_predictions(coded, open_table(tmp_path / "gaps.csv"), 0.9)
    np.testing.assert_array_equal(predicted.std, coded.predict(gaps, return_std=True)[1])
    with pytest.raises(
        TableError, match=r"column '1', row 1 \(line 2\), is empty, but the model was fitted to rows wit"
    ):
        list(stream_predictions(reg, open_table(tmp_path / "gaps.csv"), 0.9))


def test_equal_to_torch_on_one_row() -> None:
    reg = fitted("default")
    x = reg.x_scaling_.apply(X[:16])
    with torch.inference_mode():
        mean = reg.model_.moments(x).mean.double().numpy()[:, 0] * reg.y_scaling_.scale + reg.y_scaling_.center
    np.testing.assert_allclose(reg._predict_all(X[:16], 0.9).mean, mean, rtol=1e-4)
