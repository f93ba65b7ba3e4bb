"""Three other packages on the tables of `density-regression bench shift`: the same rows, one thread, one after another.

    .venv-peers/bin/python benchmarks/peers/shift.py [--data-dir DIR] [--seeds 2] [--datasets ...] [--methods ...]

`install.sh` makes the environment, `shift_table.py` sets the results beside ours. Each fit has the training rows of a
seed, and is scored on its two tests, in the target's units. Seed 0 of every table comes first, then seed 1. A result is
appended to --out as soon as it is there; an interrupted run goes on from it.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np
import torch
from methods import Floats, Method, NGBoost, Standardised
from networks import _import_torchvision
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from run import machine, scores
from threadpoolctl import threadpool_limits

from density_regression import metrics
from density_regression.experiments.provenance import provenance
from density_regression.experiments.records import FitKey, Record, RecordFile
from density_regression.experiments.suites import SUITES, SplitData

SUITE = SUITES["shift"]

PACKAGES = ("catboost", "ngboost", "pytabkit")
"""What a result depends on besides the project's own requirements."""


class CatBoost:
    """CatBoost's mean and variance, its defaults: 1,000 trees.

    With `held_out`, a fifth of the rows chooses how many of these trees are kept, which is what CatBoost does by
    default once it is given such rows.
    """

    def __init__(self, seed: int, held_out: bool = False) -> None:
        from catboost import CatBoostRegressor

        self.seed, self.held_out = seed, held_out
        self.regressor = CatBoostRegressor(
            loss_function="RMSEWithUncertainty",
            random_seed=seed,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
        )

    def fit(self, X: Floats, y: Floats) -> None:
        if not self.held_out:
            self.regressor.fit(X, y)
            return
        rest, fifth = hold_out_a_fifth(len(y), self.seed)
        self.regressor.fit(X[rest], y[rest], eval_set=(X[fifth], y[fifth]))

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        mean, variance = self.regressor.predict(X, thread_count=1).T
        return mean, np.sqrt(variance)


class RealMLP:
    """pytabkit's RealMLP with its defaults, 256 epochs; of a mean alone.

    The standard deviation is the same for all rows: the RMSE of the fifth that is held out, by which RealMLP also
    chooses its epoch.
    """

    def __init__(self, seed: int) -> None:
        _import_torchvision()
        from pytabkit import RealMLP_TD_Regressor

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        self.seed = seed
        self.regressor = RealMLP_TD_Regressor(device="cpu", n_threads=1, random_state=seed)

    def fit(self, X: Floats, y: Floats) -> None:
        rest, fifth = hold_out_a_fifth(len(y), self.seed)
        self.regressor.fit(X[rest], y[rest], X[fifth], y[fifth])
        self.std = metrics.rmse(y[fifth], self.regressor.predict(X[fifth]))

    def predict(self, X: Floats) -> tuple[Floats, Floats]:
        mean = self.regressor.predict(X)
        return mean, np.full(len(mean), self.std)


METHODS: dict[str, Callable[[int], Method]] = {
    "CatBoost": CatBoost,
    "CatBoost, a fifth held out": lambda seed: CatBoost(seed, held_out=True),
    "NGBoost": lambda seed: Standardised(NGBoost(seed)),
    "RealMLP": RealMLP,
}
"""Makes a method from a seed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("DENSITY_REGRESSION_DATA"), help="has shift/shifts.json")
    parser.add_argument("--seeds", type=int, default=2, help="the first so many")
    parser.add_argument("--datasets", nargs="+", default=[], metavar="NAME", help="all without it")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "shift.jsonl")
    args = parser.parse_args()

    torch.set_num_threads(1)
    # Lightning's and pytabkit's advice, at every fit and prediction.
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", category=UserWarning)
    datasets = SUITE.select(args.datasets, args.data_dir)
    keys = [
        FitKey("shift", "peers", dataset, str(seed), 0, method)
        for seed, dataset, method in product(range(args.seeds), datasets, args.methods)
    ]
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with threadpool_limits(1), RecordFile(args.out) as file, Progress(*columns, console=console) as progress:
        done = file.done()
        missing = [key for key in keys if key not in done]
        for name in args.methods:
            METHODS[name](0)  # its imports, in nobody's time
        task = progress.add_task("fits", total=len(keys), completed=len(keys) - len(missing))
        for key in missing:
            progress.update(task, description=f"{key.dataset} {key.split} {key.method}")
            record = run(key, args.data_dir)
            file.append(record)
            progress.advance(task)
            console.print(line(record), soft_wrap=True)


def run(key: FitKey, data_dir: str | None) -> Record:
    """Fit one method to one split, and score it; an error is recorded, not raised."""
    split = SUITE.load(key.dataset, key.split, data_dir)
    record = {**key._asdict(), **provenance(), "peers": {name: version(name) for name in PACKAGES}}
    record |= {
        "machine": machine(),
        "data": SUITE.checksum(key.dataset, data_dir),
        "rows": {"train": len(split.train.y)},
    }
    try:
        return record | scored(key, split)
    except Exception as error:  # one fit must not end the others
        return record | {"error": f"{type(error).__name__}: {error}"}


def scored(key: FitKey, split: SplitData) -> Record:
    """Seconds of one fit, and its scores on both tests, named as in the records of `bench`."""
    method = METHODS[key.method](int(key.split))
    np.random.seed(int(key.split))  # NGBoost's trees draw from it, whatever its random_state
    start, processor = time.perf_counter(), time.process_time()
    method.fit(*split.train)
    # Far more seconds by the clock than of the processor: others had it meanwhile.
    seconds = {"fit": time.perf_counter() - start, "fit_processor": time.process_time() - processor}
    tests = {
        name: {"rows": len(test.y), "metrics": scores(test.y, *method.predict(test.X))}
        for name, test in split.tests.items()
    }
    return {"seconds": {name: round(value, 3) for name, value in seconds.items()}, "tests": tests}


def hold_out_a_fifth(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the rows to fit, and of a random fifth to hold out."""
    order = np.random.default_rng(seed).permutation(rows)
    return order[rows // 5 :], order[: rows // 5]


def line(record: Record) -> str:
    begin = f"{record['dataset']} {record['split']} {record['method']}: "
    if "error" in record:
        return begin + str(record["error"])
    home, shifted = (test["metrics"] for test in record["tests"].values())
    return (
        begin + f"{record['seconds']['fit']:.1f} s, NLL {home['nll']:.3f}, shifted {shifted['nll']:.3f}, "
        f"RMSE {home['rmse']:.4g}"
    )


if __name__ == "__main__":
    main()
