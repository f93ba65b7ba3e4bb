"""docs/how/family.md: a density that multiplies the exponent divides the variance.

python docs/figures/family.py
"""

from __future__ import annotations

import numpy as np
from drawing import DARK, MIDDLE, ORANGE, new_figure, save

A, M = 0.5, -0.5
"""Precision a and location m of an example: mean 1, variance 1 where the density is 1."""

DENSITIES = ((1.0, DARK), (0.25, MIDDLE), (0.04, ORANGE))


def main() -> None:
    y = np.linspace(-8, 10, 401)
    figure = new_figure(4.9)
    top, bottom = figure.subplots(2, 1, sharex=True)
    for p, color in DENSITIES:
        exponent = -p * (A * y**2 + 2 * M * y + M**2 / A)
        variance = 1 / (2 * p * A)
        law = np.exp(-((y + M / A) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        top.plot(y, exponent, color=color)
        bottom.plot(y, law, color=color, label=f"p = {p:g}:  std {variance**0.5:g}")
    for ax in (top, bottom):
        ax.axvline(-M / A, color="black", linewidth=1, linestyle=":")
    top.set(ylim=(-8, 0.5), title="The exponent: the density scales the parabola")
    bottom.set(ylim=(0, None), yticks=[], xlabel="y", title="The law of y: same mean, other width")
    bottom.legend(loc="upper right", borderaxespad=0.0)
    save(figure, "family")


if __name__ == "__main__":
    main()
