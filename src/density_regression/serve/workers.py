"""Several processes on one port: started, and started again when one dies."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Final

from density_regression.serve.settings import Settings

__all__ = ["Supervisor"]

log = logging.getLogger(__name__)

QUICK: Final = 5.0
"""Seconds after its start within which a process that ends has failed to start."""

MOST_FAILURES: Final = 5
"""Processes in a row that may fail to start."""

LONGEST: Final = 90.0
"""Seconds that processes have to end, before they are killed."""


class Supervisor:
    """Keeps so many processes at work that listen at one address, until SIGTERM or Ctrl-C."""

    def __init__(self, settings: Settings, address: tuple[str, int], workers: int) -> None:
        self._settings = settings
        self._address = address
        self._count = workers
        self._context = multiprocessing.get_context("spawn")
        self._ending = False
        self._failures = 0
        self._started: dict[SpawnProcess, tuple[int, float]] = {}

    def run(self) -> None:
        """Work; a RuntimeError if processes fail to start again and again."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        with tempfile.TemporaryDirectory() as folder:
            self._settings = replace(self._settings, exchange=Path(folder))
            for worker in range(self._count):
                self._start(worker)
            while not self._ending and self._failures < MOST_FAILURES:
                wait([process.sentinel for process in self._started], timeout=0.5)
                self._replace_dead()
            self._finish()
        if self._failures >= MOST_FAILURES:
            raise RuntimeError(f"{self._failures} processes in a row failed to start: see the log.")

    def _end(self, _number: int, _frame: Any) -> None:
        self._ending = True

    def _start(self, worker: int) -> None:
        settings = replace(self._settings, worker=worker)
        process = self._context.Process(target=_work, args=(settings, self._address))
        process.start()
        self._started[process] = worker, time.monotonic()
        log.info("process started", extra={"worker": worker, "pid": process.pid})

    def _replace_dead(self) -> None:
        for process in [process for process in self._started if not process.is_alive()]:
            worker, start = self._started.pop(process)
            log.error("process ended", extra={"worker": worker, "pid": process.pid, "status": process.exitcode})
            self._failures = self._failures + 1 if time.monotonic() - start < QUICK else 0
            if not self._ending and self._failures < MOST_FAILURES:
                self._start(worker)

    def _finish(self) -> None:
        for process in self._started:
            process.terminate()
        end = time.monotonic() + LONGEST
        for process in self._started:
            process.join(max(end - time.monotonic(), 0.0))
            if process.is_alive():
                process.kill()


def _work(settings: Settings, address: tuple[str, int]) -> None:
    """One process; it ends with its parent."""
    from density_regression.serve.run import bind, serve_here

    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    serve_here(settings, bind(*address, shared=True))
