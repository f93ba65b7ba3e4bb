"""The setting `embedding`: all regressors fit, save, export and train together with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from density_regression import DensityRegressor, fit_together, load
from density_regression.baselines import DeepEnsembleRegressor, GaussianRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.inference.fused import FusedRegression, fused_form
from density_regression.inference.onnx import compact
from density_regression.io.store import read_model
from density_regression.nn.encoders import PiecewiseEmbedding, embedding_of
from density_regression.registry import estimators

QUICK = {"hidden": (8, 8), "epochs": 3, "n_threads": 1, "random_state": 0, "verbose": False}
NO_GRAPH = ("MCDropoutRegressor", "BayesianRegressor", "DUERegressor")
DRAW = ("MCDropoutRegressor", "BayesianRegressor")


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A normal column, a skewed one, one of two values, a constant, and one of four values."""
    rng = np.random.default_rng(seed)
    few = np.arange(160) % 4
    X = np.column_stack([rng.normal(size=160), rng.exponential(size=160) ** 3, few > 1, np.ones(160), few])
    return X, np.sin(X[:, 0]) + X[:, 4] + 0.1 * rng.normal(size=160)


X, Y = table()
FAR = np.vstack([X[:20], 1e3 * X[:20], -1e30 * X[:20]])


def quick(name: str, **params: object) -> DeepRegressor:
    return estimators()[name](**{**QUICK, "embedding": "piecewise", **params})


def moments(reg: DeepRegressor, rows: np.ndarray = FAR) -> np.ndarray:
    return np.stack(reg.predict(rows, return_std=True))


