"""Synthetic images with exact depth, by ray casting: rooms with boxes, and roads with posts."""

__all__ = ["make_scenes"]

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from density_regression.datasets.depth import check_size
from density_regression.datasets.fetch import PathLike
from density_regression.datasets.images import write_depth, write_image

Floats = NDArray[np.float64]


def make_scenes(
    folder: PathLike,
    n: int,
    *,
    size: Sequence[int] = (48, 64),
    outdoor: bool = False,
    random_state: int | np.random.Generator | None = 0,
) -> Path:
    """Write synthetic images with exact depth, in the format of `DepthFolder`, and return the folder.

    Indoor scenes are rooms with 2 to 5 boxes, up to 8 m away, with all depths known. Outdoor scenes are roads with
    posts below the sky; like those of a lidar, depths are known for a third of the pixels, up to 80 m. With distance,
    colours grow darker indoors and hazier outdoors.

    Parameters
    ----------
    folder : path
        Folder to write ``rgb`` and ``depth`` to. Scenes of an earlier call are overwritten by number, not removed.
    n : int
        Number of scenes.
    size : (int, int), default=(48, 64)
        Height and width of the images.
    outdoor : bool, default=False
        Whether to draw roads rather than rooms.
    random_state : int, numpy Generator or None, default=0
        Seed or generator. None draws differently at each call.

    Examples
    --------
    >>> from density_regression.datasets import DepthFolder
    >>> image, depth, weight = DepthFolder(make_scenes("rooms", 2, size=(16, 24)))[0]
    >>> tuple(image.shape), tuple(depth.shape)
    ((3, 16, 24), (1, 16, 24))
    """
    if not isinstance(n, Integral) or n < 1:
        raise ValueError(f"n must be an integer of at least 1, got {n!r}.")
    target, rays = Path(folder).expanduser(), _camera_rays(check_size("size", size))
    rng = np.random.default_rng(random_state)
    for i in range(int(n)):
        colours, depth = _render_road(rays, rng) if outdoor else _render_room(rays, rng)
        pixels = np.rint(255 * np.clip(colours + rng.normal(0, 0.01, colours.shape), 0, 1)).astype(np.uint8)
        write_image(target / "rgb" / f"scene_{i:05d}.jpg", pixels, "JPEG", quality=95, subsampling=0)
        write_depth(target / "depth" / f"scene_{i:05d}.png", depth)
    return target


class _Box(NamedTuple):
    """Opposite corners in metres, with x to the right, y down and z ahead of the camera."""

    low: tuple[float, float, float]
    high: tuple[float, float, float]


def _camera_rays(size: tuple[int, int]) -> Floats:
    """Direction (h, w, 3) through the centre of each pixel, with z = 1, so that a multiple of it is a depth."""
    height, width = size
    focal = 0.6 * max(size)
    x, y = np.meshgrid(np.arange(width) + 0.5 - width / 2, np.arange(height) + 0.5 - height / 2)
    return np.stack([x / focal, y / focal, np.ones(size)], axis=-1)


def _slab_depths(rays: Floats, box: _Box) -> tuple[Floats, Floats]:
    """Depths (h, w, 3) at which rays enter and leave the space between the two sides of a box, for each axis."""
    with np.errstate(divide="ignore"):
        sides = np.stack([np.array(box.low) / rays, np.array(box.high) / rays])
    return sides.min(axis=0), sides.max(axis=0)


def _paint_box(colours: Floats, depth: Floats, rays: Floats, box: _Box, colour: Floats) -> None:
    """Draw a box over what is further away, its sides darker than its front."""
    enters, leaves = _slab_depths(rays, box)
    enter = enters.max(axis=-1)
    seen = (enter < leaves.min(axis=-1)) & (enter > 0) & (enter < depth)
    depth[seen] = enter[seen]
    shade = np.array([0.7, 0.85, 1.0])[enters.argmax(axis=-1)]
    colours[seen] = colour * shade[seen, np.newaxis]


def _random_room(rng: np.random.Generator) -> tuple[_Box, list[_Box]]:
    """Walls around the camera, and boxes or thin panels that stand or hang within them."""
    left, right = -rng.uniform(1.5, 3), rng.uniform(1.5, 3)
    floor, ceiling, back = rng.uniform(1.2, 1.6), -rng.uniform(1, 1.4), rng.uniform(4, 8)
    boxes = []
    for _ in range(rng.integers(2, 6)):
        width, height, length = rng.uniform(0.3, 1), rng.uniform(0.4, 1.6), rng.choice([0.05, rng.uniform(0.3, 1)])
        x, z = rng.uniform(left, right - width), rng.uniform(1.2, back - length)
        bottom = floor if rng.random() < 0.7 else rng.uniform(0, floor)
        boxes.append(_Box((x, bottom - height, z), (x + width, bottom, z + length)))
    return _Box((left, ceiling, -1.0), (right, floor, back)), boxes


def _render_room(rays: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Colours (h, w, 3) and depths (h, w)."""
    walls, boxes = _random_room(rng)
    _, leaves = _slab_depths(rays, walls)
    depth, axis = leaves.min(axis=-1), leaves.argmin(axis=-1)
    wall, floor, ceiling = rng.uniform(0.6, 0.9, 3), np.array([0.6, 0.42, 0.28]), np.array([0.95, 0.95, 0.92])
    # The axis along which a ray leaves the room: 0 for a side wall, 1 for floor or ceiling, 2 for the back wall.
    colours = np.where((axis == 1)[..., np.newaxis], np.where(rays[..., 1:2] > 0, floor, ceiling), wall)
    colours[axis == 0] *= 0.85
    for box in boxes:
        _paint_box(colours, depth, rays, box, rng.uniform(0.2, 1, 3))
    return colours * (1.1 - 0.09 * depth)[..., np.newaxis], depth


def _render_road(rays: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Colours (h, w, 3) and depths (h, w), 0 where unknown."""
    rays = rays + np.array([0, rng.uniform(-0.05, 0.05), 0])
    height, road = rng.uniform(1.5, 1.8), rng.uniform(3, 5)
    down = rays[..., 1]
    depth = np.full(down.shape, np.inf)
    np.divide(height, down, out=depth, where=down > 0)
    grey, green, haze = np.array([0.35, 0.35, 0.37]), np.array([0.3, 0.5, 0.2]), np.array([0.8, 0.85, 0.9])
    on_road = down * road > np.abs(rays[..., 0]) * height
    colours = np.where(on_road[..., np.newaxis], grey, green)
    for _ in range(rng.integers(3, 7)):
        x, z, width = rng.choice([-1, 1]) * rng.uniform(road, road + 3), rng.uniform(5, 40), rng.uniform(0.2, 0.5)
        post = _Box((x, height - rng.uniform(2, 6), z), (x + width, height, z + width))
        _paint_box(colours, depth, rays, post, rng.uniform(0.1, 0.6, 3))
    near = np.exp(-depth / 40)[..., np.newaxis]
    blue = np.clip(-down, 0, 1)[..., np.newaxis] * [-0.6, -0.3, 0.1]
    colours = near * colours + (1 - near) * (haze + blue)
    return colours, np.where((depth <= 80) & (rng.random(depth.shape) < 1 / 3), depth, 0)
