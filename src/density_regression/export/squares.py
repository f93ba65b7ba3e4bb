"""The default's log-density as squares of linear functions of its features, as few as it takes."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np
from scipy.linalg import block_diag

from density_regression.lean import Array, Constants

__all__ = ["ROUGH", "Squares"]

DROWNED: Final = 50.0
"""Squared length that may be taken off another's square; beyond, the difference is too rough.

Of a log-density a ten-millionth of it is lost.
"""

ROUGH: Final = 1000.0
"""Squared size up to which a linear function may be a difference of squares: a hundred-thousandth of it is lost."""


class Squares(NamedTuple):
    """A fitted density from D features z on, as functions u of them.

    With u = z @ weight + bias, the log-density is the log-sum-exp over K components of

        z @ linear + level + square(u @ forms + shift) @ sums - unit^2 / 2 * square(z - u @ back).sum()
    """

    weight: Array  # (D, m)
    bias: Array  # (m,)
    linear: Array  # (D, K), or (D, 0) for nothing
    level: Array  # (K,), or (0,)
    forms: Array  # (m, F)
    shift: Array  # (F,)
    sums: Array  # (F, K)
    back: Array | None  # (m, D); None for nothing
    one: int | None  # a component whose log-density is nowhere much larger in size than that of all; None if unknown

    @classmethod
    def of(cls, c: Constants) -> Self:
        """Those of a model.

        What is left over is |z - center|^2 less what the whitened features explain, sum(lengths * t^2). That saves a
        product with all features; but where next to nothing is left over it would drown in rounding.
        """
        drowned = c.clip_whitened or c.unit**2 * np.square(c.back).sum() > DROWNED
        return cls._whitened(c) if drowned or not c.unit else cls._round(c)

    def among(self, columns: int) -> Self:
        """The same of u that stands at the beginning of so many columns."""

        def padded(values: Array) -> Array:
            return np.vstack([values, np.zeros((columns - len(values), values.shape[1]))])

        return self._replace(forms=padded(self.forms), back=None if self.back is None else padded(self.back))

    def all_squared(self, unit: float) -> Self:
        """The same with nothing linear, unless that would be too rough: more multiplications, but fewer products.

        2 f = (f / size + size / 2)^2 - (f / size - size / 2)^2.
        """
        squared = np.square(self.linear).sum(0) / unit**2 + np.abs(self.level) if self.level.size else np.array([])
        if not 0 < squared.max(initial=0.0) <= ROUGH:
            return self
        size = np.sqrt(np.where(squared == 0, 1.0, squared))
        slope, level, half = self.linear / size, self.level / size, 0.5 * np.eye(len(size))
        return self._replace(
            weight=np.hstack([self.weight, slope, slope]),
            bias=np.concatenate([self.bias, level + size / 2, level - size / 2]),
            linear=self.linear[:, :0],
            level=self.level[:0],
            forms=block_diag(self.forms, np.eye(2 * len(size))),
            shift=np.append(self.shift, np.zeros(2 * len(size))),
            sums=np.vstack([self.sums, half, -half]),
        )

    @classmethod
    def _whitened(cls, c: Constants) -> Self:
        """With the whitened features and a column of ones for u, and what is left over as it is."""
        q = len(c.factor)
        return cls(
            weight=c.weight[:, : q + 1],
            bias=c.bias[: q + 1],
            linear=c.weight[:, :0],
            level=c.bias[:0],
            forms=np.column_stack([np.vstack([c.factor, -c.shift]), np.eye(q + 1)[q]]),
            shift=np.zeros(len(c.shift) + 1),
            sums=np.vstack([-0.5 * c.membership, c.log_norm]),
            back=c.back if c.unit else None,
            one=None,
        )

    @classmethod
    def _round(cls, c: Constants) -> Self:
        """With coordinates in which one component is round, and also a share of their squares is what is explained.

        The other components' squares |u @ form + shift|^2 are multiplied out, so that their shifts are among what is
        linear; but not if a component is so tight, and so far from the round one, that it would drown in rounding.
        """
        q, components, center, half = len(c.factor), len(c.log_norm), c.back[-1], 0.5 * c.unit**2
        factors = c.factor.reshape(q, components, q).swapaxes(0, 1)
        one = int(np.linalg.cond(factors).argmin())
        inverse = np.linalg.inv(factors[one])
        share, axes = np.linalg.eigh(inverse @ (np.square(c.back[:q]).sum(1)[:, None] * inverse.T))
        turn, offset = factors[one] @ axes, c.shift.reshape(components, q)[one] @ axes
        # Coordinates are t @ turn - offset.
        weight, bias = c.weight[:, :q] @ turn, c.bias[:q] @ turn - offset
        others = np.repeat(np.arange(components), q) != one
        forms, members = axes.T @ inverse @ c.factor[:, others], c.membership[others]
        shift = offset @ forms - c.shift[others]
        taken = np.where(members @ (np.square(shift) @ members) > DROWNED, 0.0, shift)
        # How much wider than the round one the others are, and how far away, in its deviations.
        widths = np.linalg.inv(forms.reshape(q, components - 1, q).swapaxes(0, 1))
        means = np.einsum("ki,kij->kj", shift.reshape(components - 1, q), widths)
        rough = max([0.0, *np.linalg.norm(widths, 2, axis=(1, 2)) ** 2, *np.square(means).sum(1)]) > DROWNED
        # sum(lengths * t^2) = sum(share * (u + offset)^2).
        slopes = (2 * half * share * offset)[:, None] - (forms * taken) @ members
        level = half * (share @ np.square(offset) - center @ center) - 0.5 * np.square(taken) @ members
        own = np.outer(half * share, np.ones(components))
        own[:, one] -= 0.5
        return cls(
            weight=weight,
            bias=bias,
            linear=2 * half * center[:, None] + weight @ slopes,
            level=c.log_norm + level + bias @ slopes,
            forms=np.hstack([np.eye(q), forms]),
            shift=np.append(np.zeros(q), shift - taken),
            sums=np.vstack([own, -0.5 * members]),
            back=None,
            one=None if rough else one,
        )
