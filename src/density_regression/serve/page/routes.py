"""Addresses of the page: `/`, the files that it loads, and `/page/score` for a CSV file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from density_regression.serve.answers import Refusal
from density_regression.serve.body import read_body
from density_regression.serve.models import Served
from density_regression.serve.page.alarm import alarm_of
from density_regression.serve.page.asked import read_query
from density_regression.serve.page.fields import fields_of, profile_of
from density_regression.serve.page.layout import asset, message_page, whole_page
from density_regression.serve.page.outlook import known_coverages, look
from density_regression.serve.page.upload import (
    OUTPUTS,
    count_unfamiliar,
    file_of_form,
    read_csv,
    scored_name,
    with_results,
)
from density_regression.serve.page.view import View
from density_regression.serve.scorer import OutOfTime
from density_regression.serve.scoring import score

__all__ = ["ROUTES"]

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
"""What a browser may do with the page: load what this server has, and nothing else."""

FILES: Final = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


async def page(request: Request) -> Response:
    """The page for people."""
    return await _or_message(lambda: _page(request))


async def file(request: Request) -> Response:
    """A file that the page loads."""
    name = request.path_params["name"]
    if name not in FILES:
        raise Refusal(404, f"There is no file {name!r:.60}.")
    return Response(asset(name), media_type=FILES[name])


async def score_csv(request: Request) -> Response:
    """A CSV file with predictions, from one without: the body itself, or the file of a form."""
    back = f"/?{urlencode({'model': request.query_params.get('model', '')})}"
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return _html(message_page("Another site's page has sent this file, which is not taken."), 403)
    try:
        served = _served(request)
        body = await read_body(request)
    except Refusal as refused:
        return _html(message_page(str(refused), back), refused.status, refused.headers)
    return await _or_message(lambda: _scored(request, served, body), back)


def _page(request: Request) -> Response:
    served = _served(request)
    scorer = served.scorer
    profile = profile_of(scorer.bundle)
    fields = fields_of(scorer.bundle, profile)
    asked = read_query(request.query_params, served.name, fields, scorer.bundle.targets, known_coverages(scorer))
    names = tuple(each.name for each in request.app.state.models.all)
    try:
        outlook = look(scorer, fields, asked)
    except ValueError as error:
        raise Refusal(400, str(error)) from None
    view = View(served, names, profile, fields, asked, outlook)
    return _html(whole_page(view, alarm_of(request.app.state, served.name)))


def _scored(request: Request, served: Served, body: bytes) -> Response:
    kind = request.headers.get("content-type", "")
    name, content = request.query_params.get("name", ""), body
    outputs = [output for output in OUTPUTS if output in served.scorer.outputs]
    try:
        if kind.partition(";")[0].strip().lower() == "multipart/form-data":
            name, content = file_of_form(body, kind)
        table, rows = read_csv(content, served.scorer.bundle)
        # As with any other rows that are scored, those who watch are told of them.
        results = score(request, served, rows, coverage=_coverage(request, served), outputs=outputs)
    except ValueError as error:
        counted = " Rows are counted from 0, below the line of names." * ("(row " in str(error))
        raise Refusal(400, f"{error}{counted}") from None
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(scored_name(name))}",
        "x-rows": str(len(table.rows)),
    }
    unfamiliar = count_unfamiliar(results)
    if unfamiliar is not None:
        headers["x-unfamiliar"] = str(unfamiliar)
    return Response(with_results(table, results), media_type="text/csv", headers=headers)


def _coverage(request: Request, served: Served) -> float | None:
    known = known_coverages(served.scorer)
    return next((share for share in known if request.query_params.get("coverage") == f"{share:g}"), None)


def _served(request: Request) -> Served:
    """The model of the query; without one, the first."""
    models = request.app.state.models
    name = request.query_params.get("model")
    served: Served = models.get(name) if name else models.all[0]
    return served


async def _or_message(function: Callable[[], Response], back: str = "/") -> Response:
    """What a function answers, called in a thread, or a page that says why it could not."""
    try:
        return await asyncio.to_thread(function)
    except Refusal as refused:
        return _html(message_page(str(refused), back), refused.status, refused.headers)
    except OutOfTime:
        return _html(message_page("That took too long: try fewer rows, or try again later.", back), 503)


def _html(content: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return HTMLResponse(content, status, headers={**(headers or {}), "content-security-policy": POLICY})


ROUTES: Final = [
    Route("/", page),
    Route("/page/score", score_csv, methods=["POST"]),
    Route("/page/{name}", file),
]
