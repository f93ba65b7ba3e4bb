"""Engines: many calls of one function, by processes of this machine (joblib) or on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, Literal, Protocol

from joblib import Parallel, delayed

from density_regression.io.cluster import connected

__all__ = ["Compute", "EngineName", "engine"]

EngineName = Literal["local", "ray"]


class Compute(Protocol):
    """Calls a function many times, and yields what it returns, in the order in which it is done."""

    def __call__(
        self, function: Callable[..., Any], calls: Iterable[Mapping[str, Any]], shared: Mapping[str, Any]
    ) -> Iterator[Any]:
        """Results of `function(**call, **shared)`."""


@contextmanager
def engine(
    name: EngineName = "local", jobs: int = -1, address: str | None = None, *, on_gpu: bool = False
) -> Iterator[Compute]:
    """Something that computes many calls at once.

    Parameters
    ----------
    name : {"local", "ray"}
        Processes of this machine by joblib, or those of a Ray cluster. joblib's own backend for Ray returns nothing
        before all is done, and loses what a lost process had; so calls are tasks of Ray, which are repeated if their
        process is lost.
    jobs : int
        Most calls at once; -1 is one for each processor, and on Ray as many as there is room for.
    address : str, optional
        Of the Ray cluster, see `connected`.
    on_gpu : bool
        Whether each call on Ray needs a GPU.
    """
    if name == "local":
        yield _Local(jobs)
        return
    with connected(address, None if jobs < 1 else jobs) as ray:
        yield _OnRay(ray, jobs, 1 if on_gpu else 0)


class _Local:
    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def __call__(
        self, function: Callable[..., Any], calls: Iterable[Mapping[str, Any]], shared: Mapping[str, Any]
    ) -> Iterator[Any]:
        parallel = Parallel(n_jobs=self.jobs, return_as="generator_unordered")
        yield from parallel(delayed(function)(**call, **shared) for call in calls)


class _OnRay:
    def __init__(self, ray: Any, jobs: int, gpus: int) -> None:
        self.ray, self.jobs, self.gpus = ray, jobs, gpus

    def __call__(
        self, function: Callable[..., Any], calls: Iterable[Mapping[str, Any]], shared: Mapping[str, Any]
    ) -> Iterator[Any]:
        ray, waiting, folder = self.ray, iter(calls), os.getcwd()

        def in_folder(**given: Any) -> Any:
            # Paths may be relative, and a plugin may lie there.
            with suppress(OSError):
                os.chdir(folder)
            return function(**given)

        task = ray.remote(num_cpus=1, num_gpus=self.gpus)(in_folder)
        # Once for all calls: a table need not be sent with each.
        given = {name: ray.put(value) for name, value in shared.items()}
        first = waiting if self.jobs < 1 else islice(waiting, self.jobs)
        running = [task.remote(**call, **given) for call in first]
        try:
            while running:
                (done,), running = ray.wait(running)
                running += [task.remote(**call, **given) for call in islice(waiting, 1)]
                yield ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except ray.exceptions.RayError as error:
            raise RuntimeError(f"Ray gave up: {str(error).strip().splitlines()[0]}") from error
        finally:
            for left in running:
                ray.cancel(left, force=True)
