"""Batches of images with depth, cached on the device and augmented there if they fit."""

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from density_regression.datasets.depth import DepthFolder

__all__ = ["DepthBatches", "depth_scaling"]

MAX_CACHED_PIXELS: Final = 2**27
"""Most pixels of images that are cached on the device, at 7 bytes each."""


class DepthBatches:
    """Batches (image, depth, weight) of a `DepthFolder`, depth in standard deviations of the training depths.

    Images that fit are cached on the device and augmented there a batch at a time, which is several times faster than
    the `DataLoader` (with `workers` processes) that reads the others. With a `seed` they are shuffled in each pass.
    `center` and `scale` are the mean and standard deviation of the training depths, in metres.
    """

    def __init__(
        self,
        folder: DepthFolder,
        center: float,
        scale: float,
        batch_size: int,
        *,
        seed: int | None = None,
        device: torch.device | None = None,
        workers: int = 0,
    ) -> None:
        self.folder = folder
        self.center = center
        self.scale = scale
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)
        self._size = min(batch_size, len(folder))
        self._cached: tuple[Tensor, Tensor] | None = None
        self._loader: DataLoader[Any] | None = None
        if folder.cache and folder.crop is None and len(folder) * folder.size[0] * folder.size[1] <= MAX_CACHED_PIXELS:
            images, depths = zip(*map(folder.load, range(len(folder))), strict=True)
            self._cached = (torch.stack(images).to(device), torch.stack(depths)[:, None].to(device))
        else:
            self._loader = DataLoader(
                folder,
                self._size,
                shuffle=seed is not None,
                generator=self._generator,
                num_workers=workers,
                persistent_workers=workers > 0,
                drop_last=seed is not None,
            )

    def __len__(self) -> int:
        # Training drops a last batch of fewer images, for the statistics of batch norm.
        return len(self.folder) // self._size if self._generator is not None else -(-len(self.folder) // self._size)

    @property
    def generator(self) -> torch.Generator | None:
        """Where the order of the images comes from; None for that of the folder."""
        return self._generator

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for x, y, weight in self._cached_batches(*self._cached) if self._cached is not None else self._loader or ():
            yield x, (y - self.center) / self.scale, weight

    def _cached_batches(self, images: Tensor, depths: Tensor) -> Iterator[tuple[Tensor, ...]]:
        order = torch.arange(len(images))
        if self._generator is not None:
            order = torch.randperm(len(images), generator=self._generator)
        for index in order.to(images.device).split(self._size)[: len(self)]:
            x, y = images[index] / 255, depths[index]
            if self.folder.augment:
                x, y = _augment(x, y)
            yield x, y, (y[:, 0] > 0).float()


def depth_scaling(folder: DepthFolder) -> tuple[float, float]:
    """Mean and standard deviation of the known depths, in metres."""
    total, squares, count = 0.0, 0.0, 0
    for i in range(len(folder)):
        depth = folder.load(i)[1]
        depth = depth[depth > 0].double()
        total, squares, count = total + depth.sum().item(), squares + depth.square().sum().item(), count + len(depth)
    center = total / count
    return center, max(squares / count - center**2, 1e-12) ** 0.5


def _augment(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Randomly crop and mirror images (n, 3, h, w) and depths (n, 1, h, w), and change colours and contrast of images.

    The crop removes an eighth of each side, at the same place for the whole batch.
    """
    height, width = (side - side // 8 for side in x.shape[2:])
    top, left = (int(torch.randint(side // 8 + 1, ())) for side in x.shape[2:])
    x, y = (part[..., top : top + height, left : left + width] for part in (x, y))
    mirrored, contrast = torch.rand(2, len(x), 1, 1, 1).to(x.device)
    colours = torch.rand(len(x), x.shape[1], 1, 1).to(x.device)
    x, y = (torch.where(mirrored < 0.5, part.flip(-1), part) for part in (x, y))
    mean = x.mean((1, 2, 3), keepdim=True)
    return ((0.8 + 0.4 * colours) * (mean + (0.8 + 0.4 * contrast) * (x - mean))).clamp(0, 1), y
