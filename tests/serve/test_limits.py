"""Limits, tokens and headers: what is too much, too slow or not allowed is refused in one sentence, and never a 5xx."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from density_regression import DensityRegressor
from density_regression.serve import connections, scorer
from density_regression.serve.logs import JsonLines
from density_regression.serve.models import Served
from serve.helpers import Client, served

TOKEN = "s3cret-token"
ROW = {"inputs": [[1.0, 2.0]]}


@pytest.fixture(scope="module")
def guarded(folder: Path, numbers: DensityRegressor) -> Iterator[Client]:
    with served(folder / "numbers", token=TOKEN, max_body=20_000, max_rows=50, timeout=1.0) as client:
        yield client


def received(client: socket.socket) -> bytes:
    part = client.recv(10_000)
    assert part, "the connection ended early"
    return part


def read_answer(client: socket.socket) -> str:
    """Status, headers and body of one answer."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += received(client)
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += received(client)
    return (head + b"\r\n" + body).decode()


ALLOWED = {"authorization": f"Bearer {TOKEN}"}


def test_token(guarded: Client) -> None:
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer \xff"},
    ):
        for path in ("/v2", "/metrics", "/docs", "/", "/nowhere"):
            answer = guarded(path, headers=headers)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer" in answer.error
            assert TOKEN not in answer.error
        assert guarded("/invocations", ROW, headers).status == 401
    assert guarded("/invocations", ROW, ALLOWED).status == 200
    assert guarded("/invocations", ROW, {"authorization": f"bearer {TOKEN}"}).status == 200
    assert [guarded(path).status for path in ("/healthz", "/readyz")] == [200, 200]
    assert guarded("/openapi.json", headers=ALLOWED).json["security"] == [{"token": []}]
    assert "Authorization: Bearer TOKEN" in guarded("/docs", headers=ALLOWED).body.decode()


def test_headers_of_every_answer(guarded: Client) -> None:
    answers = [
        guarded("/healthz"),
        guarded("/v2"),
        guarded("/nowhere", headers=ALLOWED),
        guarded("/docs", headers=ALLOWED),
        guarded("/", headers=ALLOWED),
        guarded("/invocations", b"{", ALLOWED | {"content-type": "application/json"}),
        guarded("/v2/models/numbers/infer", headers=ALLOWED),
    ]
    assert [answer.status for answer in answers[1:3]] == [401, 404]
    assert answers[-1].status == 405
    assert answers[-1].headers["allow"] == "POST"
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers


def test_body_and_rows(guarded: Client) -> None:
    path = "/v2/models/numbers/infer"
    answer = guarded(path, b" " * 20_001, ALLOWED)
    assert answer.status == 413
    assert "more than 20000 bytes: send the rows in several requests" in answer.error
    assert guarded(path, b" " * 3_000_000, ALLOWED).status == 413
    answer = guarded("/invocations", {"inputs": [[1, 2]] * 51}, ALLOWED)
    assert answer.status == 422
    assert "51 rows, more than 50" in answer.error
    assert guarded("/invocations", {"inputs": [[1, 2]] * 50}, ALLOWED).status == 200


def test_a_body_without_end_is_cut(guarded: Client) -> None:
    """Chunks for ever: the server answers, or at least ends the connection."""
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as client:
        head = f"POST /invocations HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\n"
        client.sendall(head.encode() + b"transfer-encoding: chunked\r\n\r\n")
        sent = 0
        with suppress(OSError):
            while sent < 300_000_000:
                client.sendall(chunk)
                sent += len(chunk)
    assert sent < 100_000_000
    assert guarded("/healthz").status == 200


def test_a_slow_body_is_refused(guarded: Client) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as client:
        head = f"POST /invocations HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 50\r\n\r\n{{"
        client.sendall(head.encode())
        answer = read_answer(client)
    assert answer.startswith("HTTP/1.1 408 ")
    assert "did not arrive within 1 s" in answer
    assert "connection: close" in answer


