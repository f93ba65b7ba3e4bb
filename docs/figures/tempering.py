"""docs/how/tempering.md: how a raw density explodes, and what tempering makes of it; prints the page's table.

python docs/figures/tempering.py
"""

from __future__ import annotations

import numpy as np
import torch
from drawing import DARK, GREY, ORANGE, RED, new_figure, save
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from density_regression import DensityRegressor
from density_regression.metrics import nll
from density_regression.nn.tempering import ExactTempering, RescaledTempering, RobustTempering, Tempering

FACTORS = np.linspace(1, 8, 29)


def main() -> None:
    save(swing(), "swing")
    save(growth(), "growth")


def log_normal(x: torch.Tensor) -> torch.Tensor:
    """Log-density of the standard Gaussian, up to a constant, of rows (n, d)."""
    return -0.5 * x.square().sum(1)


def swing() -> Figure:
    """Std of ordinary rows and of rows ten times as far away, by dimension: a Gaussian density, drawn and scored."""
    dims = [1, 2, 5, 10, 20, 40]
    temperings: dict[str, tuple[Tempering, str]] = {
        "exact": (ExactTempering(), RED),
        "rescaled": (RescaledTempering(), ORANGE),
        "robust, g = 1": (RobustTempering(exponent=1.0), DARK),
    }
    figure = new_figure(4.0)
    ax = figure.subplots()
    print("| dimensions | " + " | ".join(temperings) + " |\n|---:|" + "---:|" * len(temperings))
    ratios = {name: [] for name in temperings}
    for d in dims:
        train, held, test = torch.randn(3, 20_000, d, generator=torch.Generator().manual_seed(d)).unbind()
        for name, (tempering, _) in temperings.items():
            tempering.fit(log_normal(train), log_normal(held))
            log_std = -0.5 * tempering(log_normal(test))
            low, high = torch.quantile(log_std, torch.tensor([0.05, 0.95]))
            ratios[name].append(float(torch.exp(high - low)))
        print(f"| {d} | " + " | ".join(f"{ratios[name][-1]:.3g}" for name in temperings) + " |")
    for name, (_, color) in temperings.items():
        ax.plot(dims, ratios[name], "o-", color=color, label=name)
    ax.set(xscale="log", yscale="log", xticks=dims, xticklabels=dims, xlabel="dimensions of the density")
    ax.set(ylim=(0.8, None), title="Ordinary rows: widest std / narrowest\n(95 % and 5 % quantiles)")
    ax.minorticks_off()
    ax.legend(loc="upper left")
    return figure


def growth() -> Figure:
    """A real table: the std of test rows moved away from the mean of the training rows, one fit for each tempering."""
    X_train, X_test, y_train, y_test = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    centre = X_train.mean(0)
    settings = {"exact": RED, "rescaled": ORANGE, "robust": DARK}
    figure = new_figure(4.0)
    ax = figure.subplots()
    for name, color in settings.items():
        reg = DensityRegressor(tempering=name, members=0, epochs=60, random_state=0, n_threads=1, verbose=False)
        reg.fit(X_train, y_train)
        mean, std = reg.predict(X_test, return_std=True)
        print(f"{name}: NLL {nll(y_test, mean, std):.3g}, std {np.quantile(std, [0.05, 0.5, 0.95]).round(1)}")
        moved = [reg.predict(centre + k * (X_test - centre), return_std=True)[1] for k in FACTORS]
        middle = np.median(moved, axis=1) / np.median(std)
        print(f"    times the std, at 2, 4 and 8 times the distance: {middle[[4, 12, 28]]}")
        ax.plot(FACTORS, middle, color=color, label=name)
    ax.axhline(1, color=GREY, linewidth=1, linestyle=":")
    ax.set(yscale="log", ylim=(0.5, 1e6), xlabel="times its distance from the mean row", xticks=(1, 2, 4, 6, 8))
    ax.set_title("Diabetes: std of a row moved outwards,\ntimes its std at home (median row)")
    ax.legend(loc="upper center")
    return figure


if __name__ == "__main__":
    main()
