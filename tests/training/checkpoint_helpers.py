"""Fits that are stopped and go on."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from density_regression import DensityRegressor
from density_regression.training import algorithm, pretraining
from training.helpers import wave


class Stop(BaseException):
    """Ends a fit as an interrupt would."""


TABLE = (wave(80)[0].double().numpy() * 3 + 5, wave(80)[1].double().numpy()[:, 0] * 10)


def regressor(folder: Path | None, **settings: Any) -> DensityRegressor:
    usual = {"hidden": (8,), "epochs": 3, "members": 0, "n_threads": 1, "random_state": 0}
    return DensityRegressor(**usual | {"checkpoint_dir": folder} | settings)


def steps_run(monkeypatch: pytest.MonkeyPatch, fit: Callable[[], Any], stop_in: str | None = None) -> list[str]:
    """Names of the steps that a fit goes through; in one of them it may be stopped."""
    seen = []

    def spy(name: str, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        if name == stop_in:
            raise Stop
        return step(*args, **kwargs)

    with monkeypatch.context() as patch:
        for module, name in ((pretraining, "pretrain"), (algorithm, "fit_density"), (algorithm, "refit_head")):
            patch.setattr(module, name, partial(spy, name, getattr(module, name)))
        if stop_in is None:
            fit()
        else:
            with pytest.raises(Stop):
                fit()
    return seen


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_same_predictions(got: DensityRegressor, expected: DensityRegressor) -> None:
    points = np.linspace(-20, 30, 101)[:, None]
    np.testing.assert_array_equal(got.predict(points, return_std=True), expected.predict(points, return_std=True))
    np.testing.assert_array_equal(got.score_samples(points), expected.score_samples(points))
    np.testing.assert_array_equal(got.familiarity(points), expected.familiarity(points))
    np.testing.assert_array_equal(got.decompose(points), expected.decompose(points))


X, y = TABLE


def kill_when_there(script: str, folder: Path, path: Path) -> None:
    """Run a script with a folder as its argument, and kill it once it has written a file."""
    tests = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", textwrap.dedent(script), str(folder)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": tests})
    try:
        until = time.monotonic() + 120
        while not path.exists():
            assert process.poll() is None, "the fit ended before it could be killed"
            assert time.monotonic() < until, f"{path.name} was not written"
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait(30)
