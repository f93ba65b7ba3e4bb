"""Feature collapse in a constructed case: what an encoder forgets, no density on its features can see.

    python benchmarks/collapse.py [--out demo/collapse.png] [--seeds 5]

The target depends on the first of two inputs only, so a network has no need of the second. Every encoder is asked
about (x1, 0), amid its training rows, and about (x1, 4) and (x1, -4), far from them all: a ReLU may forget one side
and not the other. The figure shows the first seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from density_regression import DensityRegressor
from density_regression.metrics import rmse
from density_regression.nn.encoders import ResidualMLP

Floats = NDArray[np.float64]

ENCODERS: dict[str, dict[str, Any]] = {
    "ordinary": {"with_inputs": False},
    "with inputs (default)": {},
    # Not spectrally bounded: nothing keeps its weights small, nor those for x2 from vanishing.
    "residual, unbounded": {"encoder": lambda columns: ResidualMLP(columns, (100, 100))},
}
NOISE = 0.05
ROWS = 500
STEP = 4.0
EDGE = 6.0
FIGURES = {
    **{f"feature distance along x2 / along x1, to {side}": ".3f" for side in ("4", "-4")},
    **{f"the same step in whitened features, to {side}": ".1f" for side in ("4", "-4")},
    **{f"std at (x1, {side}) / std at (x1, 0)": ".1f" for side in ("4", "-4")},
    **{f"share of (x1, {side}) that look familiar (above 0.05)": ".0%" for side in ("4", "-4")},
    "RMSE in distribution": ".4f",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo/collapse.png"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    found: dict[str, list[list[float]]] = {name: [] for name in ENCODERS}
    drawn: dict[str, DensityRegressor] = {}
    for seed in range(args.seeds):
        X, y = rows(ROWS, seed)
        for name, settings in ENCODERS.items():
            reg = DensityRegressor(random_state=seed, verbose=False, **settings).fit(X, y)
            found[name].append(figures(reg, seed))
            drawn.setdefault(name, reg)
    print_table(found)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    draw(drawn, rows(ROWS, 0)[0]).savefig(args.out, dpi=160)


def rows(n: int, seed: int) -> tuple[Floats, Floats]:
    """Inputs (n, 2), uniform on the square [-1, 1]^2, and a target (n,) in which the second has no part."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.sin(3 * X[:, 0]) + NOISE * rng.standard_normal(n)


def figures(reg: DensityRegressor, seed: int) -> list[float]:
    """The figures of one fit, in the order of `FIGURES`."""
    x1 = np.linspace(-1, 1, 101)
    near, sides = np.column_stack([x1, 0 * x1]), (np.array([0.0, STEP]), np.array([0.0, -STEP]))
    std = reg.predict(near, return_std=True)[1]
    X, y = rows(2000, 1000 + seed)
    return [
        *(moved(reg, near, side) / moved(reg, near, side[::-1]) for side in sides),
        *(moved(reg, near, side, whitened=True) for side in sides),
        *(float(np.median(reg.predict(near + side, return_std=True)[1] / std)) for side in sides),
        *(float(np.mean(reg.familiarity(near + side) > 0.05)) for side in sides),
        rmse(y, reg.predict(X)),
    ]


@torch.inference_mode()
def moved(reg: DensityRegressor, points: Floats, step: Floats, *, whitened: bool = False) -> float:
    """Median distance |z - z'| of features after a step of the inputs, as they are or as the density sees them."""
    z, other = (reg.model_.encode(reg.x_scaling_.apply(part)) for part in (points, points + step))
    if whitened:
        # In standard deviations of the training rows, along the directions in which these vary.
        (z, _), (other, _) = (reg.model_.density.whitening(part) for part in (z, other))
    return float((z - other).norm(dim=1).median())


def print_table(found: dict[str, list[list[float]]]) -> None:
    """Print the median over seeds, and the least and largest in brackets, as Markdown."""
    print("| |", " | ".join(found), "|")
    print("|---|" + "---:|" * len(found))
    for i, (name, form) in enumerate(FIGURES.items()):
        cells = []
        for fits in found.values():
            values = [fit[i] for fit in fits]
            middle, low, high = (format(float(of(values)), form) for of in (np.median, np.min, np.max))
            cells.append(f"{middle} ({low} to {high})")
        print(f"| {name} |", " | ".join(cells), "|")


def draw(regs: dict[str, DensityRegressor], X: Floats) -> Figure:
    """One panel for each encoder: predicted std over the plane, on one scale, and the training rows."""
    ticks = np.linspace(-EDGE, EDGE, 201)
    plane = np.stack(np.meshgrid(ticks, ticks), axis=-1)
    figure = Figure(figsize=(8.4, 3.1), layout="constrained")
    panels = figure.subplots(1, len(regs), sharey=True)
    # One scale for all; what is beyond it, at the edges, is strange to every encoder.
    norm = LogNorm(NOISE, 1e3)
    for ax, (name, reg) in zip(panels, regs.items(), strict=True):
        std = reg.predict(plane.reshape(-1, 2), return_std=True)[1].reshape(plane.shape[:2])
        mesh = ax.pcolormesh(ticks, ticks, std, norm=norm, cmap="viridis", shading="nearest")
        ax.plot(*X.T, ".", color="white", markersize=1.2, markeredgewidth=0, alpha=0.7)
        ax.add_patch(Rectangle((-1, -1), 2, 2, fill=False, edgecolor="white", linewidth=1.2))
        ax.set(xlabel="$x_1$", aspect="equal", xticks=(-6, -3, 0, 3, 6), yticks=(-6, -3, 0, 3, 6))
        ax.set_title(name, fontsize="medium")
    panels[0].set_ylabel("$x_2$ (never matters)")
    figure.colorbar(mesh, ax=panels, label="predicted std", extend="both", shrink=0.85, pad=0.02)
    return figure


if __name__ == "__main__":
    main()
