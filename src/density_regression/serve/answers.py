"""Answers of the server, and the ways in which it refuses a request: one sentence as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

__all__ = ["Refusal", "json_answer", "refusal", "to_json"]

JSON: Final = "application/json"
_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


class Refusal(Exception):  # noqa: N818 - an answer, not an error of the program
    """A request that is refused, with a status and a sentence that says why and what to do."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer as JSON, in which there is no NaN."""
    return Response(to_json(content), status, headers, JSON)


def to_json(content: Any) -> bytes:
    """JSON in which there is no NaN."""
    return _ENCODER.encode(content).encode()


def refusal(_request: Request, error: Exception) -> Response:
    """The answer to a request that is refused."""
    assert isinstance(error, Refusal)
    return json_answer({"error": str(error)}, error.status, error.headers)
