"""Colour images with the depth of every pixel: reading, writing, a data set, and made-up scenes."""

__all__ = ["DepthFolder", "make_scenes", "read_depth", "read_image", "write_depth"]

import copy
import hashlib
import io
import os
import warnings
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset

from density_regression._extras import import_extra
from density_regression._files import write_whole

PathLike = str | os.PathLike[str]
Pixels = NDArray[np.uint8]
Codes = NDArray[np.uint16]
Floats = NDArray[np.float64]
Size = tuple[int, int]

_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
_CODES_PER_METRE = 256
_LARGEST_CODE = 65535
_LIDAR_RANGE = 80.0


def read_image(path: PathLike) -> Tensor:
    """Colours of an image, as uint8 of shape (3, h, w), upright: turned as its camera says (EXIF).

    Raises
    ------
    ValueError
        If the file cannot be read as an image, or has more than 8 bits of grey.
    """
    return torch.from_numpy(_read_colours(Path(path)).transpose(2, 0, 1).copy())


def read_depth(path: PathLike) -> Tensor:
    """Depth in metres, as float32 of shape (h, w), from a grey image of 16 bits.

    The image holds metres times 256, as KITTI's do, and 0 where the depth is not known, which stays 0.

    Raises
    ------
    ValueError
        If the file cannot be read as an image, or is not grey of 16 bits.
    """
    return _metres(_read_codes(Path(path)))


def write_depth(path: PathLike, metres: Tensor | ArrayLike) -> None:
    """Write depth as a grey PNG of 16 bits, which `read_depth` reads.

    Parameters
    ----------
    path : path
        File to write, whole or not at all.
    metres : array of shape (h, w)
        Depth, rounded to 1/256 m; 0 is for pixels without one. What is above 255.996 m is written as that, and what
        is above 0 as at least 1/256 m.

    Raises
    ------
    ValueError
        If a value is negative or not finite, or the shape is not (h, w).
    """
    values = np.asarray(metres.detach().cpu() if isinstance(metres, Tensor) else metres, dtype=np.float64)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"metres must be of shape (h, w), got {values.shape}.")
    if not (np.isfinite(values).all() and values.min() >= 0):
        raise ValueError("metres must be finite and at least 0; set pixels without a depth to 0.")
    codes = np.clip(np.rint(values * _CODES_PER_METRE), values > 0, _LARGEST_CODE)
    _write_image(Path(path), codes.astype(np.uint16), "PNG")


