"""A file that ONNX Runtime runs must give what `predict` gives: for every density, near and far."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from density_regression import MLP, DensityRegressor
from density_regression.base import DeepRegressor
from density_regression.baselines import (
    BayesianRegressor,
    DeepEnsembleRegressor,
    DeterministicRegressor,
    DUERegressor,
    EvidentialRegressor,
    GaussianRegressor,
    MCDropoutRegressor,
    NaturalPosteriorRegressor,
    QuantileRegressor,
)
from density_regression.cli import app
from density_regression.density import MixtureDensity
from density_regression.encoders import WithInputs
from density_regression.export import ExportError
from density_regression.export import onnx as writing
from density_regression.export.squares import ROUGH, Squares
from density_regression.lean import Array, Constants, Layers
from density_regression.model import DensityRegression
from density_regression.tables import Floats

QUICK: dict[str, Any] = {"epochs": 2, "hidden": (16, 16), "verbose": False, "random_state": 0}


@pytest.fixture(scope="module")
def rows() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    # Columns of all sizes; one of them large, and varying little.
    x = rng.normal(size=(200, 5)) * [1, 1e-3, 1e3, 1, 1] + [0, 0, 0, 1e7, -5]
    return x, 50 + 3 * x[:, 0] + rng.normal(size=200)


def run(path: Path, x: Floats) -> dict[str, Floats]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": x}), strict=True))


def bounds(model: DensityRegression) -> Array:
    layers = Layers.of(model.encoder)
    assert layers is not None
    return layers.bounds()


def assert_same(model: DeepRegressor, path: Path, x: Floats) -> None:
    mean, std = (part.reshape(len(x), -1) for part in model.predict(x, return_std=True))
    found = run(path, x)
    np.testing.assert_allclose(found["std"], std, rtol=1e-4)
    assert (np.abs(found["mean"] - mean) <= 1e-4 * np.maximum(std, np.abs(mean))).all()
    if isinstance(model, DensityRegressor) and model.density is not None:
        np.testing.assert_allclose(found["log_density"], model.score_samples(x), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"density": "gaussian"},
        {"density": "kernel"},
        {"density": "flow"},
        {"density": None},
        {"tempering": "exact"},
        {"head": "natural"},
        {"encoder": lambda columns: torch.nn.Sequential(torch.nn.Linear(columns, 8), torch.nn.Tanh())},
    ],
    ids=["default", "gaussian", "kernel", "flow", "no density", "exact", "natural", "own encoder"],
)
def test_same_as_predict(settings: dict[str, Any], rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows
    model = DensityRegressor(**{**QUICK, **settings}).fit(x, y)
    difference = model.to_onnx(tmp_path / "model.onnx")
    assert 0 <= difference < 1e-3
    assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, -100 * x, 1e20 * x, 1e300 * np.sign(x)]))


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("max_dims", [4, None])
def test_written_by_hand(components: int, max_dims: int | None, rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    """The default's graph has less than half of the nodes that torch's exporter makes, with and without a residual."""
    x, y = rows
    density = MixtureDensity(components, max_dims=max_dims, variance=1.0)
    model = DensityRegressor(**QUICK, density=density).fit(x, y)
    model.to_onnx(tmp_path / "model.onnx")
    assert len(onnx.load(tmp_path / "model.onnx").graph.node) <= 33
    assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, -100 * x, 1e20 * x]))


def test_an_ensemble_written_by_hand(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    """One product for all first layers, one for all heads: far fewer nodes than torch's exporter makes."""
    x, y = rows
    for hidden in ((16,), (16, 16)):
        for target in (y, np.stack([y, x[:, 1]], 1)):
            model = DeepEnsembleRegressor(**{**QUICK, "hidden": hidden}).fit(x, target)
            model.to_onnx(tmp_path / "model.onnx")
            assert len(onnx.load(tmp_path / "model.onnx").graph.node) <= 40
            assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, -100 * x, 1e20 * x]))


