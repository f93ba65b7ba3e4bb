"""Density-Regression as a module: forward returns a Normal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from density_regression.density import DENSITIES, TEMPERINGS, Density, Tempering
from density_regression.head import HEADS, Head, Moments
from density_regression.network import Network

__all__ = ["Decomposition", "DensityRegression"]

T = TypeVar("T")


class Decomposition(NamedTuple):
    """Standard deviations of the two parts of the predictive variance, which add up as variances."""

    aleatoric: Tensor
    epistemic: Tensor


class DensityRegression(Network):
    r"""Encoder f, density p(z; alpha) on its features, and a Gaussian head g (`eq:exp`).

    .. math:: z = f(x), \quad \log \sigma^2 = -(\log 2 + \log \tilde p(z) + s)

    with the mean and the log-precision s from a head that is linear in z.

    Until its density is fitted (step 2 of `alg:algorithm`) the model predicts without one, as step 1 trains it.
    Train it with `fit_density_regression`.

    Parameters
    ----------
    encoder : nn.Module
        Any module whose output has shape (batch, features) or, for sequences and images, (batch, features, ...).
    features : int
        Width of that output.
    targets : int
        Number k of targets.
    head : "mean", "natural" or Head
        The mean itself linear in z, or, as in the paper, the natural parameters.
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

    def log_density(self, x: Tensor) -> Tensor:
        """log p(z), in nats, of shape (batch,) or (batch, ...)."""
        if self.density is None or not self.density.fitted:
            raise ValueError("This model has no fitted density to ask.")
        z = self.encode(x)
        return self.positions(self.precisely(self.density, self.rows(z))[:, None], z).squeeze(1)

    def decompose(self, x: Tensor) -> Decomposition:
        """Split the predictive variance into noise and strangeness: standard deviations in the target's units.

        The aleatoric part is the variance the head gives to a typical input, one at the reference density; what a
        lower density adds to it is the epistemic part. It measures the distance to the training data, not how many
        rows there were.
        """
        return Decomposition(*(self.widened(part) for part in self.by_position(self._row_parts, x)))

    def _row_parts(self, rows: Tensor) -> Decomposition:
        log_density = self.tempered(rows)
        if log_density is None:
            std = self.head(rows).log_std.exp()
            return Decomposition(std, torch.zeros_like(std))
        log_std = self.head(rows, log_density).log_std
        typical = self.head(rows, torch.maximum(log_density, self.tempering.reference_level)).log_std
        # std_total^2 - std_typical^2 without squaring what may be e^80.
        epistemic = log_std.exp() * (-torch.expm1(2.0 * (typical - log_std))).clamp_min(0.0).sqrt()
        return Decomposition(typical.exp(), epistemic)

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


def _named(argument: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise ValueError(f"{argument} must be one of {sorted(known)} or an object, got {name!r}.")
    return known[name]
