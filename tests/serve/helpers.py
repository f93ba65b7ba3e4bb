"""What tests of the server share: tables, models, and a server in a thread."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from fastapi import FastAPI

from density_regression.serve.app import create_app
from density_regression.serve.bundle import Prepared, current_bundle
from density_regression.serve.connections import Server
from density_regression.serve.prepare import make_bundle
from density_regression.serve.run import bind, configuration
from density_regression.serve.settings import Settings

QUICK: dict[str, Any] = {"hidden": (16,), "epochs": 5, "random_state": 0, "verbose": False}


def raw_table(rows: int = 200, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Columns of every kind, gaps in some, and a target above 0."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": 1e3 + rng.normal(size=rows),
            "rooms": np.where(rng.random(rows) < 0.2, np.nan, rng.integers(1, 6, rows)),
            "old": rng.random(rows) < 0.5,
            "town": rng.choice(["Ulm", "Köln", "x y"], rows),
            "day": [str(day) for day in np.datetime64("2022-03-01") + rng.integers(0, 500, rows)],
            "clock": [f"{hour:02}:{minute:02}" for hour, minute in rng.integers(0, [24, 60], (rows, 2))],
        }
    )
    target = 5 + frame["rooms"].fillna(0) + 2 * (frame["town"] == "Ulm") + rng.normal(0, 0.1, rows)
    return frame, target


def odd_table() -> pd.DataFrame:
    """Rows with what training never had: gaps in all columns, unknown text, dates far outside."""
    frame = raw_table(60, seed=1)[0].astype(object)
    rng = np.random.default_rng(2)
    for name in frame:
        frame.loc[rng.random(60) < 0.1, name] = None
    frame.loc[:3, "town"] = ["Rome", "", "Ulm", "new"]
    frame.loc[:2, "day"] = ["1812-02-29", "2022-04-01T00:30:15.5+02:00", "2400-12-31 23:59"]
    return frame.astype({"size": float, "rooms": float})


def columns_of(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Columns as lists, None for gaps."""
    plain = frame.astype(object).where(frame.notna(), None)
    return {str(name): plain[name].tolist() for name in plain}


class Answer(NamedTuple):
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert self.headers["content-type"] == "application/json"
        assert list(self.json) == ["error"]
        return str(self.json["error"])


class Client(NamedTuple):
    """Requests to a server, and its app."""

    port: int
    app: FastAPI

    def __call__(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None, method: str | None = None
    ) -> Answer:
        """Answer to a request, whose body is sent as JSON unless it is bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        if body is not None and not isinstance(body, bytes):
            body, headers = json.dumps(body).encode(), {"content-type": "application/json", **(headers or {})}
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
            answer = connection.getresponse()
            given = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, given, answer.read())
        finally:
            connection.close()


def prepared_here(folder: Path) -> Prepared:
    """As `prepare` does it, in this process."""
    make_bundle(folder)
    found = current_bundle(folder)
    assert found is not None
    return found


def look(client: Client) -> None:
    """Let the server look for a new model in the place of "model"."""
    asyncio.run(client.app.state.models.look("model"))


@contextmanager
def served(*models: Path, **settings: Any) -> Iterator[Client]:
    """A server in a thread, as the command runs it."""
    app = create_app(Settings(models=models, **{"reload_every": 0.0, **settings}))
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = Server(configuration(app), app.state.models)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    end = time.monotonic() + 10
    while not server.started:
        assert time.monotonic() < end
        time.sleep(0.01)
    try:
        yield Client(port, app)
    finally:
        server.should_exit = True
        thread.join(10)
