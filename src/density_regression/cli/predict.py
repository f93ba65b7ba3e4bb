"""`predict`: what a saved model makes of images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from density_regression.cli.errors import fail
from density_regression.cli.fit import Task

if TYPE_CHECKING:
    from density_regression.depth import DepthRegressor

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="Folder that `fit` wrote.")],
    images: Annotated[list[Path], typer.Argument(help="Image files, of any sizes.")],
    task: Annotated[Task, typer.Option(help="What the model has learnt.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME-depth.png, NAME-std.png and NAME.png, which shows them.")],
    device: Annotated[str, typer.Option(help='Where to compute: "cpu", "cuda" or "auto".')] = "auto",
) -> None:
    """Depth of every pixel, and its standard deviation: PNGs of 16 bits, in metres (up to 256) times 256; a picture."""
    twice = sorted({path.stem for path in images if [other.stem for other in images].count(path.stem) > 1})
    if twice:
        raise typer.BadParameter(f"Several images would be written as {', '.join(twice)}.", param_hint="IMAGES")

    from density_regression.depth import DepthRegressor

    try:
        regressor = DepthRegressor.load(model, device=device)
    except (OSError, ValueError) as error:
        fail(str(error))
    unread = 0
    for path in images:
        try:
            typer.echo(_predict_one(regressor, path, out))
        except ValueError as error:
            typer.echo(str(error), err=True)
            unread += 1
        except (ImportError, OSError, RuntimeError) as error:
            # The disk is full, say, or an image too large for the memory.
            fail(f"{path.name}: {error}")
    if unread:
        fail(f"{unread} of {len(images)} images could not be read.")


def _predict_one(regressor: DepthRegressor, path: Path, out: Path) -> str:
    """Write what is predicted for one image; returns a line about it."""
    from density_regression.datasets.depth import read_image, write_depth
    from density_regression.plots import DepthRow, plot_depth_panel

    image = read_image(path)
    mean, std, score = (part[0] for part in regressor.predict(image))
    # Nothing is behind the camera, and 0 would say that the depth is not known.
    write_depth(out / f"{path.stem}-depth.png", mean.clip(min=1e-3))
    write_depth(out / f"{path.stem}-std.png", std)
    plot_depth_panel([DepthRow(image.permute(1, 2, 0).numpy(), None, mean, std)], out / f"{path.stem}.png")
    return f"{path.name}: depth {mean.mean():.2f} m, std {std.mean():.2f} m, score {score:.1f}"
