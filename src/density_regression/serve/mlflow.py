"""MLflow's scoring protocol: `/invocations` with data frames as JSON or CSV."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from density_regression.serve.answers import Refusal, json_answer
from density_regression.serve.body import parsed_json, read_body
from density_regression.serve.models import Models, Served
from density_regression.serve.scorer import Results
from density_regression.serve.scoring import apart, score
from density_regression.serve.tables import rows_of_csv, rows_of_json

__all__ = ["ROUTES", "USUAL_OUTPUTS", "predictions"]

USUAL_OUTPUTS: Final = ("mean", "std", "low", "high", "log_density", "familiarity")
"""Results of a row, unless a request asks for others."""


async def ping(_request: Request) -> Response:
    """The server lives."""
    return PlainTextResponse("\n")


async def version(_request: Request) -> Response:
    """The version of this package."""
    return PlainTextResponse(version_of("density-regression"))


async def invocations(request: Request) -> Response:
    """Predictions for rows of a table."""
    models: Models = request.app.state.models
    name = request.path_params.get("model")
    served = models.the_only() if name is None else models.get(name)
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind not in ("application/json", "text/csv"):
        raise Refusal(415, f"The content type {kind!r:.60} is not read: send application/json or text/csv.")
    body = await read_body(request)
    return await apart(request, len(body), lambda: _answer(request, served, body, is_csv=kind == "text/csv"))


def predictions(results: Results) -> list[dict[str, Any]]:
    """Results row by row."""
    columns = [values.tolist() for values in results.values()]
    return [dict(zip(results, row, strict=True)) for row in zip(*columns, strict=True)]


def _answer(request: Request, served: Served, body: bytes, *, is_csv: bool) -> Response:
    bundle = served.scorer.bundle
    given = {} if is_csv else parsed_json(body)
    rows = rows_of_csv(body, bundle) if is_csv else rows_of_json(given, bundle)
    params = given.get("params")
    params = {} if params is None else params
    if not isinstance(params, dict):
        raise ValueError('params is not an object, such as {"coverage": 0.9}.')
    outputs = params.get("outputs")
    if outputs is None:
        outputs = [name for name in USUAL_OUTPUTS if name in served.scorer.outputs]
    if not outputs or not isinstance(outputs, list) or not all(isinstance(name, str) for name in outputs):
        raise ValueError('outputs is not a list of names, such as ["mean", "std"].')
    results = score(request, served, rows, coverage=params.get("coverage"), outputs=outputs)
    about = {"model_name": served.name, "model_version": served.version}
    return json_answer({"predictions": predictions(results), **about})


ROUTES: Final = [
    Route("/invocations", invocations, methods=["POST"]),
    Route("/models/{model}/invocations", invocations, methods=["POST"]),
    Route("/ping", ping),
    Route("/health", ping),
    Route("/version", version),
]
