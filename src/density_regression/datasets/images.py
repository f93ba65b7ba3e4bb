"""Reading and writing colour images and depth maps."""

__all__ = ["read_codes", "read_depth", "read_image", "read_pixels", "to_metres", "write_depth", "write_image"]

import io
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from density_regression.datasets.fetch import PathLike
from density_regression.io.extras import import_extra
from density_regression.io.files import write_whole

_CODES_PER_METRE: Final = 256
_LARGEST_CODE: Final = 65535


def read_image(path: PathLike) -> Tensor:
    """Read an image of 8 bits per colour as uint8 of shape (3, h, w), rotated as its EXIF orientation says.

    Examples
    --------
    >>> from PIL import Image
    >>> Image.new("RGB", (3, 2), "red").save("red.png")
    >>> read_image("red.png").shape
    torch.Size([3, 2, 3])
    """
    return torch.from_numpy(read_pixels(Path(path)).transpose(2, 0, 1).copy())


def read_depth(path: PathLike) -> Tensor:
    """Read a depth map as float32 of shape (h, w), in metres.

    The file is a 16-bit greyscale image of metres times 256, as in KITTI, with 0 where the depth is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from density_regression.datasets import write_depth
    >>> write_depth("depth.png", np.full((2, 3), 1.5))
    >>> read_depth("depth.png")
    tensor([[1.5000, 1.5000, 1.5000],
            [1.5000, 1.5000, 1.5000]])
    """
    return to_metres(read_codes(Path(path)))


def write_depth(path: PathLike, metres: Tensor | ArrayLike) -> None:
    """Write depths (h, w) in metres, 0 where unknown, as a 16-bit greyscale PNG that `read_depth` reads.

    Known depths are rounded to 1/256 m and clipped to 1/256 ... 255.996 m. The file is written atomically.

    Examples
    --------
    >>> import numpy as np
    >>> write_depth("depth.png", np.array([[1.5, 0.0]]))
    >>> read_depth("depth.png")
    tensor([[1.5000, 0.0000]])
    """
    values = np.asarray(metres.detach().cpu() if isinstance(metres, Tensor) else metres, dtype=np.float64)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"metres must be of shape (h, w), got {values.shape}.")
    if not (np.isfinite(values).all() and values.min() >= 0):
        raise ValueError("metres must be finite and at least 0; set pixels without a depth to 0.")
    codes = np.clip(np.rint(values * _CODES_PER_METRE), values > 0, _LARGEST_CODE)
    write_image(Path(path), codes.astype(np.uint16), "PNG")


def read_pixels(path: Path) -> NDArray[np.uint8]:
    """Colours (h, w, 3) of an image."""
    mode, pixels = _decode(path, colour=True)
    if pixels.ndim != 3:
        raise ValueError(f"{path} must be an image of 8 bits a colour, got Pillow's mode {mode!r}.")
    return pixels


def read_codes(path: Path) -> NDArray[np.uint16]:
    """Depths (h, w) times 256, as they are stored."""
    mode, pixels = _decode(path, colour=False)
    if not mode.startswith("I"):
        raise ValueError(f"{path} must be grey, of 16 bits, got Pillow's mode {mode!r}.")
    if pixels.min() < 0 or pixels.max() > _LARGEST_CODE:
        raise ValueError(f"{path} must hold values of 16 bits, got {pixels.min()} to {pixels.max()}.")
    return pixels.astype(np.uint16)


def to_metres(codes: NDArray[np.uint16]) -> Tensor:
    """Depths in metres, as float32, of depths times 256."""
    return torch.from_numpy(codes.astype(np.float32) / _CODES_PER_METRE)


def write_image(path: Path, pixels: NDArray[np.uint8 | np.uint16], kind: str, **options: int) -> None:
    """Write an image atomically, in one of Pillow's formats with its options."""
    content = io.BytesIO()
    _pillow("Image").fromarray(pixels).save(content, kind, **options)
    write_whole(path, content.getvalue())


def _decode(path: Path, colour: bool) -> tuple[str, NDArray[Any]]:
    """Pillow's mode and the pixels of an image, in RGB if `colour` and if that loses no bits of grey."""
    pillow = _pillow("Image")
    try:
        with pillow.open(path) as stored:
            image = _pillow("ImageOps").exif_transpose(stored)
            convert = colour and not image.mode.startswith(("I", "F"))
            return image.mode, np.array(image.convert("RGB") if convert else image)
    # Pillow's decoders raise exceptions of many types on a damaged file.
    except Exception as error:
        raise ValueError(f"{path} cannot be read as an image; it may be damaged or missing: {error}.") from error


def _pillow(module: str) -> Any:
    return import_extra(f"PIL.{module}", needed_by="Reading or writing images", extra="depth")
