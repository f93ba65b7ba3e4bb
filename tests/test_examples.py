"""The examples run, and show what they say."""

from __future__ import annotations

import re
import runpy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
Run = Callable[[str], dict[str, Any]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Run an example without a screen, in an empty folder, and return its names."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")

    def run_example(name: str) -> dict[str, Any]:
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*non-interactive.*")
            return runpy.run_path(str(EXAMPLES / f"{name}.py"))

    yield run_example
    plt.close("all")


def test_every_example_is_tested() -> None:
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tests


def test_cubic(run: Run) -> None:
    names = run("cubic")
    inside = np.abs(names["grid"]) < 3
    assert 2 < names["std"][inside].mean() < 4
    assert names["std"][-1] > 10 * names["std"][inside].max()
    assert names["familiarity"][-3:].max() < 0.01
    parts = names["parts"]
    np.testing.assert_allclose(
        parts.aleatoric**2 + parts.disagreement**2 + parts.distance**2, names["std"] ** 2, rtol=1e-3
    )


def test_diabetes(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("diabetes")
    assert names["metrics"].rmse(names["y_test"], names["mean"]) < 0.9 * names["y_test"].std()
    assert 0.8 < names["metrics"].coverage(names["y_test"], names["mean"], names["std"], level=0.9) < 0.98
    assert names["reg"].familiarity(names["wrong"].iloc[[1]])[0] < 0.01
    assert names["reg"].predict(names["wrong"], return_std=True)[1][1] > 1.5 * names["std"].mean()
    assert "wrong BMI" in capsys.readouterr().out


def test_own_encoder(run: Run) -> None:
    names = run("own_encoder")
    with torch.no_grad():
        strange = {name: (names["model"].familiarity(x) < 0.01).float().mean() for name, x in names["kinds"].items()}
    assert strange["sines"] < 0.05
    assert min(strange["square waves"], strange["noise alone"]) > 0.8


def test_shift_alarm(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("shift_alarm")
    first = names["alarm"].reports[0]
    assert 600 < first.row < 800
    assert first.columns[0].column == "pressure"
    assert "Alarm at row" in capsys.readouterr().out


def test_weather_window(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("weather_window")
    assert names["strange"] > 0.2  # of the heat wave, the last
    assert names["inside"] > 0.85
    usual, hot = (float(std) for std in re.findall(r"median std ([\d.]+)", capsys.readouterr().out))
    assert hot > 1.2 * usual > 0.5


def test_tiny_depth(run: Run) -> None:
    names = run("tiny_depth")
    assert names["pairs_of_images"].mean() > 0.9


def test_conformal(run: Run) -> None:
    names = run("conformal")
    off = {name: np.abs(held - names["levels"]).mean() for name, held in names["coverage"].items()}
    assert off["conformal"] < 0.05
    assert off["conformal"] < off["Gaussian"]


def test_raw_columns_onnx(run: Run) -> None:
    names = run("raw_columns_onnx")
    np.testing.assert_allclose(names["answer"]["mean"], names["mean"], rtol=1e-5)
    assert 0.8 < names["inside"].mean() < 0.99
    assert names["relative"][0] > 1.5 * np.median(names["relative"])
    assert (names["low"] > 0).all()


def test_grid_search(run: Run) -> None:
    names = run("grid_search")
    assert names["search"].best_params_["selectkbest__k"] > 2
    assert names["search"].best_score_ == names["results"]["mean_test_neg_nll"].max()


def test_mlflow_tracking(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not among the extras: pip install mlflow")
    names = run("mlflow_tracking")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert all("NLL" in line and "model.onnx" in line for line in printed)
    assert len(names["losses"]) == 40
    names["mlflow"].set_tracking_uri(None)


def test_skpro_interface(run: Run) -> None:
    pytest.importorskip("skpro", reason="skpro is not among the extras: pip install skpro")
    names = run("skpro_interface")
    assert names["CRPS"]()(names["y"][200:], names["laws"]["Density-Regression"]) < 1.0


def test_three_steps(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_paper_demo(run: Run) -> None:
    names = run("paper_demo")
    growth = {name: std[-1] / std[140] for name, (_, std) in names["panels"].items()}
    assert growth["step 1 alone"] < 5
    assert growth["step 3, exact"] > 1e6
    assert 20 < growth["DensityRegressor()"] < 1e4
    inside = np.abs(names["grid"]) < 3
    for mean, std in names["panels"].values():
        assert np.abs(mean - names["grid"] ** 3)[inside].max() < 6
        assert 1 < std[inside].mean() < 6
