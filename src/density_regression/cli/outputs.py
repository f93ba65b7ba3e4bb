"""Folders that `fit` writes: tried before hours of training, and nothing but a model is written over."""

from pathlib import Path
from typing import NoReturn

import typer

from density_regression.cli.processes import is_first

__all__ = ["check_folders", "interrupted", "refuse_other"]


def refuse_other(out: Path, checkpoint_dir: Path | None) -> None:
    """Raise a usage error if the folder for a model holds something else, or is also that of the checkpoints."""
    from density_regression.io.store import holds_other

    if checkpoint_dir is not None and checkpoint_dir.resolve() == out.resolve():
        raise typer.BadParameter(f"{out} is to hold the model: name another folder.", param_hint="--checkpoint-dir")
    if out.is_dir() and (other := holds_other(out)) is not None:
        raise typer.BadParameter(f"{out} holds no model, but {other}: name another folder.", param_hint="--out")


def check_folders(out: Path, checkpoint_dir: Path | None) -> None:
    """Make the folders, and raise a usage error for one that cannot be written to."""
    from density_regression.io.store import check_writable

    for option, path in (("--out", out), ("--checkpoint-dir", checkpoint_dir)):
        try:
            if path is not None:
                check_writable(path)
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint=option) from error


def interrupted(checkpoint_dir: Path | None) -> NoReturn:
    """Say how to go on, and exit as an interrupted command does."""
    hint = "give --checkpoint-dir, and the same command goes on where it was"
    if checkpoint_dir is not None:
        hint = f"the steps that were finished are in {checkpoint_dir}; the same command goes on"
    if is_first():
        typer.echo(f"Interrupted: {hint}.", err=True)
    raise typer.Exit(130) from None
