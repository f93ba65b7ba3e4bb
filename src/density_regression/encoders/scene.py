"""What an image is made of, beside what a network sees at each of its pixels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression._numeric import FittedModule, along_signs, tame
from density_regression.density.folded import Folded
from density_regression.density.gaussian import GaussianDensity
from density_regression.encoders.unet import UNet

__all__ = ["Patches", "WithScene"]

SHRINK: Final = 2
"""By how much an image is shrunk before its patches are looked at: the noise of single pixels is averaged away."""

CHANGE: Final = 0.04
"""Most that any number of an image, from 0 to 1, changes when it is shown a second time."""


class Patches(nn.Module):
    """The means of many random functions of an image's small grey patches, over its upper half and its lower.

    Each function is relu(w . patch - b) with w drawn at random and b one of the values that w . patch takes on the
    images seen by `fit`. Patches overlap: who would change their means must then change every pixel for nine patches
    at once. Nothing here is trained for a task, so nothing is forgotten that the task did not need: two images with the
    same means have nearly the same patches (a kernel mean embedding). Grey, because a red sofa is no street; halves,
    because a street has its sky above.

    Parameters
    ----------
    filters : int
        Number of functions.
    seed : int
        Of the random functions.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, filters: int = 64, *, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("weight", torch.randn(filters, 1, 3, 3, generator=generator))
        self.register_buffer("bias", torch.zeros(filters))

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Scale the functions, and choose where each begins, by some images (n, c, h, w)."""
        values = F.conv2d(_grey(images), self.weight).movedim(1, 0).flatten(1)
        spread = values.std(1).clamp_min(1e-6)
        self.weight /= spread[:, None, None, None]
        # One in each of as many parts of the range: drawn without regard to each other they would leave gaps.
        part = torch.randperm(len(values), generator=torch.Generator().manual_seed(self.seed))
        share = (part + 0.5) / len(values)
        place = (share * (values.shape[1] - 1)).long().to(values.device)
        self.bias.copy_(-values.sort(1).values.gather(1, place[:, None])[:, 0] / spread)

    def forward(self, x: Tensor) -> Tensor:
        """Means (n, filters * 2) of images (n, c, h, w), a filter's two halves beside each other."""
        rows = F.relu(F.conv2d(_grey(x), self.weight, self.bias)).mean(3)
        # Of an odd number of rows the middle one is in both. One sum for the two halves; adaptive pooling does the
        # same, 50 times slower on a GPU.
        half = -(-rows.shape[2] // 2)
        first = torch.arange(2, device=x.device)[:, None] * (rows.shape[2] - half)
        place = torch.arange(rows.shape[2], device=x.device) - first
        share = ((place >= 0) & (place < half)).to(rows.dtype) / half
        return (rows[:, :, None] * share).sum(3).flatten(1)


class WithScene(FittedModule):
    """A U-Net's features, and beside them the log-density of the whole image, the same for every pixel.

    The features of single pixels are as likely in a street as in a room: the last layer keeps what tells depth, not
    what tells a street. What a whole image is made of still differs: the means of the U-Net's own features at one of
    its first levels, which textures it knows, and the means of random functions of patches (`Patches`), whatever it
    knows. Use it with `SceneDensity`, and a head that reads the U-Net's own features alone.

    Parameters
    ----------
    encoder : UNet
        From images (n, c, h, w) to features (n, d, h, w).
    patches : Patches
        The other half of an image's description.
    level : int
        Of the U-Net, whose features are averaged.
    max_dims : int
        Directions of that description that the density looks at.
    """

    unit: Tensor

    def __init__(self, encoder: UNet, patches: Patches, level: int = 2, max_dims: int = 100) -> None:
        super().__init__()
        self.encoder = encoder
        self.patches = patches
        self.level = min(level, encoder.levels)
        # Directions of little variance tell most: there images of one kind agree.
        self.density = GaussianDensity(max_dims=max_dims, variance=0.9999)
        self.register_buffer("unit", torch.ones(0))
        self.folded: Folded | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, d + 1, h, w) of images (n, c, h, w), the last log p(scene)."""
        z, log_density = self.apart(x)
        return torch.cat([z, log_density.to(z.dtype)[:, None, None, None].expand(-1, 1, *z.shape[2:])], dim=1)

    def apart(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (n, d, h, w) of images (n, c, h, w), and log p(scene) (n,), in nats; zero until `fit_scene`."""
        maps = self.encoder.maps(x)
        return maps[-1], self._log_density(self._describe(x, maps)) if self.density.fitted else x.new_zeros(len(x))

    def fold(self) -> None:
        """Compute log p(scene) by one product."""
        self.folded = Folded.of(self.density, unit=self.unit)

    @torch.no_grad()
    def fit_scene(self, batches: Iterable[Tensor]) -> None:
        """Learn the density of whole images from batches (n, c, h, w), with the U-Net as it is; it keeps none of them.

        Each is shown as it is, and then changed a little, to where the density of the first is lowest. Else it would
        know what is peculiar to the training images, down to their noise, and find an image strange for a change that
        leaves its scene the same.
        """
        self.eval()
        self.patches.fit(next(iter(batches)))
        generator = torch.Generator().manual_seed(self.patches.seed)
        shown = torch.cat([self._describe(x) for x in batches])
        self._store(unit=shown.std(0, correction=0).clamp_min(1e-6))
        self.folded = None
        self.density.fit(shown / self.unit)
        again = [self._describe(self._stranger(x, generator)) for x in batches]
        self.density.fit(torch.cat([shown, *again]) / self.unit)

    def _stranger(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Images changed by up to `CHANGE`, to where their density is lower."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self._log_density(self._describe(x)).sum(), x)
        size = CHANGE * torch.rand(len(x), 1, 1, 1, generator=generator)
        return along_signs(x, -gradient, size.to(x)).clamp(0.0, 1.0)

    def _describe(self, x: Tensor, maps: list[Tensor] | None = None) -> Tensor:
        """Description (n, D) of images, by the U-Net's maps if they are there already."""
        maps = self.encoder.descend(x) if maps is None else maps
        return torch.cat([maps[self.level].mean((2, 3)), self.patches(x)], dim=1)

    def _log_density(self, described: Tensor) -> Tensor:
        # Whatever else is computed in half precision: its range is too small for a log-density.
        with torch.autocast(described.device.type, enabled=False):
            described = described.float()
            log_density: Tensor
            if self.folded is None:
                log_density = self.density(tame(described / self.unit))
            else:
                log_density = self.folded(tame(described))[0]
            return log_density


def _grey(x: Tensor) -> Tensor:
    """Images in shades of grey at half their size, and no smaller than one patch."""
    x = x.mean(1, keepdim=True)
    below, right = (max(3 * SHRINK - side, 0) for side in x.shape[-2:])
    return F.avg_pool2d(F.pad(x, (0, right, 0, below), mode="replicate") if below or right else x, SHRINK)
