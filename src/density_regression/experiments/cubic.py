"""The cubic toy (`fig:demo`): train on [-4, 4], look at [-7, 7]."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from density_regression import metrics
from density_regression.base import DeepRegressor
from density_regression.estimator import DensityRegressor
from density_regression.experiments.suites import Cubic, Task
from density_regression.plots import predictive_band
from density_regression.registry import methods
from density_regression.together import fit_together

__all__ = ["METHODS", "TEMPERINGS", "CubicResult", "draw", "run_cubic"]

TOY: Final = Cubic()

TEMPERINGS: Final[dict[str, DeepRegressor]] = {
    "robust (default)": DensityRegressor(tempering="robust"),
    "exact": DensityRegressor(tempering="exact"),
    "rescaled": DensityRegressor(tempering="rescaled"),
    "no density": DensityRegressor(density=None),
}
"""The demo's first page: three temperings, and the same Gaussian network without a density."""

METHODS: Final[dict[str, DeepRegressor]] = {method.name: method.estimator() for method in methods()}
"""Its second page: every method there is, as it comes."""

Floats = NDArray[np.float64]


class CubicResult(NamedTuple):
    """One method on the toy: figures by name, and its predictions along [-7, 7]."""

    method: str
    figures: dict[str, float]
    seconds: dict[str, float]
    mean: Floats
    std: Floats


def run_cubic(method: str, seeds: Sequence[int], grid: Floats, **params: Any) -> list[CubicResult]:
    """Fit one method to the toy, once for each seed, and measure it inside and outside the training range.

    Parameters
    ----------
    method : str
        A name in `TEMPERINGS` or `METHODS`.
    seeds : sequence of int
        Seeds of data and estimators; several are fitted together.
    grid : array of shape (n,)
        Where to predict for the figure.
    **params
        Parameters of the estimator.
    """
    tasks = [TOY.load("cubic", str(seed), None) for seed in seeds]
    prototype = (TEMPERINGS | METHODS)[method]
    regressors = [clone(prototype).set_params(random_state=seed, n_threads=1, **params) for seed in seeds]
    fit_together(regressors, [task.train for task in tasks])
    return [_measured(method, regressor, task, grid) for regressor, task in zip(regressors, tasks, strict=True)]


def _measured(method: str, regressor: DeepRegressor, task: Task, grid: Floats) -> CubicResult:
    figures = {}
    for where, (X, y) in task.tests.items():
        mean, std = regressor.predict(X, return_std=True)
        figures[f"NLL {where}"] = metrics.nll(y, mean, std)
        figures[f"RMSE {where}"] = metrics.rmse(y, mean)
        figures[f"calibration {where}"] = metrics.calibration_error(y, mean, std)
        figures[f"sharpness {where}"] = metrics.sharpness(std)
        figures[f"coverage {where}"] = metrics.coverage(y, mean, std, level=0.95)
        figures[f"curve coverage {where}"] = metrics.coverage(X[:, 0] ** 3, mean, std, level=0.95)
    center, *ends = regressor.predict([[0.0], [-TOY.FAR], [TOY.FAR]], return_std=True)[1]
    figures["std(7) / std(0)"] = float(np.mean(ends) / center)
    along = regressor.predict(grid[:, None], return_std=True)
    return CubicResult(method, figures, regressor.report_.seconds, *along)


def draw(results: list[CubicResult], grid: Floats, seed: int, path: Path, columns: int = 4) -> None:
    """Write the figure: one panel a method, bands of one to three standard deviations."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    X, y = TOY.load("cubic", str(seed), None).train
    columns = min(columns, len(results))
    rows = -(-len(results) // columns)
    figure = Figure(figsize=(4 * columns, 3.6 * rows + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for ax, result in zip(panels, results, strict=False):
        predictive_band(ax, grid, result.mean, result.std, x_train=X, y_train=y, y_true=grid**3)
        ax.set(title=result.method, ylim=(-400, 400), xlim=(-TOY.FAR, TOY.FAR))
        ratio = result.figures["std(7) / std(0)"]
        note = ax.text(0.03, 0.96, f"std(7) / std(0) = {ratio:.3g}", transform=ax.transAxes, va="top", zorder=6)
        note.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5})
    for ax in panels[len(results) :]:
        ax.remove()
    for column in range(columns):
        # The lowest panel of a column may be in the last row but one.
        lowest = panels[max(range(column, len(results), columns))]
        lowest.set_xlabel("x")
        lowest.tick_params(labelbottom=True)
    for ax in panels[: len(results) : columns]:
        ax.set_ylabel("y")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=130 if rows == 1 else 100)
