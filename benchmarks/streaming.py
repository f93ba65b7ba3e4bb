"""Rows a second and peak memory of `density-regression predict`, beside a bare loop of ONNX Runtime.

    python benchmarks/streaming.py [--rows 2000000 20000000] [--json FILE]

Tables of so many rows and ten columns are generated as Parquet in chunks: numbers, whole numbers, booleans, text and
dates, some with gaps. A default model is fitted to other rows like them, saved, and exported. The command runs in a
process of its own, whose peak memory the system reports; the loop reads the same batches, hands them over as numpy
arrays and asks for all results. One thread each; processor seconds are compared, as other programs may run beside.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from _timing import finish, machine

from density_regression import DensityRegressor

FITTED = 5000
EPOCHS = 40
CHUNK = 500_000
BATCH = 65_536
LAUNCH = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""
"""A small process between: the peak memory of a process begins with that of the one that started it."""

LOOP_ROWS = 1_000_000
"""Rows of the loop: its speed does not depend on how many there are."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000_000, 20_000_000], help="sizes of the tables")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train = rows(FITTED, seed=0)
        reg = fitted(train)
        reg.save(folder / "model")
        reg.to_onnx(folder / "model.onnx")
        figures: dict[str, Any] = {"machine": machine() | {"onnxruntime": onnxruntime.__version__}}
        figures["columns"] = {field.name: str(field.type) for field in train.schema}
        for count in args.rows:
            generate(folder / "rows.parquet", count)
            figures[f"{count} rows"] = command(folder, count)
        figures["ONNX Runtime"] = loop(folder)
        first, last = (figures[f"{count} rows"] for count in (args.rows[0], args.rows[-1]))
        rate = "rows a processor second"
        figures["rows a processor second beside the loop's"] = last[rate] / figures["ONNX Runtime"][rate]
        figures["peak of the last over that of the first"] = last["peak MiB"] / first["peak MiB"]
    finish(figures, args.json)


def fitted(train: pa.Table) -> DensityRegressor:
    """A default model of the rows."""
    reg = DensityRegressor(epochs=EPOCHS, random_state=0, verbose=False)
    return reg.fit(train.drop_columns(["y"]), train.column("y").to_numpy())


def rows(count: int, seed: int) -> pa.Table:
    """Rows of ten columns and a target."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 5))
    towns = pa.array([f"town {i}" for i in range(30)])
    town, kind = rng.integers(0, 30, count), rng.integers(0, 4, count)
    day = rng.integers(0, 900, count)
    year = rng.integers(1950, 2020, count)
    y = x[:, 0] * x[:, 1] + 0.05 * (year - 1980) + np.sin(town) + kind + rng.normal(size=count)

    def some(values: pa.Array) -> pa.Array:
        return pc.if_else(pa.array(rng.random(count) < 0.05), pa.scalar(None, values.type), values)

    return pa.table(
        {
            **{f"x{i}": some(pa.array(x[:, i])) if i > 2 else pa.array(x[:, i]) for i in range(5)},
            "year": pa.array(year),
            "lift": pa.array(rng.random(count) < 0.5),
            "town": some(towns.take(pa.array(town))),
            "kind": pa.array(["house", "flat", "loft", "barn"]).take(pa.array(kind)),
            "day": pa.array(day + 19_000, pa.int32()).cast(pa.date32()),
            "y": pa.array(y),
        }
    )


def generate(path: Path, count: int) -> None:
    """Write so many rows, some at a time."""
    with pq.ParquetWriter(path, rows(1, 0).schema) as writer:
        for start in range(0, count, CHUNK):
            writer.write_table(rows(min(CHUNK, count - start), seed=1 + start))


def command(folder: Path, count: int) -> dict[str, float]:
    """Seconds and peak memory of the command, in a process of its own."""
    out = folder / "out.parquet"
    program = [sys.executable, "-m", "density_regression", "predict"]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, *program, folder / "model", folder / "rows.parquet", "--out", out],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    seconds = time.perf_counter() - start
    processor, peak = map(float, done.stdout.split())
    assert pq.ParquetFile(out).metadata.num_rows == count
    out.unlink()
    return {
        "seconds": seconds,
        "rows a second": count / seconds,
        "rows a processor second": count / processor,
        "peak MiB": peak / 1024,
    }


def loop(folder: Path) -> dict[str, float]:
    """Rows a second of ONNX Runtime on the same batches, with and without the time to read and hand them over."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options)
    pa.set_cpu_count(1)
    done, inside = 0, 0.0
    start, processor = time.perf_counter(), time.process_time()
    for batch in pq.ParquetFile(folder / "rows.parquet").iter_batches(BATCH, use_threads=False):
        inputs = {part.name: given(batch.column(part.name), part.type) for part in session.get_inputs()}
        begun = time.process_time()
        session.run(None, inputs)
        inside += time.process_time() - begun
        done += len(batch)
        if done >= LOOP_ROWS:
            break
    return {
        "rows a second": done / (time.perf_counter() - start),
        "rows a processor second": done / (time.process_time() - processor),
        "rows a processor second, graph alone": done / inside,
    }


def given(column: pa.Array, kind: str) -> np.ndarray:
    """A column as ONNX Runtime takes it: float64 with NaN for gaps, or strings with "" for gaps."""
    if kind == "tensor(string)":
        return column.cast(pa.string()).fill_null("").to_numpy(zero_copy_only=False)
    return column.cast(pa.float64()).to_numpy(zero_copy_only=False)


if __name__ == "__main__":
    main()
