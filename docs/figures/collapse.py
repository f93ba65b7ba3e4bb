"""docs/how/collapse.md: an input that the target does not need, seen and not seen.

python docs/figures/collapse.py
"""

from __future__ import annotations

import numpy as np
from drawing import DARK, MIDDLE, ORANGE, new_figure, save

from density_regression import DensityRegressor

SEEDS = (0, 1)


def main() -> None:
    x2 = np.linspace(-6, 6, 121)
    line = np.column_stack([np.full_like(x2, 0.3), x2])
    figure = new_figure(5.2)
    top, bottom = figure.subplots(2, 1, sharex=True)
    for name, with_inputs, color in (("features alone", False, ORANGE), ("with inputs (default)", True, DARK)):
        for seed in SEEDS:
            rng = np.random.default_rng(seed)
            X = rng.uniform(-1, 1, (500, 2))
            y = np.sin(3 * X[:, 0]) + 0.05 * rng.standard_normal(500)
            settings = {"with_inputs": with_inputs, "n_threads": 1, "verbose": False}
            reg = DensityRegressor(random_state=seed, **settings).fit(X, y)
            style = {"color": color, "linewidth": 1.6, "label": name if seed == SEEDS[0] else None}
            top.plot(x2, reg.familiarity(line), **style)
            bottom.plot(x2, reg.predict(line, return_std=True)[1], **style)
            far = np.abs(x2) >= 4
            dims, highest = reg.model_.density.dims, reg.familiarity(line)[far].max()
            print(f"{name}, seed {seed}: familiarity beyond ±4 up to {highest:.2f}; density of {dims} dimensions")
    for ax in (top, bottom):
        ax.axvspan(-1, 1, color=MIDDLE, alpha=0.2, linewidth=0)
    top.set(ylim=(0, 1), yticks=(0, 0.5, 1), title="Familiarity along the idle input, two seeds")
    bottom.set(yscale="log", xlabel="x2, which the target does not need", title="Predicted std")
    figure.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=2, columnspacing=1.2)
    save(figure, "collapse")


if __name__ == "__main__":
    main()
