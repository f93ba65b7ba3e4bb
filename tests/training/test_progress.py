"""The progress bar: on a terminal it names the step and shows the loss, anywhere else there is none."""

import io
import os
import pty
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial, partialmethod
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from density_regression import DensityRegressor
from density_regression.io import progress
from density_regression.io.progress import StepProgress

X = np.linspace(-1, 1, 40)[:, None]
y = X[:, 0] ** 3


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal is what is one, not what the environment calls one."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "JUPYTER_COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


class Terminal(io.StringIO):
    """A file that takes itself for a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal would show."""
    shown = Terminal()
    monkeypatch.setattr(progress, "Console", lambda **kwargs: Console(file=shown, width=120))
    return shown


def on_pseudo_terminal(function: Callable[[], None]) -> str:
    """What `function` writes to standard error while that is a terminal, to the operating system too."""
    primary, secondary = pty.openpty()
    written: list[bytes] = []

    def drain() -> None:
        # A terminal whose other end is closed reads as an error.
        with suppress(OSError):
            while part := os.read(primary, 65536):
                written.append(part)

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    with pytest.MonkeyPatch.context() as patch, os.fdopen(secondary, "w") as stream:
        patch.setattr(sys, "stderr", stream)
        function()
    reader.join(10)
    os.close(primary)
    return b"".join(written).decode()


def fit(**settings: Any) -> None:
    DensityRegressor(hidden=(8,), epochs=3, members=0, random_state=0, **settings).fit(X, y)


def draw(progress: StepProgress) -> None:
    """Draw the bar now, and not when its clock says so."""
    progress._bar.refresh()


def test_it_names_the_step_and_shows_the_loss(terminal: io.StringIO) -> None:
    with StepProgress() as progress:
        for name, loss in (("1/3 network", 12.34567), ("3/3 head", -0.5)):
            progress.step(name, 4)
            progress.advance(99.0)
            progress.advance(loss)
            draw(progress)
    shown = terminal.getvalue()
    assert (
        shown.index("1/3 network") < shown.index("loss 12.3457") < shown.index("3/3 head") < shown.index("loss -0.5000")
    )
    assert "2/4" in shown
    # Nothing stays behind: the line is erased at last.
    assert shown.endswith("\x1b[2K")


def test_a_new_step_starts_without_a_loss(terminal: io.StringIO) -> None:
    with StepProgress() as progress:
        progress.step("first", 2)
        progress.advance(7.0)
        draw(progress)
        progress.step("second", 2)
        draw(progress)
    second = terminal.getvalue().split("second", 1)[1]
    assert "loss" not in second
    assert "0/2" in second


def test_progress_without_a_loss(terminal: io.StringIO) -> None:
    with StepProgress() as progress:
        progress.step("2/3 density", 1)
        progress.advance()
    assert "1/1" in terminal.getvalue()
    assert "loss" not in terminal.getvalue()


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 1e300])
def test_any_loss_can_be_shown(loss: float, terminal: io.StringIO) -> None:
    with StepProgress() as progress:
        progress.step("network", 1)
        progress.advance(loss)
    assert "loss" in terminal.getvalue()


def test_silent_when_asked(terminal: io.StringIO) -> None:
    with StepProgress(visible=False) as progress:
        progress.step("network", 2)
        progress.advance(1.0)
        draw(progress)
    assert terminal.getvalue() == ""


def test_it_stops_when_training_fails(terminal: io.StringIO) -> None:
    def fail() -> None:
        with StepProgress() as progress:
            progress.step("network", 2)
            raise ValueError("halfway")

    with pytest.raises(ValueError, match="halfway"):
        fail()
    assert "network" in terminal.getvalue()
    shown = len(terminal.getvalue())
    time.sleep(0.25)
    assert len(terminal.getvalue()) == shown


@pytest.mark.parametrize("force_color", [False, True])
def test_a_fit_is_silent_where_there_is_no_terminal(
    force_color: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if force_color:
        monkeypatch.setenv("FORCE_COLOR", "1")
    fit()
    assert capfd.readouterr() == ("", "")


def test_a_fit_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change is drawn, so that no step is too short to be seen."""

    def drawn(method: Callable[..., None], progress: StepProgress, *args: Any) -> None:
        method(progress, *args)
        draw(progress)

    for name in ("step", "advance"):
        monkeypatch.setattr(StepProgress, name, partialmethod(partial(drawn, getattr(StepProgress, name))))
    shown = on_pseudo_terminal(fit)
    steps = [shown.index(step) for step in ("1/3 network", "2/3 density", "3/3 head")]
    assert steps == sorted(steps)
    assert "loss" in shown[steps[0] : steps[1]]
    assert "3/3" in shown[steps[0] : steps[1]]
    assert "loss" not in shown[steps[1] : steps[2]]
    assert "loss" in shown[steps[2] :]


def test_a_fit_on_a_terminal_that_was_asked_to_be_silent() -> None:
    assert on_pseudo_terminal(lambda: fit(verbose=False)) == ""


class Writer:
    """Takes the place of standard error, as a logger does, and is no file."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Nothing is kept."""


@pytest.mark.parametrize("closed", [None, Writer(), io.StringIO()], ids=["none", "writer", "closed"])
def test_a_fit_where_standard_error_is_no_file(closed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(closed, io.StringIO):
        closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    fit()
