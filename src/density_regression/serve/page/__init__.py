"""The page for people, at `/`."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

__all__ = ["add_page"]


async def home(_request: Request) -> Response:
    """To the list of what there is."""
    return RedirectResponse("/docs")


def add_page(app: FastAPI) -> None:
    """Add the routes of the page to an app."""
    app.router.routes.append(Route("/", home))
