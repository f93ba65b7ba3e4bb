"""Density-Regression itself: encoder, density and head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from density_regression.nn.density import DENSITIES, Density
from density_regression.nn.density.base import weighted_quantiles
from density_regression.nn.heads import HEADS, Head, Moments
from density_regression.nn.network import Network
from density_regression.nn.saved import SavedModule
from density_regression.nn.tempering import TEMPERINGS, Tempering

__all__ = ["Decomposition", "DensityRegression"]

T = TypeVar("T")

FAMILIARITY_LEVELS: Final = 1001
"""Most held-out log-densities kept, as quantiles, for `familiarity`."""


class Decomposition(NamedTuple, Generic[T]):
    """Standard deviations of the parts of the predictive variance, in the target's units.

    The parts add up as variances: aleatoric^2 + epistemic^2 = std^2, and disagreement^2 + distance^2 = epistemic^2. The
    last two are None for methods that do not tell them apart.
    """

    aleatoric: T
    epistemic: T
    disagreement: T | None = None
    distance: T | None = None


class DensityRegression(SavedModule, Network):
    r"""Encoder f, density p(z; alpha) on its features, and a Gaussian head g (Eq. 8, `eq:exp`).

    .. math:: z = f(x), \quad \log \sigma^2 = -(\log 2 + \log \tilde p(z) + s)

    with the mean and the log-precision s from a head that is linear in z. Until its density is fitted (step 2 of
    Algorithm 1) the model predicts without one. Train it with `fit_density_regression`: it then answers in the target's
    units. Results are finite for every finite input; where an input and its features are NaN, they are NaN.

    Parameters
    ----------
    encoder : nn.Module
        Any module whose output has shape (batch, features) or, for sequences and images, (batch, features, ...).
    features, targets : int
        Width of that output, and number k of targets.
    head : "mean", "natural" or Head
        The mean itself linear in z, or, as in the paper, the natural parameters. A `Head` with `disagreement` is taught
        by several networks; the density then multiplies their disagreement alone.
    density : "mixture", "gaussian", "kernel", "flow", "maf", "nsf", "radial", Density or None
        Density on the features; None for a plain Gaussian network, to compare with.
    tempering : "robust", "exact", "rescaled" or Tempering
        How the density enters the precision.

    Examples
    --------
    >>> import torch
    >>> model = DensityRegression(encoder=torch.nn.Linear(3, 8), features=8)
    >>> model(torch.zeros(5, 3)).mean.shape
    torch.Size([5, 1])
    """

    LEARNT: ClassVar[tuple[str, ...]] = (*Network.LEARNT, "familiar_levels")

    familiar_levels: Tensor | None

    def __init__(
        self,
        encoder: nn.Module,
        features: int,
        targets: int = 1,
        *,
        head: str | Head = "mean",
        density: str | Density | None = "mixture",
        tempering: str | Tempering = "robust",
    ) -> None:
        super().__init__(encoder, features, targets)
        self.head = head if isinstance(head, Head) else _named("head", head, HEADS)(features, targets)
        if self.head.targets != targets or self.head.features > features:
            raise ValueError(
                f"The head reads {self.head.features} features for {self.head.targets} target(s), "
                f"but the model has features={features} and targets={targets}."
            )
        self.density = _named("density", density, DENSITIES)() if isinstance(density, str) else density
        self.tempering = tempering if isinstance(tempering, Tempering) else _named("tempering", tempering, TEMPERINGS)()

    def row_moments(self, z: Tensor) -> Moments:
        """Moments (n, k) of the scaled target at features `z` (n, features)."""
        moments: Moments = self.head(z, self.tempered(z))
        return moments

    def tempered(self, rows: Tensor) -> Tensor | None:
        """Tempered log-density (n,) of features (n, features); None without a fitted density."""
        if self.density is None or not self.density.fitted:
            return None
        log_density: Tensor = self.tempering(self.density(rows))
        return log_density

    def log_density(self, x: Tensor) -> Tensor:
        """log p(z), in nats, of shape (batch,) or (batch, ...)."""
        if self.density is None or not self.density.fitted:
            raise ValueError("This model has no fitted density to ask.")
        z = self.encode(x)
        return self.positions(self.precisely(self.density, self.rows(z))[:, None], z).squeeze(1)

    def moments_and_density(self, x: Tensor) -> tuple[Moments, Tensor]:
        """`moments` and `log_density` of inputs that are encoded once."""
        if self.density is None or not self.density.fitted:
            raise ValueError("This model has no fitted density to ask.")
        density = self.density

        def both(z: Tensor) -> tuple[Tensor, ...]:
            return *self.row_moments(z), density(z)[:, None]

        mean, log_std, log_density = self.by_position(both, x)
        return self.in_units(Moments(mean, log_std)), log_density.squeeze(1)

    @torch.no_grad()
    def familiarity(self, x: Tensor) -> Tensor:
        """Share of held-out training rows (or positions) of no higher log-density, (batch,) or (batch, ...)."""
        levels = self.known_levels()
        return torch.searchsorted(levels, self.log_density(x).to(levels.dtype).contiguous(), right=True) / len(levels)

    def known_levels(self) -> Tensor:
        """Held-out log-densities (m,) in order, lowered by their rounding: an equal row is then never below them."""
        if self.familiar_levels is None:
            raise ValueError("This model knows no held-out log-densities: train it with fit_density_regression.")
        return self.familiar_levels - 1e-5 * (1.0 + self.familiar_levels.abs())

    def keep_levels(self, log_density: Tensor) -> None:
        """Keep log-densities (m,) of held-out rows for `familiarity`, or quantiles of them if they are many."""
        levels = log_density.detach()
        if len(levels) > FAMILIARITY_LEVELS:
            shares = [i / (FAMILIARITY_LEVELS - 1) for i in range(FAMILIARITY_LEVELS)]
            levels = torch.stack(weighted_quantiles(levels, shares))
        self.familiar_levels = levels.sort().values

    def decompose(self, x: Tensor) -> Decomposition[Tensor]:
        """Standard deviations of noise, disagreement and distance, in the target's units.

        The aleatoric part is the noise of the target. The epistemic part has two: the disagreement of the networks that
        taught this one, which shrinks as rows are added (0 without them), and the distance from the training data, what
        a density below the reference adds, which does not.
        """
        noise, disagreement, distance = (self.widened(part) for part in self.by_position(self._row_parts, x))
        return Decomposition(noise, torch.hypot(disagreement, distance), disagreement, distance)

    def _row_parts(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_density = self.tempered(rows)
        log_std = self.head(rows, log_density).log_std
        typical = log_std
        if log_density is not None:
            typical = self.head(rows, torch.maximum(log_density, self.tempering.reference_level)).log_std
        # Where the density is above 1, what is added to the disagreement may exceed it.
        noise = self.head.noise(rows).minimum(typical) if self.head.disagreement else typical
        return noise.exp(), _without(typical, noise), _without(log_std, typical)


def _without(log_std: Tensor, part: Tensor) -> Tensor:
    """The root of std^2 - part^2 from the logarithms of both, without squaring what may be e^80."""
    return log_std.exp() * (-torch.expm1(2.0 * (part - log_std))).clamp_min(0.0).sqrt()


def _named(argument: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise ValueError(f"{argument} must be one of {sorted(known)} or an object, got {name!r}.")
    return known[name]
