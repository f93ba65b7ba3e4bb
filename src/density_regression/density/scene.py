"""A density of pixels that also knows how familiar the whole scene is."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from density_regression.density.base import Density
from density_regression.density.mixture import MixtureDensity

__all__ = ["SceneDensity"]


class SceneDensity(Density):
    """log p(z) = log p(pixel) + log p(scene), for features whose last one is log p(scene) already (`WithScene`).

    Parameters
    ----------
    pixels : Density, optional
        Of all features but the last; a mixture if left out.
    """

    def __init__(self, pixels: Density | None = None) -> None:
        super().__init__()
        self.pixels = pixels or MixtureDensity()
        # Whoever asks for whitened features gets those of the pixels.
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
        """Learn the density of the pixels; see `Density.fit`."""
        held_out = None if held_out is None else held_out[:, :-1]
        self.pixels.fit(z[:, :-1], sample_weight, held_out=held_out, generator=generator)
        return self

    def forward(self, z: Tensor) -> Tensor:
        """`log_prob` of features that are within +-`LARGE` already."""
        log_prob: Tensor = self.pixels(z[:, :-1]) + z[:, -1]
        return log_prob

    def _fit(self, t: Tensor, weight: Tensor, held_out: Tensor, generator: torch.Generator) -> None:
        raise NotImplementedError

    def _log_prob(self, t: Tensor) -> Tensor:
        raise NotImplementedError
