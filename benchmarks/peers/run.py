"""This project against other packages: time and accuracy on three UCI tables, one thread, one after another.

    .venv-peers/bin/python benchmarks/peers/run.py [--data-dir DIR] [--splits 5] [--datasets power kin8nm protein]

`install.sh` makes the environment, `table.py` reads the results. Every method fits the standard splits of a table, in
this process, so that times within a split can be compared. Scores are in the target's units, on the test rows. A
result is appended to --out as soon as it is there; an interrupted run goes on from it.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from methods import METHODS, PACKAGES, Floats
from networks import EPOCHS
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from threadpoolctl import threadpool_limits

from density_regression import metrics
from density_regression.datasets import Rows
from density_regression.experiments.provenance import provenance
from density_regression.experiments.records import FitKey, Record, RecordFile
from density_regression.experiments.suites import SUITES

LARGEST = 1e300
"""JSON has no infinity; a score beyond this is this."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("DENSITY_REGRESSION_DATA"), help="downloads without it")
    parser.add_argument("--splits", type=int, default=5, help="the first so many of each table")
    parser.add_argument("--datasets", nargs="+", default=["power", "kin8nm", "protein"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="NAME")
    parser.add_argument("--rows", type=int, default=None, help="at most so many training rows, to try things out")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results.jsonl")
    args = parser.parse_args()

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)
    protocol = f"{EPOCHS} epochs" if args.rows is None else f"{EPOCHS} epochs, {args.rows} rows"
    keys = [
        FitKey("peers", protocol, dataset, str(split), 0, method)
        for dataset, split, method in product(args.datasets, range(args.splits), args.methods)
    ]
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with threadpool_limits(1), RecordFile(args.out) as file, Progress(*columns, console=console) as progress:
        done = file.done()
        missing = [key for key in keys if key not in done]
        if missing:
            warm_up(args.methods)
        task = progress.add_task("fits", total=len(keys), completed=len(keys) - len(missing))
        for key in missing:
            progress.update(task, description=f"{key.dataset} {key.split} {key.method}")
            record = run(key, args.data_dir, args.rows)
            file.append(record)
            progress.advance(task)
            console.print(line(record), soft_wrap=True)


def warm_up(names: list[str]) -> None:
    """Imports and first calls, in nobody's time."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(64, 3)), rng.normal(size=64)
    for name in names:
        method = METHODS[name](0)
        method.fit(X, y)
        method.predict(X)


def run(key: FitKey, data_dir: str | None, most_rows: int | None) -> Record:
    """Fit one method to one split, and score it; an error is recorded, not raised."""
    split = SUITES["uci"].load(key.dataset, key.split, data_dir)
    train = Rows(split.train.X[:most_rows], split.train.y[:most_rows])
    record = {**key._asdict(), **provenance(), "peers": peers(), "machine": machine()}
    record["rows"] = {"train": len(train.y), "test": len(split.tests["test"].y)}
    try:
        return record | scored(key, train, split.tests["test"])
    except Exception as error:  # one fit must not end the others
        return record | {"error": f"{type(error).__name__}: {error}"}


def scored(key: FitKey, train: Rows, test: Rows) -> Record:
    """Seconds and scores of one fit."""
    method = METHODS[key.method](int(key.split))
    start, processor = time.perf_counter(), time.process_time()
    method.fit(train.X, train.y)
    fitted, busy = time.perf_counter(), time.process_time() - processor
    mean, std = method.predict(test.X)
    predicted = time.perf_counter()
    return {
        # Far more seconds by the clock than of the processor: others had it meanwhile.
        "seconds": {
            "fit": round(fitted - start, 4),
            "fit_processor": round(busy, 4),
            "predict": round(predicted - fitted, 5),
        },
        "metrics": scores(test.y, mean, std),
    }


def scores(y: Floats, mean: Floats, std: Floats) -> dict[str, float]:
    values = {
        "nll": metrics.nll(y, mean, std),
        "crps": metrics.crps(y, mean, std),
        "rmse": metrics.rmse(y, mean),
        "coverage_90": metrics.coverage(y, mean, std, 0.9),
    }
    return {name: min(float(value), LARGEST) for name, value in values.items()}


def peers() -> dict[str, str]:
    """Versions that `provenance` does not name."""
    return {name: version(name) for name in PACKAGES}


def machine() -> dict[str, Any]:
    """Model of the processor, its cores, and the threads a fit may use."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"cpu": names[0] if names else platform.processor(), "cores": os.cpu_count(), "threads": 1}


def line(record: Record) -> str:
    begin = f"{record['dataset']} {record['split']} {record['method']}: "
    if "error" in record:
        return begin + str(record["error"])
    found = record["metrics"]
    return begin + f"{record['seconds']['fit']:.1f} s, NLL {found['nll']:.3f}, RMSE {found['rmse']:.3f}"


if __name__ == "__main__":
    main()
