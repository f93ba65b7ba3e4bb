"""docs/how/awareness.md: what distance awareness promises, and what no density can see; prints the page's table.

python docs/figures/awareness.py
"""

from __future__ import annotations

import numpy as np
from drawing import DARK, MIDDLE, ORANGE, RED, new_figure, save
from matplotlib.figure import Figure
from parts import COLUMNS, along, fit

from density_regression import DensityRegressor

COVERAGE = 0.9


def main() -> None:
    save(clusters(), "clusters")
    X, y = draw(440, seed=0)
    reg = fit(X, y)
    save(blind(reg), "blind")
    table(reg)


def clusters() -> Figure:
    """Two groups of rows: their mean distance from a point says nothing of the space between them, a density does."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(-3, 0.7, 2000), rng.normal(3, 0.7, 2000)])
    x = np.linspace(-8, 8, 321)
    distance = np.abs(x[:, None] - rows).mean(1)
    density = sum(0.5 * np.exp(-0.5 * ((x - m) / 0.7) ** 2) / (0.7 * np.sqrt(2 * np.pi)) for m in (-3, 3))

    figure = new_figure(4.6)
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.plot(x, distance, color=DARK)
    top.set(ylim=(0, 9), title="Mean distance from the training rows")
    bottom.plot(x, -np.log(density), color=ORANGE)
    bottom.set(ylim=(0, 30), xlabel="z", title="−log p(z), in nats")
    for ax in (top, bottom):
        for middle in (-3, 3):
            ax.axvspan(middle - 1.4, middle + 1.4, color=MIDDLE, alpha=0.2, linewidth=0)
    for place in (0, 3):
        at = int(np.argmin(abs(x - place)))
        print(f"z = {place}: mean distance {distance[at]:.2f}, -log p {-np.log(density[at]):.1f} nats")
    return figure


def truth(first: np.ndarray) -> np.ndarray:
    return np.sin(4 * first)


def draw(n: int, seed: int, low: float = 0.0, high: float = 1.0, others: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ten columns; the first, in `low` to `high`, decides, the others have the standard deviation `others`."""
    rng = np.random.default_rng(seed)
    X = others * rng.standard_normal((n, COLUMNS))
    X[:, 0] = rng.uniform(low, high, n)
    return X, truth(X[:, 0]) + 0.15 * rng.standard_normal(n)


def blind(reg: DensityRegressor) -> Figure:
    """One model, asked where it was trained about a target that has changed since, and outside."""
    x = np.linspace(-0.75, 1.75, 200)
    mean, std = reg.predict(along(x), return_std=True)
    X, y = draw(80, seed=1)
    figure = new_figure(3.9)
    ax = figure.subplots()
    ax.fill_between(x, mean - 2 * std, mean + 2 * std, color="#dbe7f4", linewidth=0)
    ax.plot(x, mean, color=DARK, label="mean ± 2 std")
    ax.plot(x, truth(x), ":", color="black", linewidth=1.6, label="true curve, at home")
    ax.plot(X[:, 0], y - 1.0, ".", color=RED, markersize=6, label="new rows: y has changed")
    ax.axvspan(0, 1, color=MIDDLE, alpha=0.15, linewidth=0)
    ax.set(ylim=(-3.2, 2.2), xlabel="first column", ylabel="y", title="Trained on the shaded range")
    ax.legend(loc="lower left", handlelength=1.4, borderaxespad=0.0)
    return figure


def table(reg: DensityRegressor) -> None:
    """Familiarity, coverage and width of 90 % intervals, as they come and after conformal calibration."""
    cases = {
        "like the training rows": draw(4000, seed=2),
        "y lower by 1, same inputs": (draw(4000, seed=2)[0], draw(4000, seed=2)[1] - 1.0),
        "nine idle columns three times as wide": draw(4000, seed=3, others=3.0),
        "first column in 1 to 1.5": draw(4000, seed=4, low=1.0, high=1.5),
    }
    intervals = {name: reg.predict_interval(X, coverage=COVERAGE) for name, (X, _) in cases.items()}
    reg.conformalize(*draw(500, seed=5))
    print("|  | unfamiliar rows | coverage | width | coverage, conformal |\n|---|---:|---:|---:|---:|")
    for name, (X, y) in cases.items():
        (low, high), (conformal_low, conformal_high) = intervals[name], reg.predict_interval(X, coverage=COVERAGE)
        strange = np.mean(reg.familiarity(X) < 0.01)
        covered, conformal = np.mean((low <= y) & (y <= high)), np.mean((conformal_low <= y) & (y <= conformal_high))
        print(f"| {name} | {strange:.0%} | {covered:.0%} | {np.median(high - low):.2f} | {conformal:.0%} |")


if __name__ == "__main__":
    main()
