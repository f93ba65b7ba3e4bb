"""What an image is made of, beside what a network sees at each of its pixels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression._numeric import FittedModule, tame
from density_regression.density.gaussian import GaussianDensity

__all__ = ["Patches", "WithScene"]

STRIDE: Final = 2
"""Pixels between two patches."""


class Patches(FittedModule):
    """The mean of many random functions of an image's small patches, at several scales.

    Each function is relu(w . patch - b) with w drawn at random and b from the values that w . patch takes on the
    images seen by `fit`. Nothing here is trained for a task, so nothing is forgotten that the task did not need: two
    images with the same means have nearly the same patches (a kernel mean embedding).

    Parameters
    ----------
    channels : int
        Of the images.
    filters : int
        Functions at each scale.
    scales : sequence of int
        By how much the image is shrunk first.
    bands : int
        Horizontal bands of the image that are described apart: a street has its sky above.
    seed : int
        Of the random functions.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        channels: int = 3,
        filters: int = 128,
        scales: Sequence[int] = (1, 2, 4),
        bands: int = 2,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.filters = filters
        self.scales = tuple(scales)
        self.bands = bands
        self.seed = seed
        generator = torch.Generator().manual_seed(seed)
        shape = (len(self.scales), filters, channels, 3, 3)
        self.register_buffer("weight", torch.randn(shape, generator=generator))
        self.register_buffer("bias", torch.zeros(len(self.scales), filters))

    @property
    def width(self) -> int:
        """Length of the vector that describes an image."""
        return len(self.scales) * self.filters * self.bands

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Scale the functions, and choose where each begins, by some images (n, c, h, w)."""
        generator = torch.Generator().manual_seed(self.seed)
        for i, scale in enumerate(self.scales):
            values = F.conv2d(_shrunk(images, scale), self.weight[i]).movedim(1, 0).flatten(1)
            spread = values.std(1).clamp_min(1e-6)
            self.weight[i] /= spread[:, None, None, None]
            share = torch.rand(self.filters, generator=generator)
            place = (share * (values.shape[1] - 1)).long().to(values.device)
            self.bias[i] = -values.sort(1).values.gather(1, place[:, None])[:, 0] / spread

    def forward(self, x: Tensor) -> Tensor:
        """Means (n, width) of images (n, c, h, w)."""
        parts = []
        for i, scale in enumerate(self.scales):
            values = F.relu(F.conv2d(_shrunk(x, scale), self.weight[i], self.bias[i], stride=STRIDE))
            parts.append(F.adaptive_avg_pool2d(values, (self.bands, 1)).flatten(1))
        return torch.cat(parts, dim=1)


class WithScene(nn.Module):
    """An image encoder's features, and beside them the log-density of the whole image, the same for every pixel.

    A network trained on few images forgets what tells a room from a street: the features of its pixels are as likely
    there as here. What the image is made of (`Patches`) still differs. Use it with `SceneDensity`, and a head that
    reads the encoder's own features alone.

    Parameters
    ----------
    encoder : nn.Module
        From images (n, c, h, w) to features (n, d, h, w).
    patches : Patches
        How an image is described.
    max_dims : int
        Directions of that description that the density looks at.
    """

    def __init__(self, encoder: nn.Module, patches: Patches, max_dims: int = 128) -> None:
        super().__init__()
        self.encoder = encoder
        self.patches = patches
        # Directions of little variance tell most: there images of one kind agree.
        self.density = GaussianDensity(max_dims=max_dims, variance=0.9999)

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, d + 1, h, w) of images (n, c, h, w)."""
        z: Tensor = self.encoder(x)
        return torch.cat([z, self.scene(x).to(z)[:, None, None, None].expand(-1, 1, *z.shape[2:])], dim=1)

    def scene(self, x: Tensor) -> Tensor:
        """log p(scene), in nats, (n,) of images (n, c, h, w)."""
        # Whatever step 1 computes in half precision: its exponents are too small for a log-density.
        with torch.autocast(x.device.type, enabled=False):
            log_density: Tensor = self.density(tame(self.patches(x.float())))
        return log_density

    @torch.no_grad()
    def fit_scene(self, batches: Iterable[Tensor]) -> None:
        """Learn the density of whole images from batches (n, c, h, w); iterated twice, it does not keep them."""
        self.patches.fit(next(iter(batches)))
        described = torch.cat([self.patches(images) for images in batches])
        self.density.fit(described)


def _shrunk(x: Tensor, scale: int) -> Tensor:
    below, right = (max(3 * scale - side, 0) for side in x.shape[-2:])
    if below or right:
        # Smaller than one patch.
        x = F.pad(x, (0, right, 0, below), mode="replicate")
    # Around zero: a patch is then told by its pattern and not only by its brightness.
    return (F.avg_pool2d(x, scale) if scale > 1 else x) - 0.5
