"""Errors of commands: one line on standard error, without a traceback."""

from typing import NoReturn

import typer

__all__ = ["fail"]


def fail(message: str) -> NoReturn:
    """Print a message to standard error and exit with status 1."""
    typer.echo(message, err=True)
    raise typer.Exit(1)
