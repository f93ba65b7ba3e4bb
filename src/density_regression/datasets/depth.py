"""Folders of colour images and their depth maps."""

__all__ = ["DepthFolder"]

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.float32]


class DepthFolder:
    """Pairs of ``rgb/NAME.jpg`` and ``depth/NAME.png``, read when asked for.

    Parameters
    ----------
    folder : path
        Folder that holds ``rgb`` and ``depth``. A depth map is a grey image of 16 bits: metres times 256, and 0
        where the depth is not known.

    Attributes
    ----------
    names : tuple of str
        NAME of each pair, sorted.

    Raises
    ------
    FileNotFoundError
        If there is no pair, or a file without its partner.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser()
        images = {path.stem for path in (self.folder / "rgb").glob("*.jpg")}
        depths = {path.stem for path in (self.folder / "depth").glob("*.png")}
        if not images and not depths:
            raise FileNotFoundError(f"There are no pairs rgb/NAME.jpg and depth/NAME.png in {self.folder}.")
        alone = [f"rgb/{name}.jpg" for name in images - depths] + [f"depth/{name}.png" for name in depths - images]
        if alone:
            raise FileNotFoundError(
                f"Every rgb/NAME.jpg in {self.folder} needs its depth/NAME.png, and the reverse; "
                f"without a partner: {', '.join(sorted(alone)[:5])} ({len(alone)} in all)."
            )
        self.names = tuple(sorted(images))

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> tuple[Pixels, Pixels]:
        """Pair `i`: colour (3, H, W) from 0 to 1, and depth (1, H, W) in metres with 0 where it is not known."""
        name = self.names[i]
        rgb_path, depth_path = self.folder / "rgb" / f"{name}.jpg", self.folder / "depth" / f"{name}.png"
        rgb, depth = _pixels(rgb_path), _pixels(depth_path)
        if rgb.ndim != 3 or rgb.shape[2] != 3:
            raise ValueError(f"{rgb_path} must be a colour image, got pixels of shape {rgb.shape}.")
        if depth.ndim != 2 or depth.itemsize < 2:
            raise ValueError(f"{depth_path} must be grey, of 16 bits, got {depth.dtype} of shape {depth.shape}.")
        if rgb.shape[:2] != depth.shape:
            raise ValueError(f"{rgb_path} and {depth_path} must be of one size, got {rgb.shape[:2]} and {depth.shape}.")
        return rgb.transpose(2, 0, 1).astype(np.float32) / 255.0, depth[np.newaxis].astype(np.float32) / 256.0


def _pixels(path: Path) -> NDArray[np.generic]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return np.asarray(image)
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as an image; it may be damaged: {error}.") from error
