"""Does the density ever hurt where nothing shifted? UCI, the standard splits, with and without it.

    python benchmarks/uci.py [--data-dir DIR] [--sets boston,concrete,energy,yacht] [--splits 20] [--seeds 2]

Both are the same network, budget, seeds, held-out rows and held-out scale of the variance; only the density differs.
Each split is fitted with several seeds and averaged, so that the splits are compared and not one network's luck.
Prints test NLL and RMSE in the target's units, and for the difference in NLL the one-sided 95 % bound of the corrected
resampled t-test (Nadeau & Bengio, 2003), to be below +0.05 nats. Results are kept in a file of JSON lines as they
come; an interrupted run goes on from there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
from itertools import product
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import Progress
from scipy import stats

import density_regression
from density_regression import DensityRegressor, metrics
from density_regression.datasets import load_uci, standard_splits

METHODS = {"ours": {}, "without density": {"density": None}}
MARGIN = 0.05
SOURCES = sorted(Path(density_regression.__file__).parent.rglob("*.py"))
CODE = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:12]
"""Results of other code than this are not taken up again."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("DENSITY_REGRESSION_DATA"))
    parser.add_argument("--sets", default="boston,concrete,energy,yacht")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2, help="fits of each split")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("demo/uci.jsonl"), help="where results are kept")
    args = parser.parse_args()
    if args.data_dir is None:
        sys.exit("Give the data folder: --data-dir DIR, or DENSITY_REGRESSION_DATA.")

    args.out.parent.mkdir(parents=True, exist_ok=True)
    sets = args.sets.split(",")
    wanted = list(product(sets, range(args.splits), range(args.seeds), METHODS))
    results = {key(row): row for row in read(args.out) if row["code"] == CODE}
    missing = [job for job in wanted if job not in results]
    with Progress(console=Console(stderr=True)) as progress, args.out.open("a") as file:
        task = progress.add_task("fits", total=len(wanted), completed=len(wanted) - len(missing))
        parallel = Parallel(n_jobs=args.jobs, return_as="generator_unordered")
        for row in parallel(delayed(run)(*job, args.data_dir) for job in missing):
            results[key(row)] = row
            print(json.dumps(row), file=file, flush=True)
            progress.advance(task)

    print("set          NLL ours   without  RMSE ours   without  difference    bound")
    passed = True
    for name in sets:
        table = {
            (method, figure): np.mean(
                [
                    [results[name, split, seed, method][figure] for seed in range(args.seeds)]
                    for split in range(args.splits)
                ],
                axis=1,
            )
            for method in METHODS
            for figure in ("nll", "rmse", "ratio")
        }
        difference = table["ours", "nll"] - table["without density", "nll"]
        bound = upper_bound(difference, table["ours", "ratio"].mean())
        passed &= bool(bound < MARGIN)
        columns = [table[method, figure].mean() for figure in ("nll", "rmse") for method in ("ours", "without density")]
        print(
            f"{name:10s} {columns[0]:9.3f} {columns[1]:9.3f} {columns[2]:10.3f} {columns[3]:9.3f} "
            f"{difference.mean():+11.3f} {bound:+8.3f}"
        )
    print(f"every bound below {MARGIN:+.2f}: {'yes' if passed else 'NO'}")


def run(name: str, split: int, seed: int, method: str, data_dir: str) -> dict[str, object]:
    """Fit one method to one split; test figures in the target's units."""
    data = load_uci(name, data_dir)
    train, test = standard_splits(name, data_dir)[split]
    regressor = DensityRegressor(random_state=split + 1000 * seed, n_threads=1, verbose=False, **METHODS[method])
    regressor.fit(data.X[train], data.y[train])
    mean, std = regressor.predict(data.X[test], return_std=True)
    return {
        "set": name,
        "split": split,
        "seed": seed,
        "method": method,
        "code": CODE,
        "nll": metrics.nll(data.y[test], mean, std),
        "rmse": metrics.rmse(data.y[test], mean),
        "ratio": len(test) / len(train),
        "seconds": regressor.report_.seconds,
    }


def upper_bound(difference: np.ndarray, test_to_train: float, level: float = 0.95) -> float:
    """Upper end of the one-sided interval for the mean, its variance corrected for overlapping training sets."""
    n = len(difference)
    error = math.sqrt((1 / n + test_to_train) * difference.var(ddof=1))
    return float(difference.mean() + stats.t.ppf(level, n - 1) * error)


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key(row: dict[str, object]) -> tuple[object, ...]:
    return row["set"], row["split"], row["seed"], row["method"]


if __name__ == "__main__":
    main()
