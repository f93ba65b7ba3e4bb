"""Rows a second and peak memory of `density-regression evaluate`.

    python benchmarks/evaluation.py [--rows 2000000 20000000] [--json FILE]

Tables and model are those of `streaming.py`; the command runs on one thread, in a process of its own, whose peak memory
the system reports.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _timing import finish, machine
from streaming import FITTED, LAUNCH, fitted, generate, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000_000, 20_000_000], help="sizes of the tables")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fitted(rows(FITTED, seed=0)).save(folder / "model")
        figures: dict[str, Any] = {"machine": machine()}
        for count in args.rows:
            generate(folder / "rows.parquet", count)
            figures[f"{count} rows"] = evaluate(folder, count)
    first, last = (figures[f"{count} rows"]["peak MiB"] for count in (args.rows[0], args.rows[-1]))
    figures["peak of the last over that of the first"] = last / first
    finish(figures, args.json)


def evaluate(folder: Path, count: int) -> dict[str, float]:
    """Seconds and peak memory of the command, in a process of its own."""
    program = [sys.executable, "-m", "density_regression", "evaluate", folder / "model", folder / "rows.parquet"]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, *program, "--target", "y", "--out", folder / "out"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    seconds = time.perf_counter() - start
    processor, peak = map(float, done.stdout.split())
    assert json.loads((folder / "out" / "evaluation.json").read_bytes())["rows"] == count
    return {
        "seconds": seconds,
        "rows a second": count / seconds,
        "rows a processor second": count / processor,
        "peak MiB": peak / 1024,
    }


if __name__ == "__main__":
    main()
