"""Malformed requests, drawn from a seed, and slow clients: no 5xx, no growth of memory, no trace of the code shown."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving_client import Connection, Lost, memory_growth, process, request_of

INFER, INVOCATIONS = "/v2/models/price/infer", "/invocations"
COLUMNS = 10
ODD: tuple[Any, ...] = (
    *(None, True, False, "", "a", "1.5", [], {}, [[]], [None], {"a": 1}, -1, 0, 1e308, -1e308, 2**63, 10**400),
    *(float("nan"), float("inf"), -float("inf"), "é" * 50, "\x00", "x" * 10_000, "2026-02-30", [1] * 1000),
)
SLOW = 20


def abuse(model: Path, bodies: int) -> dict[str, Any]:
    """Send all, and tell what came back."""
    rng = random.Random(0)
    statuses: Counter[int] = Counter()
    shown = lost = 0
    memory = []
    arguments = ["serve", str(model), "--port", "0", "--timeout", "2", "--max-body", "1"]
    with process("-m", "density_regression", *arguments) as server:
        slow = [threading.Thread(target=_slow, args=(server.port, i)) for i in range(SLOW)]
        for thread in slow:
            thread.start()
        connection = Connection(server.port)
        for i in range(bodies):
            try:
                status, answer = connection.ask(_malformed(rng))
            except Lost:
                lost += 1
                continue
            statuses[status] += 1
            shown += b"Traceback" in answer or b".py" in answer
            if i % 50 == 0:
                memory.append(server.memory())
        for thread in slow:
            thread.join()
        connection.close()
        still = Connection(server.port).ask(b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n")[0]
    errors = [line for line in server.lines if line["level"] == "error"]
    return {
        "bodies": bodies,
        "slow clients": SLOW,
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "5xx": sum(count for status, count in statuses.items() if status >= 500),
        "connections closed without an answer": lost,
        "answers that show code": shown,
        "errors in the log": len(errors),
        "memory growth in the second half": memory_growth(memory),
        "ready afterwards": still == 200,
        "exit status": server.process.returncode,
    }


def _malformed(rng: random.Random) -> bytes:
    return rng.choice(KINDS)(rng)


def _row(rng: random.Random) -> list[Any]:
    return [round(rng.random(), 3) for _ in range(COLUMNS)]


def _odd_values(rng: random.Random) -> bytes:
    """A good request with a value replaced, somewhere."""
    request = _good(rng)
    place: Any = request
    while True:
        key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        inside = place[key]
        if not isinstance(inside, dict | list) or not inside or rng.random() < 0.3:
            break
        place = inside
    place[key] = rng.choice(ODD)
    return _sent(rng, json.dumps(request).encode())


def _good(rng: random.Random) -> dict[str, Any]:
    tensor = {"name": "X", "shape": [1, COLUMNS], "datatype": "FP64", "data": _row(rng)}
    return rng.choice(
        [
            {"inputs": [tensor], "outputs": [{"name": "mean"}], "parameters": {"coverage": 0.9}},
            {"inputs": [{"name": str(i), "shape": [1], "datatype": "FP64", "data": [0.5]} for i in range(COLUMNS)]},
            {"dataframe_split": {"columns": [str(i) for i in range(COLUMNS)], "data": [_row(rng)]}},
            {"dataframe_records": [{str(i): 0.5 for i in range(COLUMNS)}], "params": {"coverage": 0.9}},
            {"instances": [_row(rng), _row(rng)]},
        ]
    )


def _sent(rng: random.Random, body: bytes) -> bytes:
    return request_of(rng.choice([INFER, INVOCATIONS]), body)


def _truncated(rng: random.Random) -> bytes:
    body = json.dumps(_good(rng)).encode()
    return _sent(rng, body[: rng.randrange(len(body))])


def _flipped(rng: random.Random) -> bytes:
    body = bytearray(json.dumps(_good(rng)).encode())
    for _ in range(rng.randint(1, 8)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return _sent(rng, bytes(body))


def _nested(rng: random.Random) -> bytes:
    depth = rng.choice([100, 1000, 100_000])
    sign = rng.choice([b"[", b'{"a":', b'{"inputs":['])
    return _sent(rng, sign * min(depth, 900_000 // len(sign)))


def _gigantic(rng: random.Random) -> bytes:
    what = rng.choice([b"1" * 900_000, b"[" + b"0," * 300_000 + b"0]", b'"' + b"a" * 1_500_000 + b'"', b"1e400"])
    return _sent(rng, b'{"inputs": [[' + what + b"]]}")


def _binary(rng: random.Random) -> bytes:
    """Tensors whose lengths are not as they say."""
    count = rng.randint(0, 3)
    datatype = rng.choice(["FP64", "FP32", "INT64", "BOOL", "BYTES", "FP16", "UINT8"])
    content = rng.randbytes(rng.choice([0, 1, 7, 8, 80, 160, 161]))
    if datatype == "BYTES":
        content = struct.pack("<I", rng.choice([0, 1, 2**31, 2**32 - 1])) + content
    size = rng.choice([len(content), len(content) + 1, 0, -1, 2**63, "8", None, 1.5])
    tensor = {"name": "X", "shape": [count, COLUMNS], "datatype": datatype, "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [tensor] * rng.randint(1, 2)}).encode()
    length = rng.choice([len(head), len(head) - 1, len(head) + 1, 0, -1, 10**20, "x"])
    return request_of(INFER, head + content, **{"Inference-Header-Content-Length": str(length)})


def _csv(rng: random.Random) -> bytes:
    lines = [",".join(map(str, range(COLUMNS))), *(",".join(map(str, _row(rng))) for _ in range(3))]
    body = bytearray("\n".join(lines).encode())
    for _ in range(rng.randint(1, 5)):
        body[rng.randrange(len(body))] = rng.choice(b'",\n\r\0;x\xff')
    return request_of(INVOCATIONS, bytes(body), **{"content-type": "text/csv"})


def _random(rng: random.Random) -> bytes:
    return _sent(rng, rng.randbytes(rng.randrange(2000)))


KINDS: tuple[Callable[[random.Random], bytes], ...] = (
    *(_odd_values, _odd_values, _truncated, _flipped, _nested, _binary, _binary, _csv, _random),
    _gigantic,
)


def _slow(port: int, number: int) -> None:
    """A client that sends a byte now and then, in headers or in the body, and one that never reads."""
    head = b"POST /invocations HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n"
    end = time.monotonic() + 15
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(head + (b"\r\n" if number % 2 else b""))
            while time.monotonic() < end:
                client.sendall(b"{" if number % 2 else b"x")
                time.sleep(0.3)
    except OSError:
        # The server has ended the connection, as it should.
        return
