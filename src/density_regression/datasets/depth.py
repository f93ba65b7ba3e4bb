"""Data set of colour images with the depth of every pixel."""

__all__ = ["DepthFolder", "check_size"]

import copy
import hashlib
import warnings
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from density_regression.datasets.fetch import PathLike
from density_regression.datasets.images import read_codes, read_pixels, to_metres

_Pair = tuple[str, Path, Path]
_Stored = tuple[NDArray[np.uint8], NDArray[np.uint16]]


class DepthFolder(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Pairs of ``rgb/NAME.jpg`` (or ``.jpeg``, ``.png``) and ``depth/NAME.png``, for pixel-wise regression.

    All pairs are read once by the constructor. Those that cannot be used (no partner, damaged, of different sizes,
    without any depth) are left out with a warning.

    Parameters
    ----------
    folder : path
        Folder that holds ``rgb`` and ``depth``; `read_depth` describes the format of a depth map.
    augment : bool, default=False
        Augment images whenever they are read: random horizontal flip and crop (with `crop`), each colour and the
        contrast scaled by 0.8 to 1.2. Random numbers are from torch's global generator.
    crop : (int, int), optional
        Height and width of the crop, central unless `augment`. Required for images of several sizes.
    cache : bool, default=True
        Keep the images in memory, 5 bytes per pixel.

    Attributes
    ----------
    pairs : list of (name, image path, depth path)
        Pairs that are used, sorted by name.
    size : (int, int)
        Height and width of the items.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from PIL import Image
    >>> for part in ("rgb", "depth"):
    ...     Path("rooms", part).mkdir(parents=True)
    >>> Image.new("RGB", (6, 4)).save("rooms/rgb/one.png")
    >>> from density_regression.datasets import write_depth
    >>> write_depth("rooms/depth/one.png", np.full((4, 6), 2.0))
    >>> image, depth, weight = DepthFolder("rooms")[0]
    >>> tuple(image.shape), tuple(depth.shape), tuple(weight.shape)
    ((3, 4, 6), (1, 4, 6), (4, 6))
    """

    def __init__(
        self, folder: PathLike, *, augment: bool = False, crop: Sequence[int] | None = None, cache: bool = True
    ) -> None:
        self.folder = Path(folder).expanduser()
        self.augment = augment
        self.crop = None if crop is None else check_size("crop", crop)
        self.cache = cache
        self.pairs: list[_Pair] = []
        self._cached: list[_Stored] = []
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
                self._cached.append((image, codes))
        if not self.pairs:
            raise ValueError(f"No pair in {self.folder} can be used; the warnings say why.")
        smallest = (min(height for height, _ in sizes), min(width for _, width in sizes))
        if self.crop is None and len(set(sizes)) > 1:
            raise ValueError(
                f"The images in {self.folder} have {len(set(sizes))} sizes: give crop=(h, w), at most {smallest}."
            )
        self.size: tuple[int, int] = self.crop or smallest
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
        return torch.from_numpy(image).permute(2, 0, 1).contiguous(), to_metres(codes)

    def _stored(self, i: int) -> _Stored:
        return self._cached[i] if self.cache else _read_pair(self.pairs[i])

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor, Tensor]:
        """Image (3, h, w) from 0 to 1, depth (1, h, w) in metres, and weight (h, w): 1 where depth is known, else 0."""
        image, depth = self.load(i)
        height, width = self.size
        margins = (depth.shape[0] - height, depth.shape[1] - width)
        top, left = (int(torch.randint(margin + 1, ())) if self.augment else margin // 2 for margin in margins)
        x = image[:, top : top + height, left : left + width] / 255
        y = depth[None, top : top + height, left : left + width]
        if self.augment:
            if torch.randint(2, ()):
                x, y = x.flip(-1), y.flip(-1)
            x = _jitter_colours(x)
        return x, y, (y[0] > 0).float()

    def checksum(self) -> str:
        """SHA-256 of all images and depths in their order, and of the options."""
        digest = hashlib.sha256(repr((self.crop, self.augment, self.cache)).encode())
        for i in range(len(self)):
            for part in self._stored(i):
                digest.update(repr(part.shape).encode())
                digest.update(part.tobytes())
        return digest.hexdigest()

    def subset(self, indices: Sequence[int] | NDArray[np.integer[Any]] | Tensor, augment: bool | None = None) -> Self:
        """Return the pairs with these indices, in this order, sharing the cache; `augment` is kept if omitted."""
        rows = np.asarray(indices)
        if rows.ndim != 1 or not rows.size or not np.issubdtype(rows.dtype, np.integer):
            raise ValueError(f"indices must be one or more integers in a row, got {rows.dtype} of shape {rows.shape}.")
        if rows.min() < -len(self) or rows.max() >= len(self):
            raise ValueError(
                f"indices must be below {len(self)}, the number of pairs, got {rows.min()} to {rows.max()}."
            )
        part = copy.copy(self)
        part.pairs = [self.pairs[i] for i in rows]
        part._cached = [self._cached[i] for i in rows] if self.cache else []
        part.augment = self.augment if augment is None else augment
        return part


def check_size(name: str, size: Sequence[int]) -> tuple[int, int]:
    """Return a valid (height, width), or raise a ValueError that names the argument."""
    pair = isinstance(size, Sequence) and len(size) == 2
    if not pair or not all(isinstance(side, Integral) and side >= 1 for side in size):
        raise ValueError(f"{name} must be (height, width), integers of at least 1, got {size!r}.")
    return int(size[0]), int(size[1])


def _read_pair(pair: _Pair) -> _Stored:
    """Image (h, w, 3) and depth codes (h, w); a ValueError says why a pair cannot be used."""
    _, image_path, depth_path = pair
    image, codes = read_pixels(image_path), read_codes(depth_path)
    if image.shape[:2] != codes.shape:
        raise ValueError(f"{image_path} and {depth_path} must be of one size, got {image.shape[:2]} and {codes.shape}.")
    if not codes.any():
        raise ValueError(f"{depth_path} has no pixel with a depth.")
    return image, codes


def _find_pairs(folder: Path) -> list[_Pair]:
    expected = "rgb/NAME.jpg (or .jpeg, .png) and depth/NAME.png"
    for part in ("rgb", "depth"):
        if not (folder / part).is_dir():
            raise ValueError(f"There is no folder {folder / part}: expected pairs of {expected} in {folder}.")
    images, depths = _by_stem(folder / "rgb", (".jpg", ".jpeg", ".png")), _by_stem(folder / "depth", (".png",))
    names = sorted(images.keys() & depths.keys())
    if not names:
        raise ValueError(f"There are no pairs of {expected} in {folder}.")
    if alone := sorted(f"{(images | depths)[name].parent.name}/{name}" for name in images.keys() ^ depths.keys()):
        some = ", ".join(alone[:3]) + ", ..." * (len(alone) > 3)
        warnings.warn(f"{len(alone)} files in {folder} have no partner and are left out: {some}", stacklevel=3)
    return [(name, images[name], depths[name]) for name in names]


def _by_stem(folder: Path, suffixes: tuple[str, ...]) -> dict[str, Path]:
    """Image files by name without suffix; hidden files, such as those of interrupted writers, are ignored."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in suffixes and not path.name.startswith("."):
            if path.stem in found:
                raise ValueError(f"{found[path.stem]} and {path} have one name: remove or rename one of them.")
            found[path.stem] = path
    return found


def _jitter_colours(x: Tensor) -> Tensor:
    """Scale each colour and the contrast of an image (3, h, w) by random factors from 0.8 to 1.2."""
    red, green, blue, contrast = torch.empty(4).uniform_(0.8, 1.2)
    mean = x.mean()
    return torch.clamp(torch.stack([red, green, blue])[:, None, None] * (mean + contrast * (x - mean)), 0, 1)
