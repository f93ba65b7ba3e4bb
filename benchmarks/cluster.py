"""Seconds and memory of `density-regression predict` with and without Ray, and whether both predict the same bits.

    python benchmarks/cluster.py [--rows 1000000 10000000 20000000] [--workers 2] [--folder DIR] [--json FILE]

The table and the model are those of `streaming.py`: ten columns, numbers, whole numbers, booleans, text and dates, some
with gaps. One process writes one Parquet file; Ray is started by the command on this machine, and writes a folder of
parts. Every file is then read again, and each column compared bit for bit. The largest table is scored once more, and
one of Ray's workers is killed after a third of the parts.

Memory is that of the command with all processes that it starts, sampled four times a second: the sum of their resident
memory (RSS), in which memory that several share counts for each, and of their proportional shares (PSS), in which it
counts once. Processor seconds are those of all processes. The load of the machine is noted, as others may use it: Ray's
workers give way to all others unless `RAY_worker_niceness=0` is set.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from _timing import finish, machine
from streaming import FITTED, fitted, generate, rows

PROGRAM = [sys.executable, "-m", "density_regression", "predict"]
INTERVAL = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000, 20_000_000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where to put the tables; they are removed")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"machine": machine() | {"workers": args.workers}}
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        fitted(rows(FITTED, seed=0)).save(folder / "model")
        for count in args.rows:
            generate(folder / "rows.parquet", count)
            figures[f"{count} rows"] = compared(folder, args.workers, kill=count == args.rows[-1])
            finish(figures, args.json)


def compared(folder: Path, workers: int, *, kill: bool) -> dict[str, Any]:
    """The command with and without Ray on one table; if `kill`, also with Ray and a worker killed."""
    by_ray = ["--engine", "ray", "--workers", str(workers)]
    found: dict[str, Any] = {"plain": command(folder, folder / "plain.parquet")}
    expected = digests(folder / "plain.parquet")
    (folder / "plain.parquet").unlink()
    for name in ("ray", "ray, one worker killed")[: 2 if kill else 1]:
        out = folder / "parts"
        found[name] = command(folder, out, *by_ray, kill=name != "ray")
        found[name]["the same bits"] = digests(out) == expected
        for part in out.iterdir():
            part.unlink()
        out.rmdir()
    found["seconds of ray over plain"] = found["ray"]["seconds"] / found["plain"]["seconds"]
    return found


def command(folder: Path, out: Path, *options: str, kill: bool = False) -> dict[str, Any]:
    """Seconds, processor seconds and peak memory of the command and all that it starts."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    before, start = os.getloadavg()[0], time.perf_counter()
    program = [*PROGRAM, folder / "model", folder / "rows.parquet", "--out", out, *options]
    running = subprocess.Popen([*map(str, program)], env=environment, stdout=subprocess.DEVNULL)
    command_process = psutil.Process(running.pid)
    processor: dict[int, float] = {}
    peak_rss = peak_pss = killed = 0
    first_part = None
    while running.poll() is None:
        rss = pss = 0
        parts = len(list(folder.glob(".parts.*/part-*")))
        if parts and first_part is None:
            first_part = time.perf_counter() - start
        for process in family(command_process):
            with suppress(psutil.Error):
                memory = process.memory_full_info()
                rss, pss = rss + memory.rss, pss + memory.pss
                used = process.cpu_times()
                processor[process.pid] = used.user + used.system
                if kill and not killed and parts >= slices(folder) // 3 and "in_folder" in " ".join(process.cmdline()):
                    killed = process.pid
                    os.kill(killed, signal.SIGKILL)
        peak_rss, peak_pss = max(peak_rss, rss), max(peak_pss, pss)
        time.sleep(INTERVAL)
    seconds = time.perf_counter() - start
    assert running.returncode == 0, running.returncode
    assert bool(killed) == kill
    count = pq.ParquetFile(folder / "rows.parquet").metadata.num_rows
    return {
        "seconds": round(seconds, 2),
        "rows a second": round(count / seconds),
        "processor seconds": round(sum(processor.values()), 2),
        "seconds to the first part": None if first_part is None else round(first_part, 2),
        "peak RSS, MiB": round(peak_rss / 2**20),
        "peak PSS, MiB": round(peak_pss / 2**20),
        "load before": round(before, 2),
        "load after": round(os.getloadavg()[0], 2),
    }


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it started."""
    with suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return []


def slices(folder: Path) -> int:
    """Parts that Ray writes: here a row group each."""
    return pq.ParquetFile(folder / "rows.parquet").metadata.num_row_groups


def digests(path: Path) -> dict[str, tuple[str, str]]:
    """Of each column, in the order of rows: a digest of the bits of its values, and one of where its gaps are."""
    found: dict[str, tuple[Any, Any]] = {}
    for batch in batches(path):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values, gaps = found.setdefault(name, (hashlib.sha256(), hashlib.sha256()))
            gaps.update(np.asarray(pc.is_null(column)).tobytes())
            values.update(bits(column))
    return {name: (values.hexdigest(), gaps.hexdigest()) for name, (values, gaps) in found.items()}


def batches(path: Path) -> Iterator[pa.RecordBatch]:
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        yield from pq.ParquetFile(file, pre_buffer=False).iter_batches(65_536, use_threads=False)


def bits(column: pa.Array) -> bytes:
    """The values of a column, whatever batches it is in."""
    if pa.types.is_string(column.type):
        return "".join(f"{text}\0" for text in column.fill_null("").to_pylist()).encode()
    if pa.types.is_date(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.int32())
    return column.fill_null(0).to_numpy(zero_copy_only=False).tobytes()


if __name__ == "__main__":
    main()
