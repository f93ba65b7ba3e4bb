"""Whether the server lives and is ready: for orchestrators, which need no token."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from density_regression.serve.answers import json_answer

__all__ = ["OPEN", "ROUTES"]

OPEN: Final = ("/healthz", "/readyz")
"""Paths that need no token."""


async def healthz(_request: Request) -> Response:
    """The process lives."""
    return json_answer({"status": "ok"})


async def readyz(request: Request) -> Response:
    """Models are loaded, and new requests are welcome."""
    draining = request.app.state.models.draining
    return json_answer({"status": "ending" if draining else "ready"}, 503 if draining else 200)


ROUTES: Final = [Route("/healthz", healthz), Route("/readyz", readyz)]
