"""How long training takes as rows and widths grow, and how much memory.

    python benchmarks/training.py [--rows 1000 10000 100000 1000000] [--epochs 50] [--threads 1] [--json FILE]

All steps of ours, the choice of the reach included, against a Gaussian network of the same size, epochs and batches, by
turns within one run, each first as often as the other; and five such networks, up to 100,000 rows, there once. Without
early stopping, so that all do the same work.
Memory: how much the process grows while `fit` runs, over the bytes of the inputs as float64.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _timing import finish, machine
from sklearn.datasets import make_friedman1

from density_regression import DensityRegressor
from density_regression.baselines import DeepEnsembleRegressor, GaussianRegressor
from density_regression.estimators.base import DeepRegressor

METHODS: dict[str, type[DeepRegressor]] = {
    "Gaussian": GaussianRegressor,
    "Density-Regression": DensityRegressor,
    "Deep Ensembles": DeepEnsembleRegressor,
}
COLUMNS = 20
WIDTHS = (50, 100, 200, 400)
MEMORY_TABLE = (1_000_000, 90)
TURNS = 9
LARGE = 100_000
"""Rows beyond which each is fitted once."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", type=int, nargs=2, metavar=("ROWS", "COLUMNS"), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.memory:
        print(growth_of_memory(*args.memory))
        return
    X, y = rows_of(2000)
    for method in METHODS.values():  # imports and first calls, in nobody's time
        method(epochs=1, verbose=False).fit(X, y)
    by_rows = {rows: seconds(rows, args.epochs, (100, 100)) for rows in args.rows}
    by_width = {width: seconds(10_000, 10, (width, width)) for width in WIDTHS}
    command = [sys.executable, __file__, "--memory", *map(str, MEMORY_TABLE), "--threads", str(args.threads)]
    # In a process of its own: memory that was used before would not grow.
    memory = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    finish(
        {
            "machine": machine(),
            "epochs": args.epochs,
            "seconds by rows": by_rows,
            "ours / Gaussian network, by rows": ratios(by_rows),
            "exponent of rows": {name: exponent(by_rows, name) for name in ("Gaussian", "Density-Regression")},
            "seconds by width, 10,000 rows, 10 epochs": by_width,
            "ours / Gaussian network, by width": ratios(by_width),
            "exponent of width": {name: exponent(by_width, name) for name in METHODS},
            "memory": {"rows and columns": MEMORY_TABLE, "growth / bytes of the inputs": memory},
        },
        args.json,
    )


def rows_of(rows: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_friedman1(n_samples=rows, n_features=COLUMNS, noise=1.0, random_state=0)
    return X, y


def seconds(rows: int, epochs: int, hidden: tuple[int, ...]) -> dict[str, Any]:
    """Median seconds of a fit of each, by turns, and of each step of ours."""
    X, y = rows_of(rows)
    settings = {"hidden": hidden, "epochs": epochs, "patience": None, "random_state": 0, "verbose": False}
    times: dict[str, list[float]] = {}
    steps: dict[str, list[float]] = {}
    for turn in range(TURNS if rows <= LARGE else 1):
        for name in sorted(METHODS, reverse=turn % 2 == 0):
            if name == "Deep Ensembles" and (rows > LARGE or (rows == LARGE and turn > 0)):
                continue
            start = time.perf_counter()
            model = METHODS[name](**settings).fit(X, y)
            times.setdefault(name, []).append(time.perf_counter() - start)
            if name == "Density-Regression":
                for step, own in model.report_.seconds.items():
                    steps.setdefault(step, []).append(own)
    found: dict[str, Any] = {name: statistics.median(own) for name, own in times.items()}
    pairs = zip(times["Density-Regression"], times["Gaussian"], strict=True)
    found["ratio"] = statistics.median(mine / plain for mine, plain in pairs)
    found["steps of ours"] = {step: statistics.median(own) for step, own in steps.items()}
    print(
        rows, hidden, {name: round(value, 2) for name, value in found.items() if isinstance(value, float)}, flush=True
    )
    return found


def ratios(table: dict[int, dict[str, Any]]) -> dict[int, float]:
    """Of ours to the Gaussian network, the median over turns."""
    return {key: found["ratio"] for key, found in table.items()}


def exponent(table: dict[int, dict[str, Any]], name: str) -> dict[str, float]:
    """Slope of log time over log size: of a line through all, and between the two largest."""
    sizes = np.log([key for key, found in table.items() if name in found])
    times = np.log([found[name] for found in table.values() if name in found])
    return {
        "all": float(np.polyfit(sizes, times, 1)[0]),
        "largest two": float((times[-1] - times[-2]) / (sizes[-1] - sizes[-2])),
    }


def growth_of_memory(rows: int, columns: int) -> float:
    """By how much the process grows during a fit, over the inputs' bytes."""
    rng = np.random.default_rng(0)
    DensityRegressor(epochs=1, verbose=False).fit(rng.normal(size=(500, columns)), rng.normal(size=500))
    X = rng.standard_normal((rows, columns))
    y = X[:, 0] + np.sin(X[:, 1]) + rng.standard_normal(rows)
    before = peak = resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    DensityRegressor(epochs=1, verbose=False, random_state=0).fit(X, y)
    done.set()
    watcher.join()
    return float(peak - before) / X.nbytes


def resident() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    main()
