"""The examples run, and show what they say."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    """Run an example without a screen, and return its names."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    mpl.use("agg")

    def run_example(name: str) -> dict[str, object]:
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*non-interactive.*")
            names = runpy.run_path(str(EXAMPLES / f"{name}.py"))
        mpl.pyplot.close("all")
        return names

    return run_example


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"three_steps"}


def test_three_steps(run, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("three_steps")
    printed = capsys.readouterr().out
    assert [line.split(":")[0] for line in printed.splitlines()] == ["step 1", "step 2", "std(7) / std(0)"]
    # Step 1 knows nothing of distance, step 3 does; both know the noise, of standard deviation 3, inside.
    assert names["growth"]["step 3"] > 8
    assert names["growth"]["step 3"] > 2 * names["growth"]["step 1"]
    inside = np.abs(names["grid"]) < 3
    assert 2 < names["after_step_3"][1][inside].mean() < 5
    # The density leaves the mean alone but for the head's second fit.
    assert np.abs(names["after_step_3"][0] - names["after_step_1"][0])[inside].max() < 5
    assert names["log_density"][-1] < names["log_density"][140] - 5
    assert [ax.get_title() for ax in names["axes"]] == ["after step 1", "after step 3", "Deep Ensemble of five"]
