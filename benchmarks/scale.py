"""What a billion rows on many machines would take: measured rates, and a simulation that starts from them.

    python benchmarks/scale.py measure [--json docs/results/scale/rates.json]
    python benchmarks/scale.py plan [--rates docs/results/scale/rates.json] [--out docs/results/scale] [--images DIR]

`measure` takes rates of one core in processor seconds, which other programs on the machine hardly disturb: reading
Parquet of 20 columns, turning rows into shuffled mini-batches, a step of the default network's training, predicting. It
then times a training loop of one process and of two that average their gradients (gloo, this machine), by the clock.

`plan` simulates. Training is synchronous: a step takes as long as its slowest process and the averaging of gradients
(`exchange`). Scoring is a queue of slices. Machines fail at random; training then goes back to its last checkpoint, and
a slice is read again. What is not measured is in `Assumed`, with its source.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from _timing import finish, machine

from density_regression import DensityRegressor
from density_regression.estimators.streaming import stream_predictions
from density_regression.tabular.files import open_table
from density_regression.training.stream import FEWEST_ROWS

COLUMNS, BATCH, ROWS, SLICE = 20, 1024, 400_000, 262_144
STEPS, ROUNDS = 30, 10


@dataclass(frozen=True)
class Assumed:
    """What is not measured here, but for `sample`, which `benchmarks/disk.py` has measured."""

    sample: float
    """Seconds of the fit to a sample of 50,000 rows, which one process makes while the others wait."""
    cores: int = 8
    price: float = 0.3264
    """Dollars an hour of a machine with 8 cores and 32 GiB: four times that of an m7g.large on demand in us-east-1,
    0.0816, as listed in June 2026 (factualminds.com, "Amazon EC2 On-Demand Pricing")."""
    price_gpu: float = 1.006
    """Likewise a g5.xlarge: 4 cores, 16 GiB and one A10G."""
    price_get: float = 0.0004 / 1000
    """Dollars of a request to object storage."""
    bandwidth: float = 0.3e9
    """Bytes a second of a machine, sustained, to storage and to other machines."""
    latency: float = 50e-6
    """Seconds of a message between machines of one zone, by TCP."""
    get: float = 0.05
    """Seconds until object storage answers."""
    spread: float = 0.1
    """Standard deviation of the logarithm of a step's time."""
    stall: float = 0.01
    """Times in a second of work that a process stands still for a second: another program, memory, the network."""
    lifetime: float = 30 * 24.0
    """Hours after which a machine fails, on average."""
    restart: float = 5 / 60
    """Hours to replace it and begin anew."""
    checkpoint: float = 10 / 60
    """Hours between two checkpoints, which take a second."""
    start: float = 30.0
    """Seconds until processes on all machines have begun."""


