"""Cubic toy (`fig:demo`): trained on [-4, 4], predicted on [-7, 7]."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from sklearn.base import clone

from density_regression import metrics
from density_regression.estimators.base import DeepRegressor
from density_regression.estimators.density import DensityRegressor
from density_regression.estimators.fit_together import fit_together
from density_regression.experiments.report.rendering import tidy_panels
from density_regression.experiments.scoring import FloatArray
from density_regression.experiments.suites import Cubic, SplitData
from density_regression.plots import predictive_band
from density_regression.registry import methods

__all__ = ["METHODS", "TEMPERINGS", "CubicResult", "draw", "run_cubic"]

TOY: Final = Cubic()

TEMPERINGS: Final[dict[str, DeepRegressor]] = {
    "robust (default)": DensityRegressor(tempering="robust"),
    "exact": DensityRegressor(tempering="exact"),
    "rescaled": DensityRegressor(tempering="rescaled"),
    "no density": DensityRegressor(density=None),
}
"""First figure of the demo: the three temperings, and the same network without a density."""

METHODS: Final[dict[str, DeepRegressor]] = {method.name: method.estimator() for method in methods()}
"""Second figure: every method with its default settings."""


class CubicResult(NamedTuple):
    """One method on the toy: metrics by name, seconds by training step, and its predictions on a grid."""

    method: str
    metrics: dict[str, float]
    seconds: dict[str, float]
    mean: FloatArray
    std: FloatArray


def run_cubic(method: str, seeds: Sequence[int], grid: FloatArray, **params: Any) -> list[CubicResult]:
    """Fit a method of `TEMPERINGS` or `METHODS` once for each seed, and score it inside and outside the training range.

    Each seed is that of data and estimator; `grid` (n,) is where to predict for the figure, and `params` are
    parameters of the estimator.
    """
    data = [TOY.load("cubic", str(seed), None) for seed in seeds]
    prototype = (TEMPERINGS | METHODS)[method]
    regressors = [clone(prototype).set_params(random_state=seed, n_threads=1, **params) for seed in seeds]
    fit_together(regressors, [each.train for each in data])
    return [_result(method, regressor, each, grid) for regressor, each in zip(regressors, data, strict=True)]


def _result(method: str, regressor: DeepRegressor, data: SplitData, grid: FloatArray) -> CubicResult:
    values = {}
    for where, (X, y) in data.tests.items():
        mean, std = regressor.predict(X, return_std=True)
        values[f"NLL {where}"] = metrics.nll(y, mean, std)
        values[f"RMSE {where}"] = metrics.rmse(y, mean)
        values[f"calibration {where}"] = metrics.calibration_error(y, mean, std)
        values[f"sharpness {where}"] = metrics.sharpness(std)
        values[f"coverage {where}"] = metrics.coverage(y, mean, std, level=0.95)
        values[f"curve coverage {where}"] = metrics.coverage(X[:, 0] ** 3, mean, std, level=0.95)
    center, *ends = regressor.predict([[0.0], [-TOY.FAR], [TOY.FAR]], return_std=True)[1]
    values["std(7) / std(0)"] = float(np.mean(ends) / center)
    return CubicResult(method, values, regressor.report_.seconds, *regressor.predict(grid[:, None], return_std=True))


def draw(results: list[CubicResult], grid: FloatArray, seed: int, path: Path, columns: int = 4) -> None:
    """Write a figure with one panel for each method: bands of one to three standard deviations."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    X, y = TOY.load("cubic", str(seed), None).train
    columns = min(columns, len(results))
    rows = -(-len(results) // columns)
    figure = Figure(figsize=(4 * columns, 3.6 * rows + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for ax, result in zip(panels.flat, results, strict=False):
        predictive_band(ax, grid, result.mean, result.std, x_train=X, y_train=y, y_true=grid**3)
        ax.set(title=result.method, xlabel="x", ylabel="y", ylim=(-400, 400), xlim=(-TOY.FAR, TOY.FAR))
        label = f"std(7) / std(0) = {result.metrics['std(7) / std(0)']:.3g}"
        note = ax.text(0.03, 0.96, label, transform=ax.transAxes, va="top", zorder=6)
        note.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5})
    tidy_panels(panels, len(results))
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=130 if rows == 1 else 100)
