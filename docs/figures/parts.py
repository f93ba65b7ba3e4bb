"""docs/how/parts.md: noise, disagreement and distance, stacked into one band; prints the page's table.

python docs/figures/parts.py
"""

from __future__ import annotations

import numpy as np
from drawing import DARK, MIDDLE, new_figure, save

from density_regression import DensityRegressor

COLUMNS = 10
COLORS = {"noise": "#9ebfe0", "disagreement": "#f0a987", "distance": "#dcdfe4"}


def main() -> None:
    X, y = rows()
    reg = fit(X, y)
    x = np.linspace(-1.5, 3.5, 300)
    mean, std = reg.predict(along(x), return_std=True)
    noise, _, disagreement, distance = reg.decompose(along(x))
    variances = np.square([noise, disagreement, distance])
    assert np.allclose(variances.sum(0), std**2, rtol=1e-3)

    figure = new_figure(5.8)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1.5, 1))
    widths = 2 * np.sqrt(np.cumsum(variances, axis=0))
    for (name, color), width in reversed(list(zip(COLORS.items(), widths, strict=True))):
        top.fill_between(x, mean - width, mean + width, color=color, label=name, linewidth=0)
    top.plot(x, mean, color=DARK)
    top.plot(X[::2, 0], y[::2], ".", color="black", markersize=3, alpha=0.5)
    top.set(ylim=(-2.6, 2.2), ylabel="y", title="mean ± 2 std, part by part")
    handles, labels = top.get_legend_handles_labels()
    spacing = {"columnspacing": 0.9, "handlelength": 1.0, "borderaxespad": 0.0}
    top.legend(handles[::-1], labels[::-1], loc="lower center", ncols=3, **spacing)
    bottom.stackplot(x, *(variances / std**2), colors=list(COLORS.values()))
    bottom.set(xlabel="first column", ylim=(0, 1), yticks=(0, 0.5, 1), title="Shares of the variance")
    for ax in (top, bottom):
        for edge in (0.0, 1.0, 2.0):
            ax.axvline(edge, color=MIDDLE, linewidth=1, linestyle=":")
    save(figure, "parts")

    print("|  | first column | noise | disagreement | distance | std |\n|---|---:|---:|---:|---:|---:|")
    for name, place in {"many rows": 0.5, "few rows": 1.5, "outside": -1.0, "outside, other end": 3.0}.items():
        found = [*reg.decompose(along([place])), reg.predict(along([place]), return_std=True)[1]]
        cells = [place, *(float(part[0]) for part in (found[0], *found[2:]))]
        print(f"| {name} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")


def rows(many: int = 300, few: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """A table of ten columns. The first decides: many rows have it in 0 to 1, few in 1 to 2; the others are noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((many + few, COLUMNS))
    X[:, 0] = np.concatenate([rng.uniform(0, 1, many), rng.uniform(1, 2, few)])
    return X, np.sin(4 * X[:, 0]) + 0.15 * rng.standard_normal(many + few)


def along(first: object) -> np.ndarray:
    """Rows with this first column, all others 0."""
    first = np.asarray(first)
    return np.column_stack([first, np.zeros((len(first), COLUMNS - 1))])


def fit(X: np.ndarray, y: np.ndarray) -> DensityRegressor:
    return DensityRegressor(hidden=(50, 50), epochs=200, random_state=0, n_threads=1, verbose=False).fit(X, y)


if __name__ == "__main__":
    main()
