"""Training from disk: time, memory and quality against the number of rows, beside a plain loop and a fit in memory.

    python benchmarks/disk.py [--rows 10000 1000000 50000000] [--folder FOLDER] [--json FILE] [--plot FILE]

A table of 20 columns and a target, all float64, is generated as Parquet in parts of a million rows, a row group each,
and fitted by `DensityRegressor.fit(FOLDER, "y")` from its first parts. Every fit is a process of its own with one
thread, whose peak memory the system reports; with `--limit 4G` in a control group (Linux, version 1 or 2, as root) with
so much memory, page cache included. The fit in memory has the first million rows, and the same defaults. All are judged
on 100,000 rows that none was trained on. The plain loop is what somebody would write in PyTorch: the same reader, the
same network, embedding and batch size, a Gaussian likelihood and AdamW.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from _timing import finish, machine

from density_regression import DensityRegressor
from density_regression.estimators import from_disk
from density_regression.metrics import coverage, crps, nll, rmse
from density_regression.nn.encoders import MLP, Embedded, PiecewiseEmbedding, WithInputs, feature_width
from density_regression.tabular.stream import StreamBatches

COLUMNS = 20
PART = 1_000_000
TEST = 100_000
LOOP_ROWS = 5_000_000
ROWS = [10_000, 100_000, 1_000_000, 5_000_000, 50_000_000]


def table(rows: int, seed: int) -> pa.Table:
    """Rows with correlated columns, some of them skewed or discrete, and noise that depends on them."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((COLUMNS, rows))
    x[1] = 0.7 * x[0] + 0.7 * x[1]
    x[4] = np.exp(0.5 * x[4])
    x[5] = np.round(2.0 * x[5])
    x[6] = x[6] > 0.5
    mean = 1.5 * np.sin(2.0 * x[0]) + x[1] * x[2] + np.abs(x[3]) * x[6] + 0.5 * x[4] * x[5]
    mean += 0.3 * np.cos(3.0 * x[7] + x[8]) + 0.2 * x[9:14].sum(axis=0)
    std = 0.2 + 0.5 / (1.0 + np.exp(-2.0 * x[2] - x[14]))
    y = mean + std * rng.standard_normal(rows)
    return pa.table({**{f"x{i}": values for i, values in enumerate(x)}, "y": y})


def generate(folder: Path, rows: int, jobs: int) -> None:
    """Write the parts that are not there yet."""

    def write(part: int) -> None:
        path = folder / f"{part:03}.parquet"
        if not path.exists():
            # Random numbers cannot be compressed.
            pq.write_table(table(PART, 1 + part), path.with_suffix(".new"), compression="none", use_dictionary=False)
            path.with_suffix(".new").rename(path)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(write, range(math.ceil(rows / PART))))