def test_a_client_that_leaves_is_no_error(guarded: Client, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=20) as client:
        head = f"POST /invocations HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 50\r\n\r\n{{"
        client.sendall(head.encode())
    time.sleep(0.2)
    assert guarded("/healthz").status == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_slow_headers_end_the_connection(guarded: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    for start in (b"", b"GET /healthz HTTP/1.1\r\nhost"):
        with socket.create_connection(("127.0.0.1", guarded.port), timeout=5) as client:
            client.sendall(start)
            assert client.recv(100) == b""
    # A second request over the same connection has as long.
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=5) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        assert read_answer(client).startswith("HTTP/1.1 200")
        time.sleep(0.3)
        client.sendall(b"GET /healthz")
        client.sendall(b" HTTP/1.1\r\nhost: a\r\n\r\n")
        assert read_answer(client).startswith("HTTP/1.1 200")
        client.sendall(b"GET /h")
        assert client.recv(100) == b""


@pytest.mark.parametrize(
    "request_line",
    [b"nonsense\r\n\r\n", b"GET /\xff HTTP/1.1\r\nhost: a\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y" * 9000],
)
def test_what_is_not_http(request_line: bytes, guarded: Client) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=5) as client:
        client.sendall(request_line)
        answer = read_answer(client)
    assert answer.startswith("HTTP/1.1 400 ")
    assert "x-content-type-options: nosniff" in answer
    assert json.loads(answer.splitlines()[-1]) == {"error": "Invalid HTTP request received."}


def test_rows_that_take_too_long(guarded: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two blocks of rows the server looks at the time."""
    monkeypatch.setattr(scorer, "BLOCK", 10)
    model: Served = guarded.app.state.models.get("numbers")

    class Slow:
        def run(self, names: object, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
            time.sleep(0.4)
            return session.run(names, feeds)

    session = model.scorer._session
    monkeypatch.setattr(model.scorer, "_session", Slow())
    answer = guarded("/invocations", {"inputs": [[1, 2]] * 50}, ALLOWED)
    assert answer.status == 503
    assert "could not be scored within 1 s" in answer.error
    assert answer.headers["retry-after"] == "1"


def test_an_error_of_ours_shows_no_trace(
    guarded: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model: Served = guarded.app.state.models.get("numbers")
    monkeypatch.setattr(model.scorer, "_session", None)
    answer = guarded("/invocations", ROW, ALLOWED)
    assert answer.status == 500
    assert answer.error == "The server made an error, which its log describes."
    assert answer.headers["x-content-type-options"] == "nosniff"
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    line = json.loads(JsonLines().format(record))
    assert line["error"] == "AttributeError"
    assert line["route"] == "invocations"
    assert any("scorer.py" in place for place in line["at"])


def test_logs_quote_nothing() -> None:
    """Of an exception there is the type: its text may quote a request."""
    error = ValueError("row with a secret")
    about = (ValueError, error, None)
    record = logging.getLogger("x").makeRecord("x", logging.ERROR, "f", 1, "error", (), about, extra={"route": "infer"})
    line = JsonLines().format(record)
    assert "secret" not in line
    assert json.loads(line)["error"] == "ValueError"


def test_requests_are_logged_without_their_data(guarded: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="density_regression.serve.guard"):
        guarded("/invocations?secret=1", {"inputs": [["secret", 2]]}, ALLOWED)
        guarded("/secret", method="SECRET", headers=ALLOWED)
        end = time.monotonic() + 5
        # A line follows its answer; that of another test may come first.
        while len(lines := requests_of(caplog)) < 2 or json.loads(lines[-1])["route"] != "other":
            assert time.monotonic() < end
            time.sleep(0.01)
    assert not any("secret" in line.lower() for line in lines)
    found = [json.loads(line) for line in lines][-2:]
    assert [(line["route"], line["status"]) for line in found] == [("invocations", 400), ("other", 404)]
    assert found[0]["ms"] > 0


def requests_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [JsonLines().format(record) for record in list(caplog.records) if record.getMessage() == "request"]
