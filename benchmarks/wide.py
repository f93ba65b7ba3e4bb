"""Tables with many columns: R2 on fresh rows, and seconds to fit, of every method by default.

    python benchmarks/wide.py [--out docs/results/wide.json] [--rows 50 100 1000 6000] [--columns 10 100 1000 4000]

The target is 2 x0 + x1 x2 + noise, inputs and noise standard normal, so all columns but three are noise. A method that
fits them does worse than the mean, whose R2 is 0. Fits that the file holds already are not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from density_regression import methods
from density_regression.metrics import nll

Floats = NDArray[np.float64]

FRESH = 2000
"""Rows that judge."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results/wide.json"))
    parser.add_argument("--rows", type=int, nargs="+", default=[50, 100, 1000, 6000])
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 100, 1000, 4000])
    parser.add_argument("--methods", nargs="+", default=[method.name for method in methods()])
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    records = json.loads(args.out.read_text()) if args.out.exists() else []
    done = {(r["method"], r["rows"], r["columns"], r["seed"]) for r in records}
    for seed, n, c, method in product(range(args.seeds), args.rows, args.columns, methods()):
        if method.name not in args.methods or (method.name, n, c, seed) in done:
            continue
        record = {"method": method.name, "rows": n, "columns": c, "seed": seed, **figures(method.estimator, n, c, seed)}
        records.append(record)
        args.out.write_text("[\n" + ",\n".join(json.dumps(part) for part in records) + "\n]\n")
        print(record, flush=True)
    print_table(records)


def table(n: int, c: int, seed: int) -> tuple[Floats, Floats]:
    """Inputs (n, c) and targets (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, c))
    return X, 2 * X[:, 0] + X[:, 1] * X[:, 2] + rng.standard_normal(n)


def figures(estimator: type, n: int, c: int, seed: int) -> dict[str, float]:
    """Of one fit."""
    X, y = table(n + FRESH, c, 1000 + seed)
    start = time.perf_counter()
    reg = estimator(random_state=seed, verbose=False).fit(X[:n], y[:n])
    seconds = time.perf_counter() - start
    mean, std = reg.predict(X[n:], return_std=True)
    return {
        "r2": round(r2_score(y[n:], mean), 4),
        "nll": round(nll(y[n:], mean, std), 4),
        "seconds": round(seconds, 2),
    }


def print_table(records: list[dict[str, float]]) -> None:
    """Mean R2 over seeds, and the lowest in brackets; then seconds of ours."""
    names = list(dict.fromkeys(r["method"] for r in records))
    cells = sorted({(r["rows"], r["columns"]) for r in records})
    print("| rows x columns | " + " | ".join(map(str, names)) + " | seconds, ours |")
    print("|" + "---|" * (len(names) + 2))
    for n, c in cells:
        of = {name: [r for r in records if (r["method"], r["rows"], r["columns"]) == (name, n, c)] for name in names}
        found = [[r["r2"] for r in of[name]] or [np.nan] for name in names]
        shown = [f"{np.mean(each):.2f} ({min(each):.2f})" for each in found]
        seconds = np.median([r["seconds"] for r in of[names[0]]] or [np.nan])
        print(f"| {n:,} x {c:,} | " + " | ".join(shown) + f" | {seconds:.1f} |")


if __name__ == "__main__":
    main()
