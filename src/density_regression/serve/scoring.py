"""From rows of a request to results: limits, counting, and those who watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from starlette.requests import Request

from density_regression.serve.answers import Refusal
from density_regression.serve.columns import Feeds
from density_regression.serve.models import Served
from density_regression.serve.scorer import OF_ROW, OutOfTime, Results

__all__ = ["Observer", "apart", "score"]

log = logging.getLogger(__name__)

T = TypeVar("T")

SMALL: Final = 16 * 1024
"""Bytes of a body from which on it is read and scored in a thread, so that others need not wait for it."""


class Observer(Protocol):
    """Told all rows that were scored, with their inputs of the graph and at least `OF_ROW` of the results."""

    def __call__(self, served: Served, feeds: Feeds, results: Results) -> None:
        """Look at them; errors are logged, and nothing else happens."""


async def apart(request: Request, size: int, function: Callable[[], T]) -> T:
    """What a function returns, called in a thread for a body of many bytes; its errors are those of the request."""
    try:
        return function() if size <= SMALL else await asyncio.to_thread(function)
    except OutOfTime:
        seconds = request.app.state.settings.timeout
        message = f"The rows could not be scored within {seconds:g} s: send fewer, or ask again later."
        raise Refusal(503, message, {"retry-after": "1"}) from None
    except ValueError as error:
        raise Refusal(400, str(error)) from None


def score(
    request: Request,
    served: Served,
    rows: Mapping[str, Any] | Sequence[Any] | Any,
    *,
    coverage: Any = None,
    outputs: Sequence[str] | None = None,
) -> Results:
    """Results for rows, as `Scorer` gives them; a `ValueError` says what is wrong with them."""
    state, scorer = request.app.state, served.scorer
    wanted = scorer.checked_outputs(outputs)
    if coverage is not None:
        scorer.half_width(coverage)
    feeds = scorer.read(rows)
    count = len(next(iter(feeds.values())))
    if count > state.settings.max_rows:
        most = state.settings.max_rows
        raise Refusal(422, f"There are {count} rows, more than {most}: send them in several requests.")
    needed = list(dict.fromkeys([*wanted, *(name for name in OF_ROW if name in scorer.outputs)]))
    results = scorer.score(feeds, coverage=coverage, outputs=needed, deadline=request.state.deadline)
    state.metrics.count_rows(served.name, results)
    for observer in state.observers:
        try:
            observer(served, feeds, results)
        except Exception as error:
            log.error("observer failed", extra={"model": served.name, "reason": type(error).__name__})
    return {name: results[name] for name in wanted}
