"""The cubic toy (`fig:demo`): train on [-4, 4], look at [-7, 7]."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression import metrics
from density_regression.datasets import make_cubic
from density_regression.estimator import DensityRegressor
from density_regression.plots import predictive_band

__all__ = ["METHODS", "CubicResult", "draw", "run_cubic"]

NOISE: Final = 3.0
EDGE: Final = 4.0
FAR: Final = 7.0

METHODS: Final[dict[str, dict[str, Any]]] = {
    "robust (default)": {"tempering": "robust"},
    "exact": {"tempering": "exact"},
    "rescaled": {"tempering": "rescaled"},
    "no density": {"density": None},
}
"""What is compared: three temperings, and the same Gaussian network without a density."""

Floats = NDArray[np.float64]


class CubicResult(NamedTuple):
    """One method on the toy: figures by name, and its predictions along [-7, 7]."""

    method: str
    figures: dict[str, float]
    seconds: dict[str, float]
    mean: Floats
    std: Floats


def run_cubic(method: str, seed: int, grid: Floats, **params: Any) -> CubicResult:
    """Fit one method to the toy, and measure it inside and outside the training range.

    Parameters
    ----------
    method : str
        A name in `METHODS`.
    seed : int
        Seed of data and estimator.
    grid : array of shape (n,)
        Where to predict for the figure.
    **params
        Parameters of `DensityRegressor`.
    """
    X, y = make_cubic(n=1000, low=-EDGE, high=EDGE, noise=NOISE, random_state=seed)
    regressor = DensityRegressor(random_state=seed, n_threads=1, **METHODS[method], **params).fit(X, y)
    X_test, y_test = make_cubic(n=3500, low=-FAR, high=FAR, noise=NOISE, random_state=seed + 1_000_000)
    mean, std = regressor.predict(X_test, return_std=True)
    inside = np.abs(X_test[:, 0]) <= EDGE
    figures = {}
    for where, rows in (("inside", inside), ("outside", ~inside)):
        true, law = y_test[rows], (mean[rows], std[rows])
        figures[f"NLL {where}"] = metrics.nll(true, *law)
        figures[f"RMSE {where}"] = metrics.rmse(true, law[0])
        figures[f"calibration {where}"] = metrics.calibration_error(true, *law)
        figures[f"sharpness {where}"] = metrics.sharpness(law[1])
        figures[f"coverage {where}"] = metrics.coverage(true, *law, level=0.95)
    curve = X_test[~inside, 0] ** 3
    figures["curve coverage outside"] = metrics.coverage(curve, mean[~inside], std[~inside], level=0.95)
    along = regressor.predict(grid[:, None], return_std=True)
    return CubicResult(method, figures, regressor.report_.seconds, *along)


def draw(results: list[CubicResult], grid: Floats, seed: int, path: Path) -> None:
    """Write the figure: one panel a method, bands of one to three standard deviations."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    X, y = make_cubic(n=1000, low=-EDGE, high=EDGE, noise=NOISE, random_state=seed)
    figure = Figure(figsize=(4 * len(results), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(results), sharex=True, sharey=True, squeeze=False)[0]
    for ax, result in zip(panels, results, strict=True):
        predictive_band(ax, grid, result.mean, result.std, x_train=X, y_train=y, y_true=grid**3)
        ax.set(title=result.method, xlabel="x", ylim=(-400, 400), xlim=(-FAR, FAR))
    panels[0].set_ylabel("y")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=130)
