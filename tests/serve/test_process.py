"""The command as a process of its own: start, signals, several processes on one port."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from density_regression import DensityRegressor
from serve.helpers import columns_of, raw_table

ROW = json.dumps({"inputs": [[1.0, 2.0]]}).encode()
PATIENCE = 60.0


class Process:
    """A server, its port, and the lines that it has logged."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "density_regression", "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.port = self.line("starting")["port"]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(json.loads(line))

    def line(self, message: str, count: int = 1) -> dict[str, Any]:
        """The last of so many lines with a message, as soon as there are so many."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = [line for line in self.lines if line["message"] == message]
            if len(found) >= count:
                return found[count - 1]
            time.sleep(0.02)
        raise AssertionError(f"no line {message!r} in {self.lines}")

    def ask(self, path: str = "/invocations", body: bytes | None = ROW) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET" if body is None else "POST", path, body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content


@contextmanager
def process(*arguments: str) -> Iterator[Process]:
    started = Process(*arguments)
    try:
        yield started
    finally:
        started.process.terminate()
        try:
            started.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            started.process.kill()
            raise


def test_start_answer_and_end(numbers: DensityRegressor, raw: DensityRegressor, folder: Path) -> None:
    """SIGTERM while a request is being scored: it is answered, and the exit status is 0."""
    with process(str(folder / "numbers"), str(folder / "raw")) as server:
        server.line("ready")
        status, content = server.ask("/models/numbers/invocations")
        assert status == 200
        (found,) = json.loads(content)["predictions"]
        assert found["mean"] == pytest.approx(numbers.predict([[1.0, 2.0]])[0], rel=1e-5)
        frame = raw_table(1)[0]
        status, content = server.ask("/models/raw/invocations", json.dumps({"inputs": columns_of(frame)}).encode())
        assert json.loads(content)["predictions"][0]["std"] == pytest.approx(
            raw.predict(frame, return_std=True)[1][0], rel=1e-5
        )
        answers: list[tuple[int, bytes]] = []
        large = json.dumps({"inputs": [[1.0, 2.0]] * 100_000}).encode()
        asking = threading.Thread(target=lambda: answers.append(server.ask("/models/numbers/invocations", large)))
        asking.start()
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        asking.join(PATIENCE)
        assert server.process.wait(PATIENCE) == 0
    ((status, content),) = answers
    assert status == 200
    assert len(json.loads(content)["predictions"]) == 100_000
    with pytest.raises(OSError):  # noqa: PT011 - refused or reset
        server.ask()


def test_several_processes(numbers: DensityRegressor, folder: Path) -> None:
    """One is killed: the others go on, another takes its place, and counts are those of all."""
    with process(str(folder / "numbers"), "--workers", "2") as server:
        server.line("ready", 2)
        pids = {server.line("process started", count)["pid"] for count in (1, 2)}
        assert len(pids) == 2
        os.kill(min(pids), signal.SIGKILL)
        assert server.line("process ended")["status"] == -signal.SIGKILL
        assert {server.ask()[0] for _ in range(20)} == {200}
        server.line("ready", 3)
        assert {server.ask()[0] for _ in range(20)} == {200}
        end = time.monotonic() + PATIENCE
        while (text := server.ask("/metrics", None)[1].decode()).count("start_timestamp_seconds{") < 2:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert 'worker="0"' in text
        assert 'worker="1"' in text
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0
    # All of them have ended.
    for pid in {line["process"] for line in server.lines}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
