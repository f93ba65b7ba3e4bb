"""The U-Net: an encoder for images, with a feature vector for every pixel."""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["UNet"]

MAX_CHANNELS: Final = 4096
"""Most channels of the deepest level, at which a network has half a billion parameters."""


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015): from images (n, c, h, w) to features (n, width, h, w).

    Each level halves the resolution and doubles the channels, with skip connections from the way down to the way up.
    With the defaults it has 7.8 million parameters. Sides that `2 ** levels` does not divide are padded by replicating
    the border, and the features cropped to the image's size.

    Parameters
    ----------
    channels : int
        Channels of the images.
    width : int
        Features of every pixel, and channels at full resolution.
    levels : int
        How often the resolution is halved; `width * 2 ** levels` must be at most 4,096.
    dropout : float
        Probability of dropping a channel of the two deepest levels in training; with MC Dropout also in prediction.

    Examples
    --------
    >>> import torch
    >>> UNet(width=4, levels=2)(torch.zeros(1, 3, 10, 14)).shape
    torch.Size([1, 4, 10, 14])
    """

    def __init__(self, channels: int = 3, width: int = 32, levels: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        if channels < 1 or width < 1 or levels < 1:
            raise ValueError(f"channels, width and levels must be at least 1, got {channels}, {width} and {levels}.")
        # The first condition avoids the power of two of a huge number of levels.
        if levels > MAX_CHANNELS.bit_length() or width * 2**levels > MAX_CHANNELS:
            raise ValueError(
                f"The deepest level has width * 2 ** levels channels, which must be at most {MAX_CHANNELS}; "
                f"got width={width} and levels={levels}."
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}.")
        self.levels = levels
        widths = [width * 2**level for level in range(levels + 1)]
        drops = [dropout if level >= levels - 1 else 0.0 for level in range(levels + 1)]
        self.down = nn.ModuleList(
            _block(before, after, drop) for before, after, drop in zip([channels, *widths], widths, drops, strict=False)
        )
        self.rise = nn.ModuleList(_upsample(2 * after, after) for after in widths[:-1])
        self.up = nn.ModuleList(_block(2 * after, after, drop) for after, drop in zip(widths, drops[:-1], strict=False))

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, width, h, w) of images (n, c, h, w)."""
        return self.maps(x)[-1]

    def maps(self, x: Tensor) -> list[Tensor]:
        """Feature maps of `descend`, and as the last entry the features of every pixel."""
        height, width = x.shape[-2:]
        seen = self.descend(x)
        x = seen[-1]
        for level in reversed(range(self.levels)):
            x = self.up[level](torch.cat([self.rise[level](x), seen[level]], dim=1))
        return [*seen, x[..., :height, :width]]

    def descend(self, x: Tensor) -> list[Tensor]:
        """Feature maps of each level on the way down, full resolution first."""
        size = 2**self.levels
        below, right = (-side % size for side in x.shape[-2:])
        if below or right:
            x = F.pad(x, (0, right, 0, below), mode="replicate")
        seen = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            seen.append(x)
        return seen


def _upsample(before: int, after: int) -> nn.Sequential:
    """Half the channels at twice the resolution.

    Interpolated, because a transposed convolution of stride 2 gives checkerboard artefacts.
    """
    # Padded on the right and below for the kernel's even size.
    shrink = nn.Conv2d(before, after, 2)
    return nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), shrink, nn.Upsample(scale_factor=2, mode="bilinear"))


def _block(before: int, after: int, dropout: float) -> nn.Sequential:
    """Two convolutions, each with batch norm and a ReLU."""
    layers: list[nn.Module] = []
    for inputs in (before, after):
        # No bias, as the batch norm would cancel it.
        layers += [nn.Conv2d(inputs, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, *[nn.Dropout2d(dropout)] * (dropout > 0))
