"""The log-density of the nearest of many components of one covariance, with few multiplications and nodes."""

from typing import Final, NamedTuple, Self

import numpy as np
from scipy.linalg import block_diag

from density_regression.inference.fused import Constants
from density_regression.inference.onnx.nodes import Nodes
from density_regression.nn.density.base import FEATURE_LIMIT
from density_regression.tabular.table import Floats

__all__ = ["Nearest"]

CANCELLATION_LIMIT: Final = 500.0
"""Largest squared length that may cancel in a difference of squares: it costs a log-density 250 float32 roundings."""

SQUARED_LIMIT: Final = 1e18
"""Numbers bounded by this have squares whose sums do not overflow in float32."""


class Nearest(NamedTuple):
    """A fitted density of D features z, by m affine functions y of them.

    With [y, 1] = z @ weight + bias, the log-density is

        max([y, 1] @ centers) + square([y, 1] @ turn) @ sums - residual_factor^2 / 2 |z + [y, 1] @ back|^2
    """

    weight: Floats  # (D, m + 1)
    bias: Floats  # (m + 1,)
    centers: Floats  # (m + 1, K)
    turn: Floats | None  # (m + 1, q), of a y that has to be clipped first; None for the identity
    sums: Floats  # (q, 1), or (m + 1, 1)
    back: Floats | None  # (m + 1, D); None for zeros
    residual_factor: float

    @classmethod
    def of(cls, c: Constants, bounds: Floats) -> Self:
        """The cheapest form for features within +-`bounds` (D,) that loses few digits.

        With F and m_k the components' factor and shifts, u = t F, and B the rows of c.back but its last, the centre,

            log p = max_k(log_norm_k - |m_k|^2 / 2 + u m_k) - |u|^2 / 2 - residual_factor^2 / 2 |z - centre - t B|^2
        """
        level = c.log_norm - 0.5 * np.square(c.centers).sum(1)
        largest = (np.abs(c.weight).T @ bounds + np.abs(c.bias)).max()
        if c.clip_whitened or largest > SQUARED_LIMIT:
            return cls._clipped(c, level)
        cancels = c.residual_factor**2 * np.square(c.back).sum() > CANCELLATION_LIMIT
        return cls._whitened(c, level) if cancels or not c.residual_factor else cls._spherical(c, level)

    @classmethod
    def _clipped(cls, c: Constants, level: Floats) -> Self:
        """By y = t."""
        q = len(c.factor)
        return cls(
            weight=c.weight[:, : q + 1],
            bias=c.bias[: q + 1],
            centers=np.vstack([c.factor @ c.centers.T, level]),
            turn=np.vstack([c.factor, np.zeros(q)]),
            sums=np.full((q, 1), -0.5),
            back=-c.back if c.residual_factor else None,
            residual_factor=c.residual_factor,
        )

    @classmethod
    def _whitened(cls, c: Constants, level: Floats) -> Self:
        """By y = u."""
        q = len(c.factor)
        to_u = block_diag(c.factor, 1.0)
        return cls(
            weight=c.weight[:, : q + 1] @ to_u,
            bias=c.bias[: q + 1] @ to_u,
            centers=np.vstack([c.centers.T, level]),
            turn=None,
            sums=np.append(np.full(q, -0.5), 0.0)[:, None],
            back=-np.linalg.solve(to_u, c.back) if c.residual_factor else None,
            residual_factor=c.residual_factor,
        )

    @classmethod
    def _spherical(cls, c: Constants, level: Floats) -> Self:
        """By |z|^2 - 2 z centre + |centre|^2 - |t B|^2 for the residual, which is orthogonal to the rows of B.

        What is affine in z is the last of y. The others are u Q, with Q orthogonal and (F Q)^-1 B B' (F Q)^-1' =
        diag(share), as the rows of B are orthogonal to each other: then |t B|^2 = sum(share (u Q)^2).
        """
        q, center, square = len(c.factor), c.back[-1], c.residual_factor**2
        inverse = np.linalg.inv(c.factor)
        share, axes = np.linalg.eigh(inverse @ (np.square(c.back[:q]).sum(1)[:, None] * inverse.T))
        turned = c.factor @ axes
        return cls(
            weight=np.hstack([c.weight[:, :q] @ turned, square * center[:, None], c.weight[:, [q]]]),
            bias=np.concatenate([c.bias[:q] @ turned, [-0.5 * square * center @ center, 1.0]]),
            centers=np.vstack([axes.T @ c.centers.T, np.ones(len(level)), level]),
            turn=None,
            sums=np.concatenate([0.5 * (square * share - 1.0), np.zeros(2)])[:, None],
            back=None,
            residual_factor=c.residual_factor,
        )

    @property
    def linear(self) -> Floats:
        """Weight (D, m) of y, to be computed beside other functions of z; without columns if y has to be clipped."""
        return self.weight[:, : -1 if self.turn is None else 0]

    @property
    def level(self) -> Floats:
        """Bias (m,) of y likewise."""
        return self.bias[: -1 if self.turn is None else 0]

    def write(self, nodes: Nodes, z: str, y: str, columns: Floats) -> str:
        """Log-density (n, 1) of features z (n, D), and of values (n, b) that times `columns` (b, m + 1) are [y, 1]."""
        if self.turn is not None:
            y = nodes.add("Gemm", [z, nodes.const(self.weight), nodes.const(self.bias)])
            y = nodes.add("Clip", [y, nodes.const(-FEATURE_LIMIT), nodes.const(FEATURE_LIMIT)])
            columns = np.eye(len(self.bias))

        def times(matrix: Floats, *added: str) -> str:
            return nodes.add("Gemm", [y, nodes.const(columns @ matrix), *added])

        # Much faster along rows than a logarithm of a sum of exponentials, or a maximum along columns.
        total = nodes.add("ReduceMax", [times(self.centers), nodes.integers([1])], keepdims=1)
        if self.residual_factor:
            residual = z if self.back is None else times(self.back, z)
            length = nodes.add("ReduceSum", [nodes.square(residual), nodes.integers([1])], keepdims=1)
            total = nodes.add("Gemm", [length, nodes.const([[-0.5 * self.residual_factor**2]]), total])
        own, sums = (y, columns @ self.sums) if self.turn is None else (times(self.turn), self.sums)
        return nodes.add("Gemm", [nodes.square(own), nodes.const(sums), total])
