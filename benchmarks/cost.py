"""What the density costs: training and prediction, each as a ratio within one run.

    python benchmarks/cost.py [--rows 10000] [--columns 20] [--epochs 100] [--json FILE]

Training: all steps, the reach included, against a Gaussian network of the same size, epochs and batches. Prediction:
the whole model against that network. The two are timed by turns, so that a noisy machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import make_friedman1

from density_regression import DensityRegressor
from density_regression.baselines import GaussianRegressor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1024, help="rows in a prediction")
    parser.add_argument("--density", default="mixture")
    parser.add_argument("--rounds", type=int, default=3, help="fits of each, by turns")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    X, y = make_friedman1(n_samples=args.rows, n_features=args.columns, noise=1.0, random_state=0)
    settings = {"epochs": args.epochs, "batch_size": 256, "patience": None, "random_state": 0, "verbose": False}
    DensityRegressor(**settings | {"epochs": 1}).fit(X, y)  # imports and first calls, in nobody's time
    ours, plain, ratios = None, None, []
    for _ in range(args.rounds):
        start = time.perf_counter()
        plain = GaussianRegressor(**settings).fit(X, y)
        middle = time.perf_counter()
        ours = DensityRegressor(density=args.density, **settings).fit(X, y)
        ratios.append((time.perf_counter() - middle) / (middle - start))
    assert ours is not None
    assert plain is not None
    figures = {
        "threads": torch.get_num_threads(),
        "seconds of each step": {name: round(value, 3) for name, value in ours.report_.seconds.items()},
        "training, all steps / Gaussian network": statistics.median(ratios),
        "dimensions of the density": ours.model_.density.dims,
    }
    rows = np.ascontiguousarray(X[: args.batch])
    x = ours.x_scaling_.apply(rows)
    with torch.inference_mode():
        figures["forward, ours / Gaussian network"] = ratio(lambda: ours.model_(x), lambda: plain.model_(x))
        figures["forward, ours (microseconds)"] = 1e6 * once(lambda: ours.model_(x))
    figures["predict, ours / Gaussian network"] = ratio(
        lambda: ours.predict(rows, return_std=True), lambda: plain.predict(rows, return_std=True)
    )
    for name, value in figures.items():
        print(f"{name:40s} {value if not isinstance(value, float) else format(value, '.3f')}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


def once(function: Callable[[], object]) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(50):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ratio(ours: Callable[[], object], other: Callable[[], object], rounds: int = 9) -> float:
    """Median over rounds of the ratio of median times, the two by turns."""
    return statistics.median(once(ours) / once(other) for _ in range(rounds))


if __name__ == "__main__":
    main()
