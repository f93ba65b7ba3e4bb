"""The OpenAPI description of a server, with the columns of its models."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

from density_regression.serve.bundle import Bundle, Input
from density_regression.serve.mlflow import USUAL_OUTPUTS
from density_regression.serve.models import Served
from density_regression.serve.open_inference import metadata
from density_regression.serve.scorer import OF_ROW
from density_regression.serve.settings import Settings
from density_regression.tabular.profile import LEVELS, ColumnProfile, Profile

__all__ = ["example_row", "openapi"]

TYPES: Final = {
    "number": ["number", "boolean"],
    "boolean": ["boolean", "number"],
    "category": ["string", "number", "boolean"],
}
"""JSON types of a column by its kind, its own first; text of dates and times."""

ERRORS: Final = {
    "400": "The rows or the request are wrong; the error says what to do.",
    "401": "The token is missing or wrong.",
    "404": "There is no such model, or no such version of it.",
    "405": "The path knows no such method.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The content type or encoding is not read.",
    "422": "There are too many rows.",
    "503": "The rows could not be scored in time, or the server is about to end.",
}

COVERAGE: Final = {"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 1}
"""Of intervals."""

TEXTS: Final = {"text/plain": {"schema": {"type": "string"}}}


def openapi(models: list[Served], settings: Settings) -> dict[str, Any]:
    """The description, by version 3.1 of OpenAPI; paths of each model by its name."""
    paths = {path: {"get": _get(summary, kind)} for path, (summary, kind) in _PLAIN.items()}
    schemas: dict[str, Any] = {
        "Error": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    }
    for served in models:
        paths |= _paths(served)
        schemas |= _schemas(served)
    if len(models) == 1:
        paths["/invocations"] = paths[f"/models/{models[0].name}/invocations"]
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Density-Regression",
            "version": version("density-regression"),
            "description": "Predictive distributions, and how familiar each row is.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if settings.token is not None:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def example_row(bundle: Bundle) -> dict[str, Any]:
    """A typical row: medians and frequent values, as far as the model knows them."""
    known = {} if bundle.profile is None else {part.name: part for part in Profile.from_json(bundle.profile).columns}
    return {part.name: _example(part, known.get(part.name)) for part in bundle.inputs}


def _example(part: Input, known: ColumnProfile | None) -> Any:
    """The median or the most frequent value of a column; without a profile a value of its kind."""
    if known is None or not (known.quantiles or known.values):
        return {"number": 0.0, "boolean": False, "date": "2026-01-01", "time": "12:00"}.get(part.kind, "")
    if part.kind == "category":
        return known.values[0]
    median = known.quantiles[LEVELS.index(0.5)]
    return bool(median) if part.kind == "boolean" else median


def _get(summary: str, kind: str) -> dict[str, Any]:
    content = TEXTS if kind == "text" else {kind: {}} if kind == "text/html" else {"application/json": {"schema": {}}}
    return {"summary": summary, "responses": {"200": {"description": "As asked.", "content": content}, **_errors()}}


def _errors() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {status: {"description": text, "content": content} for status, text in ERRORS.items()}


_PLAIN: Final = {
    "/healthz": ("The process lives", "json"),
    "/readyz": ("Models are loaded, and new requests are welcome", "json"),
    "/metrics": ("Counts for Prometheus", "text"),
    "/openapi.json": ("This description", "json"),
    "/docs": ("This description as a page", "text/html"),
    "/v2": ("Name, version and extensions of the server", "json"),
    "/v2/health/live": ("The process lives", "json"),
    "/v2/health/ready": ("All models are ready", "json"),
    "/ping": ("The process lives", "text"),
    "/health": ("The process lives", "text"),
    "/version": ("Version of the package", "text"),
}


def _paths(served: Served) -> dict[str, Any]:
    """Paths of one model."""
    name, base = served.name, f"/v2/models/{served.name}"
    infer = {
        "summary": f"Predictions of {name} for tensors (Open Inference Protocol)",
        "requestBody": _body({"application/json": _ref(name, "Infer")}),
        "responses": {
            "200": {"description": "Tensors.", "content": {"application/json": _ref(name, "InferAnswer")}},
            **_errors(),
        },
    }
    invocations = {
        "summary": f"Predictions of {name} for rows of a table (MLflow)",
        "requestBody": _body({"application/json": _ref(name, "Invocations"), **_csv(served.scorer.bundle)}),
        "responses": {
            "200": {"description": "Row by row.", "content": {"application/json": _ref(name, "Predictions")}},
            **_errors(),
        },
    }
    return {
        base: {"get": _get(f"Inputs and outputs of {name}", "json")},
        f"{base}/ready": {"get": _get(f"{name} is ready", "json")},
        f"{base}/infer": {"post": infer},
        f"/models/{name}/invocations": {"post": invocations},
    }


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": content}


def _ref(name: str, schema: str) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{name}.{schema}"}}


def _csv(bundle: Bundle) -> dict[str, Any]:
    row = example_row(bundle)
    lines = [",".join(map(_quoted, part)) for part in (row, row.values())]
    return {"text/csv": {"schema": {"type": "string"}, "example": "\n".join(lines) + "\n"}}


def _quoted(value: Any) -> str:
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\n\r') else text


def _schemas(served: Served) -> dict[str, Any]:
    """Schemas of one model: a row with its columns, requests and answers."""
    bundle, name = served.scorer.bundle, served.name
    row = {
        "type": "object",
        "properties": {part.name: _column(part, bundle) for part in bundle.inputs},
        "required": [part.name for part in bundle.inputs],
    }
    example = example_row(bundle)
    reference = {"$ref": f"#/components/schemas/{name}.Row"}
    value = {"type": "array", "items": {"type": "number"}} if bundle.target_shape else {"type": "number"}
    results = {output: {"type": "number"} if output in OF_ROW else value for output in served.scorer.outputs}
    names = {"type": ["array", "null"], "items": {"enum": list(served.scorer.outputs)}, "minItems": 1}
    params = {"type": ["object", "null"], "properties": {"coverage": COVERAGE, "outputs": names}}
    rows = {"type": "array", "items": reference, "minItems": 1}
    return {
        f"{name}.Row": row,
        f"{name}.Invocations": {
            "type": "object",
            "properties": {"dataframe_records": rows, "params": params},
            "required": ["dataframe_records"],
            "description": "Or dataframe_split, inputs or instances in its stead, as MLflow has them.",
            "example": {"dataframe_records": [example]},
        },
        f"{name}.Predictions": {
            "type": "object",
            "properties": {
                "predictions": {"type": "array", "items": {"type": "object", "properties": results}},
                "model_name": {"const": name},
                "model_version": {"type": "string"},
            },
            "required": ["predictions", "model_name", "model_version"],
        },
        f"{name}.Infer": _infer(served, example),
        f"{name}.InferAnswer": {
            "type": "object",
            "properties": {"model_name": {"const": name}, "outputs": {"type": "array", "items": {"type": "object"}}},
            "required": ["model_name", "model_version", "outputs"],
        },
    }


def _column(part: Input, bundle: Bundle) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": list(TYPES.get(part.kind, ["string"])), "description": part.kind}
    if part.kind == "date":
        kind["description"] = "date in ISO form, such as 2026-11-19 or 2026-11-19T22:20:15+01:00"
    if part.kind == "time":
        kind["description"] = "time of day, such as 22:20"
    if bundle.columns is not None:
        kind["type"].append("null")
    return kind


def _infer(served: Served, example: dict[str, Any]) -> dict[str, Any]:
    """Schema of a request of the Open Inference Protocol."""
    described = metadata(served)["inputs"]
    one = len(described) == 1 and described[0]["name"] == "X"
    data = [list(example.values())] if one else [[value] for value in example.values()]
    inputs = [
        {"name": part["name"], "shape": [1, *part["shape"][1:]], "datatype": part["datatype"], "data": values}
        for part, values in zip(described, data, strict=True)
    ]
    tensor = {
        "type": "object",
        "properties": {
            "name": {"enum": [part["name"] for part in described]},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "maxItems": 2},
            "datatype": {"enum": sorted({part["datatype"] for part in described})},
            "data": {"type": "array"},
        },
        "required": ["name", "shape", "datatype", "data"],
    }
    return {
        "type": "object",
        "properties": {
            "id": {"type": ["string", "null"]},
            "inputs": {"type": "array", "items": tensor, "minItems": 1},
            "outputs": {
                "type": ["array", "null"],
                "items": {
                    "type": "object",
                    "properties": {"name": {"enum": list(served.scorer.outputs)}},
                    "required": ["name"],
                },
            },
            "parameters": {"type": ["object", "null"], "properties": {"coverage": COVERAGE}},
        },
        "required": ["inputs"],
        "example": {"inputs": inputs, "outputs": [{"name": name} for name in USUAL_OUTPUTS[:2]]},
    }
