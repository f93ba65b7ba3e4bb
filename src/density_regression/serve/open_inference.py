"""The Open Inference Protocol, version 2: what tritonclient and KServe speak."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from density_regression.serve.answers import json_answer, to_json
from density_regression.serve.body import parsed_json, read_body
from density_regression.serve.models import Models, Served
from density_regression.serve.scorer import OF_ROW, Results
from density_regression.serve.scoring import apart, score
from density_regression.serve.tensors import binary_result, columns_of, read_tensor

__all__ = ["ROUTES", "metadata"]

LENGTH: Final = "inference-header-content-length"
"""Header with the number of bytes of JSON, before the binary tensors of the same body."""

OF_KIND: Final = {"number": "FP64", "boolean": "BOOL"}
"""Datatype of a column's input by its kind; BYTES of all others."""


async def server(_request: Request) -> Response:
    """Name, version and extensions of the server."""
    about = {"name": "density-regression", "version": version("density-regression")}
    return json_answer(about | {"extensions": ["binary_tensor_data"]})


async def server_live(_request: Request) -> Response:
    """The server lives."""
    return json_answer({"live": True})


async def server_ready(request: Request) -> Response:
    """All models are ready."""
    ready = not request.app.state.models.draining
    return json_answer({"ready": ready}, 200 if ready else 503)


async def model_metadata(request: Request) -> Response:
    """Inputs and outputs of a model."""
    return json_answer(metadata(_model(request)))


async def model_ready(request: Request) -> Response:
    """A model is ready."""
    served = _model(request)
    return json_answer({"name": served.name, "ready": True})


async def infer(request: Request) -> Response:
    """Predictions for tensors."""
    served = _model(request)
    body = await read_body(request)
    length = request.headers.get(LENGTH)
    return await apart(request, len(body), lambda: _answer(request, served, body, length))


def metadata(served: Served) -> dict[str, Any]:
    """A model as the protocol describes it: one input X of numbers, or one for each column."""
    bundle, targets = served.scorer.bundle, served.scorer.bundle.target_shape
    inputs = [{"name": part.name, "datatype": OF_KIND.get(part.kind, "BYTES"), "shape": [-1]} for part in bundle.inputs]
    if bundle.as_one:
        inputs = [{"name": "X", "datatype": "FP64", "shape": [-1, len(bundle.inputs)]}]
    outputs = [
        {"name": name, "datatype": "FP64", "shape": [-1, *(() if name in OF_ROW else targets)]}
        for name in served.scorer.outputs
    ]
    about = {"name": served.name, "versions": [served.version], "platform": "density_regression_onnx"}
    return about | {"inputs": inputs, "outputs": outputs}


def _model(request: Request) -> Served:
    models: Models = request.app.state.models
    return models.get(request.path_params["model"], request.path_params.get("version"))


def _answer(request: Request, served: Served, body: bytes, length: str | None) -> Response:
    content, binary = _divided(body, length)
    given = parsed_json(content)
    if not isinstance(given, dict) or not isinstance(given.get("inputs"), list) or not given["inputs"]:
        raise ValueError('The body has no inputs: give {"inputs": [{"name", "shape", "datatype", "data"}, ...]}.')
    number, parameters = given.get("id"), _parameters(given)
    if number is not None and not isinstance(number, str):
        raise ValueError("The id is not a text.")
    tensors = []
    for entry in given["inputs"]:
        tensor, binary = read_tensor(entry, binary)
        tensors.append(tensor)
    if len(binary):
        raise ValueError(f"{len(binary)} bytes are left after the last input: check binary_data_size and {LENGTH}.")
    wanted = _wanted(given, served.scorer.outputs, parameters.get("binary_data_output") is True)
    rows = columns_of(tensors, [part.name for part in served.scorer.bundle.inputs])
    results = score(request, served, rows, coverage=parameters.get("coverage"), outputs=list(wanted))
    about = {"model_name": served.name, "model_version": served.version}
    return _as_asked(about if number is None else about | {"id": number}, results, wanted)


def _divided(body: bytes, length: str | None) -> tuple[bytes, memoryview]:
    """JSON and binary tensors of a body."""
    if length is None:
        return body, memoryview(b"")
    if not (length.isascii() and length.isdigit() and len(length) < 12 and int(length) <= len(body)):
        raise ValueError(f"{LENGTH} is {length!r:.40}, but the body has {len(body)} bytes.")
    return body[: int(length)], memoryview(body)[int(length) :]


def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    parameters = given.get("parameters")
    parameters = {} if parameters is None else parameters
    if not isinstance(parameters, dict):
        raise ValueError('The parameters are not an object, such as {"coverage": 0.9}.')
    return parameters


def _wanted(given: dict[str, Any], known: tuple[str, ...], all_binary: bool) -> dict[str, bool]:
    """Names of the outputs, and whether each is wanted as bytes."""
    outputs = given.get("outputs")
    if outputs is None or outputs == []:
        return dict.fromkeys(known, all_binary)
    if not isinstance(outputs, list) or not all(isinstance(part, dict) for part in outputs):
        raise ValueError('The outputs are not a list of objects, such as [{"name": "mean"}].')
    wanted = {}
    for part in outputs:
        name, own = part.get("name"), part.get("parameters")
        if not isinstance(name, str):
            raise ValueError('An output has no name: give it, such as {"name": "mean"}.')
        wanted[name] = bool(own.get("binary_data", all_binary)) if isinstance(own, dict) else all_binary
    return wanted


def _as_asked(about: dict[str, Any], results: Results, wanted: dict[str, bool]) -> Response:
    """The answer: JSON, followed by those outputs that are wanted as bytes."""
    outputs, parts = [], []
    for name, values in results.items():
        output: dict[str, Any] = {"name": name, "datatype": "FP64", "shape": list(values.shape)}
        if wanted[name]:
            parts.append(binary_result(values))
            output["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            output["data"] = values.ravel().tolist()
        outputs.append(output)
    if not parts:
        return json_answer(about | {"outputs": outputs})
    content = to_json(about | {"outputs": outputs})
    headers = {LENGTH: str(len(content))}
    return Response(b"".join([content, *parts]), 200, headers, "application/octet-stream")


_MODEL: Final = "/v2/models/{model}"
_VERSION: Final = _MODEL + "/versions/{version}"

ROUTES: Final = [
    *(Route(f"{path}/infer", infer, methods=["POST"]) for path in (_MODEL, _VERSION)),
    Route("/v2", server),
    Route("/v2/health/live", server_live),
    Route("/v2/health/ready", server_ready),
    *(Route(path, model_metadata) for path in (_MODEL, _VERSION)),
    *(Route(f"{path}/ready", model_ready) for path in (_MODEL, _VERSION)),
]
