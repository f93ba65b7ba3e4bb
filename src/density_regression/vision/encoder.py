"""Encoder for images with the log-density of the whole image beside the features of each pixel."""

from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from density_regression.nn.density.base import FittedModule, bound_features
from density_regression.nn.density.folded import Folded
from density_regression.nn.density.gaussian import GaussianDensity
from density_regression.nn.encoders.unet import UNet
from density_regression.training.loop import along_signs

__all__ = ["Patches", "WithScene"]

DOWNSAMPLING: Final = 2
"""Factor by which images are downsampled before patches are taken, which averages the noise of single pixels."""

MAX_PERTURBATION: Final = 0.04
"""Largest perturbation of an image's numbers, which lie between 0 and 1, when the scene density is fitted."""


class Patches(nn.Module):
    """Means of random features of an image's 3 x 3 grey patches, over its upper and its lower half.

    Each feature is relu(w . patch - b) with random w and b one of the values of w . patch on the images seen by `fit`.
    The means are a kernel mean embedding: two images with equal means have nearly the same patches. As nothing is
    trained for a task, nothing is lost that the task did not need.

    Parameters
    ----------
    filters : int
        Number of random features.
    seed : int
        Seed of the random features.

    Examples
    --------
    >>> import torch
    >>> images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> patches = Patches(filters=5)
    >>> patches.fit(images)
    >>> tuple(patches(images).shape)
    (4, 10)
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
        """Scale the weights and choose the thresholds by some images (n, c, h, w)."""
        values = F.conv2d(_grey(images), self.weight).movedim(1, 0).flatten(1)
        spread = values.std(1).clamp_min(1e-6)
        self.weight /= spread[:, None, None, None]
        # Stratified: one threshold in each of equally many quantile ranges, so that there are no gaps.
        part = torch.randperm(len(values), generator=torch.Generator().manual_seed(self.seed))
        share = (part + 0.5) / len(values)
        place = (share * (values.shape[1] - 1)).long().to(values.device)
        self.bias.copy_(-values.sort(1).values.gather(1, place[:, None])[:, 0] / spread)

    def forward(self, x: Tensor) -> Tensor:
        """Means (n, filters * 2) of images (n, c, h, w), the two halves of a filter next to each other."""
        rows = F.relu(F.conv2d(_grey(x), self.weight, self.bias)).mean(3)
        # As adaptive pooling, which is 50 times slower on a GPU: the middle one of an odd number of rows is in both.
        half = -(-rows.shape[2] // 2)
        first = torch.arange(2, device=x.device)[:, None] * (rows.shape[2] - half)
        place = torch.arange(rows.shape[2], device=x.device) - first
        share = ((place >= 0) & (place < half)).to(rows.dtype) / half
        return (rows[:, :, None] * share).sum(3).flatten(1)


class WithScene(FittedModule):
    """A U-Net's features, and as one more feature the log-density of the whole image, the same for every pixel.

    The last layer of a U-Net may give pixels of a street features that are as likely as those of a room. A description
    of the whole image still differs: the mean of the U-Net's features at one of its first levels, and the means of
    random features of patches (`Patches`). Use it with `SceneDensity` and a head that reads the U-Net's features alone.

    Parameters
    ----------
    encoder : UNet
        From images (n, c, h, w) to features (n, d, h, w).
    patches : Patches
        Second part of the description.
    level : int
        Level of the U-Net whose features are averaged.
    max_dims : int
        Principal directions of the description that the density models.

    Examples
    --------
    >>> import torch
    >>> from density_regression.nn.encoders import UNet
    >>> encoder = WithScene(UNet(width=8, levels=2), Patches(filters=5), level=1)
    >>> tuple(encoder(torch.rand(2, 3, 16, 24)).shape)
    (2, 9, 16, 24)
    """

    unit: Tensor

    def __init__(self, encoder: UNet, patches: Patches, level: int = 2, max_dims: int = 100) -> None:
        super().__init__()
        self.encoder = encoder
        self.patches = patches
        self.level = min(level, encoder.levels)
        # Directions of little variance tell most, as images of one kind agree there.
        self.density = GaussianDensity(max_dims=max_dims, variance=0.9999)
        self.register_buffer("unit", torch.ones(0))
        self.folded: Folded | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, d + 1, h, w) of images (n, c, h, w), the last log p(scene)."""
        z, log_density = self.features_and_log_density(x)
        return torch.cat([z, log_density.to(z.dtype)[:, None, None, None].expand(-1, 1, *z.shape[2:])], dim=1)

    def features_and_log_density(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (n, d, h, w) of images (n, c, h, w), and log p(scene) (n,) in nats; zero before `fit_scene`."""
        maps = self.encoder.maps(x)
        return maps[-1], self._log_density(self._describe(x, maps)) if self.density.fitted else x.new_zeros(len(x))

    def fold(self) -> None:
        """Compute log p(scene) by one matrix product."""
        self.folded = Folded.of(self.density, unit=self.unit)

    @torch.no_grad()
    def fit_scene(self, batches: Iterable[Tensor]) -> None:
        """Fit the density of whole images to batches (n, c, h, w), with the U-Net as it is.

        It is fitted twice, the second time also to images perturbed towards a lower first density. Without these it
        would overfit to the noise of the training images, and fall for small changes that leave the scene the same.
        """
        self.eval()
        self.patches.fit(next(iter(batches)))
        generator = torch.Generator().manual_seed(self.patches.seed)
        plain = torch.cat([self._describe(x) for x in batches])
        self._store(unit=plain.std(0, correction=0).clamp_min(1e-6))
        self.folded = None
        self.density.fit(plain / self.unit)
        perturbed = [self._describe(self._perturb(x, generator)) for x in batches]
        self.density.fit(torch.cat([plain, *perturbed]) / self.unit)

    def _perturb(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Images perturbed by up to `MAX_PERTURBATION` along the signs of the gradient, towards a lower density."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self._log_density(self._describe(x)).sum(), x)
        size = MAX_PERTURBATION * torch.rand(len(x), 1, 1, 1, generator=generator)
        return along_signs(x, -gradient, size.to(x)).clamp(0.0, 1.0)

    def _describe(self, x: Tensor, maps: list[Tensor] | None = None) -> Tensor:
        """Description (n, D) of images (n, c, h, w); `maps` are those of the U-Net, if already computed."""
        maps = self.encoder.descend(x) if maps is None else maps
        return torch.cat([maps[self.level].mean((2, 3)), self.patches(x)], dim=1)

    def _log_density(self, described: Tensor) -> Tensor:
        # The range of half precision is too small for a log-density.
        with torch.autocast(described.device.type, enabled=False):
            if self.folded is not None:
                return self.folded(bound_features(described.float()))[0]  # type: ignore[no-any-return]
            return self.density(bound_features(described.float() / self.unit))  # type: ignore[no-any-return]


def _grey(x: Tensor) -> Tensor:
    """Grey images, downsampled, and padded to at least the size of one patch."""
    x = x.mean(1, keepdim=True)
    below, right = (max(3 * DOWNSAMPLING - side, 0) for side in x.shape[-2:])
    return F.avg_pool2d(F.pad(x, (0, right, 0, below), mode="replicate") if below or right else x, DOWNSAMPLING)
