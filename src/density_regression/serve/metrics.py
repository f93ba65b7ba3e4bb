"""`/metrics`: what Prometheus scrapes, in its text format; of several processes each answers for all."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from density_regression.io.files import write_whole
from density_regression.serve.counts import Family, Metrics, Sample
from density_regression.serve.settings import Settings

__all__ = ["ROUTES", "exchange", "of_all", "text_of"]

log = logging.getLogger(__name__)

PREFIX: Final = "density_regression_"
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
EVERY: Final = 1.0
"""Seconds between two exchanges of counts."""


async def metrics(request: Request) -> Response:
    """What Prometheus scrapes."""
    state = request.app.state
    return Response(text_of(of_all(state.metrics, state.settings)), media_type=TEXT)


def text_of(families: Sequence[Family]) -> str:
    """Families in the text format of Prometheus."""
    return "".join(map(_text, families))


def of_all(counts: Metrics, settings: Settings) -> list[Family]:
    """Families of this process and, as they were a second ago, of the others, labelled by the process."""
    if settings.exchange is None:
        return counts.families
    merged = {family.name: family._replace(samples=[]) for family in counts.families}
    known = {settings.worker: counts.families}
    for path in sorted(settings.exchange.glob("*.json")):
        if (worker := int(path.stem)) != settings.worker:
            known[worker] = _read(path)
    for worker, families in sorted(known.items()):
        for family in families:
            whole = merged.setdefault(family.name, family._replace(samples=[]))
            samples = [part._replace(labels={**part.labels, "worker": str(worker)}) for part in family.samples]
            merged[family.name] = whole._replace(samples=[*whole.samples, *samples])
    return list(merged.values())


async def exchange(counts: Metrics, settings: Settings) -> None:
    """Leave the counts of this process for the others, again and again, for ever."""
    assert settings.exchange is not None
    path = settings.exchange / f"{settings.worker}.json"
    failed = False
    while True:
        try:
            await asyncio.to_thread(write_whole, path, json.dumps(counts.families).encode())
            failed = False
        except OSError as error:
            if not failed:
                log.error("counts not exchanged", extra={"reason": error.strerror})
            failed = True
        await asyncio.sleep(EVERY)


def _read(path: Path) -> list[Family]:
    try:
        families = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return []
    return [Family(name, kind, text, [Sample(*sample) for sample in samples]) for name, kind, text, samples in families]


def _text(family: Family) -> str:
    name = PREFIX + family.name
    lines = [f"# HELP {name} {family.help}", f"# TYPE {name} {family.type}"]
    for value, labels, suffix in family.samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{suffix}{f'{{{inside}}}' if inside else ''} {float(value):.17g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


ROUTES: Final = [Route("/metrics", metrics)]
