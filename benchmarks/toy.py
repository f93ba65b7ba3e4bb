"""The cubic toy over seeds: what the default covers inside and outside the training range, and its deviation at 7.

python benchmarks/toy.py [--seeds 20] [--even] [--jobs 2]

With --even the x of training are evenly spaced instead of drawn.
"""

from __future__ import annotations

import argparse

import numpy as np
from joblib import Parallel, delayed

from density_regression import DensityRegressor, metrics
from density_regression.datasets import make_cubic

EDGE, FAR, NOISE, ROWS = 4.0, 7.0, 3.0, 1000
GRID = np.linspace(-FAR, FAR, 561)


def run(seed: int, even: bool) -> tuple[float, float, float, float]:
    """Coverage of targets inside, of the curve outside, and the standard deviations at -7 and 7."""
    X, y = make_cubic(ROWS, -EDGE, EDGE, NOISE, random_state=seed)
    if even:
        noise, X = y - X[:, 0] ** 3, np.linspace(-EDGE, EDGE, ROWS)[:, None]
        y = X[:, 0] ** 3 + noise
    reg = DensityRegressor(random_state=seed, n_threads=1, verbose=False).fit(X, y)
    X_new, y_new = make_cubic(2000, -EDGE, EDGE, NOISE, random_state=seed + 1_000_000)
    outside = GRID[np.abs(GRID) > EDGE]
    inside = metrics.coverage(y_new, *reg.predict(X_new, return_std=True), level=0.95)
    curve = metrics.coverage(outside**3, *reg.predict(outside[:, None], return_std=True), level=0.95)
    _, std = reg.predict([[-FAR], [FAR]], return_std=True)
    return inside, curve, *std


def main() -> None:
    """Print mean, lowest and highest of each, and in how many seeds they are within bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--even", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    found = np.array(Parallel(n_jobs=args.jobs)(delayed(run)(seed, args.even) for seed in range(args.seeds)))
    names = ("targets covered inside", "curve covered outside", "std at -7", "std at 7")
    for name, values in zip(names, found.T, strict=True):
        print(f"{name:24s} mean {values.mean():.3g}, {values.min():.3g} to {values.max():.3g}")
    print(f"more than 60 % of the curve: {(found[:, 1] > 0.6).sum()} of {args.seeds}")
    print(f"std at 7 from 100 to 1,000: {((found[:, 3] >= 100) & (found[:, 3] <= 1000)).sum()} of {args.seeds}")


if __name__ == "__main__":
    main()
