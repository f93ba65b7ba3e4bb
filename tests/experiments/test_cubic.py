"""The cubic toy with default settings, twice: calibrated where there are data, doubtful where there are none."""

from pathlib import Path

import numpy as np
import pytest

from density_regression.experiments.cubic import METHODS, TEMPERINGS, CubicResult, draw, run_cubic

SEEDS = range(2)
GRID = np.linspace(-7, 7, 281)


def std_at(result: CubicResult, x: float) -> float:
    return float(result.std[np.argmin(np.abs(GRID - x))])


def test_calibrated_inside_and_doubtful_outside(capsys: pytest.CaptureFixture[str]) -> None:
    """One test: the fits take a quarter of a minute, and each process of the tests would make its own."""
    results = run_cubic("robust (default)", SEEDS, GRID)
    for result in results:
        assert 0.90 <= result.metrics["coverage inside"] <= 0.99
        # The noise is known, but for narrow spikes and the outermost rows, at which the std begins to grow.
        assert 2.5 < result.metrics["RMSE inside"] < 3.5
        assert 2.5 < np.median(result.std[np.abs(GRID) <= 4]) < 4.0
        assert 2.5 < result.metrics["sharpness inside"] < 12.0
        for x in (-7.0, 7.0):
            assert 8 * std_at(result, 0.0) <= std_at(result, x) < 1500
    coverage = [result.metrics["curve coverage outside"] for result in results]
    assert np.mean(coverage) >= 0.85
    assert len({result.metrics["NLL inside"] for result in results}) == len(results)
    with capsys.disabled():
        print("\ncoverage of the true curve over 4 < |x| <= 7, two seeds:", *(f"{value:.2f}" for value in coverage))


@pytest.mark.parametrize("method", [*TEMPERINGS, *METHODS])
def test_every_method_runs(method: str) -> None:
    (result,) = run_cubic(method, [0], GRID[::40], epochs=2, hidden=(8,))
    assert result.method == method
    assert result.mean.shape == result.std.shape == (8,)
    ours = method in TEMPERINGS or method == "Density-Regression"
    steps = ["pretrain", "fit_density", "refit_head", "learn_reach"]
    assert list(result.seconds) == (steps if ours else ["train"])
    assert result.metrics["std(7) / std(0)"] > 0
    assert np.isfinite(list(result.metrics.values())).all()
    (again,) = run_cubic(method, [0], GRID[::40], epochs=2, hidden=(8,))
    assert again.metrics == result.metrics


def test_the_figure_is_drawn_for_any_number_of_methods(tmp_path: Path) -> None:
    (result,) = run_cubic("exact", [1], GRID, epochs=1, hidden=(4,))
    for count in (1, 2, 11):
        draw([result] * count, GRID, 1, tmp_path / f"{count}.png")
        assert (tmp_path / f"{count}.png").stat().st_size > 10_000


def test_there_are_eleven_methods() -> None:
    assert len(METHODS) == 11
    assert next(iter(METHODS)) == "Density-Regression"
