"""Settings that are fitted in a moment, and a benchmark run to its end."""

from pathlib import Path

from density_regression.experiments.bench import Bench
from density_regression.experiments.records import Record, RecordFile

QUICK = {"hidden": (6,), "epochs": 2, "batch_size": 32, "patience": None, "embedding": None}


def run(work: Bench, path: Path, jobs: int = 1) -> list[Record]:
    with RecordFile(path) as file:
        return list(work.run(file, jobs))
