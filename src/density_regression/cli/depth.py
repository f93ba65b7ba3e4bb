"""Depth and its standard deviation from images, by a saved model: what `predict` does with one of images."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from density_regression.cli.errors import fail

if TYPE_CHECKING:
    from density_regression.vision.depth import DepthRegressor

__all__ = ["predict_images"]


def predict_images(model: Path, images: list[Path], out: Path, device: str) -> None:
    """Write NAME-depth.png, NAME-std.png and NAME.png, which shows both, for every image, and print a line."""
    _check_names(images, out)

    from density_regression.vision.depth import DepthRegressor

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
            # For example a full disk, or an image too large for the memory.
            fail(f"{path.name}: {error}")
    if unread:
        fail(f"{unread} of {len(images)} images could not be read.")


def _outputs(image: Path, out: Path) -> list[Path]:
    """Files written for an image: depth, standard deviation, and a picture of both."""
    return [out / f"{image.stem}{part}.png" for part in ("-depth", "-std", "")]


def _check_names(images: list[Path], out: Path) -> None:
    """Refuse images whose results would overwrite each other or an image."""
    written = Counter(path.resolve() for image in images for path in _outputs(image, out))
    twice = sorted(path.name for path, count in written.items() if count > 1)
    if twice:
        raise typer.BadParameter(f"Several images would be written as {', '.join(twice)}.", param_hint="DATA")
    lost = [image.name for image in images if image.resolve() in written]
    if lost:
        raise typer.BadParameter(f"{', '.join(lost)} would be written over: name another folder.", param_hint="--out")


def _predict_one(regressor: DepthRegressor, path: Path, out: Path) -> str:
    """Write the predictions for one image, and return a summary line."""
    from density_regression.datasets import read_image, write_depth
    from density_regression.plots import DepthRow, plot_depth_panel

    image = read_image(path)
    mean, std, score = (part[0] for part in regressor.predict(image))
    depth_file, std_file, picture = _outputs(path, out)
    # Depth is positive; 0 in a file marks an unknown depth.
    write_depth(depth_file, mean.clip(min=1e-3))
    write_depth(std_file, std)
    plot_depth_panel([DepthRow(image.permute(1, 2, 0).numpy(), None, mean, std)], picture)
    return f"{path.name}: depth {mean.mean():.2f} m, std {std.mean():.2f} m, score {score:.1f}"
