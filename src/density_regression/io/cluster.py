"""A Ray cluster: a connection to it, and many calls of one function on it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from itertools import islice
from typing import Any, Final

from density_regression.io.extras import import_extra

__all__ = ["connected", "results"]

STORE: Final = 1 << 30
"""Bytes of shared memory for objects of a cluster that is started here: rows of tables on the disk do not pass it."""

RETRIES: Final = 3
"""Times that a call is repeated whose process was lost; one by which every process dies must end the job."""


@contextmanager
def connected(address: str | None = None, processors: int | None = None) -> Iterator[Any]:
    """The module `ray`, connected to a cluster.

    Parameters
    ----------
    address : str, optional
        Of a running cluster, such as "10.0.0.1:6379", or "auto". Without one that of the environment variable
        `RAY_ADDRESS`; without that, a cluster of this machine is started, and stopped on leaving. A connection that
        this process has already is used, and stays.
    processors : int, optional
        Of a cluster that is started here; all if left out.

    Raises
    ------
    RuntimeError
        If there is no cluster at the address.
    """
    ray = import_extra("ray", needed_by='The engine "ray"', extra="ray")
    # Ray prints what it has to say of lost processes, and standard output may be for a result.
    with redirect_stdout(sys.stderr):
        if ray.is_initialized():
            yield ray
            return
        place: dict[str, Any] = {"address": address or os.environ.get("RAY_ADDRESS") or "local"}
        if place["address"] == "local":
            place |= {"num_cpus": processors, "object_store_memory": STORE, "include_dashboard": False}
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            ray.init(**place, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise RuntimeError(f"No Ray cluster at {place['address']!r}: {str(error).splitlines()[0]}") from error
        try:
            yield ray
        finally:
            ray.shutdown()


def results(
    ray: Any,
    function: Callable[..., Any],
    calls: Iterable[Mapping[str, Any]],
    shared: Mapping[str, Any],
    at_once: int | None = None,
    gpus: int = 0,
) -> Generator[Any, None, None]:
    """Yield what `function(**call, **shared)` returns for many calls, in the order in which it is done.

    Each call is a task of Ray with one processor, which is repeated if its process or machine is lost. Relative paths
    are those of the folder of this process, if a machine has that. Calls that are left when nobody asks for results any
    more are cancelled.

    Parameters
    ----------
    ray : module
        As `connected` gives it.
    function : callable
        Of a module that all machines have.
    calls : iterable of mappings
        Arguments of each call, by name.
    shared : mapping
        Arguments of all calls, which are sent once.
    at_once : int, optional
        Most calls at once; without it, as many as the cluster has room for.
    gpus : int
        That each call needs.

    Raises
    ------
    Exception
        What a call raised.
    RuntimeError
        If a call was lost again and again.
    """
    folder, waiting = os.getcwd(), iter(calls)

    def in_folder(**given: Any) -> Any:
        with suppress(OSError):
            os.chdir(folder)
        return function(**given)

    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(in_folder)
    sent = {name: ray.put(value) for name, value in shared.items()}
    running = [task.remote(**call, **sent) for call in islice(waiting, at_once)]
    try:
        while running:
            (done,), running = ray.wait(running)
            running += [task.remote(**call, **sent) for call in islice(waiting, 1)]
            yield ray.get(done)
    except ray.exceptions.RayTaskError as error:
        # Its own text has the traceback of the other process.
        raise error.cause from None
    except ray.exceptions.RayError as error:
        problem = str(error).strip().splitlines()[0]
        raise RuntimeError(f"A process of Ray was lost {RETRIES + 1} times with the same call: {problem}") from error
    finally:
        for left in running:
            ray.cancel(left, force=True)
