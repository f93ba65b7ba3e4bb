"""Density-Regression on images: the density of a pixel times that of the whole image."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from density_regression.nn.density import Density, Folded, SceneDensity
from density_regression.nn.density.base import bound_features
from density_regression.nn.heads import MeanHead, Moments
from density_regression.nn.model import DensityRegression
from density_regression.nn.tempering import Tempering
from density_regression.vision.encoder import WithScene

__all__ = ["PixelMoments", "SceneRegression"]


class PixelMoments(NamedTuple):
    """Mean and log standard deviation (n, k, h, w) of every pixel, and its log-density (n, h, w)."""

    mean: Tensor
    log_std: Tensor
    log_density: Tensor


class SceneRegression(DensityRegression):
    """Density-Regression whose density is that of a pixel's features times that of the whole image.

    `features` is the number of features of a pixel, which the head reads, and `density` is their density; the encoder
    provides the log-density of the whole image as one more feature. `targets` is the number k of targets.
    """

    encoder: WithScene
    density: SceneDensity

    def __init__(
        self, encoder: WithScene, features: int, targets: int = 1, *, density: Density, tempering: Tempering
    ) -> None:
        super().__init__(
            encoder,
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
        """Compute densities and head by one matrix product: faster, and the same but for rounding.

        Call it again after another fit.
        """
        self.folded = Folded.of(self.density.pixels, beside=self.head.linear)
        self.encoder.fold()

    def unfold(self) -> None:
        """Undo `fold`."""
        self.folded = None
        self.encoder.folded = None

    def moments(self, x: Tensor) -> Moments:
        """Mean and log standard deviation, (n, k, h, w)."""
        return super().moments(x) if self.folded is None else Moments(*self.pixels(x)[:2])

    def log_density(self, x: Tensor) -> Tensor:
        """log p(z), in nats, of shape (n, h, w)."""
        return super().log_density(x) if self.folded is None else self.pixels(x).log_density

    def pixels(self, x: Tensor) -> PixelMoments:
        """Moments and log-density of every pixel in one pass; requires `fold`."""
        if self.folded is None:
            raise ValueError("Call fold first.")
        z, scene = self.encoder.features_and_log_density(x)
        z = bound_features(z)
        log_density, linear = self.folded(self.rows(z))
        # Rows are the pixels of one image after another.
        log_density = (log_density.unflatten(0, (len(z), -1)) + bound_features(scene)[:, None]).flatten()
        location, s = linear.chunk(2, dim=-1)
        mean, log_std = self.head.combine(location, s, log_density=self.tempering(log_density))
        moments = self.in_units(Moments(self.positions(mean, z), self.positions(log_std, z)))
        return PixelMoments(*moments, self.positions(log_density[:, None], z)[:, 0])


def _unfold(model: SceneRegression, keys: object) -> None:
    """Hook after weights are loaded; a function, since a lambda cannot be pickled."""
    model.unfold()
