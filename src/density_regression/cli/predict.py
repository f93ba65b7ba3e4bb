"""`predict`: what a saved model makes of images."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from density_regression.cli.errors import fail
from density_regression.cli.fit import Task

if TYPE_CHECKING:
    from density_regression.depth import DepthRegressor

__all__ = ["predict"]


class Results(NamedTuple):
    """Files that are written for an image."""

    depth: Path
    std: Path
    panel: Path

    @classmethod
    def of(cls, image: Path, out: Path) -> Results:
        """Those of one image, in a folder."""
        return cls(*(out / f"{image.stem}{part}.png" for part in ("-depth", "-std", "")))


def predict(
    model: Annotated[Path, typer.Argument(help="Folder that `fit` wrote.")],
    images: Annotated[list[Path], typer.Argument(help="Image files, of any sizes.")],
    task: Annotated[Task, typer.Option(help="What the model has learnt.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME-depth.png, NAME-std.png and NAME.png, which shows them.")],
    device: Annotated[str, typer.Option(help='Where to compute: "cpu", "cuda" or "auto".')] = "auto",
) -> None:
    """Depth of every pixel, and its standard deviation: PNGs of 16 bits, in metres (up to 256) times 256; a picture."""
    _check_names(images, out)

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


def _check_names(images: list[Path], out: Path) -> None:
    """Refuse images whose results would be written over each other, or over an image."""
    written = Counter(path.resolve() for image in images for path in Results.of(image, out))
    twice = sorted(path.name for path, count in written.items() if count > 1)
    if twice:
        raise typer.BadParameter(f"Several images would be written as {', '.join(twice)}.", param_hint="IMAGES")
    lost = [image.name for image in images if image.resolve() in written]
    if lost:
        raise typer.BadParameter(f"{', '.join(lost)} would be written over: name another folder.", param_hint="--out")


def _predict_one(regressor: DepthRegressor, path: Path, out: Path) -> str:
    """Write what is predicted for one image; returns a line about it."""
    from density_regression.datasets.depth import read_image, write_depth
    from density_regression.plots import DepthRow, plot_depth_panel

    image, results = read_image(path), Results.of(path, out)
    mean, std, score = (part[0] for part in regressor.predict(image))
    # Nothing is behind the camera, and 0 would say that the depth is not known.
    write_depth(results.depth, mean.clip(min=1e-3))
    write_depth(results.std, std)
    plot_depth_panel([DepthRow(image.permute(1, 2, 0).numpy(), None, mean, std)], results.panel)
    return f"{path.name}: depth {mean.mean():.2f} m, std {std.mean():.2f} m, score {score:.1f}"
