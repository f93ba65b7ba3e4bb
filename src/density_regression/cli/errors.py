"""How commands end when something is wrong: one line on standard error, and no traceback."""

from __future__ import annotations

from typing import NoReturn

import typer

__all__ = ["fail"]


def fail(message: str) -> NoReturn:
    """Say what is wrong, and exit with status 1."""
    typer.echo(message, err=True)
    raise typer.Exit(1)
