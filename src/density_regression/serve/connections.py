"""Connections of uvicorn's server: slow and broken ones are ended, and none that was accepted is lost at the end."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from density_regression.serve.guard import HEADERS
from density_regression.serve.models import Models

__all__ = ["Connection", "Server"]

HEADER_SECONDS: Final = 10.0
"""Seconds in which the headers of a request must arrive."""

LAST_SECONDS: Final = 0.5
"""Seconds in which clients with an open connection may send what was on its way when the server was told to end."""


class Connection(H11Protocol):
    """One connection; headers that take too long end it."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for headers."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Stop to wait for headers once they are complete."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._timer is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        self._stop()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        body = json.dumps({"error": msg}).encode()
        own = {b"content-type": b"application/json", b"content-length": str(len(body)).encode()}
        headers = [*own.items(), (b"connection", b"close"), *HEADERS.items()]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _wait(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self.timeout_keep_alive_handler)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """Accepts what waits in the queue before it ends, and answers what open connections still send."""

    def __init__(self, config: uvicorn.Config, models: Models) -> None:
        super().__init__(config)
        self._models = models

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in three steps: accept what waits, close the door, let open connections finish."""
        self._models.draining = True
        for listener in sockets or []:
            await self._accept_waiting(listener)
        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        end = loop.time() + LAST_SECONDS
        while self.server_state.connections and loop.time() < end:
            await asyncio.sleep(0.01)
        await super().shutdown(sockets)

    async def _accept_waiting(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            accepted.setblocking(False)
            await loop.connect_accepted_socket(self._connection, accepted)

    def _connection(self) -> Connection:
        return Connection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
