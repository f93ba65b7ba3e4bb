"""Graphs with an input for each column, text, dates and gaps among them, run by ONNX Runtime alone."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from density_regression import DensityRegressor, load
from density_regression.estimators.base import DeepRegressor
from density_regression.inference.onnx import ExportError
from density_regression.inference.onnx.code_nodes import days_of_dates, shares_of_times
from density_regression.inference.onnx.familiarity import write_familiarity
from density_regression.inference.onnx.nodes import Nodes
from density_regression.registry import estimators
from density_regression.tabular.columns.dates import is_date, is_time, parsed
from inference.helpers import QUICK

NO_GRAPH = {"MCDropoutRegressor", "BayesianRegressor", "DUERegressor"}


def table(rows: int = 200, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Columns of every kind, gaps in some, and a target."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": 1e4 + rng.normal(size=rows),
            "rooms": np.where(rng.random(rows) < 0.2, np.nan, rng.integers(1, 6, rows)),
            "old": rng.random(rows) < 0.5,
            "town": rng.choice(["Ulm", "Köln", "", "x y"], rows),
            "kind": rng.choice([*"abc", *(f"rare{i}" for i in range(5))], rows, p=[0.3] * 3 + [0.02] * 5),
            "day": pd.Timestamp("2022-03-01") + pd.to_timedelta(rng.integers(0, 90_000, rows), unit="min"),
            "clock": [f"{hour:02}:{minute:02}" for hour, minute in rng.integers(0, [24, 60], (rows, 2))],
            "version": "v1",
            "level": 3.5,
        }
    )
    target = frame["size"] + frame["rooms"].fillna(0) + 2 * (frame["town"] == "Ulm") + rng.normal(0, 0.1, rows)
    frame.loc[::7, ["day", "clock"]] = None
    return frame, target


def odd_table() -> pd.DataFrame:
    """Rows with what training never had: gaps in all columns, unknown text, dates far outside, other constants."""
    frame = table(400, seed=1)[0].astype(object)
    rng = np.random.default_rng(2)
    for name in frame:
        frame.loc[rng.random(400) < 0.1, name] = None
    for name, value in {"town": "Rome", "kind": "new", "version": "v2", "level": 4.0, "size": 9.9e3}.items():
        frame.loc[rng.random(400) < 0.1, name] = value
    for value in ("1812-02-29", "2400-12-31T23:59:59.25", "2022-04-01T00:30+02:00", "2022-04-01 00:30:15-11:30"):
        frame.loc[rng.random(400) < 0.05, "day"] = value
    frame["day"] = [None if v is None or v is pd.NaT else str(v) for v in frame["day"]]
    return frame.astype({"size": float, "rooms": float, "level": float})


FRAME, TARGET = table()
ODD = odd_table()


def run(path: Path, frame: pd.DataFrame, names: dict[str, str] | None = None) -> dict[str, np.ndarray]:
    """Results for a frame, as somebody gets them who has the file alone."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {}
    for part in session.get_inputs():
        assert part.shape == ["rows"]
        column = frame[(names or {}).get(part.name, part.name)]
        if part.type == "tensor(string)":
            feeds[part.name] = column.astype(object).where(column.notna(), "").astype(str).to_numpy(object)
        else:
            types = {"tensor(double)": np.float64, "tensor(float)": np.float32}
            feeds[part.name] = column.astype(float).to_numpy(types[part.type])
    outputs = [output.name for output in session.get_outputs()]
    return dict(zip(outputs, session.run(None, feeds), strict=True))


def assert_same(model: DeepRegressor, path: Path, frame: pd.DataFrame, tolerance: float = 1e-5, **names: Any) -> None:
    mean, std = (part.reshape(len(frame), -1) for part in model.predict(frame, return_std=True))
    found = run(path, frame, **names)
    np.testing.assert_allclose(found["std"], std, rtol=tolerance)
    assert (np.abs(found["mean"] - mean) <= tolerance * np.maximum(std, np.abs(mean))).all()
    if "log_density" in found:
        scores = model.score_samples(frame)
        assert (np.abs(found["log_density"] - scores) <= 3 * tolerance * np.maximum(np.abs(scores), 1.0)).all()
        # It has steps, of which a rounding may cross one.
        levels = model.held_out_levels_
        assert np.abs(found["familiarity"] - model.familiarity(frame)).max() < 2.01 / len(levels)


@pytest.fixture(scope="module")
def reg() -> DensityRegressor:
    return DensityRegressor(**QUICK | {"epochs": 20}).fit(FRAME, TARGET)


