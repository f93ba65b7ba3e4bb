"""Connection to a Ray cluster: one that runs, or one of this machine alone that is started and stopped."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from density_regression.io.extras import import_extra

__all__ = ["connected"]

STORE: Final = 1 << 30
"""Bytes of shared memory for objects of a cluster that is started here: rows do not pass through it."""


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
    if ray.is_initialized():
        yield ray
        return
    place: dict[str, Any] = {"address": address or os.environ.get("RAY_ADDRESS") or "local"}
    if place["address"] == "local":
        place |= {"num_cpus": processors, "object_store_memory": STORE, "include_dashboard": False}
    try:
        with _quiet():
            ray.init(**place, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RuntimeError(f"No Ray cluster at {place['address']!r}: {str(error).splitlines()[0]}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Let the part of Ray in Python and that in C++ say errors only, and fatal ones."""
    logger, backend = logging.getLogger("ray"), os.environ.get("RAY_BACKEND_LOG_LEVEL")
    level = logger.level
    logger.setLevel(logging.ERROR)
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        yield
    finally:
        logger.setLevel(level)
        if backend is None:
            del os.environ["RAY_BACKEND_LOG_LEVEL"]
