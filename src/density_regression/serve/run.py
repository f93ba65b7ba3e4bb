"""Run the server: one process, or several that share nothing but the port."""

from __future__ import annotations

import logging
import signal
import socket
from typing import Final

import uvicorn
from fastapi import FastAPI

from density_regression.serve.app import create_app
from density_regression.serve.bundle import prepare
from density_regression.serve.connections import Connection, Server
from density_regression.serve.logs import log_to
from density_regression.serve.models import by_name
from density_regression.serve.settings import Settings
from density_regression.serve.workers import Supervisor

__all__ = ["bind", "configuration", "run", "serve_here"]

BACKLOG: Final = 2048
GRACE: Final = 60
"""Seconds in which accepted requests must be answered after the server was told to end."""

log = logging.getLogger(__name__)


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket for a port; an OSError if it is taken, or the host not ours.

    With `shared` several sockets may have the port: the system shares out connections among those that listen.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small packets at once only if the protocol is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT if shared else socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        message = f"{host} port {port} cannot be listened at: {error.strerror}. Choose another by --host or --port."
        raise OSError(message) from error
    listener.setblocking(False)
    return listener


def run(settings: Settings, listener: socket.socket, workers: int = 1) -> None:
    """Serve until SIGTERM or Ctrl-C, and return when all that was accepted is answered.

    Of several workers each listens at the port of `listener`, which must be `shared` then and only keeps it. Models are
    prepared first; the first that cannot be raises its error.
    """
    for folder in by_name(settings.models).values():
        prepare(folder)
    log_to()
    host, port, *_ = listener.getsockname()
    log.info("starting", extra={"host": host, "port": port, "workers": workers})
    if workers == 1:
        serve_here(settings, listener)
    else:
        Supervisor(settings, (host, port), workers).run()


def serve_here(settings: Settings, listener: socket.socket) -> None:
    """Serve in this process."""
    app = create_app(settings)
    log_to()
    listener.listen(BACKLOG)
    # At its end uvicorn raises the signal that it was sent once more, which is then ignored: the status is 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    Server(configuration(app), app.state.models).run([listener])


def configuration(app: FastAPI) -> uvicorn.Config:
    """Uvicorn's settings."""
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
    )
