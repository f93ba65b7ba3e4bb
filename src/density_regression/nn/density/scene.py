"""Density of a pixel's features times that of the whole image."""

from typing import Self

import torch
from torch import Tensor

from density_regression.nn.density.base import Density
from density_regression.nn.density.mixture import MixtureDensity

__all__ = ["SceneDensity"]


class SceneDensity(Density):
    """log p(z) = log p(pixel) + log p(scene), for features of which the last is log p(scene) (see `WithScene`).

    `pixels` is the density of all features but the last, by default a mixture.

    Examples
    --------
    >>> import torch
    >>> from density_regression import GaussianDensity
    >>> z = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> density = SceneDensity(GaussianDensity()).fit(z)
    >>> likelier = z + torch.tensor([0.0, 0.0, 1.0])
    >>> bool((density.log_prob(likelier) > density.log_prob(z)).all())
    True
    """

    def __init__(self, pixels: Density | None = None) -> None:
        super().__init__()
        self.pixels = pixels or MixtureDensity()
        self.whitening = self.pixels.whitening

    @torch.no_grad()
    def fit(
        self,
        z: Tensor,
        sample_weight: Tensor | None = None,
        *,
        held_out: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Self:
        """Learn the density of the pixels' features; see `Density.fit`."""
        held_out = None if held_out is None else held_out[:, :-1]
        self.pixels.fit(z[:, :-1], sample_weight, held_out=held_out, generator=generator)
        return self

    def forward(self, z: Tensor) -> Tensor:
        """`log_prob` of features that are within +-`FEATURE_LIMIT` already."""
        log_prob: Tensor = self.pixels(z[:, :-1]) + z[:, -1]
        return log_prob

    def _fit(self, t: Tensor, weight: Tensor, held_out: Tensor, generator: torch.Generator) -> None:
        raise NotImplementedError

    def _log_prob(self, t: Tensor) -> Tensor:
        raise NotImplementedError