def first_rows(folder: Path, rows: int, place: Path) -> Path:
    """A folder with the first rows of a table."""
    place.mkdir()
    for part in range(rows // PART):
        os.link(folder / f"{part:03}.parquet", place / f"{part:03}.parquet")
    if rest := rows % PART:
        pq.write_table(pq.read_table(folder / f"{rows // PART:03}.parquet").slice(0, rest), place / "rest.parquet")
    return place


def judged(regressor: DensityRegressor) -> dict[str, float]:
    """Quality on the rows that no fit has seen."""
    test = table(TEST, 1_000_003)
    X, y = test.drop_columns(["y"]), test.column("y").to_numpy()
    mean, std = regressor.predict(X, return_std=True)
    figures = {"nll": nll(y, mean, std), "crps": crps(y, mean, std), "rmse": rmse(y, mean)}
    return figures | {"coverage of 90 %": coverage(y, mean, std, level=0.9)}


def fit_stream(folder: Path) -> dict[str, Any]:
    """Fit to a folder."""
    regressor = DensityRegressor(random_state=0)
    start, begun = time.perf_counter(), time.process_time()
    regressor.fit(folder, "y")
    seconds, processor = time.perf_counter() - start, time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rates = {"seconds": seconds, "processor seconds": processor, "peak MiB": peak}
    return {**rates, "steps": regressor.report_.seconds, "history": regressor.report_.history[-3:], **judged(regressor)}


def fit_in_memory(folder: Path) -> dict[str, Any]:
    """Fit to the same rows in memory."""
    rows = pq.read_table(folder)
    regressor = DensityRegressor(random_state=0)
    start, begun = time.perf_counter(), time.process_time()
    regressor.fit(rows.drop_columns(["y"]), rows.column("y").to_numpy())
    seconds, processor = time.perf_counter() - start, time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rates = {"seconds": seconds, "processor seconds": processor, "peak MiB": peak}
    return {**rates, "steps": regressor.report_.seconds, **judged(regressor)}


def loops(folder: Path) -> dict[str, Any]:
    """Rows a second of the streaming step and of a plain loop, over the same reader."""
    given: dict[str, Any] = {}

    class StopError(Exception):
        pass

    from density_regression.training import stream

    real = stream.go_on

    def caught(*args: Any) -> Any:
        given["args"] = args
        raise StopError

    stream.go_on = caught
    try:
        # A short first step: what the network has learnt does not matter here.
        DensityRegressor(random_state=0, epochs=2, verbose=False).fit(folder, "y")
    except StopError:
        stream.go_on = real
    model, teacher, sample, held_out, rows, options, *_ = given["args"]
    figures: dict[str, Any] = {"rows": rows.rows, "batch size": rows.batch_size}
    for name in ("plain loop", "streaming step") * 2:
        rows.seek({"epoch": torch.tensor(0), "batch": torch.tensor(0)})
        start, begun = time.perf_counter(), time.process_time()
        if name == "plain loop":
            plain(rows, sample.rows[0])
        else:
            real(model, teacher, sample, held_out, rows, stream.replace(options, epochs=1))
        seconds, processor = time.perf_counter() - start, time.process_time() - begun
        own = {"rows a second": rows.rows / seconds, "rows a processor second": rows.rows / processor}
        # The faster of two rounds: other programs may run beside.
        figures[name] = max(own, figures.get(name, own), key=lambda part: part["rows a processor second"])
    for rate in ("rows a second", "rows a processor second"):
        figures[f"{rate}, streaming step over plain loop"] = (
            figures["streaming step"][rate] / figures["plain loop"][rate]
        )
    return figures


def plain(rows: StreamBatches, x: torch.Tensor) -> None:
    """One pass of a plain loop."""
    embedding = PiecewiseEmbedding.fit(x)
    encoder = WithInputs(Embedded(embedding, MLP(embedding.width, (100, 100))))
    network = torch.nn.Sequential(encoder, torch.nn.Linear(feature_width(encoder, x[:2]), 2))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2, weight_decay=0.03, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(rows))
    for inputs, target, _ in rows:
        mean, log_var = network(inputs).chunk(2, dim=1)
        loss = torch.nn.functional.gaussian_nll_loss(mean, target, log_var.clamp(-20, 20).exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


TASKS = {"stream": fit_stream, "memory": fit_in_memory, "loops": loops}


def measured(task: str, folder: Path, limit: str | None) -> dict[str, Any]:
    """Figures of a task, in a process of its own."""
    group = None if limit is None else limited(limit)
    # A small process between: the peak memory of a process begins with that of the one that started it.
    shell = "" if group is None else f"echo $$ > {group}/cgroup.procs && "
    command = f'{shell}exec "$@"'
    program = ["sh", "-c", command, "sh", sys.executable, __file__, "--task", task, "--folder", str(folder)]
    done = subprocess.run(program, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    if group is not None:
        figures["memory limit"] = limit
        group.rmdir()
    return figures


def limited(limit: str) -> Path:
    """A new control group with so much memory."""
    root = Path("/sys/fs/cgroup/memory") if Path("/sys/fs/cgroup/memory").is_dir() else Path("/sys/fs/cgroup")
    group = root / f"disk-{uuid.uuid4().hex}"
    group.mkdir()
    (group / ("memory.limit_in_bytes" if root.name == "memory" else "memory.max")).write_text(limit)
    return group


def exponent(figures: dict[str, Any], least: int) -> float:
    """Slope of the logarithm of seconds against that of rows, from so many rows on."""
    points = [(int(rows), part["processor seconds"]) for rows, part in figures.items() if int(rows) >= least]
    rows, seconds = np.log(np.array(points)).T
    return float(np.polyfit(rows, seconds, 1)[0])


def as_markdown(figures: dict[str, Any]) -> str:
    """The figures as a table for the guide."""
    fits = {f"{int(rows):,} from disk": part for rows, part in figures["from disk"].items()}
    if "in memory" in figures:
        fits[f"{PART:,} in memory"] = figures["in memory"]
    lines = ["| rows | processor seconds | peak memory (MiB) | NLL | RMSE |", "|---:|---:|---:|---:|---:|"]
    for name, part in fits.items():
        seconds, peak = (f"{part[key]:,.0f}" for key in ("processor seconds", "peak MiB"))
        lines.append(f"| {name} | {seconds} | {peak} | {part['nll']:.3f} | {part['rmse']:.3f} |")
    return "\n".join(lines)


def plot(figures: dict[str, Any], path: Path) -> None:
    """Seconds and peak memory against rows."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FixedLocator

    parts = figures["from disk"]
    rows = np.array([int(count) for count in parts])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axes, name in ((left, "processor seconds"), (right, "peak MiB")):
        axes.plot(rows, [part[name] for part in parts.values()], "o-", label="from disk")
        if memory := figures.get("in memory"):
            axes.plot([PART], [memory[name]], "s", label="in memory")
        axes.set(xscale="log", xlabel="rows")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    left.set(yscale="log", ylabel="processor seconds, one thread")
    left.yaxis.set_major_locator(FixedLocator([20, 50, 100, 200, 500, 1000]))
    left.yaxis.set_major_formatter("{x:.0f}")
    left.yaxis.set_minor_formatter("")
    right.set_ylabel("peak memory (MiB)")
    right.set_ylim(bottom=0)
    left.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="sizes of the tables")
    parser.add_argument("--folder", type=Path, help="for the table; kept, and parts that are there are used")
    parser.add_argument("--limit", help="memory of each process, such as 4G")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS), help="what to measure")
    parser.add_argument("--json", type=Path, help="add the figures to those in this file")
    parser.add_argument("--plot", type=Path, help="draw the figures")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.task is not None:
        print(json.dumps(TASKS[args.task](args.folder)))
        return
    figures: dict[str, Any] = {"machine": machine(), "rows in memory": from_disk.SAMPLE, "from disk": {}}
    if args.json is not None and args.json.exists():
        figures = json.loads(args.json.read_text())
    with tempfile.TemporaryDirectory(dir=args.folder and args.folder.parent) as name:
        folder = args.folder or Path(name) / "all"
        folder.mkdir(exist_ok=True)
        generate(folder, max([*args.rows, LOOP_ROWS]), args.jobs)
        with ThreadPoolExecutor(args.jobs) as pool:
            # The longest first.
            waiting: dict[int | str, Future[dict[str, Any]]] = {}
            for rows in sorted(args.rows, reverse=True) if "stream" in args.only else ():
                own = first_rows(folder, rows, Path(name) / str(rows))
                waiting[rows] = pool.submit(measured, "stream", own, args.limit)
            if "memory" in args.only:
                memory = pool.submit(measured, "memory", first_rows(folder, PART, Path(name) / "memory"), None)
                waiting["in memory"] = memory
            for rows, one in waiting.items():
                print(f"{rows}: {json.dumps(one.result())}", file=sys.stderr)
        for rows, one in waiting.items():
            if isinstance(rows, int):
                size = {"GB as float64": 8e-9 * rows * (COLUMNS + 1)}
                figures["from disk"][str(rows)] = size | one.result()
            else:
                figures[rows] = one.result()
        # Alone: what runs beside would count in its seconds.
        if "loops" in args.only:
            figures["loops"] = measured("loops", first_rows(folder, LOOP_ROWS, Path(name) / "loops"), None)
    figures["from disk"] = dict(sorted(figures["from disk"].items(), key=lambda item: int(item[0])))
    if sum(int(rows) >= PART for rows in figures["from disk"]) > 1:
        figures["exponent of time from a million rows on"] = exponent(figures["from disk"], PART)
    finish(figures, args.json)
    print(as_markdown(figures), file=sys.stderr)
    if args.plot is not None:
        plot(figures, args.plot)


if __name__ == "__main__":
    main()
