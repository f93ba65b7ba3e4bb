"""Around all requests: the token, the headers of every answer, counting, logging, and errors of our own."""

from __future__ import annotations

import hmac
import json
import logging
import time
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from density_regression.serve.counts import Metrics
from density_regression.serve.health import OPEN
from density_regression.serve.models import Models
from density_regression.serve.settings import Settings

__all__ = ["HEADERS", "Guard"]

log = logging.getLogger(__name__)

HEADERS: Final = {
    b"x-content-type-options": b"nosniff",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"x-frame-options": b"DENY",
    b"cross-origin-resource-policy": b"same-origin",
}
"""Headers of every answer, unless it has its own."""

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

CLOSE: Final = (b"connection", b"close")


class Guard:
    """ASGI middleware around a whole app."""

    def __init__(self, app: ASGIApp, settings: Settings, models: Models, metrics: Metrics) -> None:
        self._app = app
        self._models = models
        self._metrics = metrics
        self._token = None if settings.token is None else settings.token.encode()
        self._log_requests = settings.log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(message)
            await send(message)

        try:
            if self._token is not None and scope["path"] not in OPEN and not self._knows_token(scope):
                await _send_error(send_guarded, 401, "Send the server's token as 'Authorization: Bearer TOKEN'.")
            else:
                await self._app(scope, receive, send_guarded)
        except Exception as error:
            log.exception("error", exc_info=error, extra={"route": _route(scope)})
            if status:
                raise
            await _send_error(send_guarded, 500, "The server made an error, which its log describes.")
        finally:
            seconds = time.perf_counter() - start
            self._metrics.count_request(_route(scope), status, seconds)
            if self._log_requests:
                method = scope["method"] if scope["method"] in METHODS else "other"
                about = {"method": method, "route": _route(scope), "status": status}
                log.info("request", extra=about | {"ms": round(1e3 * seconds, 3)})

    def _add_headers(self, message: Message) -> None:
        headers = list(message.get("headers", ()))
        given = {name for name, _ in headers}
        headers += [(name, value) for name, value in HEADERS.items() if name not in given]
        if self._models.draining and CLOSE not in headers:
            headers.append(CLOSE)
        message["headers"] = headers

    def _knows_token(self, scope: Scope) -> bool:
        assert self._token is not None
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        # Compared in constant time, whatever the scheme.
        return hmac.compare_digest(token.strip(), self._token) and scheme.lower() == b"bearer"


def _route(scope: Scope) -> str:
    """The name of the route, never the path, which may hold anything."""
    return str(getattr(scope.get("endpoint"), "__name__", "other"))


async def _send_error(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    headers: list[Any] = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