class Overflowing(torch.nn.Linear):
    """Far away, infinity less infinity."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = super().forward(x)
        return torch.cat([z, x.pow(5).exp() - x.pow(7).exp()], 1)


class Double(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).double()


class Named(torch.nn.Linear):
    """Names that our own nodes have, too."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        for name in ("X", "mean", "std", "constant_0", "gemm_1"):
            self.register_buffer(name, torch.randn(outputs, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) @ (self.X + self.mean + self.std + self.constant_0 + self.gemm_1)


@pytest.mark.parametrize("method", [DensityRegressor, GaussianRegressor])
@pytest.mark.parametrize(
    ("encoder", "targets", "own"),
    [
        (torch.nn.Identity(), 1, 1),
        (torch.nn.Sequential(torch.nn.Linear(5, 600), torch.nn.Tanh()), 2, 2),
        (torch.nn.Sequential(torch.nn.Unflatten(1, (1, 5)), torch.nn.Conv1d(1, 3, 2), torch.nn.Flatten()), 1, 5),
        (Overflowing(5, 8), 2, 8),
        (Double(5, 8), 1, 3),
        (Named(5, 8), 1, 2),
    ],
    ids=["none", "wide", "convolution", "overflowing", "double", "named"],
)
def test_an_encoder_of_one_s_own(
    encoder: torch.nn.Module,
    targets: int,
    own: int,
    method: type[DeepRegressor],
    rows: tuple[Floats, Floats],
    tmp_path: Path,
) -> None:
    """Torch's exporter writes the encoder alone, and as few nodes follow it as follow one of ours."""
    x = (rows[0] - rows[0].mean(0)) / rows[0].std(0)
    y = rows[1] if targets == 1 else np.stack([rows[1], x[:, 1]], 1)
    model = method(**{**QUICK, "encoder": encoder}).fit(x, y)
    assert model.to_onnx(tmp_path / "model.onnx") < 1e-3
    assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, -100 * x, 1e20 * x]))
    assert len(onnx.load(tmp_path / "model.onnx").graph.node) <= own + (30 if method is DensityRegressor else 15)


def test_a_graph_that_differs_gives_way_to_torch_s(
    rows: tuple[Floats, Floats], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = DensityRegressor(**QUICK, encoder=torch.nn.Tanh()).fit(*rows)
    other = DensityRegressor(**QUICK, encoder=torch.nn.Tanh()).fit(rows[0], -rows[1])
    after = writing.lean_after(other._graph("float64"))
    monkeypatch.setattr(writing, "lean_after", lambda graph: after)
    model.to_onnx(tmp_path / "model.onnx")
    assert_same(model, tmp_path / "model.onnx", rows[0])


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("width", [16, 600])
def test_features_of_any_width(
    components: int, targets: int, width: int, rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    x, y = rows
    settings = {**QUICK, "hidden": (16, width), "density": MixtureDensity(components, max_dims=4)}
    model = DensityRegressor(**settings).fit(x, np.stack([y, x[:, 1]], 1)[:, :targets])
    model.to_onnx(tmp_path / "model.onnx")
    assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, -100 * x, 1e20 * x]))


@pytest.mark.parametrize("hidden", [(16, 16), (16, 600)])
def test_what_is_left_over_does_not_drown(hidden: tuple[int, int], tmp_path: Path) -> None:
    """A difference of squares only where enough is left over; else it is subtracted before it is squared."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    y = x[:, 0] + rng.normal(size=300)
    for variance, drowned in ((0.7, False), (0.9999, True)):
        density = MixtureDensity(3, max_dims=None, variance=variance)
        model = DensityRegressor(**{**QUICK, "hidden": hidden}, density=density).fit(x, y)
        constants = Constants.of(model.model_, bounds(model.model_))
        assert constants is not None
        assert (Squares.of(constants).back is not None) == drowned
        assert model.to_onnx(tmp_path / "model.onnx") < 1e-4
        assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, -100 * x, 1e20 * x]))


@pytest.mark.parametrize("hidden", [(16, 16), (16, 600)])
@pytest.mark.parametrize(
    ("spread", "variance", "shifted", "by_one"),
    [(1.0, 0.9, False, True), (0.3, 0.9, True, True), (0.3, 0.7, False, False), (0.1, 0.9, True, False)],
)
def test_tight_components_far_apart_do_not_drown(
    spread: float, variance: float, shifted: bool, by_one: bool, hidden: tuple[int, int], tmp_path: Path
) -> None:
    """Squares are multiplied out, and the log-density taken of one component, only where digits are left."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3, 3))
    x = 3 * (centers[rng.integers(0, 3, size=600)] + spread * rng.normal(size=(600, 3)))
    y = x[:, 0] + rng.normal(size=600)
    density = MixtureDensity(3, max_dims=None, variance=variance)
    model = DensityRegressor(**{**QUICK, "hidden": hidden}, density=density).fit(x, y)
    constants = Constants.of(model.model_, bounds(model.model_))
    assert constants is not None
    squares = Squares.of(constants)
    assert squares.back is None
    assert (squares.shift.any(), squares.one is not None) == (shifted, by_one)
    assert model.to_onnx(tmp_path / "model.onnx") < 1e-4
    kinds = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert ("LogSoftmax" in kinds) == (by_one and hidden == (16, 16))
    far = rng.normal(size=(1000, 3)) * 10 ** rng.uniform(0, 9, size=(1000, 1))
    assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, far]))