@pytest.fixture(scope="module")
def path(reg: DensityRegressor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    assert reg.to_onnx(path) < 1e-4
    return path


def test_the_same_as_predict(reg: DensityRegressor, path: Path) -> None:
    assert_same(reg, path, FRAME)
    assert_same(reg, path, ODD)
    assert_same(reg, path, ODD.head(1))


def test_each_column_alone_may_be_strange(reg: DensityRegressor, path: Path) -> None:
    for name in FRAME:
        assert_same(reg, path, FRAME.astype(object).head(20).assign(**{name: None}))
        assert_same(reg, path, FRAME.head(20).assign(**{name: ODD[name].dropna()[:20].to_numpy()}))


def test_inputs_are_described(path: Path) -> None:
    proto = onnx.load(str(path))
    onnx.checker.check_model(proto)
    about = {entry.key: entry.value for entry in proto.metadata_props}
    assert json.loads(about["columns"]) == list(FRAME)
    kinds = ["number", "number", "boolean", "category", "category", "date", "time", "category", "number"]
    assert json.loads(about["inputs"]) == dict(zip(FRAME, kinds, strict=True))
    assert {opset.domain for opset in proto.opset_import} <= {"", "ai.onnx.ml"}


@pytest.mark.parametrize("method", [name for name in estimators() if name not in NO_GRAPH])
def test_every_method_with_a_graph(method: str, tmp_path: Path) -> None:
    model = estimators()[method](**QUICK).fit(FRAME, TARGET)
    model.to_onnx(tmp_path / "model.onnx")
    assert_same(model, tmp_path / "model.onnx", ODD, 1e-4)


def test_methods_without_a_graph_say_so(tmp_path: Path) -> None:
    model = estimators()["MCDropoutRegressor"](**QUICK).fit(FRAME, TARGET)
    with pytest.raises(ExportError, match="cannot be written as a graph"):
        model.to_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "params",
    [
        {"encoder": lambda columns: nn.Sequential(nn.Linear(columns, 8), nn.Tanh())},
        {"density": None},
        {"embedding": None, "members": 0},
        {"head": "natural", "members": 0},
    ],
    ids=["encoder", "none", "plain", "natural"],
)
def test_other_parts(params: dict[str, Any], tmp_path: Path) -> None:
    model = DensityRegressor(**QUICK | params).fit(FRAME, np.column_stack([TARGET, -TARGET]))
    model.to_onnx(tmp_path / "model.onnx")
    mean, std = model.predict(ODD, return_std=True)
    found = run(tmp_path / "model.onnx", ODD)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-4, atol=1e-4 * std.min())
    np.testing.assert_allclose(found["std"], std, rtol=1e-4)


