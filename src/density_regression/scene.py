"""Density-Regression on images, whose pixels share a scene."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from density_regression._numeric import tame
from density_regression.density import Density, Folded, SceneDensity, Tempering
from density_regression.encoders import WithScene
from density_regression.head import MeanHead, Moments
from density_regression.model import DensityRegression

__all__ = ["PixelMoments", "SceneRegression"]


class PixelMoments(NamedTuple):
    """Mean and log standard deviation (n, k, h, w) of every pixel, and its log-density (n, h, w)."""

    mean: Tensor
    log_std: Tensor
    log_density: Tensor


class SceneRegression(DensityRegression):
    """Density-Regression whose density is that of a pixel's features times that of the whole image.

    Parameters
    ----------
    encoder : WithScene
        From images (n, c, h, w) to features of every pixel, and the log-density of every image.
    features : int
        Features of a pixel, which the head reads.
    targets : int
        Number k of targets.
    density : Density
        Of a pixel's features.
    tempering : Tempering
        How the density enters the precision.
    """

    encoder: WithScene
    density: SceneDensity

    def __init__(
        self, encoder: WithScene, features: int, targets: int = 1, *, density: Density, tempering: Tempering
    ) -> None:
        super().__init__(
            encoder,
            # The image's log-density comes as one more feature, which the head does not read.
            features + 1,
            targets,
            head=MeanHead(features, targets),
            density=SceneDensity(density),
            tempering=tempering,
        )
        self.folded: Folded | None = None
        self.register_load_state_dict_post_hook(_unfold)  # type: ignore[no-untyped-call]

    def learn_from_inputs(self, inputs: Iterable[Tensor]) -> None:
        """Learn the density of whole images."""
        self.encoder.fit_scene(inputs)

    def fold(self) -> None:
        """Put what is linear in the features into one product: predictions are the same but for rounding, and faster.

        Made from what is fitted now; after another fit it must be made again.
        """
        self.folded = Folded.of(self.density.pixels, beside=self.head.linear)
        self.encoder.fold()

    def unfold(self) -> None:
        """Undo `fold`."""
        self.folded = None
        self.encoder.folded = None

    def moments(self, x: Tensor) -> Moments:
        """Mean and log standard deviation, (n, k, h, w)."""
        if self.folded is None:
            return super().moments(x)
        return Moments(*self.pixels(x)[:2])

    def log_density(self, x: Tensor) -> Tensor:
        """log p(z), in nats, of shape (n, h, w)."""
        return super().log_density(x) if self.folded is None else self.pixels(x).log_density

    def pixels(self, x: Tensor) -> PixelMoments:
        """Moments and log-density of every pixel in one pass; only of a model that `fold` has prepared."""
        if self.folded is None:
            raise ValueError("Call fold first.")
        z, scene = self.encoder.apart(x)
        z = tame(z)
        log_density, linear = self.folded(self.rows(z))
        # Pixels of one image after another, row by row.
        log_density = (log_density.unflatten(0, (len(z), -1)) + tame(scene)[:, None]).flatten()
        location, s = linear.chunk(2, dim=-1)
        mean, log_std = self.head.combine(location, s, self.tempering(log_density))
        moments = self.in_units(Moments(self.positions(mean, z), self.positions(log_std, z)))
        return PixelMoments(*moments, self.positions(log_density[:, None], z)[:, 0])


def _unfold(model: SceneRegression, keys: object) -> None:
    """What is done after other weights are loaded; no lambda, which cannot be pickled."""
    model.unfold()
