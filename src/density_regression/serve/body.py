"""Bodies of requests: read within limits, and parsed as JSON."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from density_regression.serve.answers import Refusal
from density_regression.serve.settings import Settings

__all__ = ["parsed_json", "read_body"]

DISCARDED: Final = 64 * 2**20
"""Bytes beyond the limit that are read and forgotten, so that a client that is sending can read why it is refused."""


async def read_body(request: Request) -> bytes:
    """The body, if it is not too large and does not take too long to arrive."""
    settings: Settings = request.app.state.settings
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refusal(415, "Compressed bodies are not read: send the body as it is.")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.timeout):
            async for part in request.stream():
                size += len(part)
                if size <= settings.max_body:
                    parts.append(part)
                elif parts:
                    parts.clear()
                if size > settings.max_body + DISCARDED:
                    break
    except TimeoutError:
        message = f"The body did not arrive within {settings.timeout:g} s: send it faster, or in several requests."
        raise Refusal(408, message, {"connection": "close"}) from None
    except ClientDisconnect:
        raise Refusal(400, "The body ended early.", {"connection": "close"}) from None
    if size > settings.max_body:
        message = f"The body has more than {settings.max_body} bytes: send the rows in several requests."
        raise Refusal(413, message, {"connection": "close"})
    request.state.deadline = time.monotonic() + settings.timeout
    return b"".join(parts)


def parsed_json(body: bytes) -> Any:
    """A body as JSON, in which a bare NaN may stand for a gap."""
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("The body is nested too deeply.") from None
    except ValueError as error:
        raise ValueError(f"The body is not JSON: {str(error).splitlines()[0]:.120}.") from None