def test_far_centers_of_wide_features_do_not_drown(tmp_path: Path) -> None:
    """What is linear is a difference of squares only where these are small."""
    x = np.random.default_rng(1).normal(size=(1000, 1000))
    model = DensityRegressor(**{**QUICK, "hidden": (100, 100)}, density=MixtureDensity(8)).fit(x, x[:, 0])
    constants = Constants.of(model.model_, bounds(model.model_))
    assert constants is not None
    assert np.square(Squares.of(constants).linear).sum(0).max() / constants.unit**2 > ROUGH
    assert model.to_onnx(tmp_path / "model.onnx") < 2e-5


def test_a_wide_range_of_deviations(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    """Variances from e^-28 to e^28: s goes through its range in many steps."""
    x, _ = rows
    model = DensityRegressor(**QUICK).fit(x, x[:, 0])
    with torch.no_grad():
        model.model_.head.s_low.fill_(-28.0)
        model.model_.head.s_high.fill_(28.0)
        model.model_.head.linear.weight[1:] *= 30
    assert model.to_onnx(tmp_path / "model.onnx") < 1e-4


@pytest.mark.parametrize(
    "settings",
    [{"hidden": (100, 100)}, {"encoder": lambda columns: torch.nn.Sequential(torch.nn.Linear(columns, 200))}],
    ids=["written by hand", "by torch's exporter"],
)
def test_int8(settings: dict[str, Any], rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows
    model = DensityRegressor(**{**QUICK, **settings}).fit(x, y)
    model.to_onnx(tmp_path / "float.onnx")
    difference = model.to_onnx(tmp_path / "int8.onnx", int8=True)
    # It is said how much is lost: something, and not much.
    assert 1e-5 < difference < 1.0
    mean, std = (part.reshape(-1, 1) for part in model.predict(x, return_std=True))
    found = run(tmp_path / "int8.onnx", x)
    assert (np.abs(found["mean"] - mean) < 0.1 * std).all()
    np.testing.assert_allclose(found["std"], std, rtol=0.1)
    saved = (tmp_path / "float.onnx").stat().st_size - (tmp_path / "int8.onnx").stat().st_size
    encoder = model.model_.encoder
    assert saved > 2 * sum(weight.numel() for weight in encoder.parameters() if weight.ndim == 2) - 2000


def test_int8_of_an_encoder_without_matrices(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    model = DensityRegressor(**QUICK, encoder=torch.nn.Tanh()).fit(*rows)
    with pytest.raises(ExportError, match="no matrix"):
        model.to_onnx(tmp_path / "model.onnx", int8=True)
    assert not (tmp_path / "model.onnx").exists()


def test_a_target_of_any_size(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    for size in (1e-30, 1e60):
        model = DensityRegressor(**QUICK).fit(rows[0], size * rows[1])
        model.to_onnx(tmp_path / "model.onnx")
        assert_same(model, tmp_path / "model.onnx", rows[0])


def test_any_number_of_rows_and_targets(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows
    model = DensityRegressor(**QUICK).fit(x, np.stack([y, x[:, 1]], 1))
    model.to_onnx(tmp_path / "model.onnx")
    for n in (1, 2, 7, 200):
        assert_same(model, tmp_path / "model.onnx", x[:n])
        assert run(tmp_path / "model.onnx", x[:n])["std"].shape == (n, 2)


@pytest.mark.parametrize(
    "method",
    [
        DeterministicRegressor,
        GaussianRegressor,
        DeepEnsembleRegressor,
        EvidentialRegressor,
        NaturalPosteriorRegressor,
        QuantileRegressor,
    ],
)
def test_rivals(method: type[DeepRegressor], rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    model = method(**QUICK).fit(*rows)
    model.to_onnx(tmp_path / "model.onnx")
    assert_same(model, tmp_path / "model.onnx", rows[0])


@pytest.mark.parametrize(
    ("method", "reason"),
    [(MCDropoutRegressor, "at random"), (BayesianRegressor, "at random"), (DUERegressor, "gpytorch")],
)
def test_what_cannot_be_exported_says_so(
    method: type[DeepRegressor], reason: str, rows: tuple[Floats, Floats], tmp_path: Path
) -> None:
    model = method(**QUICK).fit(*rows)
    with pytest.raises(ExportError, match=reason):
        model.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_looks_at_its_numbers(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    class Choosy(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x if x.sum().item() > 0 else -x)

    model = DensityRegressor(**QUICK, encoder=lambda columns: Choosy(columns, 4)).fit(*rows)
    with pytest.raises(ExportError, match="cannot be written as a graph"):
        model.to_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "encoder",
    [MLP(2, (8,)), WithInputs(MLP(2, (8,))), torch.nn.Identity()],
    ids=["by hand", "beside inputs", "by torch"],
)
def test_inputs_in_their_own_units(encoder: torch.nn.Module, tmp_path: Path) -> None:
    x = 1e9 * np.random.default_rng(0).normal(size=(300, 2))
    model = DensityRegressor.from_trained(encoder, x, 1e-9 * x[:, 0], random_state=0)
    model.to_onnx(tmp_path / "model.onnx")
    assert_same(model, tmp_path / "model.onnx", np.concatenate([x, 3 * x, -100 * x, 1e300 * np.sign(x)]))


def test_float32(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    x, y = rows[0][:, :3], rows[1]
    model = DensityRegressor(**QUICK).fit(x, y)
    model.to_onnx(tmp_path / "model.onnx", dtype="float32")
    mean, std = model.predict(x, return_std=True)
    found = run(tmp_path / "model.onnx", x.astype(np.float32))
    assert found["mean"].dtype == np.float32
    np.testing.assert_allclose(found["mean"][:, 0], mean, rtol=1e-4)
    np.testing.assert_allclose(found["std"][:, 0], std, rtol=1e-3)
    with pytest.raises(ValueError, match="dtype"):
        model.to_onnx(tmp_path / "other.onnx", dtype="float16")  # type: ignore[arg-type]


def test_what_float32_loses_is_told(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    """A column of 1e4 that varies by 1: of its digits float32 keeps three, and `predict` knows them all."""
    model = DensityRegressor(**QUICK).fit(rows[0] - [0, 0, 0, 1e7 - 1e4, 0], rows[1])
    assert model.to_onnx(tmp_path / "double.onnx") < 1e-3
    center, scale = model.x_scaling_
    x = center + scale * np.random.default_rng(1).normal(size=(200, 5))
    difference = model.to_onnx(tmp_path / "single.onnx", dtype="float32")
    found, (mean, std) = run(tmp_path / "single.onnx", x.astype(np.float32)), model.predict(x, return_std=True)
    worst = (np.abs(found["mean"][:, 0] - mean) / np.maximum(std, np.abs(mean))).max()
    assert difference > 0.3 * worst > 0


@pytest.mark.parametrize("method", [DensityRegressor, DeepEnsembleRegressor])
def test_an_offset_in_float32(method: type[DeepRegressor], tmp_path: Path) -> None:
    """Of rows that float32 holds the results are those of `predict`: the difference from the centre is exact."""
    rng, path, differences = np.random.default_rng(0), tmp_path / "model.onnx", []
    z = rng.normal(size=(200, 2))
    y = 3 * z[:, 0] + rng.normal(size=200)
    for offset in (0, 1e3, 1.6e4):
        x = (z + np.array([offset + 1 / 3, 0])).astype(np.float32)
        model = method(**QUICK).fit(x, y)
        model.to_onnx(path, dtype="float32")
        mean, std = model.predict(x, return_std=True)
        found = run(path, x)
        for parts in ((found["mean"], found["std"]), model._graph("float32")(torch.from_numpy(x))):
            assert (np.abs(np.asarray(parts[0])[:, 0] - mean) <= 3e-5 * std).all()
            np.testing.assert_allclose(np.asarray(parts[1])[:, 0], std, rtol=3e-5)
        differences.append([node.op_type for node in onnx.load(path).graph.node].count("Sub"))
    # What needs no second difference has none.
    assert differences[0] < differences[1] == differences[2]


@pytest.mark.parametrize("method", [DensityRegressor, GaussianRegressor])
def test_a_column_that_float32_cannot_hold_is_refused(method: type[DeepRegressor], tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "model.onnx"
    frame = pd.DataFrame({"a": rng.normal(size=200), "time": 1.6e9 + rng.uniform(0, 1000, size=200)})
    model = method(**QUICK).fit(frame, frame["a"])
    told = r"float32 has too few digits for column 'time' \(around 1\.6e\+09, standard deviation 2\d\d\): .*float64"
    with pytest.raises(ExportError, match=told):
        model.to_onnx(path, dtype="float32")
    with pytest.raises(ExportError, match=told):
        model.to_program(dtype="float32")
    with pytest.raises(ExportError, match=r"column 0 .*column 1 .*column 2 .*and 2 more"):
        method(**QUICK).fit(1e6 + rng.normal(size=(50, 5)), np.arange(50)).to_onnx(path, dtype="float32")
    with pytest.raises(ExportError, match=r"target 0 \(around 1\.6e\+09"):
        method(**QUICK).fit(frame[["a"]], frame["time"]).to_onnx(path, dtype="float32")
    model.save(tmp_path / "model")
    result = CliRunner().invoke(app, ["export", str(tmp_path / "model"), "--dtype", "float32", "--out", str(path)])
    assert (result.exit_code, len(result.output.splitlines())) == (1, 1)
    assert "column 'time'" in result.output
    assert not path.exists()


def test_a_large_constant_column_in_float32(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "model.onnx"
    x = np.column_stack([rng.normal(size=200), np.full(200, 1.6e9 + 50.3)])
    model = DensityRegressor(**QUICK).fit(x, x[:, 0])
    model.to_onnx(path, dtype="float32")
    found, (mean, std) = run(path, x.astype(np.float32)), model.predict(x, return_std=True)
    assert (np.abs(found["mean"][:, 0] - mean) <= 1e-4 * std).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_compared_on_rows_of_one_s_own(dtype: Literal["float64", "float32"], tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "model.onnx"
    x = rng.normal(size=(9000, 3))
    model = DensityRegressor(**{**QUICK, "hidden": (100, 100)}).fit(x[:200], np.stack([x[:200, 0], x[:200, 1]], 1))
    model.to_onnx(path, dtype=dtype, int8=True)
    for rows in (x[200:260], x):
        found, (mean, std) = run(path, rows.astype(dtype)), model.predict(rows, return_std=True)
        moved = np.abs(found["mean"] - mean) / std
        expected = (moved.max(), np.median(moved), np.abs(found["std"] / std - 1).max())
        assert model.check_onnx(path, rows) == pytest.approx(expected, rel=1e-2)
        assert moved.max() > 1e-3
    assert model.check_onnx(path) == pytest.approx(expected, rel=0.9)
    with pytest.raises(ValueError, match="3 features"):
        model.check_onnx(path, x[:, :2])
    (tmp_path / "other.onnx").write_bytes(b"no graph")
    with pytest.raises(ExportError, match="not a file of this model"):
        model.check_onnx(tmp_path / "other.onnx", x)


def test_the_command_compares_on_rows_of_one_s_own(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(200, 3))
    frame = pd.DataFrame(x, columns=list("abc"))
    model = DensityRegressor(**QUICK).fit(frame[["a", "b"]], x[:, 0])
    model.save(tmp_path / "model")
    table, path = tmp_path / "held out.csv", tmp_path / "model.onnx"
    frame[["c", "b", "a"]].to_csv(table, index=False)
    command = ["export", str(tmp_path / "model"), "--int8", "--out", str(path)]
    result = CliRunner().invoke(app, [*command, "--rows", str(table)])
    assert result.exit_code == 0, result.output
    moved = model.check_onnx(path, frame[["a", "b"]])
    assert f"On {table} a mean moves by {moved.mean:.2g} standard deviations at most" in result.output
    assert "drawn at random" in CliRunner().invoke(app, command).output
    path.unlink()
    frame[["a", "c"]].to_csv(table, index=False)
    result = CliRunner().invoke(app, [*command, "--rows", str(table)])
    assert (result.exit_code, len(result.output.splitlines())) == (1, 1)
    assert "lacks columns that the model was fitted on: b." in result.output
    assert not path.exists()


@pytest.mark.parametrize(
    ("differences", "rough", "right"),
    [
        ([1e-6, 1e-6, 5e-3, 1e-6], [0, 0, 1e-3, 0], True),
        ([1e-6, 1e-6, 5e-3, 1e-6], [0, 0, 0, 0], False),
        ([5e-3, 1e-6, 1e-6, 1e-6], [0, 0, 1e-3, 1e-3], False),
    ],
    ids=["what no two programs agree on", "what they could agree on", "what is rough elsewhere"],
)
def test_differences_are_judged_by_how_rough_torch_is_there(
    differences: list[float],
    rough: list[float],
    right: bool,
    rows: tuple[Floats, Floats],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = DensityRegressor(**QUICK).fit(*rows)
    monkeypatch.setattr(writing, "_differences", lambda *_: torch.tensor(differences))
    monkeypatch.setattr(writing, "_roughness", lambda _: torch.tensor(rough))
    if right:
        assert model.to_onnx(tmp_path / "model.onnx") == pytest.approx(5e-3)
    else:
        with pytest.raises(ExportError, match=r"differ from torch's, by 5\.0e-03"):
            model.to_onnx(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").exists() == right


class Rough(torch.nn.Module):
    """Sines of angles of which float32 knows few digits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(1e5 * x)


def test_how_rough_a_network_is(rows: tuple[Floats, Floats]) -> None:
    smooth, rough = (
        writing._roughness(GaussianRegressor(**QUICK, encoder=encoder).fit(*rows)._graph("float64"))
        for encoder in (None, Rough())
    )
    assert smooth.max() < writing.TOLERANCE / writing.ROUNDINGS < rough.min()


def test_another_model_s_graph_is_refused(
    rows: tuple[Floats, Floats], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, other = (DensityRegressor(**{**QUICK, "random_state": seed}).fit(*rows) for seed in (0, 1))
    graph, models = other._graph("float64"), writing._models
    monkeypatch.setattr(writing, "_models", lambda _: models(graph))
    with pytest.raises(ExportError, match="differ from torch's"):
        model.to_onnx(tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_program(rows: tuple[Floats, Floats]) -> None:
    x, y = rows
    model = DensityRegressor(**QUICK).fit(x, y)
    mean, std, log_density = model.to_program().module()(torch.from_numpy(x))
    expected, expected_std = model.predict(x, return_std=True)
    np.testing.assert_allclose(mean[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(std[:, 0], expected_std, rtol=1e-4)
    np.testing.assert_allclose(log_density, model.score_samples(x), rtol=1e-4, atol=1e-3)


def test_compiles_without_a_break(rows: tuple[Floats, Floats]) -> None:
    model = DensityRegressor(**QUICK).fit(*rows)
    x = model.x_scaling_.apply(rows[0])
    with torch.no_grad():
        compiled = torch.compile(model.model_, fullgraph=True, backend="eager")(x)
        assert torch.equal(compiled.mean, model.model_(x).mean)


def test_the_file_says_what_it_is(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    frame = pd.DataFrame(rows[0], columns=list("abcde"))
    DensityRegressor(**QUICK).fit(frame, rows[1]).to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["columns"]) == list("abcde")
    assert about["method"] == "DensityRegressor"
    assert session.get_inputs()[0].shape == ["rows", 5]


def test_command(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    model = DensityRegressor(**QUICK).fit(*rows)
    model.save(tmp_path / "model")
    out = tmp_path / "model.onnx"
    result = CliRunner().invoke(app, ["export", str(tmp_path / "model"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "model.onnx" in result.output
    assert_same(model, out, rows[0])
    missing = CliRunner().invoke(app, ["export", str(tmp_path / "none")])
    assert missing.exit_code == 1
    assert "No model" in missing.output
