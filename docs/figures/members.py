"""docs/how/members.md: eight networks and the one that learns from them; and what they are asked about.

python docs/figures/members.py
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import torch
from drawing import DARK, GREY, MIDDLE, ORANGE, new_figure, save
from matplotlib.figure import Figure
from parts import along, fit, rows

from density_regression.training import pretraining
from density_regression.training.distillation import made_up_rows
from density_regression.training.teacher import Teacher, block_weights


def main() -> None:
    save(networks(), "members")
    save(lessons(), "lessons")


def networks() -> Figure:
    """Means of the members, and below what the one network learnt: mean, noise and disagreement."""
    X, y = rows()
    # The teacher is discarded after the fit, so it is caught on its way.
    with patch.object(pretraining, "distil", wraps=pretraining.distil) as distil:
        reg = fit(X, y)
    teacher: Teacher = distil.call_args.args[1]
    x = np.linspace(-1.5, 3.5, 300)
    with torch.inference_mode():
        means = teacher(reg.x_scaling_.apply(along(x))).mean[..., 0].numpy()
    means = means * reg.y_scaling_.scale + reg.y_scaling_.center
    mean, parts = reg.predict(along(x)), reg.decompose(along(x))
    several = np.hypot(parts.aleatoric, parts.disagreement)

    figure = new_figure(5.6)
    top, bottom = figure.subplots(2, 1, sharex=True, sharey=True)
    for one in means:
        top.plot(x, one, color=MIDDLE, linewidth=1.3)
    noise = 2 * parts.aleatoric
    bottom.fill_between(x, mean - 2 * several, mean + 2 * several, color="#f0a987", linewidth=0, label="+ disagreement")
    bottom.fill_between(x, mean - noise, mean + noise, color="#9ebfe0", linewidth=0, label="noise")
    bottom.plot(x, mean, color=DARK, label="mean")
    for ax in (top, bottom):
        ax.plot(X[::2, 0], y[::2], ".", color="black", markersize=3, alpha=0.5)
        ax.set(ylim=(-2.2, 1.6), ylabel="y")
    top.set_title("The teacher: means of its eight networks")
    bottom.set(xlabel="first column", title="The network that learnt from them")
    bottom.legend(loc="lower center", ncols=3, columnspacing=1.0, handlelength=1.2, borderaxespad=0.0)
    for name, where in (("many rows", (x > 0) & (x < 1)), ("few rows", (x > 1) & (x < 2)), ("outside", x > 2)):
        spread, learnt = np.sqrt(np.mean(means.var(0, ddof=1)[where])), np.sqrt(np.mean(parts.disagreement[where] ** 2))
        print(f"{name}: std of the eight means {spread:.3f}, disagreement with the tenth of the noise {learnt:.3f}")
    return figure


def lessons() -> Figure:
    """Weights of the rows for two members, and rows made up between and around the training rows."""
    angle = torch.rand(250, generator=torch.Generator().manual_seed(0)) * 3.5
    x = torch.stack([torch.cos(angle), torch.sin(angle)], 1)
    x += 0.08 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    x = (x - x.mean(0)) / x.std(0)
    made_up = made_up_rows(x, 600, torch.Generator().manual_seed(2))

    figure = new_figure(5.4)
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 1.25))
    for i, color in enumerate((DARK, ORANGE)):
        ax = figure.add_subplot(grid[0, i])
        weight = block_weights(x, torch.Generator().manual_seed(i))
        ax.scatter(*x.T, s=18 * weight, color=color, alpha=0.6, linewidth=0, rasterized=True)
        ax.set(title=f"Weights, member {i + 1}", xticks=[], yticks=[], aspect="equal")
        ax.axis("off")
    ax = figure.add_subplot(grid[1, :])
    ax.plot(*made_up.T, ".", color=GREY, markersize=3.5, alpha=0.7, label="made up", rasterized=True)
    ax.plot(*x.T, ".", color=DARK, markersize=4, label="training rows", rasterized=True)
    ax.set(xlim=(-4, 4), ylim=(-3.2, 3.2), xticks=[], yticks=[], title="Rows that the teacher is asked about")
    ax.axis("off")
    ax.legend(loc="upper right", markerscale=2, handletextpad=0.1)
    return figure


if __name__ == "__main__":
    main()
