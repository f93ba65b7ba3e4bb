"""Help and shell completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flats import message, run

from density_regression.cli import COMMANDS, app
from density_regression.cli.methods import METHODS


def test_the_help_is_for_a_new_user() -> None:
    shown = message(run("--help"))
    assert "density-regression fit flats.csv --target price" in shown
    for command in COMMANDS:
        assert command.function.__name__ in shown


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.function.__name__)
def test_each_command_has_an_example_that_could_be_typed(command: object) -> None:
    name = command.function.__name__
    assert f"Example: {command.example}" in message(run(name, "--help"))
    program, typed, *arguments = command.example.split()
    assert (program, typed) == ("density-regression", name)
    known = {option for param in named(name).params for option in param.opts}
    assert {part for part in arguments if part.startswith("--")} <= known


def named(name: str) -> object:
    import typer

    return typer.main.get_command(app).commands[name]


@pytest.mark.parametrize(
    ("typed", "word", "expected"),
    [
        ("density-regression ex", 1, ["export"]),
        ("density-regression fit --method Ga", 3, ["GaussianRegressor"]),
        ("density-regression fit --method De", 3, [name for name in METHODS if name.startswith("De")]),
        ("density-regression fit --conf", 2, ["--conformal"]),
    ],
)
def test_completion(typed: str, word: int, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"_DENSITY_REGRESSION_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(word)}
    with pytest.MonkeyPatch.context() as patch:
        for key, value in asked.items():
            patch.setenv(key, value)
        with pytest.raises(SystemExit) as left:
            app(prog_name="density-regression")
    assert left.value.code == 0
    assert capsys.readouterr().out.split() == expected


def test_completion_is_shown_and_installed(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "SHELL": "/bin/bash"}
    code = "from density_regression.cli import app; app(prog_name='density-regression')"
    for option in ("--show-completion", "--install-completion"):
        command = [sys.executable, "-c", code, option, "bash"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)
        assert done.stderr == ""
    script = tmp_path / ".bash_completions" / "density-regression.sh"
    assert "complete_bash" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()