def measure() -> dict[str, Any]:
    """Rates of one core, and steps of one and two processes."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS))
    names = [f"x{i}" for i in range(COLUMNS)]
    reg = DensityRegressor(epochs=2, members=0, random_state=0, verbose=False)
    reg.fit(pa.table({name: x[:4000, i] for i, name in enumerate(names)}), x[:4000, 0] * x[:4000, 1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        pq.write_table(pa.table({name: x[:, i] for i, name in enumerate(names)}), path, use_dictionary=False)
        table = open_table(path)
        (part,) = table.parts
        read = seconds(lambda: sum(len(rows) for rows in part.chunks(65_536, names)))
        score = seconds(lambda: sum(len(batch.table) for batch, _ in stream_predictions(reg, table, 0.9)))
        feed = seconds(lambda: [rows_of(rows, names) for rows in part.chunks(65_536, names)]) - read
        size = path.stat().st_size
    network = reg.model_.float().train()
    few, many = (seconds(lambda rows=rows: train(network, 60, rows)) / 60 for rows in (16, BATCH))
    by_row = (many - few) / (BATCH - 16)
    return {
        "machine": machine() | {"load": os.getloadavg()[0]},
        "columns": COLUMNS,
        "bytes a row on disk": size / ROWS,
        "rows read a processor second": ROWS / read,
        "rows shuffled a processor second": ROWS / feed,
        "rows scored a processor second": ROWS / score,
        "rows of a mini-batch": BATCH,
        "parameters": sum(p.numel() for p in network.parameters()),
        "processor seconds of a step": few - 16 * by_row,
        "processor seconds of a row in a step": by_row,
        **two_processes(),
    }


def seconds(function: Any) -> float:
    """Processor seconds of the quickest of three calls."""
    found = []
    for _ in range(3):
        start = time.process_time()
        function()
        found.append(time.process_time() - start)
    return min(found)


def rows_of(rows: pa.Table, names: list[str]) -> list[np.ndarray]:
    """Shuffled mini-batches, (1024, 20) each, of the rows of a table."""
    x = np.empty((len(rows), len(names)), np.float32)
    for i, name in enumerate(names):
        x[:, i] = rows.column(name).to_numpy()
    order = np.random.default_rng(0).permutation(len(x))
    return [x[order[start : start + BATCH]] for start in range(0, len(x), BATCH)]


def train(network: torch.nn.Module, count: int, rows: int = BATCH, *, group: bool = False) -> list[float]:
    """Steps of training by the negative log-likelihood, as the default network's; seconds of each by the clock."""
    encoder, head = network.encoder, network.head.linear
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    x, y = torch.randn(rows, COLUMNS), torch.randn(rows)
    found = []
    for _ in range(count):
        start = time.perf_counter()
        out = head(encoder(x))
        mean, log_std = out[:, 0], out[:, 1].clamp(-5, 5)
        loss = (log_std + 0.5 * ((y - mean) * torch.exp(-log_std)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        if group:
            average(parameters)
        optimizer.step()
        found.append(time.perf_counter() - start)
    return found


def average(parameters: list[torch.nn.Parameter]) -> None:
    """Average gradients over processes, all in one message."""
    given = [p for p in parameters if p.grad is not None]
    flat = torch.cat([p.grad.flatten() for p in given])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, part in zip(given, flat.split([p.numel() for p in given]), strict=True):
        p.grad.copy_(part.view_as(p))


def two_processes() -> dict[str, list[float]]:
    """Seconds of each step, by the clock: of one process while the other waits, of averaging alone, and of both."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(process, (folder,), nprocs=2)
        return json.loads((Path(folder) / "found.json").read_text())


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    x = np.random.default_rng(0).normal(size=(2000, COLUMNS))
    reg = DensityRegressor(epochs=1, members=0, random_state=0, verbose=False).fit(x, x[:, 0])
    network = reg.model_.float().train()
    found: dict[str, list[float]] = {"one process": [], "averaging": [], "two processes": []}
    train(network, 10, group=True)
    # By turns, as others may use the machine.
    for _ in range(ROUNDS):
        found["one process"] += train(network, STEPS) if rank == 0 else []
        dist.barrier()
        for _ in range(STEPS):
            start = time.perf_counter()
            average([p for p in network.parameters() if p.grad is not None])
            found["averaging"].append(time.perf_counter() - start)
        found["two processes"] += train(network, STEPS, group=True)
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def exchange(kind: str, processes: int, size: float, given: Assumed) -> float:
    """Seconds to average gradients of `size` bytes over processes: in a ring, or in a tree (doubling and halving)."""
    if processes == 1:
        return 0.0
    moved = 2 * size * (processes - 1) / processes
    messages = 2 * (processes - 1) if kind == "ring" else 2 * math.ceil(math.log2(processes))
    # The processes of a machine share its line; one of them has the neighbour on the next machine.
    return messages * given.latency + moved / given.bandwidth


@dataclass(frozen=True)
class Design:
    """How a pass over the rows is divided among processes.

    `all_read`: each process reads all rows and takes its part of each mini-batch; else it reads row groups of its own.
    `together` are the rows of a step in all; None for 1,024 of each process. `by` is how gradients are averaged.
    """

    name: str
    all_read: bool
    together: int | None
    by: str


DESIGNS = (
    Design("as built: each reads all, 2,048 rows a step", True, 2048, "ring"),
    Design("each reads its part, 2,048 rows a step", False, 2048, "ring"),
    Design("each reads its part, 1,024 rows a process, ring", False, None, "ring"),
    Design("each reads its part, 1,024 rows a process, tree", False, None, "tree"),
)
MACHINES = (1, 2, 4, 8, 16, 32, 64, 128)


def fit(rates: dict[str, Any], machines: int, design: Design, given: Assumed, rows: float = 1e9) -> dict[str, Any]:
    """Seconds of a step by what they go to, and hours and dollars of a fit, one process for each core."""
    rng = np.random.default_rng(0)
    processes = machines * given.cores
    together = design.together or BATCH * processes
    own = together / processes
    read_rows = together if design.all_read else own
    read = read_rows / rates["rows read a processor second"] + own / rates["rows shuffled a processor second"]
    network = rates["processor seconds of a step"] + own * rates["processor seconds of a row in a step"]
    drawn = rng.lognormal(-(given.spread**2) / 2, given.spread, (2000, processes))
    work = drawn * (network + read) + (rng.random(drawn.shape) < given.stall * (network + read))
    wait = float(work.max(axis=1).mean()) - network - read
    sent = exchange(design.by, processes, 4 * rates["parameters"], given)
    # Storage is read ahead meanwhile; what does not keep up is waited for.
    fetched = read_rows * rates["bytes a row on disk"] * given.cores / given.bandwidth
    late = max(0.0, fetched - network - read - wait - sent)
    step = read + network + wait + sent + late
    steps_needed = rows / together
    alone = rows * max(1 / rates["rows read a processor second"], rates["bytes a row on disk"] / given.bandwidth)
    serial = (given.start + alone + given.sample) / 3600
    hours = serial + with_failures(steps_needed * step / 3600, machines, given)
    passes = processes if design.all_read else 1
    return {
        "design": design.name,
        "machines": machines,
        "step": {"reading": read, "network": network, "slowest": wait, "averaging": sent, "storage": late},
        "rows a step": together,
        "hours": hours,
        "hours of one machine while others wait": serial,
        "hours of the pass without failures": steps_needed * step / 3600,
        "TB from storage": (1 + passes) * rows * rates["bytes a row on disk"] / 1e12,
        "TB of gradients, each process": steps_needed * 8 * rates["parameters"] / 1e12,
        "dollars": hours * machines * given.price + (1 + passes) * rows / SLICE * given.price_get,
    }


def with_failures(hours: float, machines: int, given: Assumed, runs: int = 400) -> float:
    """Mean hours of work that goes back to its last checkpoint whenever one of the machines fails."""
    rng, found = np.random.default_rng(1), []
    every = given.checkpoint
    for _ in range(runs):
        clock = done = 0.0
        while done < hours:
            until = rng.exponential(given.lifetime / machines)
            cost = 1 + 1 / 3600 / every
            if (hours - done) * cost <= until:
                clock, done = clock + (hours - done) * cost, hours
            else:
                clock += until + given.restart
                done += math.floor(until / cost / every) * every
        found.append(clock)
    return float(np.mean(found))


def score(rates: dict[str, Any], machines: int, given: Assumed, rows: float = 1e9) -> dict[str, Any]:
    """Hours and dollars of scoring: a queue of slices, some of which are begun again on another machine."""
    rng = np.random.default_rng(2)
    workers = machines * given.cores
    slices = math.ceil(rows / SLICE)
    work = SLICE / rates["rows scored a processor second"]
    # Read and written again with six columns more.
    moved = SLICE * rates["bytes a row on disk"] * (1 + (COLUMNS + 6) / COLUMNS)
    each = max(work, moved * given.cores / given.bandwidth) + 2 * given.get
    free = [given.start] * workers
    heapq.heapify(free)
    end = 0.0
    for _ in range(slices):
        begun = heapq.heappop(free)
        took = each * rng.lognormal(-(given.spread**2) / 2, given.spread)
        if rng.random() < took / 3600 / given.lifetime:
            took += given.restart * 3600 + each
        heapq.heappush(free, begun + took)
        end = max(end, begun + took)
    return {
        "machines": machines,
        "hours": end / 3600,
        "TB read and written": slices * moved / 1e12,
        "bound by": "network" if moved * given.cores / given.bandwidth > work else "processors",
        "dollars": end / 3600 * machines * given.price + 2 * slices * given.price_get,
    }


def checked(rates: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Milliseconds of a step of two processes, measured, and predicted as `fit` does: median, and quickest tenth.

    Predicted is the slower of two draws from the steps of one process, and the averaging that two measured alone.
    """
    rng = np.random.default_rng(3)
    own, alone = np.array(rates["one process"]), np.array(rates["averaging"])
    predicted = rng.choice(own, (20_000, 2)).max(axis=1) + rng.choice(alone, 20_000)
    times = {
        "one process": own,
        "averaging alone": alone,
        "two processes, predicted": predicted,
        "two processes, measured": np.array(rates["two processes"]),
    }
    levels = {"median": 0.5, "quickest tenth": 0.1}
    return {
        name: {level: 1e3 * float(np.quantile(each, q)) for level, q in levels.items()} for name, each in times.items()
    }


def seconds_of_sample(disk: dict[str, Any]) -> float:
    """What a fit from disk to a million rows takes besides the rows that stream, of which there are `FEWEST_ROWS`."""
    streamed = FEWEST_ROWS / disk["loops"]["streaming step"]["rows a processor second"]
    return float(disk["from disk"]["1000000"]["processor seconds"] - streamed)


def plan(rates: dict[str, Any], disk: dict[str, Any], out: Path, images: Path | None) -> None:
    given = Assumed(seconds_of_sample(disk))
    fits = [fit(rates, count, design, given) for design in DESIGNS for count in MACHINES]
    scores = [score(rates, count, given) for count in MACHINES]
    figures = {"assumed": asdict(given), "two processes, milliseconds": checked(rates), "fit": fits, "score": scores}
    finish(figures, out / "plan.json")
    if images is not None:
        from _scale_figures import draw

        draw(fits, scores, [design.name for design in DESIGNS], images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "plan"])
    parser.add_argument("--json", type=Path, default=Path("docs/results/scale/rates.json"))
    parser.add_argument("--rates", type=Path, default=Path("docs/results/scale/rates.json"))
    parser.add_argument("--disk", type=Path, default=Path("docs/results/speed/disk.json"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/scale"))
    parser.add_argument("--images", type=Path)
    args = parser.parse_args()
    if args.what == "measure":
        finish(measure(), args.json)
    else:
        plan(json.loads(args.rates.read_text()), json.loads(args.disk.read_text()), args.out, args.images)


if __name__ == "__main__":
    main()
