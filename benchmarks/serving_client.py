"""What the benchmarks of the server share: a server as a process, and a client of raw sockets."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE = 120.0


class Lost(Exception):  # noqa: N818 - of the connection
    """A request that was sent, and to which there was no whole answer."""


class Connection:
    """An HTTP connection that stays open; it is opened when it is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to a whole request.

        OSError if nothing could be sent; Lost if there was no whole answer to what was sent.
        """
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket.sendall(request)
            return self._answer()
        except OSError as error:
            self.close()
            raise Lost(f"{type(error).__name__}") from None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _answer(self) -> tuple[int, bytes]:
        assert self._socket is not None
        content = b""
        while b"\r\n\r\n" not in content:
            content += self._part()
        head, _, body = content.partition(b"\r\n\r\n")
        head = head.lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self._part()
        if b"connection: close" in head:
            self.close()
        return int(head[9:12]), body

    def _part(self) -> bytes:
        assert self._socket is not None
        if not (part := self._socket.recv(65_536)):
            raise ConnectionResetError
        return part


def request_of(path: str, body: bytes, **headers: str) -> bytes:
    """A whole POST request."""
    given = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body))}
    lines = [f"{name}: {value}" for name, value in {**given, **headers}.items()]
    return f"POST {path} HTTP/1.1\r\n".encode() + "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Server:
    """A server as a process, ready; `lines` is what it has logged."""

    def __init__(self, *arguments: str) -> None:
        start = time.perf_counter()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.lines: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.port = int(self.wait_for("starting")["port"])
        while self._status() != 200:
            time.sleep(0.005)
        self.ready_after = round(time.perf_counter() - start, 3)

    def wait_for(self, message: str, count: int = 1) -> dict[str, Any]:
        """The last of so many lines with a message."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = [line for line in self.lines if line["message"] == message]
            if len(found) >= count:
                return found[count - 1]
            time.sleep(0.005)
        raise TimeoutError(f"no line {message!r}; exit status {self.process.poll()}")

    def requests(self, route: str) -> list[int]:
        """Statuses of all requests that the server has logged."""
        return [line["status"] for line in self.lines if line["message"] == "request" and line["route"] == route]

    def memory(self) -> int:
        """Resident memory of the process and its children, in bytes."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in [self.process.pid, *children]]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(json.loads(line))

    def _status(self) -> int:
        try:
            return Connection(self.port).ask(b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n")[0]
        except (OSError, Lost):
            return 0


@contextmanager
def process(*arguments: str) -> Iterator[Server]:
    """A server that is ended afterwards."""
    server = Server(*arguments)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.terminate()
        server.process.wait(PATIENCE)


class Told(NamedTuple):
    """What one connection has to tell."""

    latencies: list[float]
    statuses: list[int]
    lost: int
    refused: int


def ask_on(port: int, request: bytes, until: Callable[[], bool], check: Callable[[bytes], None] | None = None) -> Told:
    """Ask over one connection again and again; after a failed connection wait a little."""
    connection, told = Connection(port), Told([], [], 0, 0)
    while not until():
        start = time.perf_counter()
        try:
            status, body = connection.ask(request)
        except Lost:
            told = told._replace(lost=told.lost + 1)
            continue
        except OSError:
            told = told._replace(refused=told.refused + 1)
            time.sleep(0.01)
            continue
        told.latencies.append(time.perf_counter() - start)
        told.statuses.append(status)
        if check is not None:
            check(body)
    connection.close()
    return told


def ask_on_all(port: int, request: bytes, until: Callable[[], bool], connections: int, **more: Any) -> list[Told]:
    """The same over several connections at once, in threads."""
    told: list[Told] = []
    threads = [
        threading.Thread(target=lambda: told.append(ask_on(port, request, until, **more))) for _ in range(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def load(server: Server, path: str, body: Any, seconds: float, connections: int) -> dict[str, Any]:
    """Requests a second, latencies, errors and memory, by a client that is a process of its own: this file."""
    request = request_of(path, json.dumps(body).encode())
    # What is made once in the server is made before it is measured.
    ask_on_all(server.port, request, _for(1.0), connections)
    command = [sys.executable, __file__, str(server.port), str(seconds), str(connections)]
    memory = []
    with tempfile.TemporaryFile() as output:
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output)
        assert client.stdin is not None
        client.stdin.write(request)
        client.stdin.close()
        while client.poll() is None:
            memory.append(server.memory())
            time.sleep(min(1.0, seconds / 20))
        output.seek(0)
        told = [Told(*part) for part in json.loads(output.read())]
    latencies = sorted(1e3 * value for part in told for value in part.latencies)
    cuts = statistics.quantiles(latencies, n=1000)
    return {
        "seconds": seconds,
        "requests": len(latencies),
        "errors": sum(part.lost + part.refused + sum(status != 200 for status in part.statuses) for part in told),
        "requests a second": round(len(latencies) / seconds, 1),
        "p50, ms": round(cuts[499], 3),
        "p99, ms": round(cuts[989], 3),
        "p99.9, ms": round(cuts[998], 3),
        "memory": memory,
    }


def memory_growth(memory: list[int]) -> float:
    """Growth in the second half: the mean of the last tenth over that of the tenth after the middle, less one."""
    tenth = max(len(memory) // 10, 1)
    middle = memory[len(memory) // 2 : len(memory) // 2 + tenth]
    return round(statistics.mean(memory[-tenth:]) / statistics.mean(middle) - 1.0, 5)


def _for(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


if __name__ == "__main__":
    _port, _seconds, _connections = (float(value) for value in sys.argv[1:])
    print(json.dumps(ask_on_all(int(_port), sys.stdin.buffer.read(), _for(_seconds), int(_connections))))
