"""The command `serve`: its errors are one line, and models can be prepared for machines without torch."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from density_regression import DensityRegressor
from density_regression.cli import app

pytest.importorskip("fastapi")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "model"
    X = np.random.default_rng(0).normal(size=(60, 2))
    DensityRegressor(hidden=(8,), epochs=2, random_state=0, verbose=False).fit(X, X[:, 0]).save(path)
    return path


def fails(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_prepare_only(model: Path) -> None:
    """By a process of its own, as it is done for a server."""
    result = CliRunner().invoke(app, ["serve", str(model), "--prepare-only"])
    assert result.exit_code == 0, result.stderr
    assert len(list((model / "serving").glob("*/model.onnx"))) == 1


def test_errors(tmp_path: Path, model: Path) -> None:
    assert f"No model in {tmp_path}" in fails(str(tmp_path), "--port", "0")
    assert "Two models are named 'model'" in fails(str(model), str(model), "--port", "0")
    assert "nowhere" in fails(str(model), "--port", "0", "--token-file", str(tmp_path / "nowhere"))
    for text in ("", "two words", "ä", "a\nb"):
        (tmp_path / "token").write_text(text)
        assert "must hold a token" in fails(str(model), "--port", "0", "--token-file", str(tmp_path / "token"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"127.0.0.1 port {port} cannot be listened at" in fails(str(model), "--port", port)


def test_without_the_extra(model: Path) -> None:
    """The error names it."""
    code = "import sys; sys.modules['fastapi'] = None; from density_regression.cli import app; app()"
    command = [sys.executable, "-c", code, "serve", str(model), "--port", "0"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "pip install density-regression[serve]" in result.stderr
    assert result.stderr.count("\n") == 1


def test_help_imports_nothing_heavy() -> None:
    code = """
import sys
from typer.testing import CliRunner
from density_regression.cli import app
assert CliRunner().invoke(app, ["serve", "--help"]).exit_code == 0
print([name for name in ("torch", "numpy", "fastapi", "uvicorn", "onnxruntime") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
