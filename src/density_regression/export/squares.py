"""The default's log-density as squares of linear functions of its features, as few as it takes."""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import numpy as np

from density_regression.lean import Array, Constants

__all__ = ["Squares"]

DROWNED: Final = 50.0
"""Squared length of features, in units of what is left over, from which on a difference of squares is too rough.

Of a log-density a ten-millionth of it is lost.
"""


class Squares(NamedTuple):
    """A fitted density from D features z on, as functions u of them.

    With u = z @ weight + bias, the log-density is the log-sum-exp over K components of

        square(u) @ own + square(u @ forms) @ sums - unit^2 / 2 * square(z - u @ back).sum()

    Columns of u: coordinates (q), and ones; and where there is no `back`, two whose squares differ by what is linear in
    the features.
    """

    weight: Array  # (D, m)
    bias: Array  # (m,)
    own: Array  # (m, K), or (m, 0) for nothing
    forms: Array  # (m, F)
    sums: Array  # (F, K)
    back: Array | None  # (m, D); None for nothing

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

        back = None if self.back is None else padded(self.back)
        return self._replace(own=padded(self.own), forms=padded(self.forms), back=back)

    def in_one(self) -> Self:
        """The same with all squares among `forms`: more multiplications, but fewer products."""
        if not self.own.size or not self.forms.size:
            return self
        forms, sums = np.hstack([self.forms, np.eye(len(self.own))]), np.vstack([self.sums, self.own])
        return self._replace(own=self.own[:, :0], forms=forms, sums=sums)

    @classmethod
    def _whitened(cls, c: Constants) -> Self:
        """With the whitened features for coordinates, and what is left over as it is."""
        q = len(c.factor)
        return cls(
            weight=c.weight[:, : q + 1],
            bias=c.bias[: q + 1],
            own=np.zeros((q + 1, 0)),
            forms=np.column_stack([np.vstack([c.factor, -c.shift]), np.eye(q + 1)[q]]),
            sums=np.vstack([-0.5 * c.membership, c.log_norm]),
            back=c.back if c.unit else None,
        )

    @classmethod
    def _round(cls, c: Constants) -> Self:
        """With coordinates in which one component is round, and also a share of their squares is what is explained."""
        q, components, center, half = len(c.factor), len(c.log_norm), c.back[-1], 0.5 * c.unit**2
        factors = c.factor.reshape(q, components, q).swapaxes(0, 1)
        one = int(np.linalg.cond(factors).argmin())
        inverse = np.linalg.inv(factors[one])
        share, axes = np.linalg.eigh(inverse @ (np.square(c.back[:q]).sum(1)[:, None] * inverse.T))
        turn, offset = factors[one] @ axes, c.shift.reshape(components, q)[one] @ axes
        # Coordinates are t @ turn - offset.
        weight, bias = c.weight[:, :q] @ turn, c.bias[:q] @ turn - offset
        others = np.repeat(np.arange(components), q) != one
        forms = axes.T @ inverse @ c.factor[:, others]
        # sum(lengths * t^2) = sum(share * (u + offset)^2). Its linear part f, with that of |z - center|^2, is
        # 2 f = (f / size + size / 2)^2 - (f / size - size / 2)^2.
        slope = center + weight @ (share * offset)
        level = bias @ (share * offset) + 0.5 * (share @ np.square(offset) - center @ center)
        size = math.sqrt(slope @ slope + abs(level)) or 1.0
        own = np.outer(half * share, np.ones(components))
        own[:, one] -= 0.5
        return cls(
            weight=np.column_stack([weight, np.zeros(len(weight)), slope / size, slope / size]),
            bias=np.concatenate([bias, [1.0, level / size + size / 2, level / size - size / 2]]),
            own=np.vstack([own, c.log_norm, np.full(components, half), np.full(components, -half)]),
            forms=np.vstack([forms, offset @ forms - c.shift[others], np.zeros((2, forms.shape[1]))]),
            sums=-0.5 * c.membership[others],
            back=None,
        )
