"""One process and several, and the CPU and a GPU: the same fits, how much they differ, and how long they take.

    python benchmarks/devices.py [--rows 200000] [--epochs 20] [--width 256] [--devices 2] [--json FILE]
    python benchmarks/devices.py --gpu

The default with its teacher on made-up rows of twenty columns, by one process on the CPU; by `--devices` processes on
the CPU, which have an equal part of its threads each, and which this script starts; with `--gpu` by one process on a
GPU, and, where there are several, by as many as there are. Same rows and seeds. Differences are those of 10,000 test
rows from the model of one process on the CPU: of mean and log standard deviation, in standard deviations and in nats,
and of mean negative log-likelihood and RMSE. Training amplifies rounding, so one process is also fitted to inputs that
are moved by about 1e-7 of their size, as rounding to float32 does: that is the scale to judge differences by.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _timing import finish, machine
from sklearn.datasets import make_friedman1

from density_regression import DensityRegressor, metrics

COLUMNS = 20
TEST_ROWS = 10_000


def fit(arguments: argparse.Namespace, device: str, devices: int, moved: float = 0.0) -> dict[str, Any]:
    """Seconds of each step, and mean and standard deviation of the test rows; inputs may be moved by a share."""
    X, y = make_friedman1(arguments.rows + TEST_ROWS, COLUMNS, noise=1.0, random_state=0)
    X = X * (1.0 + moved * np.random.default_rng(0).standard_normal(X.shape))
    train, test = slice(arguments.rows), slice(arguments.rows, None)
    regressor = DensityRegressor(
        hidden=(arguments.width, arguments.width),
        epochs=arguments.epochs,
        device=device,
        devices=devices,
        n_threads=max(arguments.threads // devices, 1),
        random_state=0,
    )
    start = time.perf_counter()
    regressor.fit(X[train], y[train])
    seconds = time.perf_counter() - start
    mean, std = regressor.predict(X[test], return_std=True)
    quality = {"nll": float(metrics.nll(y[test], mean, std)), "rmse": float(metrics.rmse(y[test], mean))}
    return {"seconds": {"fit": seconds, **regressor.report_.seconds}, **quality, "mean": mean, "std": std}


def fit_in_processes(arguments: argparse.Namespace, device: str, devices: int) -> dict[str, Any]:
    """Likewise by so many processes, which run this script."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    several = {"WORLD_SIZE": devices, "LOCAL_WORLD_SIZE": devices, "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1"}
    shared = {**os.environ, "GROUP_RANK": "0", **{name: str(value) for name, value in several.items()}}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.npz"
        given = ("--rows", "--epochs", "--width", "--threads")
        options = [text for name in given for text in (name, str(getattr(arguments, name[2:])))]
        command = [sys.executable, __file__, *options, "--devices", str(devices), "--child", device, str(out)]
        started = [
            subprocess.Popen(command, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(devices)
        ]
        if any([process.wait() for process in started]):
            raise SystemExit(f"The fit by {devices} processes failed.")
        found = dict(np.load(out))
    seconds = dict(zip(found.pop("steps").tolist(), found.pop("seconds").tolist(), strict=True))
    return {**found, "seconds": seconds, "nll": float(found["nll"]), "rmse": float(found["rmse"])}


def write(found: dict[str, Any], out: Path) -> None:
    """Of one of several processes: only the first one's."""
    if os.environ["RANK"] == "0":
        steps = found.pop("seconds")
        np.savez(out, **found, steps=list(steps), seconds=list(steps.values()))


def differences(found: dict[str, Any], reference: dict[str, Any]) -> dict[str, float]:
    """Of predictions from those of the reference."""
    gap = np.abs(found["mean"] - reference["mean"]) / reference["std"]
    log_std = np.abs(np.log(found["std"]) - np.log(reference["std"]))
    return {
        "largest of mean, in standard deviations": float(gap.max()),
        "median of mean, in standard deviations": float(np.median(gap)),
        "largest of log standard deviation": float(log_std.max()),
        "nll": found["nll"] - reference["nll"],
        "rmse": found["rmse"] - reference["rmse"],
    }


def parsed() -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of the CPU, in all")
    parser.add_argument("--devices", type=int, default=2, help="processes on the CPU; 1 leaves that out")
    parser.add_argument("--gpu", action="store_true", help="also on a GPU")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Fit by each way, and print."""
    arguments = parsed()
    if arguments.child:
        write(fit(arguments, arguments.child[0], arguments.devices), Path(arguments.child[1]))
        return
    ways: list[tuple[str, str, int]] = [("one process on the CPU", "cpu", 1)]
    if arguments.devices > 1:
        ways.append((f"{arguments.devices} processes on the CPU", "cpu", arguments.devices))
    if arguments.gpu:
        ways.append(("one GPU", "cuda", 1))
        if torch.cuda.device_count() > 1:
            ways.append((f"{torch.cuda.device_count()} GPUs", "cuda", torch.cuda.device_count()))
    figures: dict[str, Any] = {"machine": machine(), "load": os.getloadavg()[0]}
    figures |= {"gpu": torch.cuda.get_device_name()} if arguments.gpu else {}
    figures |= {name: getattr(arguments, name) for name in ("rows", "epochs", "width", "threads")}
    reference: dict[str, Any] | None = None
    for name, device, devices in ways:
        found = fit(arguments, device, devices) if devices == 1 else fit_in_processes(arguments, device, devices)
        reference = reference or found
        figures[name] = {"seconds": found["seconds"], "nll": found["nll"], "rmse": found["rmse"]}
        if found is not reference:
            figures[name]["differences"] = differences(found, reference)
        if reference is found:
            again = fit(arguments, "cpu", 1, moved=1e-7)
            figures["the same, inputs moved by 1e-7"] = {"differences": differences(again, reference)}
    finish(figures, arguments.json)


if __name__ == "__main__":
    main()
