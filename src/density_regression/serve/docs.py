"""`/openapi.json`, and `/docs`: what there is, with commands to copy; nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from html import escape
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from density_regression.serve.answers import json_answer
from density_regression.serve.schema import openapi

__all__ = ["ROUTES"]

STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.25rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9rem; }
pre { overflow-x: auto; padding: 0.75rem; border: 1px solid; border-radius: 4px; user-select: all; }
table { border-collapse: collapse; }
td, th { text-align: left; padding: 0.15rem 1rem 0.15rem 0; }
"""

POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


async def openapi_json(request: Request) -> Response:
    """The description of the server."""
    return json_answer(_schema(request))


async def docs(request: Request) -> Response:
    """The same as a page."""
    address = str(request.base_url).rstrip("/")
    return HTMLResponse(_page(_schema(request), address), headers={"content-security-policy": POLICY})


def _schema(request: Request) -> dict[str, Any]:
    state = request.app.state
    return openapi(state.models.all, state.settings)


def _page(schema: dict[str, Any], address: str) -> str:
    """A section for each path, and a table of columns for each model."""
    schemas = schema["components"]["schemas"]
    token = "security" in schema
    parts = [f"<h1>{escape(schema['info']['title'])} {escape(schema['info']['version'])}</h1>"]
    parts.append(f"<p>{escape(schema['info']['description'])} <a href='/openapi.json'>OpenAPI</a></p>")
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(about['summary'])}</p>")
            kinds = about.get("requestBody", {}).get("content", {})
            parts += [_pre(command) for command in _commands(address + path, kinds, schemas, token)]
    for name, rows in schemas.items():
        if name.endswith(".Row"):
            parts.append(f"<h2>Columns of {escape(name.removesuffix('.Row'))}</h2>{_table(rows['properties'])}")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Density-Regression</title>'
        f"<style>{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>"
    )


def _commands(address: str, kinds: dict[str, Any], schemas: dict[str, Any], token: bool) -> list[str]:
    """A curl command for each content type of a request; one without content for a path that takes none."""
    secret = ["-H", "Authorization: Bearer TOKEN"] if token else []
    if not kinds:
        return [shlex.join(["curl", *secret, address])]
    commands = []
    for kind, about in kinds.items():
        example = about.get("example")
        if "$ref" in about["schema"]:
            example = json.dumps(schemas[about["schema"]["$ref"].rpartition("/")[2]]["example"])
        sent = ["-H", f"Content-Type: {kind}", "--data-binary", str(example)]
        commands.append(shlex.join(["curl", *secret, *sent, address]))
    return commands


def _pre(text: str) -> str:
    return f"<pre tabindex='0'>{escape(text)}</pre>"


def _table(columns: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(about['description'])}</td></tr>"
        for name, about in columns.items()
    )
    return f"<table><tr><th>name</th><th>kind</th></tr>{rows}</table>"


ROUTES: Final = [Route("/openapi.json", openapi_json), Route("/docs", docs)]
