"""Options of commands that can run on a cluster."""

from typing import Annotated, Literal

import typer

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
    """Raise a usage error for options of a cluster without one."""
    for option, value in (("--address", address), ("--workers", workers)):
        if engine == "local" and value is not None:
            raise typer.BadParameter(f"{option} is of the engine ray: add --engine ray.", param_hint=option)
