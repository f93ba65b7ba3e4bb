"""The server as an ASGI app."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from density_regression.serve import docs, health, metrics, mlflow, open_inference
from density_regression.serve.alarms import Alarms
from density_regression.serve.answers import Refusal, json_answer, refusal
from density_regression.serve.counts import Metrics
from density_regression.serve.guard import Guard
from density_regression.serve.models import Models
from density_regression.serve.page import add_page
from density_regression.serve.scoring import Observer
from density_regression.serve.settings import Settings

__all__ = ["create_app"]

log = logging.getLogger(__name__)

THREADS: Final = 4
"""Threads in which requests with many rows are read and scored, and new models are loaded."""

REASONS: Final = {404: "There is no such page", 405: "This page knows no such method"}


def create_app(settings: Settings) -> FastAPI:
    """The app, with all its models loaded; raises the error of the first that cannot be.

    `app.state` has `settings`, `models` (`Models`), `metrics` (`Metrics`), `alarm` (`Alarms`) and `observers`, a list
    of `Observer` to which others may add theirs.
    """
    models = Models(settings)
    models.load()
    counts = Metrics(models)
    alarms = Alarms(settings, models)
    counts.more.append(alarms.families)
    observers: list[Observer] = [alarms.note] if settings.false_alarms_per else []

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        about = {served.name: served.version for served in models.all}
        log.info("ready", extra={"models": about})
        # Few at once: each may hold a large body and its rows.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        endless = [alarms.watch()] if settings.false_alarms_per else []
        endless += [models.watch()] if settings.reload_every > 0 else []
        endless += [metrics.exchange(counts, settings)] if settings.exchange is not None else []
        tasks = [asyncio.create_task(part) for part in endless]
        yield
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    # They are tried in this order: those first that are asked most.
    routes: list[BaseRoute] = [*mlflow.ROUTES, *open_inference.ROUTES, *health.ROUTES, *metrics.ROUTES, *docs.ROUTES]
    app = FastAPI(routes=routes, lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False
    app.state.settings, app.state.models, app.state.metrics = settings, models, counts
    app.state.observers, app.state.alarm = observers, alarms
    app.add_exception_handler(Refusal, refusal)
    app.add_exception_handler(HTTPException, _of_starlette)
    add_page(app)
    app.add_middleware(Guard, settings=settings, models=models, metrics=counts)
    return app


def _of_starlette(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason = REASONS.get(error.status_code, "The request cannot be answered")
    return json_answer({"error": f"{reason}: /docs lists what there is."}, error.status_code, error.headers)
