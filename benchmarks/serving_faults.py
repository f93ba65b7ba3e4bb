"""Faults under load: SIGTERM, a process that is killed, and a model that is replaced."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from serving_client import PATIENCE, Server, Told, ask_on_all, process, request_of

from density_regression import DensityRegressor

ROWS = np.round(np.random.default_rng(0).uniform(size=(3, 10)), 3)
REQUEST = request_of("/invocations", json.dumps({"inputs": ROWS.tolist()}).encode())


class Load:
    """Requests over several connections, until it is stopped."""

    def __init__(self, server: Server, connections: int, **more: Any) -> None:
        self._stopped = threading.Event()
        self._told: list[Told] = []
        arguments = (server.port, REQUEST, self._stopped.is_set, connections)
        self._thread = threading.Thread(target=lambda: self._told.extend(ask_on_all(*arguments, **more)))
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        self._stopped.set()
        self._thread.join()
        return {
            "answered": sum(len(part.statuses) for part in self._told),
            "not 200": sum(status != 200 for part in self._told for status in part.statuses),
            "sent, but not answered": sum(part.lost for part in self._told),
            "refused": sum(part.refused for part in self._told),
        }


def serve(model: Path, *arguments: str) -> tuple[str, ...]:
    return ("-m", "density_regression", "serve", str(model), "--port", "0", *arguments)


def terminated(model: Path, connections: int, times: int = 10) -> dict[str, Any]:
    """SIGTERM under load: whatever the server has begun, it has answered; also with two processes."""
    figures = {}
    for workers in (1, 2):
        answered = lost = begun = failed = 0
        statuses = set()
        seconds = []
        for _ in range(times):
            with process(*serve(model, "--workers", str(workers))) as server:
                load = Load(server, connections)
                time.sleep(1.0)
                start = time.perf_counter()
                server.process.send_signal(signal.SIGTERM)
                statuses.add(server.process.wait(PATIENCE))
                seconds.append(time.perf_counter() - start)
                found = load.stop()
            answered += found["answered"]
            lost += found["sent, but not answered"]
            failed += found["not 200"]
            begun += len(server.requests("invocations"))
        figures[f"{workers} process{'es' * (workers > 1)}"] = {
            "times": times,
            "requests that the server began": begun,
            "answered": answered,
            "not 200": failed,
            "sent, but never begun": lost,
            "exit statuses": sorted(statuses),
            "longest end, s": round(max(seconds), 2),
        }
    return figures


def killed(model: Path, connections: int) -> dict[str, Any]:
    """Kill one of two: the requests on its connections are lost, and no others; it is replaced."""
    with process(*serve(model, "--workers", "2")) as server:
        pid = server.wait_for("process started")["pid"]
        server.wait_for("ready", 2)
        load = Load(server, connections)
        time.sleep(1.0)
        os.kill(pid, signal.SIGKILL)
        start = time.perf_counter()
        server.wait_for("ready", 3)
        seconds = time.perf_counter() - start
        time.sleep(1.0)
        found = load.stop()
    return {"connections": connections, **found, "replaced after, s": round(seconds, 2)}


def replaced(model: Path, models: list[DensityRegressor], times: int, connections: int) -> dict[str, Any]:
    """Put two models in the place of each other: every answer is of one of them, and of one alone."""
    expected: dict[str, np.ndarray] = {}
    for regressor in models:
        regressor.save(model)
        version = json.loads((model / "model.json").read_bytes())["sha256"][:16]
        expected[version] = regressor.predict(ROWS)
    mixed: list[str] = []
    seen: set[str] = set()

    def check(body: bytes) -> None:
        answer = json.loads(body)
        means = [row["mean"] for row in answer["predictions"]]
        if not np.allclose(means, expected[answer["model_version"]], rtol=1e-5):
            mixed.append(answer["model_version"])
        seen.add(answer["model_version"])

    seconds = []
    with process(*serve(model, "--reload-every", "0.1")) as server:
        load = Load(server, connections, check=check)
        for i in range(times):
            regressor = models[i % 2]
            regressor.save(model)
            start = time.perf_counter()
            server.wait_for("model taken up", i + 1)
            seconds.append(time.perf_counter() - start)
        found = load.stop()
    refused = [line for line in server.lines if line["message"] == "model refused"]
    return {
        "times": times,
        **found,
        "mixed answers": len(mixed),
        "versions seen": len(seen),
        "new models refused": len(refused),
        "longest until taken up, s": round(max(seconds), 2),
        "exit status": server.process.returncode,
    }