class DepthFolder(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Pairs of ``rgb/NAME.jpg`` (or ``.jpeg``, ``.png``) and ``depth/NAME.png``, for training on every pixel.

    Every pair is read once at the start. One that cannot be used (no partner, damaged, of two sizes, without any
    depth) is left out with a warning, so that none stops the training later.

    Parameters
    ----------
    folder : path
        Folder that holds ``rgb`` and ``depth``. `read_depth` says how a depth map is coded.
    augment : bool, default=False
        Vary each image whenever it is asked for: mirrored or not, cut at a random place if there is a `crop`,
        each colour and the contrast scaled by 0.8 to 1.2. The draws are from torch's global generator.
    crop : (int, int), optional
        Height and width to cut images to, from their centre unless `augment`. Images of several sizes need it.
    cache : bool, default=True
        Keep the images in memory, at 5 bytes a pixel, rather than read them anew each time.

    Attributes
    ----------
    pairs : list of (name, image path, depth path)
        Pairs that are used, sorted by name.
    size : (int, int)
        Height and width of what the data set gives.

    Raises
    ------
    ValueError
        If no pair can be used, two images have one name, sizes differ without `crop`, or `crop` is too large.
    """

    def __init__(
        self, folder: PathLike, *, augment: bool = False, crop: Sequence[int] | None = None, cache: bool = True
    ) -> None:
        self.folder = Path(folder).expanduser()
        self.augment = augment
        self.crop = None if crop is None else _size("crop", crop)
        self.cache = cache
        self.pairs: list[tuple[str, Path, Path]] = []
        self._kept: list[tuple[Pixels, Codes]] = []
        sizes = []
        for pair in _find_pairs(self.folder):
            try:
                image, codes = _read_pair(pair)
            except ValueError as error:
                warnings.warn(f"The pair {pair[0]} is left out: {error}", UserWarning, stacklevel=2)
                continue
            self.pairs.append(pair)
            sizes.append(codes.shape)
            if cache:
                self._kept.append((image, codes))
        if not self.pairs:
            raise ValueError(f"No pair in {self.folder} can be used; the warnings say why.")
        smallest = (min(height for height, _ in sizes), min(width for _, width in sizes))
        if self.crop is None and len(set(sizes)) > 1:
            raise ValueError(
                f"The images in {self.folder} have {len(set(sizes))} sizes: give crop=(h, w), at most {smallest}."
            )
        self.size: Size = self.crop or smallest
        if self.size[0] > smallest[0] or self.size[1] > smallest[1]:
            raise ValueError(f"crop={self.crop} must be no larger than the smallest image: give at most {smallest}.")

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        height, width = self.size
        return f"DepthFolder({str(self.folder)!r}: {len(self)} of {height} x {width}, augment={self.augment})"

    def load(self, i: int) -> tuple[Tensor, Tensor]:
        """Pair `i` as it is stored: image, uint8 of shape (3, h, w), and depth in metres, float32 of shape (h, w)."""
        image, codes = self._stored(i)
        return torch.from_numpy(image).permute(2, 0, 1).contiguous(), _metres(codes)

    def _stored(self, i: int) -> tuple[Pixels, Codes]:
        return self._kept[i] if self.cache else _read_pair(self.pairs[i])

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor, Tensor]:
        """Image (3, h, w) from 0 to 1, depth (1, h, w) in metres, and weight (h, w): 1 where depth is known, else 0."""
        image, depth = self.load(i)
        height, width = self.size
        spare = (depth.shape[0] - height, depth.shape[1] - width)
        top, left = (_draw(room) if self.augment else room // 2 for room in spare)
        x = image[:, top : top + height, left : left + width] / 255
        y = depth[None, top : top + height, left : left + width]
        if self.augment:
            if _draw(1):
                x, y = x.flip(-1), y.flip(-1)
            x = _vary(x)
        return x, y, (y[0] > 0).float()

    def checksum(self) -> str:
        """Checksum of all images and depths, in their order, and of how they are cut, varied and kept."""
        digest = hashlib.sha256(repr((self.crop, self.augment, self.cache)).encode())
        for i in range(len(self)):
            for part in self._stored(i):
                digest.update(repr(part.shape).encode())
                digest.update(part.tobytes())
        return digest.hexdigest()

    def subset(self, indices: Sequence[int] | NDArray[np.integer[Any]] | Tensor, augment: bool | None = None) -> Self:
        """Some of the pairs, which share their memory with these.

        Parameters
        ----------
        indices : sequence of int
            Which pairs, in the order wanted.
        augment : bool, optional
            Whether to vary their images; as here if omitted.
        """
        chosen = np.asarray(indices)
        if chosen.ndim != 1 or not chosen.size or not np.issubdtype(chosen.dtype, np.integer):
            raise ValueError(
                f"indices must be one or more integers in a row, got {chosen.dtype} of shape {chosen.shape}."
            )
        if chosen.min() < -len(self) or chosen.max() >= len(self):
            raise ValueError(
                f"indices must be below {len(self)}, the number of pairs, got {chosen.min()} to {chosen.max()}."
            )
        part = copy.copy(self)
        part.pairs = [self.pairs[i] for i in chosen]
        part._kept = [self._kept[i] for i in chosen] if self.cache else []
        part.augment = self.augment if augment is None else augment
        return part


def make_scenes(
    folder: PathLike,
    n: int,
    *,
    size: Sequence[int] = (48, 64),
    outdoor: bool = False,
    random_state: int | np.random.Generator | None = 0,
) -> Path:
    """Write made-up images with exact depth, as `DepthFolder` reads them.

    Indoors, a room with 2 to 5 boxes, up to 8 m away, and every depth known. Outdoors, a road with posts below the
    sky, of which a third of the pixels up to 80 m have a depth, like those that a lidar meets. What is further away
    is darker indoors and hazier outdoors.

    Parameters
    ----------
    folder : path
        Folder to write ``rgb`` and ``depth`` to. A scene of an earlier call gives way to that of its number; all else
        is left, so take a fresh folder for fewer scenes.
    n : int
        Number of scenes.
    size : (int, int), default=(48, 64)
        Height and width of the images.
    outdoor : bool, default=False
        Roads rather than rooms.
    random_state : int, numpy Generator or None, default=0
        Seed, or source of the draws. None draws differently at each call.

    Returns
    -------
    Path
        The folder.
    """
    if not isinstance(n, Integral) or n < 1:
        raise ValueError(f"n must be an integer of at least 1, got {n!r}.")
    target, rays, rng = Path(folder).expanduser(), _rays(_size("size", size)), np.random.default_rng(random_state)
    for i in range(int(n)):
        colours, depth = _outdoor(rays, rng) if outdoor else _indoor(rays, rng)
        pixels = np.rint(255 * np.clip(colours + rng.normal(0, 0.01, colours.shape), 0, 1)).astype(np.uint8)
        _write_image(target / "rgb" / f"scene_{i:05d}.jpg", pixels, "JPEG", quality=95, subsampling=0)
        write_depth(target / "depth" / f"scene_{i:05d}.png", depth)
    return target


def _pillow(module: str = "Image") -> Any:
    return import_extra(f"PIL.{module}", needed_by="Reading or writing images", extra="depth")


def _read_colours(path: Path) -> Pixels:
    mode, pixels = _decoded(path, colour=True)
    if pixels.ndim != 3:
        raise ValueError(f"{path} must be an image of 8 bits a colour, got Pillow's mode {mode!r}.")
    return pixels


def _read_codes(path: Path) -> Codes:
    mode, pixels = _decoded(path, colour=False)
    if not mode.startswith("I"):
        raise ValueError(f"{path} must be grey, of 16 bits, got Pillow's mode {mode!r}.")
    if pixels.min() < 0 or pixels.max() > _LARGEST_CODE:
        raise ValueError(f"{path} must hold values of 16 bits, got {pixels.min()} to {pixels.max()}.")
    return pixels.astype(np.uint16)


def _decoded(path: Path, colour: bool) -> tuple[str, NDArray[Any]]:
    """Mode and pixels of an image as it is shown, in RGB if `colour` and if that loses nothing of its grey."""
    pillow = _pillow()
    try:
        with pillow.open(path) as stored:
            image = _pillow("ImageOps").exif_transpose(stored)
            convert = colour and not image.mode.startswith(("I", "F"))
            return image.mode, np.array(image.convert("RGB") if convert else image)
    # Pillow's decoders raise nearly anything on a damaged file.
    except Exception as error:
        raise ValueError(f"{path} cannot be read as an image; it may be damaged or missing: {error}.") from error


def _write_image(path: Path, pixels: Pixels | Codes, kind: str, **options: int) -> None:
    content = io.BytesIO()
    _pillow().fromarray(pixels).save(content, kind, **options)
    write_whole(path, content.getvalue())


def _metres(codes: Codes) -> Tensor:
    return torch.from_numpy(codes.astype(np.float32) / _CODES_PER_METRE)


def _read_pair(pair: tuple[str, Path, Path]) -> tuple[Pixels, Codes]:
    """Image (h, w, 3) and depth codes (h, w) of a pair that is fit for use."""
    _, image_path, depth_path = pair
    image, codes = _read_colours(image_path), _read_codes(depth_path)
    if image.shape[:2] != codes.shape:
        raise ValueError(f"{image_path} and {depth_path} must be of one size, got {image.shape[:2]} and {codes.shape}.")
    if not codes.any():
        raise ValueError(f"{depth_path} has no pixel with a depth.")
    return image, codes


def _find_pairs(folder: Path) -> list[tuple[str, Path, Path]]:
    expected = "rgb/NAME.jpg (or .jpeg, .png) and depth/NAME.png"
    for part in ("rgb", "depth"):
        if not (folder / part).is_dir():
            raise ValueError(f"There is no folder {folder / part}: expected pairs of {expected} in {folder}.")
    images, depths = _by_stem(folder / "rgb", _IMAGE_SUFFIXES), _by_stem(folder / "depth", (".png",))
    names = sorted(images.keys() & depths.keys())
    if not names:
        raise ValueError(f"There are no pairs of {expected} in {folder}.")
    alone = sorted(f"{(images | depths)[name].parent.name}/{name}" for name in images.keys() ^ depths.keys())
    if alone:
        some = ", ".join(alone[:3]) + ", ..." * (len(alone) > 3)
        warnings.warn(f"{len(alone)} files in {folder} have no partner and are left out: {some}", stacklevel=3)
    return [(name, images[name], depths[name]) for name in names]


def _by_stem(folder: Path, suffixes: tuple[str, ...]) -> dict[str, Path]:
    """Image files by name; hidden ones, which systems and interrupted writers leave behind, are none."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in suffixes and not path.name.startswith("."):
            if path.stem in found:
                raise ValueError(f"{found[path.stem]} and {path} have one name: remove or rename one of them.")
            found[path.stem] = path
    return found


def _size(name: str, size: Sequence[int]) -> Size:
    if (
        not isinstance(size, Sequence)
        or len(size) != 2
        or not all(isinstance(side, Integral) and side >= 1 for side in size)
    ):
        raise ValueError(f"{name} must be (height, width), integers of at least 1, got {size!r}.")
    return int(size[0]), int(size[1])


def _draw(largest: int) -> int:
    """An integer from 0 to `largest`, by torch's global generator."""
    return int(torch.randint(largest + 1, ()))


def _vary(x: Tensor) -> Tensor:
    """Change the colours and the contrast of an image a little."""
    red, green, blue, contrast = torch.empty(4).uniform_(0.8, 1.2)
    mean = x.mean()
    return torch.clamp(torch.stack([red, green, blue])[:, None, None] * (mean + contrast * (x - mean)), 0, 1)


class _Box(NamedTuple):
    """Corners, with x to the right, y down and z ahead of the camera, in metres."""

    low: tuple[float, float, float]
    high: tuple[float, float, float]


def _rays(size: Size) -> Floats:
    """Direction (h, w, 3) through the centre of each pixel, of length 1 along z, so that a multiple is a depth."""
    height, width = size
    focal = 0.6 * max(size)
    x, y = np.meshgrid(np.arange(width) + 0.5 - width / 2, np.arange(height) + 0.5 - height / 2)
    return np.stack([x / focal, y / focal, np.ones(size)], axis=-1)


def _meet(rays: Floats, box: _Box) -> tuple[Floats, Floats]:
    """Depths (h, w, 3) at which rays come between the two sides of a box, and leave them, on each axis."""
    with np.errstate(divide="ignore"):
        sides = np.stack([np.array(box.low) / rays, np.array(box.high) / rays])
    return sides.min(axis=0), sides.max(axis=0)


def _put(colours: Floats, depth: Floats, rays: Floats, box: _Box, colour: Floats) -> None:
    """Draw a box over what is further away; its sides are darker than its front."""
    enters, leaves = _meet(rays, box)
    enter = enters.max(axis=-1)
    seen = (enter < leaves.min(axis=-1)) & (enter > 0) & (enter < depth)
    depth[seen] = enter[seen]
    shade = np.array([0.7, 0.85, 1.0])[enters.argmax(axis=-1)]
    colours[seen] = colour * shade[seen, np.newaxis]


def _room(rng: np.random.Generator) -> tuple[_Box, list[_Box]]:
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


def _indoor(rays: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    walls, boxes = _room(rng)
    _, leaves = _meet(rays, walls)
    depth, axis = leaves.min(axis=-1), leaves.argmin(axis=-1)
    wall, floor, ceiling = rng.uniform(0.6, 0.9, 3), np.array([0.6, 0.42, 0.28]), np.array([0.95, 0.95, 0.92])
    # Side walls, floor or ceiling, and the back wall, by the axis along which the ray leaves the room.
    colours = np.where((axis == 1)[..., np.newaxis], np.where(rays[..., 1:2] > 0, floor, ceiling), wall)
    colours[axis == 0] *= 0.85
    for box in boxes:
        _put(colours, depth, rays, box, rng.uniform(0.2, 1, 3))
    return colours * (1.1 - 0.09 * depth)[..., np.newaxis], depth


def _outdoor(rays: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
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
        _put(colours, depth, rays, post, rng.uniform(0.1, 0.6, 3))
    near = np.exp(-depth / 40)[..., np.newaxis]
    blue = np.clip(-down, 0, 1)[..., np.newaxis] * [-0.6, -0.3, 0.1]
    colours = near * colours + (1 - near) * (haze + blue)
    return colours, np.where((depth <= _LIDAR_RANGE) & (rng.random(depth.shape) < 1 / 3), depth, 0)
