"""Several processes of one command: started, watched, and ended together."""

import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final, NoReturn

import typer

from density_regression.cli.errors import fail

__all__ = ["is_first", "is_launched", "lost", "run_in_processes"]

CHILD: Final = "DENSITY_REGRESSION_CHILD"
"""Environment variable that tells a process that a command has started it."""

LOST_EXIT: Final = 75
"""Exit code of a process that has lost another one, which is then the one to name."""

LONGEST_END: Final = 5.0
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

    If one fails the others are ended, and a line says which one failed, and how to go on.
    """
    command = [sys.executable, "-m", "density_regression", *sys.argv[1:]]
    environments = _environments(devices, num_nodes, threads)
    with ExitStack() as stack:
        # The first one shows the progress; what the others have to say is mostly the same.
        errors = [None, *(stack.enter_context(tempfile.TemporaryFile()) for _ in range(devices - 1))]
        processes = [
            subprocess.Popen(command, env=environment, stdout=file and subprocess.DEVNULL, stderr=file)
            for file, environment in zip(errors, environments, strict=True)
        ]
        try:
            codes = _wait(processes)
        except KeyboardInterrupt:
            # All of them were interrupted, and the first one says how to go on.
            _end(processes, patience=LONGEST_END)
            raise typer.Exit(130) from None
        finally:
            _end(processes)
        if not any(codes):
            return
        if codes[0] and codes[0] > 0 and codes[0] != LOST_EXIT:
            # It has said why.
            raise typer.Exit(codes[0])
        fail(f"{_what_happened(codes, errors)}, and the others were stopped: {_how_to_go_on(checkpoint_dir)}.")


def _what_happened(codes: list[int | None], errors: Sequence[IO[bytes] | None]) -> str:
    """Which process has failed, and how."""
    failed = next((i for i, code in enumerate(codes) if code not in (None, 0, LOST_EXIT)), None)
    if failed is None:
        return "A process on another machine has ended"
    code, file = codes[failed] or 0, errors[failed]
    named = f"Process {failed + 1} of {len(codes)} on this machine"
    if code < 0 or file is None:
        return f"{named} was ended by {signal.Signals(-code).name}"
    file.seek(0)
    said = file.read().decode(errors="replace").strip().splitlines() or [f"exit code {code}"]
    return f"{named} has failed ({said[-1]})"


def _how_to_go_on(checkpoint_dir: Path | None) -> str:
    if checkpoint_dir is None:
        return "give --checkpoint-dir, and the same command goes on from there"
    return f"the same command goes on from what is in {checkpoint_dir}"


def _wait(processes: list[subprocess.Popen[bytes]]) -> list[int | None]:
    """Wait for processes to end, or, once one has failed, a while for the others; returns their exit codes."""
    until = math.inf
    while None in (codes := [process.poll() for process in processes]) and time.monotonic() < until:
        if until == math.inf and any(codes):
            until = time.monotonic() + LONGEST_END
        time.sleep(0.05)
    return codes


def _end(processes: list[subprocess.Popen[bytes]], patience: float = 0.0) -> None:
    """End processes that still run, once they have had some seconds to end by themselves."""
    for stop, seconds in ((None, patience), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
        running = [process for process in processes if process.poll() is None]
        until = time.monotonic() + seconds
        for process in running:
            if stop is not None:
                process.send_signal(stop)
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.01))


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
