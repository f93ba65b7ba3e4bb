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
    # Step 1 knows nothing of distance; the paper's form explodes, ours widens. All know the noise, of sd 3, inside.
    growth = names["growth"]
    assert growth["our default"] > 8
    assert growth["our default"] > 2 * growth["after step 1"]
    assert growth["as in the paper"] > 10 * growth["our default"]
    inside = np.abs(names["grid"]) < 3
    for title in ("our default", "as in the paper"):
        assert 1 < names["panels"][title][1][inside].mean() < 6
    # The density leaves the mean alone but for the head's second fit.
    assert np.abs(names["as_in_the_paper"][0] - names["after_step_1"][0])[inside].max() < 5
    assert names["log_density"][-1] < names["log_density"][140] - 5
    titles = ["after step 1", "as in the paper", "our default", "Deep Ensemble of five"]
    assert [ax.get_title() for ax in names["axes"]] == titles
