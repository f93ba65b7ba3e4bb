"""The default's log-density as quadratic forms of affine functions of its features, with few multiplications."""

from typing import Final, NamedTuple, Self

import numpy as np

from density_regression.inference.fused import Constants
from density_regression.tabular.table import Floats

__all__ = ["QuadraticForms"]

CANCELLATION_LIMIT: Final = 50.0
"""Largest squared length that may cancel in a difference of squares: it costs a log-density 50 roundings of float32."""


class QuadraticForms(NamedTuple):
    """A fitted density of D features z, by m affine functions u of them.

    With u = z @ weight + bias, the log-density is the log-sum-exp over K components of

        z @ linear + level + square(u @ forms + shift) @ sums - residual_factor^2 / 2 * |z - u @ back|^2
    """

    weight: Floats  # (D, m)
    bias: Floats  # (m,)
    linear: Floats  # (D, K), or (D, 0) if there is no linear term
    level: Floats  # (K,), or (0,)
    forms: Floats  # (m, F)
    shift: Floats  # (F,)
    sums: Floats  # (F, K)
    back: Floats | None  # (m, D); None for zeros
    reference: int | None  # component whose log-density is nowhere much larger in size than the total; None if unknown

    @classmethod
    def of(cls, c: Constants) -> Self:
        """The cheaper spherical form if there is a residual and computing it as a difference loses few digits."""
        cancels = c.clip_whitened or c.residual_factor**2 * np.square(c.back).sum() > CANCELLATION_LIMIT
        return cls._whitened(c) if cancels or not c.residual_factor else cls._spherical(c)

    @classmethod
    def _whitened(cls, c: Constants) -> Self:
        """u = [t, 1]: t factor - shift is linear in it, log_norm is the square of its last entry times log_norm."""
        q = len(c.factor)
        return cls(
            weight=c.weight[:, : q + 1],
            bias=c.bias[: q + 1],
            linear=c.weight[:, :0],
            level=c.bias[:0],
            forms=np.column_stack([np.vstack([c.factor, -c.shift]), np.eye(q + 1)[q]]),
            shift=np.zeros(len(c.shift) + 1),
            sums=np.vstack([-0.5 * c.membership, c.log_norm]),
            back=c.back if c.residual_factor else None,
            reference=None,
        )

    @classmethod
    def _spherical(cls, c: Constants) -> Self:
        """Coordinates u in which the best conditioned component i is spherical, and the residual a sum of squares.

        With F_k, m_k the factor and shift of component k, B the rows of `back` but its last, c, and Q orthogonal:

        - u = (t F_i - m_i) Q = t F_i Q - o with o = m_i Q, so |t F_i - m_i|^2 = |u|^2.
        - The residual is orthogonal to the rows of B, and these to each other: its square is |z - c|^2 - |t B|^2. As
          t = (u + o) Q' F_i^-1, choosing Q' (F_i^-1 B B' F_i^-1') Q = diag(share) gives |t B|^2 = sum(share (u + o)^2).
        - Other components: t F_k - m_k = u G_k + r_k with G_k = Q' F_i^-1 F_k and r_k = o G_k - m_k, and
          |u G_k + r_k|^2 = |u G_k|^2 + 2 u G_k r_k' + |r_k|^2 makes r_k part of the linear term, if it is not too long.
        """
        q, components, center, half = len(c.factor), len(c.log_norm), c.back[-1], 0.5 * c.residual_factor**2
        factors = c.factor.reshape(q, components, q).swapaxes(0, 1)
        reference = int(np.linalg.cond(factors).argmin())
        inverse = np.linalg.inv(factors[reference])
        share, axes = np.linalg.eigh(inverse @ (np.square(c.back[:q]).sum(1)[:, None] * inverse.T))
        turn, offset = factors[reference] @ axes, c.shift.reshape(components, q)[reference] @ axes
        weight, bias = c.weight[:, :q] @ turn, c.bias[:q] @ turn - offset
        others = np.repeat(np.arange(components), q) != reference
        forms, members = axes.T @ inverse @ c.factor[:, others], c.membership[others]
        shift = offset @ forms - c.shift[others]
        expanded = np.where(members @ (np.square(shift) @ members) > CANCELLATION_LIMIT, 0.0, shift)
        # Largest variance of the other components and squared distance of their means, in units of the reference.
        widths = np.linalg.inv(forms.reshape(q, components - 1, q).swapaxes(0, 1))
        means = np.einsum("ki,kij->kj", shift.reshape(components - 1, q), widths)
        farthest = max([0.0, *np.linalg.norm(widths, 2, axis=(1, 2)) ** 2, *np.square(means).sum(1)])
        slopes = (2 * half * share * offset)[:, None] - (forms * expanded) @ members
        level = half * (share @ np.square(offset) - center @ center) - 0.5 * np.square(expanded) @ members
        own = np.outer(half * share, np.ones(components))
        own[:, reference] -= 0.5
        return cls(
            weight=weight,
            bias=bias,
            linear=2 * half * center[:, None] + weight @ slopes,
            level=c.log_norm + level + bias @ slopes,
            forms=np.hstack([np.eye(q), forms]),
            shift=np.append(np.zeros(q), shift - expanded),
            sums=np.vstack([own, -0.5 * members]),
            back=None,
            reference=None if farthest > CANCELLATION_LIMIT else reference,
        )
