"""The figure of docs/guides/calibration.md, of forecasts whose truth is known: python docs/calibration_image.py."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("agg")
import matplotlib.pyplot as plt

from density_regression import metrics, plots

IMAGE = Path(__file__).parent / "images" / "calibration.png"


def main() -> None:
    rng = np.random.default_rng(0)
    noise = np.exp(rng.normal(scale=0.6, size=4000))
    mean = rng.normal(size=4000)
    y = mean + noise * rng.normal(size=4000)
    same = np.full(4000, np.sqrt((noise**2).mean()))
    forecasts = {"too narrow": noise / 2, "the true noise": noise, "too wide": 2 * noise, "one width for all": same}
    figure, (curves, widths) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for name, std in forecasts.items():
        plots.calibration_curve(curves, y, mean, std, label=name)
        print(
            f"| {name} | {metrics.coverage(y, mean, std, 0.9):.1%} | {metrics.calibration_error(y, mean, std):.3f} "
            f"| {metrics.sharpness(std):.2f} | {metrics.nll(y, mean, std):.2f} | {metrics.crps(y, mean, std):.3f} |"
        )
    curves.legend()
    curves.set_title("calibration")
    plots.sharpness_histogram(widths, noise)
    widths.set_title("sharpness of the true noise")
    figure.savefig(IMAGE, dpi=110)


if __name__ == "__main__":
    main()
