"""Commands with many fits: names of methods, and runs that can be interrupted and go on."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from density_regression.cli.errors import fail

if TYPE_CHECKING:
    from density_regression.experiments.records import RecordFile

__all__ = ["check_methods", "resumable", "split_names"]


@contextmanager
def resumable(file: RecordFile, *, to_stderr: bool = False) -> Iterator[None]:
    """Close the file at the end and say where it is; if a run fails or is interrupted, exit and say how to go on.

    SIGTERM, as sent by a scheduler, interrupts as Ctrl-C does: else worker processes would go on for minutes.
    """
    hint = f"What was done is in {file.path}; the same command goes on."
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"Interrupted. {hint}", err=True)
        raise typer.Exit(130) from None
    except (OSError, RuntimeError, ValueError) as error:
        # For example a full disk, or a worker process killed for want of memory.
        fail(f"{str(error).rstrip('.')}. {hint}")
    finally:
        signal.signal(signal.SIGTERM, before)
        file.close()
    typer.echo(f"Results: {file.path}", err=to_stderr)


def check_methods(names: list[str], known: Iterable[str]) -> None:
    """Raise a usage error for the first name that is not known."""
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}.", param_hint="--methods")


def split_names(text: str) -> list[str]:
    """Names separated by commas, without repeats."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
