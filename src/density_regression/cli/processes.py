"""Several processes of one command: started, watched, and ended together."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import typer

from density_regression.cli.errors import fail

__all__ = ["is_first", "is_launched", "lost", "run_in_processes"]

CHILD: Final = "DENSITY_REGRESSION_CHILD"
"""Environment variable that tells a process that a command has started it."""

LOST_EXIT: Final = 75
"""Exit code of a process that has lost another one, which is then the one to name."""

LONGEST_END: Final = 10.0
"""Seconds that the others have to end by themselves once one has failed."""


def is_launched() -> bool:
    """Whether this process is one of several that a command, or torchrun, has started."""
    return {"RANK", "LOCAL_RANK", "WORLD_SIZE"} <= os.environ.keys()


def lost(error: Exception) -> NoReturn:
    """End a process that has lost another one; a command that has started both will say which."""
    if CHILD in os.environ:
        raise typer.Exit(LOST_EXIT) from None
    fail(str(error))


def is_first() -> bool:
    """Whether this process is to write files and to print: the only one, or the first of those started together."""
    return os.environ.get("RANK", "0") == "0"


def run_in_processes(devices: int, num_nodes: int, checkpoint_dir: Path | None, threads: int | None) -> None:
    """Run this command again in so many processes on this machine, and wait for them.

    Raises typer.Exit if one fails, after the others have ended.
    """
    processes = [
        subprocess.Popen([sys.executable, "-m", "density_regression", *sys.argv[1:]], env=environment)
        for environment in _environments(devices, num_nodes, threads)
    ]
    try:
        failed = _first_to_fail(processes)
    except KeyboardInterrupt:
        # All of them were interrupted, and the first one says how to go on.
        _end(processes)
        raise typer.Exit(130) from None
    finally:
        _end(processes)
    if failed is None:
        return
    code = processes[failed].returncode
    if code == 130:
        raise typer.Exit(130)
    if code > 0 and code != LOST_EXIT and failed == 0:
        # It has said why.
        raise typer.Exit(code)
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
    hint = "give --checkpoint-dir, and the same command goes on from there"
    if checkpoint_dir is not None:
        hint = f"the same command goes on from what is in {checkpoint_dir}"
    fail(f"Process {failed + 1} of {devices} on this machine {how}, and the others were stopped: {hint}.")


def _environments(devices: int, num_nodes: int, threads: int | None) -> list[dict[str, str]]:
    """Environments of the processes on this machine, as torchrun sets them."""
    node = int(os.environ.get("NODE_RANK", "0"))
    if num_nodes > 1 and not {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK"} <= os.environ.keys():
        fail(
            f"--num-nodes {num_nodes}: set MASTER_ADDR and MASTER_PORT to the address of the first machine and a free "
            "port of it, and NODE_RANK to the number of this machine, from 0; or start the command by torchrun."
        )
    if not 0 <= node < num_nodes:
        fail(f"NODE_RANK is {node}, but must be from 0 to {num_nodes - 1} for --num-nodes {num_nodes}.")
    shared = {
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "TORCH_CPP_LOG_LEVEL": "ERROR"},
        **os.environ,
        **{"WORLD_SIZE": str(devices * num_nodes), "LOCAL_WORLD_SIZE": str(devices), "GROUP_RANK": str(node)},
        CHILD: "1",
    }
    if threads is None:
        # Each would take all cores for itself.
        shared.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // devices, 1)))
    return [{**shared, "RANK": str(node * devices + i), "LOCAL_RANK": str(i)} for i in range(devices)]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _first_to_fail(processes: list[subprocess.Popen[bytes]]) -> int | None:
    """Number of the process that failed first; None when all have ended well."""
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes):
            break
        time.sleep(0.1)
    failed = [i for i, process in enumerate(processes) if process.poll()]
    if not failed:
        return None
    until = time.monotonic() + LONGEST_END
    while all(processes[i].returncode == LOST_EXIT for i in failed) and time.monotonic() < until:
        # One that lost another may have ended before it is seen that the other has.
        time.sleep(0.1)
        failed = [i for i, process in enumerate(processes) if process.poll()]
    return min(failed, key=lambda i: (processes[i].returncode == LOST_EXIT, i))


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait for processes to end by themselves for a while, then end them."""
    until = time.monotonic() + LONGEST_END
    for stop in (None, signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if stop is not None and process.poll() is None:
                process.send_signal(stop)
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.5))
