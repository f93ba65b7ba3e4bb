"""What an ensemble costs to train when its members are one batched computation, against one network.

    python benchmarks/ensemble.py [--members 5] [--batch 256] [--rows 10000] [--columns 20] [--rounds 7]

Both train an MLP 2 x 100 by the package's own loop, by turns, so that a noisy machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from sklearn.datasets import make_friedman1

from density_regression.baselines import DeepEnsembleRegressor, GaussianRegressor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    X, y = make_friedman1(n_samples=args.rows, n_features=args.columns, noise=1.0, random_state=0)
    settings = {"batch_size": args.batch, "patience": None, "random_state": 0, "verbose": False}
    one = GaussianRegressor(epochs=args.epochs, **settings)
    several = DeepEnsembleRegressor(n_members=args.members, epochs=args.epochs, **settings)
    for regressor in (one, several):
        regressor.fit(X[:500], y[:500])  # imports and first calls, in nobody's time
    seconds = [[seconds_of(regressor, X, y) for regressor in (one, several)] for _ in range(args.rounds)]
    figures = {
        "threads": torch.get_num_threads(),
        "seconds, one network": statistics.median(alone for alone, _ in seconds),
        f"seconds, ensemble of {args.members}": statistics.median(together for _, together in seconds),
        "training, ensemble / one network": statistics.median(together / alone for alone, together in seconds),
    }
    for name, value in figures.items():
        print(f"{name:40s} {value if not isinstance(value, float) else format(value, '.3f')}")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


def seconds_of(regressor: GaussianRegressor | DeepEnsembleRegressor, X: object, y: object) -> float:
    start = time.perf_counter()
    regressor.fit(X, y)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
