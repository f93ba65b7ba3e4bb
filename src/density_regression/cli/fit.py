"""`fit`: train a model on a folder of images."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from density_regression.cli.errors import fail

__all__ = ["fit"]

Task = Literal["depth"]


def fit(
    folder: Annotated[Path, typer.Argument(help="Folder of rgb/NAME.jpg (or .png) and depth/NAME.png.")],
    task: Annotated[Task, typer.Option(help="What to learn: the depth of every pixel from one image.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    epochs: Annotated[int, typer.Option(min=1, help="Most passes over the images.")] = 60,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a batch.")] = 32,
    width: Annotated[int, typer.Option(min=1, help="Features of every pixel.")] = 32,
    levels: Annotated[int, typer.Option(min=1, help="Times that the U-Net halves the resolution.")] = 4,
    smoothness: Annotated[
        float, typer.Option(min=0, help="How far images are moved in training, to make it robust; 0 is more accurate.")
    ] = 0.03,
    device: Annotated[str, typer.Option(help='Where to train: "cpu", "cuda" or "auto".')] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of everything random.")] = 0,
    checkpoint_dir: Annotated[Path | None, typer.Option(help="Folder from which an interrupted fit goes on.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that prepare images.")] = 0,
) -> None:
    """Train a model on a folder, and save it."""
    from density_regression.io.store import check_writable
    from density_regression.vision.depth import DepthRegressor

    for option, path in (("--out", out), ("--checkpoint-dir", checkpoint_dir)):
        try:
            if path is not None:
                check_writable(path)
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint=option) from error

    model = DepthRegressor(
        epochs=epochs,
        batch_size=batch_size,
        width=width,
        levels=levels,
        smoothness=smoothness,
        device=device,
        random_state=seed,
        checkpoint_dir=checkpoint_dir,
        workers=workers,
    )
    try:
        model.fit(folder)
        model.save(out)
    except KeyboardInterrupt:
        hint = "give --checkpoint-dir, and the same command goes on after the last step that was finished"
        if checkpoint_dir is not None:
            hint = f"the steps that were finished are in {checkpoint_dir}; the same command goes on"
        typer.echo(f"Interrupted: {hint}.", err=True)
        raise typer.Exit(130) from None
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        # Also raised if the memory of a GPU, or a disk, is too small.
        fail(str(error))
    typer.echo(f"Fitted in {sum(model.report_.seconds.values()):.0f} s. Model: {out}")
