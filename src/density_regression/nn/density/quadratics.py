"""Gaussian components of a density on whitened features, as matrices for few products."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["Quadratics"]


class Quadratics(NamedTuple):
    """Components exp(c_k - |t F_k - m_k|^2 / 2) of whitened features t, side by side: F (q, K q), m (K q,), c (K,).

    With `shared`, F (q, q) is that of all components, and the density that of the largest instead of their sum.
    """

    factor: Tensor
    shift: Tensor
    log_norm: Tensor

    @property
    def shared(self) -> bool:
        """Whether there are several components with one factor."""
        return self.factor.shape[1] < len(self.shift)
