"""docs/how/index.md: from an input to a Gaussian, and what a density does to the width of a band.

python docs/figures/idea.py
"""

from __future__ import annotations

import numpy as np
from drawing import DARK, LIGHT, MIDDLE, ORANGE, WIDTH, new_figure, save
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from density_regression import DensityRegressor


def main() -> None:
    save(flow(), "idea")
    save(band(), "band")


def flow():
    """Boxes and arrows: x, f, z, then density and head, then the Gaussian."""
    height = 4.1
    figure = new_figure(height, layout="none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(0, height))
    ax.axis("off")
    middle = WIDTH / 2
    box(ax, (middle, 3.7), "input  x", 1.3)
    box(ax, (middle, 2.95), "encoder  f", 1.7, fill=LIGHT)
    box(ax, (middle, 2.2), "features  z = f(x)", 2.3)
    box(ax, (1.3, 1.35), "density  log p(z)", 2.0, fill="#fbe6da", edge=ORANGE)
    box(ax, (3.66, 1.35), "head  m, s: linear in z", 2.25, fill=LIGHT)
    box(ax, (middle, 0.45), "Gaussian:  mean, std", 2.0)
    for start, end in (
        ((middle, 3.5), (middle, 3.15)),
        ((middle, 2.75), (middle, 2.4)),
        ((middle - 0.3, 2.0), (1.5, 1.55)),
        ((middle + 0.3, 2.0), (3.5, 1.55)),
        ((1.5, 1.15), (middle - 0.3, 0.65)),
        ((3.5, 1.15), (middle + 0.3, 0.65)),
    ):
        ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, linewidth=1.5, color="#444444"))
    ax.text(0.3, 0.78, "how familiar\nis this input?", color=ORANGE, fontsize=11, va="center")
    ax.text(4.75, 0.8, "where, and\nhow noisy?", color=DARK, fontsize=11, va="center", ha="right")
    return figure


def box(ax: Axes, centre: tuple[float, float], text: str, width: float, fill: str = "white", edge: str = DARK) -> None:
    x, y = centre
    shape = {"boxstyle": "round,pad=0,rounding_size=0.08", "facecolor": fill, "edgecolor": edge, "linewidth": 1.5}
    ax.add_patch(FancyBboxPatch((x - width / 2, y - 0.2), width, 0.4, **shape))
    ax.text(x, y, text, ha="center", va="center")


def band():
    """Below the density of the inputs, above the prediction, of one fit with a gap in its training rows."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-4, -1.5, 500), rng.uniform(0.5, 3, 500)])
    y = np.sin(1.5 * x) + 0.15 * rng.standard_normal(1000)
    reg = DensityRegressor(hidden=(50, 50), epochs=200, random_state=0, n_threads=1, verbose=False).fit(x[:, None], y)
    line = np.linspace(-6, 5, 400)
    mean, std = reg.predict(line[:, None], return_std=True)

    figure = new_figure(4.6)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    top.fill_between(line, mean - 2 * std, mean + 2 * std, color=LIGHT, label="mean ± 2 std")
    top.plot(line, mean, color=DARK, label="mean")
    top.plot(x[::5], y[::5], ".", color="black", markersize=3, alpha=0.5, label="training rows")
    top.set(ylim=(-5, 5), ylabel="y", title="The prediction")
    top.legend(loc="upper center", ncols=3, columnspacing=0.9, handlelength=1.2, borderaxespad=0.0)
    bottom.fill_between(line, reg.familiarity(line[:, None]), color="#f3c9b3", step="mid", linewidth=0)
    bottom.plot(line, reg.familiarity(line[:, None]), color=ORANGE, linewidth=1.5)
    bottom.set(ylim=(0, 1.02), yticks=(0, 0.5, 1), xlabel="x", title="Familiarity: share of held-out rows less likely")
    for ax in (top, bottom):
        for low, high in ((-4, -1.5), (0.5, 3)):
            ax.axvspan(low, high, color=MIDDLE, alpha=0.12, linewidth=0)
    return figure


if __name__ == "__main__":
    main()