@pytest.mark.parametrize(
    "columns", [["size", "rooms"], ["town"], ["day"], ["clock", "version"], ["rooms", "kind", "old"]]
)
def test_some_kinds_of_columns(columns: list[str], tmp_path: Path) -> None:
    model = DensityRegressor(**QUICK).fit(FRAME[columns], TARGET)
    model.to_onnx(tmp_path / "model.onnx")
    # The density of few columns grows fast, and roundings with it.
    assert_same(model, tmp_path / "model.onnx", ODD[columns], tolerance=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_law_and_intervals_from_raw_columns(dtype: Any, tmp_path: Path) -> None:
    model = DensityRegressor(**QUICK, target="log").fit(FRAME[:150], np.exp(0.2 * (TARGET[:150] - TARGET.mean())))
    model.conformalize(FRAME[150:], np.exp(0.2 * (TARGET[150:] - TARGET.mean())))
    model.to_onnx(tmp_path / "model.onnx", coverage=0.8, dtype=dtype)
    found = run(tmp_path / "model.onnx", FRAME)
    low, high = model.predict_interval(FRAME, 0.8)
    tolerance = {"float64": 1e-4, "float32": 2e-3}[dtype]
    np.testing.assert_allclose(found["low"][:, 0], low, rtol=tolerance)
    np.testing.assert_allclose(found["high"][:, 0], high, rtol=tolerance)
    np.testing.assert_allclose(found["mean"][:, 0], model.predict(FRAME), rtol=tolerance)
    assert (low > 0).all()
    assert set(found) == {"mean", "std", "log_density", "low", "high", "familiarity"}


def test_columns_that_are_left_out_are_no_inputs(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Left out"):
        model = DensityRegressor(**QUICK).fit(FRAME.assign(name=[f"n{i}" for i in range(200)]), TARGET)
    model.to_onnx(tmp_path / "model.onnx")
    assert_same(model, tmp_path / "model.onnx", ODD)


def test_a_saved_model(reg: DensityRegressor, path: Path, tmp_path: Path) -> None:
    reg.save(tmp_path / "model")
    load(tmp_path / "model").to_onnx(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == path.read_bytes()


def test_single_precision(tmp_path: Path) -> None:
    frame = FRAME.assign(size=FRAME["size"] - 1e4)
    model = DensityRegressor(**QUICK | {"epochs": 20}).fit(frame, TARGET - 1e4)
    assert model.to_onnx(tmp_path / "model.onnx", dtype="float32") < 1e-3
    types = {part.name: part.type for part in onnxruntime.InferenceSession(tmp_path / "model.onnx").get_inputs()}
    assert [types[name] for name in ("size", "old", "town", "day")] == ["tensor(float)"] * 2 + ["tensor(string)"] * 2
    assert_same(model, tmp_path / "model.onnx", ODD.assign(size=ODD["size"] - 1e4), 1e-4)
    far = DensityRegressor(**QUICK).fit(frame.assign(size=frame["size"] + 1e9), TARGET)
    with pytest.raises(ExportError, match="too few digits for column 'size'"):
        far.to_onnx(tmp_path / "far.onnx", dtype="float32")
    with pytest.raises(ExportError, match="too few digits for target 0"):
        DensityRegressor(**QUICK).fit(frame, TARGET + 1e9).to_onnx(tmp_path / "far.onnx", dtype="float32")
    with pytest.raises(ValueError, match="dtype must be one of"):
        far.to_onnx(tmp_path / "far.onnx", dtype="float16")
    assert not (tmp_path / "far.onnx").exists()


def test_an_array_with_gaps_has_one_input(tmp_path: Path, rows: tuple[np.ndarray, np.ndarray]) -> None:
    X = rows[0].copy()
    X[::5, 1] = np.nan
    model = DensityRegressor(**QUICK).fit(X, rows[1])
    model.to_onnx(tmp_path / "model.onnx")
    X[::3, 2] = np.nan
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [(part.name, part.shape) for part in session.get_inputs()] == [("X", ["rows", 5])]
    mean, std = session.run(["mean", "std"], {"X": X})
    np.testing.assert_allclose(np.hstack([mean, std]).T, model.predict(X, return_std=True), rtol=1e-5)
    assert model.check_onnx(tmp_path / "model.onnx", X).std < 1e-5


def test_plain_numbers_keep_the_one_input(tmp_path: Path) -> None:
    frame = FRAME[["size", "old"]]
    model = DensityRegressor(**QUICK).fit(frame, TARGET)
    model.to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [part.name for part in session.get_inputs()] == ["X"]
    found = session.run(["mean"], {"X": frame.to_numpy(float)})[0]
    np.testing.assert_allclose(found[:, 0], model.predict(frame), rtol=1e-5)


def test_names_that_the_graph_has_too(tmp_path: Path) -> None:
    names = {"size": "mean", "town": "X", "kind": "X_1", "rooms": "std"}
    frame, odd = FRAME.rename(columns=names), ODD.rename(columns=names)
    model = DensityRegressor(**QUICK).fit(frame, TARGET)
    model.to_onnx(tmp_path / "model.onnx")
    own = {"X.mean": "mean", "X.X": "X", "X.std": "std"}
    assert_same(model, tmp_path / "model.onnx", odd, names=own)
    for name in ("model.1", "columns.add_1"):
        clash = DensityRegressor(**QUICK).fit(FRAME.rename(columns={"size": name}), TARGET)
        with pytest.raises(ExportError, match="rename it"):
            clash.to_onnx(tmp_path / "other.onnx")


def test_eight_bits_and_check_onnx(reg: DensityRegressor, path: Path, tmp_path: Path) -> None:
    near = reg.check_onnx(path)
    assert max(near) < 1e-5
    assert reg.check_onnx(path, ODD) != near
    # Far away the mean is large beside its standard deviation, in which the difference is counted.
    assert max(reg.check_onnx(path, ODD)) < 5e-5
    reg.to_onnx(tmp_path / "small.onnx", int8=True)
    moved = reg.check_onnx(tmp_path / "small.onnx", ODD)
    assert 1e-4 < moved.mean < 1.0
    other = DensityRegressor(**QUICK).fit(FRAME[["town", "size"]], TARGET)
    with pytest.raises(ExportError, match="not a file of this model"):
        other.check_onnx(path)


def test_torch_has_no_text(reg: DensityRegressor) -> None:
    with pytest.raises(ExportError, match="use to_onnx"):
        reg.to_program()


def test_text_that_is_no_date_is_a_gap(reg: DensityRegressor, path: Path) -> None:
    wrong, empty = (FRAME.head(5).assign(day=day, clock=clock) for day, clock in (("soon", "25:00"), (None, None)))
    for name, values in run(path, empty).items():
        np.testing.assert_array_equal(run(path, wrong)[name], values)


def test_mlflow(reg: DensityRegressor, path: Path, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("mlflow.onnx").save_model(onnx.load(str(path)), str(tmp_path / "model"))
    frame = FRAME.assign(clock=FRAME["clock"].fillna(""), old=FRAME["old"].astype(float))
    frame["day"] = FRAME["day"].dt.strftime("%Y-%m-%dT%H:%M").fillna("")
    text = ["town", "kind", "day", "clock", "version"]
    found = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(frame.astype(dict.fromkeys(text, object)))
    np.testing.assert_allclose(np.ravel(found["mean"].tolist()), reg.predict(FRAME), rtol=1e-5)


@pytest.mark.skipif("DENSITY_REGRESSION_DATA" not in os.environ, reason="no folder of tables")
@pytest.mark.parametrize("name", ["flight_fare_india", "kc_house", "lending_rate"])
@pytest.mark.filterwarnings("ignore:Left out")
def test_real_tables(name: str, tmp_path: Path) -> None:
    from density_regression.datasets import natural_shifts

    side = natural_shifts()[name]
    frame = pd.read_csv(side.path)
    train, target = frame.query(side.train)[:1000], side.target
    model = DensityRegressor(**QUICK).fit(train.drop(columns=target), train[target])
    model.to_onnx(tmp_path / "model.onnx")
    rows = pd.concat([frame, frame.sample(10_000 - min(len(frame), 9_000), random_state=0)]).tail(10_000)
    rng = np.random.default_rng(0)
    rows = rows.drop(columns=target).mask(rng.random((len(rows), frame.shape[1] - 1)) < 0.05)
    for i, column in enumerate(rows):
        if rows[column].dtype == object or not pd.api.types.is_numeric_dtype(rows[column]):
            kind = model.columns_.coders[i]
            value = "2031-07-01" if getattr(kind, "type", "") == "date" else "23:59" if kind.kind == "date" else "new"
            rows.loc[rng.random(len(rows)) < 0.05, column] = value
    assert_same(model, tmp_path / "model.onnx", rows)


def onnx_model(nodes: Nodes, name: str, kind: int) -> onnxruntime.InferenceSession:
    """A graph from values `given` (n,) to `result` (n,)."""
    helper, (body, tensors) = onnx.helper, nodes.parts
    inputs = [helper.make_tensor_value_info("given", kind, ["rows"])]
    outputs = [helper.make_tensor_value_info("result", onnx.TensorProto.DOUBLE, ["rows"])]
    graph = helper.make_graph(body, name, inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 30, 1001])
def test_familiarity_of_the_graph(count: int) -> None:
    rng = np.random.default_rng(count)
    levels = np.sort(rng.normal(size=count).round(1)).astype(np.float32)
    nodes = Nodes(torch.float64)
    nodes.add("Identity", [write_familiarity(nodes, "given", levels)], output="result")
    values = np.concatenate([levels, levels - 0.05, [-9, 9, -1e30, 1e30]]).astype(np.float32)
    (found,) = onnx_model(nodes, "familiarity", onnx.TensorProto.FLOAT).run(None, {"given": values})
    np.testing.assert_allclose(found, np.searchsorted(levels, values, side="right") / count, rtol=1e-12)


# -- dates in a graph, against those of numpy ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def readers() -> dict[str, onnxruntime.InferenceSession]:
    sessions = {}
    for name, write in (("date", days_of_dates), ("time", shares_of_times)):
        nodes = Nodes(torch.float64, "own.")
        nodes.add("Identity", [write(nodes, "given")], output="result")
        sessions[name] = onnx_model(nodes, name, onnx.TensorProto.STRING)
    return sessions


ZONES = st.sampled_from([None, *(dt.timezone(dt.timedelta(minutes=m)) for m in (-690, -60, 90, 720))])
MOMENTS = st.builds(
    lambda moment, separator, precision: moment.isoformat(separator, precision),
    st.datetimes(timezones=ZONES),
    st.sampled_from("T "),
    st.sampled_from(["minutes", "seconds", "auto"]),
)
DATES = st.one_of(
    MOMENTS, st.dates().map(str), MOMENTS.map(lambda text: f"{text[:16]}Z"), st.sampled_from(["", "soon"])
)
TIMES = st.one_of(st.times().map(str), st.times().map(lambda time: str(time)[:5]), st.sampled_from(["", "25:00"]))


@settings(max_examples=150, deadline=None)
@given(dates=st.lists(DATES, min_size=1, max_size=5), times=st.lists(TIMES, min_size=1, max_size=5))
def test_dates_of_the_graph(readers, dates: list[str], times: list[str]) -> None:
    for kind, texts, known in (("date", dates, is_date), ("time", times, is_time)):
        (days,) = readers[kind].run(None, {"given": np.array(texts, dtype=object)})
        expected = parsed(text if known(text) else None for text in texts)
        np.testing.assert_allclose(days, expected, rtol=0, atol=1e-9)
