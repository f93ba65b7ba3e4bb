"""Engines: many calls of one function, by processes of this machine (joblib) or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, Protocol

from joblib import Parallel, delayed

from density_regression.io.cluster import connected, results

__all__ = ["Compute", "EngineName", "engine"]

EngineName = Literal["local", "ray"]


class Compute(Protocol):
    """Calls a function many times."""

    def __call__(
        self, function: Callable[..., Any], calls: Iterable[Mapping[str, Any]], shared: Mapping[str, Any]
    ) -> Iterator[Any]:
        """Yield what `function(**call, **shared)` returns, in the order in which it is done."""


@contextmanager
def engine(
    name: EngineName = "local", jobs: int = -1, address: str | None = None, *, on_gpu: bool = False
) -> Iterator[Compute]:
    """Something that computes many calls at once.

    Parameters
    ----------
    name : {"local", "ray"}
        Processes of this machine by joblib, or a Ray cluster. joblib's own backend for Ray returns nothing before all
        is done, and ends if a process is lost; so calls are tasks of Ray.
    jobs : int
        Most calls at once; -1 is one for each processor, and on Ray as many as there is room for.
    address : str, optional
        Of the Ray cluster, see `connected`.
    on_gpu : bool
        Whether each call on Ray needs a GPU.
    """
    if name == "local":
        yield partial(_locally, jobs)
        return
    at_once = None if jobs < 1 else jobs
    with connected(address, at_once) as ray:
        yield partial(results, ray, at_once=at_once, gpus=int(on_gpu))


def _locally(
    jobs: int, function: Callable[..., Any], calls: Iterable[Mapping[str, Any]], shared: Mapping[str, Any]
) -> Iterator[Any]:
    parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
    yield from parallel(delayed(function)(**call, **shared) for call in calls)
