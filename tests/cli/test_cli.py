"""The command line, in process and as people run it."""

import importlib.metadata
import os
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from density_regression.cli import app
from density_regression.experiments import cubic

METHODS = ("robust (default)", "exact", "rescaled", "no density")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo with networks that hardly train."""
    monkeypatch.setattr(cubic, "run_cubic", partial(cubic.run_cubic, epochs=2, hidden=(8,)))


@pytest.fixture
def quick_and_few(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of few methods."""
    monkeypatch.setattr(cubic, "TEMPERINGS", {name: cubic.TEMPERINGS[name] for name in ("robust (default)", "exact")})
    monkeypatch.setattr(cubic, "METHODS", {name: cubic.METHODS[name] for name in ("Density-Regression", "Gaussian")})


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120", "TERM": "dumb"})


def png_size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def table(output: str) -> list[str]:
    """The lines that hold figures and no times."""
    return [
        line for line in output.splitlines() if any(word in line for word in ("NLL", "RMSE", "sharpness", "coverage"))
    ]


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.output.strip() == importlib.metadata.version("density-regression")


def test_help() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "demo" in result.output
    assert "--version" in result.output
    assert run("demo", "--help").exit_code == 0
    for option in ("--seed", "--out"):
        assert option in run("demo", "--help").output


def test_no_command_shows_the_help() -> None:
    assert "Usage" in run().output


def test_no_such_command() -> None:
    result = run("dmo")
    assert result.exit_code == 2
    assert "No such command" in result.output


@pytest.mark.usefixtures("quick")
def test_demo(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    result = run("demo", "--out", out)
    assert result.exit_code == 0, result.output
    for method in METHODS:
        assert method in result.output
    for row in ("NLL", "RMSE", "calibration", "sharpness", "coverage"):
        assert f"{row} inside" in result.output
        assert f"{row} outside" in result.output
    assert "curve coverage outside" in result.output
    for step in ("pretrain", "fit_density", "refit_head", "learn_reach"):
        assert f"seconds: {step}" in result.output
    assert "…" not in result.output, "a table that is cut off"
    for method in cubic.METHODS:
        assert method in result.output
    for name in ("cubic.png", "methods.png"):
        assert str(out / name) in result.output.replace("\n", "")
    assert sorted(path.name for path in out.iterdir()) == ["cubic.png", "methods.png"]
    # Eleven panels, four in a row.
    assert png_size(out / "methods.png") == (1600, 1140)
    width, height = png_size(out / "cubic.png")
    # Four panels beside each other.
    assert 1000 < width < 4000
    assert 300 < height < 1200
    assert 20_000 < (out / "cubic.png").stat().st_size < 2_000_000


@pytest.mark.usefixtures("quick")
def test_a_missing_extra_costs_one_method_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpytorch", None)
    result = run("demo", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "skipped: DUE needs gpytorch" in result.output
    assert "density-regression[gp]" in result.output
    assert "Deep Ensembles" in result.output


@pytest.mark.usefixtures("quick_and_few")
def test_the_seed_decides_the_figures(tmp_path: Path) -> None:
    outputs = [table(run("demo", "--seed", seed, "--out", tmp_path).output) for seed in ("0", "0", "1")]
    assert len(outputs[0]) >= 9
    assert outputs[0] == outputs[1]
    assert outputs[0] != outputs[2]


@pytest.mark.usefixtures("quick_and_few")
def test_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("demo").exit_code == 0
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.png")) == [
        Path("demo", "cubic.png"),
        Path("demo", "methods.png"),
    ]


@pytest.mark.parametrize("below", ["", "inner"])
def test_a_file_is_no_folder(below: str, tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_text("mine")
    result = run("demo", "--out", path / below)
    assert result.exit_code == 2
    # The message is framed and wrapped.
    message = " ".join(result.output.replace("│", " ").split())
    assert "Invalid value for --out" in message
    assert "cannot be made a folder" in message
    assert "Traceback" not in result.output
    assert path.read_text() == "mine"


@pytest.mark.parametrize("seed", ["-1", "one", "1.5", str(2**32)])
def test_a_seed_that_is_none(seed: str, tmp_path: Path) -> None:
    result = run("demo", "--seed", seed, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "--seed" in result.output
    assert not (tmp_path / "out").exists()


def test_the_console_script(tmp_path: Path) -> None:
    """As installed, and from another folder; the networks hardly train."""
    script = Path(sys.executable).parent / "density-regression"
    if not script.exists():
        pytest.skip("the package is installed without its console script")
    for command in ([script], [sys.executable, "-m", "density_regression"]):
        shown = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120
        )
        assert shown.stdout.strip() == importlib.metadata.version("density-regression")
    quick = (
        "from density_regression.experiments import cubic; from density_regression.cli import app\n"
        "for name in list(cubic.METHODS)[3:]: del cubic.METHODS[name]\n"
        "for page in (cubic.TEMPERINGS, cubic.METHODS):\n"
        "    for regressor in page.values(): regressor.set_params(epochs=2, hidden=(8,))\n"
        "app()"
    )
    command = [sys.executable, "-c", quick, "demo", "--out", "figures", "--seed", "3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(table(done.stdout)) >= 9
    assert png_size(tmp_path / "figures" / "cubic.png")[0] > 1000
