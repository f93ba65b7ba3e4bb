"""The one interface of all densities p(z; alpha) on an encoder's features."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple, Self

import torch
from torch import Tensor

from density_regression._numeric import FittedModule, tame
from density_regression.density.whitening import Whitening

__all__ = ["Density", "Quadratics"]


class Quadratics(NamedTuple):
    """Components exp(c_k - |t F_k - m_k|^2 / 2) of whitened features t, side by side: F (q, K q), m (K q,), c (K,)."""

    factor: Tensor
    shift: Tensor
    log_norm: Tensor


class Density(FittedModule, ABC):
    """A density on features: `fit(z)`, then `log_prob(z)`, finite for every input.

    Features are whitened first (`Whitening`); a subclass models the whitened coordinates alone. All learnt state
    is in buffers (or parameters without gradient), so `.to(device)`, `state_dict` and export work as for any
    module.

    Parameters
    ----------
    variance : float
        Share of the features' variance that the kept principal directions explain.
    max_dims : int or None
        Keep at most this many directions.
    max_rows : int
        Fit on at most this many rows, drawn at random.
    """

    def __init__(self, *, variance: float = 0.999, max_dims: int | None = 16, max_rows: int = 20_000) -> None:
        super().__init__()
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}.")
        self.whitening = Whitening(variance, max_dims)
        self.max_rows = max_rows

    @property
    def variance(self) -> float:
        """Share of the features' variance that the kept directions explain."""
        return self.whitening.variance

    @property
    def max_dims(self) -> int | None:
        """Most directions kept."""
        return self.whitening.max_dims

    @property
    def fitted(self) -> bool:
        """Whether the density knows any data yet."""
        return self.whitening.kept > 0

    @property
    def dims(self) -> int:
        """Number of coordinates the density is a function of."""
        return self.whitening.dims

    @torch.no_grad()
    def fit(
        self,
        z: Tensor,
        sample_weight: Tensor | None = None,
        *,
        held_out: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Self:
        """Learn the density of features.

        Parameters
        ----------
        z : Tensor of shape (n, D)
            Features of the training rows.
        sample_weight : Tensor of shape (n,), optional
            Weight of each row; one of weight 0 is as good as none.
        held_out : Tensor of shape (m, D), optional
            Features of rows that neither encoder nor density have seen, for choices (number of components,
            bandwidth, when to stop), each counted once. Without them a fifth of `z` is set aside for that.
        generator : torch.Generator, optional
            Source of randomness, on the CPU.
        """
        if z.ndim != 2 or len(z) == 0:
            raise ValueError(f"Expected features of shape (n, D) with n >= 1, got {tuple(z.shape)}.")
        if sample_weight is not None:
            z, sample_weight = _with_weight(z, sample_weight)
        generator = generator or torch.Generator().manual_seed(0)
        self.whitening.to(z.device).fit(z, sample_weight)
        self.to(z.device)
        order = torch.randperm(len(z), generator=generator)[: self.max_rows].to(z.device)
        weight = torch.ones(len(z), device=z.device) if sample_weight is None else sample_weight
        t, weight = self._whiten(z[order]), weight[order].to(z)
        if held_out is None or len(held_out) == 0:
            aside = max(len(t) // 5, 1)
            held, t, weight = (
                t[:aside],
                t[aside:] if len(t) > 1 else t,
                weight[aside:] if len(t) > 1 else weight,
            )
        else:
            # Rows may come in order (positions of one image, hours of one day), so any cut is of rows at random.
            order = torch.randperm(len(held_out), generator=generator)[: self.max_rows].to(z.device)
            held = self._whiten(held_out[order])
        self._fit(t, weight / weight.mean(), held, generator)
        return self

    def log_prob(self, z: Tensor) -> Tensor:
        """Log-density of features `z` (n, D), in nats, of shape (n,); never NaN, never infinite."""
        if not self.fitted:
            raise ValueError(f"This {type(self).__name__} is not fitted yet: call fit first.")
        return self(tame(z))  # type: ignore[no-any-return]

    def forward(self, z: Tensor) -> Tensor:
        """`log_prob` of features that are within +-`LARGE` already."""
        t, rest = self.whitening(z)
        log_prob: Tensor = self._log_prob(t) + rest
        return log_prob

    def _whiten(self, z: Tensor) -> Tensor:
        t: Tensor = self.whitening(tame(z))[0]
        return t

    def quadratics(self) -> Quadratics | None:
        """The fitted density of whitened features as components, if that is what it is."""
        return None

    @abstractmethod
    def _fit(self, t: Tensor, weight: Tensor, held_out: Tensor, generator: torch.Generator) -> None:
        """Learn from whitened features `t` (n, q) with weights (n,) of mean 1."""

    @abstractmethod
    def _log_prob(self, t: Tensor) -> Tensor:
        """Log-density (n,) of whitened features `t` (n, q), each within +-`LARGE`."""


def _with_weight(z: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rows with a weight above 0, and their weights: set aside for choices, the others would count as much as they."""
    if weight.shape != z.shape[:1]:
        raise ValueError(f"sample_weight must be of shape ({len(z)},), one for each row, got {tuple(weight.shape)}.")
    if not (weight >= 0).all() or not 0 < weight.sum() < math.inf:
        raise ValueError("sample_weight must be at least 0 and finite, and some of it above 0.")
    some = weight > 0
    return (z, weight) if some.all() else (z[some], weight[some])
