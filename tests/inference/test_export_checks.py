"""A written file is compared with the model: on rows of one's own, and before it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from density_regression import DensityRegressor
from density_regression.baselines import GaussianRegressor
from density_regression.cli import app
from density_regression.inference.onnx import ExportError
from density_regression.inference.onnx import write as writing
from density_regression.tabular.table import Floats
from inference.helpers import QUICK, run


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
    ("differences", "rounding", "right"),
    [
        ([1e-6, 1e-6, 5e-3, 1e-6], [0, 0, 1e-3, 0], True),
        ([1e-6, 1e-6, 5e-3, 1e-6], [0, 0, 0, 0], False),
        ([5e-3, 1e-6, 1e-6, 1e-6], [0, 0, 1e-3, 1e-3], False),
    ],
    ids=["what no two programs agree on", "what they could agree on", "rounding matters elsewhere only"],
)
def test_differences_are_allowed_up_to_the_effect_of_rounding(
    differences: list[float],
    rounding: list[float],
    right: bool,
    rows: tuple[Floats, Floats],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = DensityRegressor(**QUICK).fit(*rows)
    monkeypatch.setattr(writing, "_differences", lambda *_: torch.tensor(differences))
    monkeypatch.setattr(writing, "_rounding_effect", lambda _: torch.tensor(rounding))
    if right:
        assert model.to_onnx(tmp_path / "model.onnx") == pytest.approx(5e-3)
    else:
        with pytest.raises(ExportError, match=r"differ from torch's, by 5\.0e-03"):
            model.to_onnx(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").exists() == right


class FastSine(torch.nn.Module):
    """Sines of angles of which float32 knows few digits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(1e5 * x)


def test_effect_of_rounding_the_inputs(rows: tuple[Floats, Floats]) -> None:
    smooth, sensitive = (
        writing._rounding_effect(GaussianRegressor(**QUICK, encoder=encoder).fit(*rows)._graph("float64"))
        for encoder in (None, FastSine())
    )
    assert smooth.max() < writing.TOLERANCE / writing.ROUNDING_FACTOR < sensitive.min()


def test_another_model_s_graph_is_refused(
    rows: tuple[Floats, Floats], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, other = (DensityRegressor(**{**QUICK, "random_state": seed}).fit(*rows) for seed in (0, 1))
    graph, models = other._graph("float64"), writing._models
    monkeypatch.setattr(writing, "_models", lambda _: models(graph))
    with pytest.raises(ExportError, match="differ from torch's"):
        model.to_onnx(tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
