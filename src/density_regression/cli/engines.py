"""Options of commands that can run on a cluster."""

from importlib.util import find_spec
from typing import Annotated, Literal

import typer

from density_regression.cli.errors import fail
from density_regression.io.extras import import_extra

__all__ = ["CLUSTER", "Address", "Engine", "check_engine"]

CLUSTER = "On a cluster"

Engine = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Where to compute: on this machine, or on a Ray cluster.", rich_help_panel=CLUSTER),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Of the Ray cluster; without it that of RAY_ADDRESS, or else one is started on this machine.",
        rich_help_panel=CLUSTER,
    ),
]


def check_engine(engine: str, address: str | None, workers: int | None = None) -> None:
    """Raise a usage error for options of a cluster without one, and end the command if Ray is not installed."""
    for option, value in (("--address", address), ("--workers", workers)):
        if engine == "local" and value is not None:
            raise typer.BadParameter(f"{option} is of the engine ray: add --engine ray.", param_hint=option)
    if engine == "ray" and find_spec("ray") is None:
        try:
            import_extra("ray", needed_by="--engine ray", extra="ray")
        except ImportError as error:
            fail(str(error))