@pytest.fixture(params=list(estimators()), scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def fitted(name: str) -> DeepRegressor:
    return quick(name).fit(X, Y)


def test_predictions_are_finite_and_do_not_depend_on_the_batch(fitted: DeepRegressor) -> None:
    found = moments(fitted)
    assert np.isfinite(found).all()
    assert (found[1] > 0).all()
    np.testing.assert_allclose(moments(fitted, FAR[7:8])[:, 0], found[:, 7], rtol=1e-6)


def test_round_trip(fitted: DeepRegressor, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(moments(loaded), moments(fitted))
    assert loaded.get_params()["embedding"] == "piecewise"
    np.testing.assert_array_equal(moments(loaded.fit(X, Y)), moments(fitted))


def test_onnx(name: str, fitted: DeepRegressor, tmp_path: Path) -> None:
    if name in NO_GRAPH:
        pytest.skip("has no graph, with or without embedding")
    fitted.to_onnx(tmp_path / "model.onnx")
    difference = fitted.check_onnx(tmp_path / "model.onnx", X)
    assert difference.mean < 1e-3
    assert difference.std < 1e-3


def test_together_as_alone(name: str) -> None:
    tables = [table(1), table(2)]
    both = [quick(name, random_state=i) for i in range(2)]
    fit_together(both, tables)
    for i, reg in enumerate(both):
        alone = quick(name, random_state=i).fit(*tables[i])
        rtol, atol = (0.2, 0.5) if name in DRAW else (1e-3, 1e-3)
        np.testing.assert_allclose(moments(reg, X), moments(alone, X), rtol=rtol, atol=atol)


def test_weights_and_two_targets(name: str) -> None:
    targets, weight = np.column_stack([Y, -3 * Y]), np.r_[np.zeros(20), np.ones(140)]
    mean, std = quick(name).fit(X, targets, sample_weight=weight).predict(FAR, return_std=True)
    assert mean.shape == std.shape == (60, 2)
    # Of rows without weight nothing is seen, not even where they lie.
    moved = X + 1e6 * (weight == 0)[:, None]
    again = quick(name).fit(moved, targets, sample_weight=weight).predict(FAR)
    np.testing.assert_array_equal(again, mean)


def test_setting() -> None:
    reg = clone(DensityRegressor(embedding="piecewise"))
    assert reg.get_params()["embedding"] == "piecewise"
    with pytest.raises(ValueError, match="embedding"):
        GaussianRegressor(**QUICK, embedding="periodic").fit(X, Y)
    plain = GaussianRegressor(**QUICK, embedding=None).fit(X, Y)
    assert embedding_of(plain.model_) is None


def test_an_encoder_of_ones_own_is_taken_as_it_is() -> None:
    reg = GaussianRegressor(**QUICK, embedding="piecewise", encoder=nn.Linear(5, 3)).fit(X, Y)
    assert type(reg.model_.encoder) is nn.Linear


def test_the_fused_form_equals_the_module() -> None:
    reg = quick("DensityRegressor").fit(X, Y)
    x = reg.x_scaling_.apply(FAR)
    fused = fused_form(reg.model_, x.device, reg.x_scaling_.limit)
    assert isinstance(fused, FusedRegression)
    with torch.no_grad():
        for found, expected in zip(fused(x), reg.model_.moments(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    embedding_of(reg.model_).mean.add_(1.0)
    assert not fused.is_current(x.device)


@pytest.mark.parametrize("name", ["DensityRegressor", "GaussianRegressor", "DeepEnsembleRegressor"])
def test_graphs_are_compact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reg = quick(name).fit(X, Y)
    short = compact.compact_model(reg._graph("float64"))
    assert short is not None
    assert not any(node.op_type == "Gather" and node.input[0] == "X" for node in short.graph.node)
    monkeypatch.setattr(compact, "SELECTED_BY_PRODUCT", 0)
    runtime = pytest.importorskip("onnxruntime")
    results = [
        runtime.InferenceSession(proto.SerializeToString()).run(["mean", "std"], {"X": X})
        for proto in (short, compact.compact_model(reg._graph("float64")))
    ]
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)


def test_ensembles_whose_embeddings_differ_are_exported_too(tmp_path: Path) -> None:
    reg = DeepEnsembleRegressor(**QUICK, n_members=2, embedding="piecewise").fit(X, Y)
    embedding_of(reg.model_.members[1]).mean.add_(0.1)
    assert compact.compact_model(reg._graph("float64")) is None
    reg.to_onnx(tmp_path / "model.onnx")


def test_only_columns_of_two_values(tmp_path: Path) -> None:
    binary = np.column_stack([X[:, 2], X[:, 3], X[:, 4] % 2])
    for name in ("DensityRegressor", "DeepEnsembleRegressor", "SNGPRegressor"):
        reg = quick(name).fit(binary, Y)
        assert embedding_of(reg.model_).width == 3
        reg.to_onnx(tmp_path / f"{name}.onnx")
        reg.save(tmp_path / name)
        np.testing.assert_array_equal(moments(load(tmp_path / name), binary), moments(reg, binary))


def test_the_density_sees_distance() -> None:
    reg = quick("DensityRegressor", epochs=30).fit(X, Y)
    far = X.mean(0) + X.std(0) * np.array([1, 0, 0, 0, 0]) * np.array([[0.0], [1e1], [1e3], [1e5]])
    assert (np.diff(reg.predict(far, return_std=True)[1]) > 0).all()


def test_members_and_probes_have_copies_of_their_own() -> None:
    reg = DeepEnsembleRegressor(**QUICK, n_members=3, embedding="piecewise").fit(X, Y)
    embeddings = [part for part in reg.model_.modules() if isinstance(part, PiecewiseEmbedding)]
    assert len(embeddings) == len({part.low.data_ptr() for part in embeddings}) == 3
    assert all(torch.equal(part.low, embeddings[0].low) for part in embeddings)


def test_models_that_do_not_name_the_setting_have_none(tmp_path: Path) -> None:
    reg = GaussianRegressor(**QUICK, embedding=None).fit(X, Y)
    reg.save(tmp_path / "model")
    config, tensors = read_model(tmp_path / "model")
    del config["params"]["embedding"]
    loaded = GaussianRegressor._from_saved(config, tensors, None)
    assert loaded.embedding is None
    np.testing.assert_array_equal(moments(loaded), moments(reg))


def test_another_embedding_is_another_fit(tmp_path: Path) -> None:
    plain = GaussianRegressor(**QUICK, embedding=None, checkpoint_dir=tmp_path).fit(X, Y)
    other = GaussianRegressor(**QUICK, embedding="piecewise", checkpoint_dir=tmp_path).fit(X, Y)
    assert other.report_.seconds["train"] > 0
    assert not np.array_equal(moments(plain), moments(other))
