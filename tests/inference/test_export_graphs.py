"""Graphs written by hand: few nodes, and the same results as torch's exporter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from density_regression import DensityRegressor
from density_regression.baselines import DeepEnsembleRegressor, GaussianRegressor
from density_regression.estimators.base import DeepRegressor
from density_regression.inference.onnx import write as writing
from density_regression.nn.density import MixtureDensity
from density_regression.tabular.table import Floats
from inference.helpers import QUICK, assert_same


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("max_dims", [4, None])
def test_written_by_hand(components: int, max_dims: int | None, rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    """The default's graph has less than half of the nodes that torch's exporter makes, with and without a residual."""
    x, y = rows
    density = MixtureDensity(components, max_dims=max_dims, variance=1.0)
    model = DensityRegressor(**QUICK, density=density).fit(x, y)
    model.to_onnx(tmp_path / "model.onnx")
    assert len(onnx.load(tmp_path / "model.onnx").graph.node) <= 42
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


def _convolution(columns: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Unflatten(1, (1, columns)), torch.nn.Conv1d(1, 3, 2), torch.nn.Flatten())


@pytest.mark.parametrize("method", [DensityRegressor, GaussianRegressor])
@pytest.mark.parametrize(
    ("encoder", "targets", "own"),
    [
        (lambda columns: torch.nn.Identity(), 1, 1),
        (lambda columns: torch.nn.Sequential(torch.nn.Linear(columns, 600), torch.nn.Tanh()), 2, 2),
        (_convolution, 1, 5),
        (lambda columns: Overflowing(columns, 8), 2, 8),
        (lambda columns: Double(columns, 8), 1, 3),
        (lambda columns: Named(columns, 8), 1, 2),
    ],
    ids=["none", "wide", "convolution", "overflowing", "double", "named"],
)
def test_an_encoder_of_one_s_own(
    encoder: Callable[[int], torch.nn.Module],
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
    after = writing.compact_model_after_encoder(other._graph("float64"))
    monkeypatch.setattr(writing, "compact_model_after_encoder", lambda graph: after)
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


def test_a_wide_range_of_deviations(rows: tuple[Floats, Floats], tmp_path: Path) -> None:
    """Variances from e^-28 to e^28: s goes through its range in many steps."""
    x, _ = rows
    model = DensityRegressor(**QUICK).fit(x, x[:, 0])
    with torch.no_grad():
        model.model_.head.s_low.fill_(-28.0)
        model.model_.head.s_high.fill_(28.0)
        model.model_.head.linear.weight[1:] *= 30
    assert model.to_onnx(tmp_path / "model.onnx") < 1e-4
