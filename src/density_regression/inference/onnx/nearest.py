"""The log-density of the nearest of many components of one covariance, with few multiplications and nodes."""

from typing import Final, NamedTuple, Self

import numpy as np
from scipy.linalg import block_diag

from density_regression.inference.fused import Constants
from density_regression.inference.onnx.nodes import Nodes
from density_regression.nn.density.base import FEATURE_LIMIT
from density_regression.tabular.table import Floats

__all__ = ["Nearest"]

RESIDUAL_LIMIT: Final = 500.0
"""Largest squared length of the residual's part that may cancel: ten times that of `QuadraticForms`, as only the
residual is computed in float32. It costs a log-density 250 of its roundings."""

SQUARED_LIMIT: Final = 1e18
"""Numbers bounded by this have squares whose sums do not overflow in float32."""


class Nearest(NamedTuple):
    """A fitted density of D features z, by m affine functions y of them.

    With [y, 1] = z @ weight + bias and w = [y, 1] @ turn, the log-density is

        max(w @ centers + offsets) + square(w) @ sums + square([y, 1]) @ more
            - residual_factor^2 / 2 |z + [y, 1] @ back|^2

    Components may be narrow beside their distances, and the first two terms large beside their sum: from w on they are
    computed in float64.
    """

    weight: Floats  # (D, m + 1)
    bias: Floats  # (m + 1,)
    clipped: bool  # whether y has to be clipped
    turn: Floats  # (m + 1, r)
    centers: Floats  # (r, K)
    offsets: Floats  # (K,)
    sums: Floats  # (r, 1)
    more: Floats | None  # (m + 1, 1); None for zeros
    back: Floats | None  # (m + 1, D); None for zeros
    residual_factor: float

    @classmethod
    def of(cls, c: Constants, bounds: Floats) -> Self:
        """The cheapest form for features within +-`bounds` (D,) that loses few digits.

        With F and m_k the components' factor and shifts, u = t F, and B the rows of c.back but its last, the centre,

            log p = max_k(log_norm_k - |m_k|^2 / 2 + u m_k) - |u|^2 / 2 - residual_factor^2 / 2 |z - centre - t B|^2
        """
        q = len(c.factor)
        largest = (np.abs(c.weight[:, :q]).T @ bounds + np.abs(c.bias[:q])) @ (np.abs(c.factor) + np.eye(q))
        clipped = c.clip_whitened or bool(largest.max() > SQUARED_LIMIT)
        cancels = c.residual_factor**2 * np.square(c.back).sum() > RESIDUAL_LIMIT
        form = cls._whitened(c)._replace(clipped=clipped)
        return form if clipped or cancels or not c.residual_factor else form._spherical(c)

    @classmethod
    def _whitened(cls, c: Constants) -> Self:
        """By y = t."""
        q = len(c.factor)
        return cls(
            weight=c.weight[:, : q + 1],
            bias=c.bias[: q + 1],
            clipped=False,
            turn=np.vstack([c.factor, np.zeros(q)]),
            centers=c.centers.T,
            offsets=c.log_norm - 0.5 * np.square(c.centers).sum(1),
            sums=np.full((q, 1), -0.5),
            more=None,
            back=-c.back if c.residual_factor else None,
            residual_factor=c.residual_factor,
        )

    def _spherical(self, c: Constants) -> Self:
        """By |z|^2 - 2 z centre + |centre|^2 - |t B|^2 for the residual, which is orthogonal to the rows of B.

        These are orthogonal to each other. What is affine in z is one more y, the last but one.
        """
        q, center, square = len(c.factor), c.back[-1], c.residual_factor**2
        affine, squares = (square * center)[:, None], 0.5 * square * np.square(c.back[:q]).sum(1)
        return self._replace(
            weight=np.hstack([c.weight[:, :q], affine, c.weight[:, [q]]]),
            bias=np.concatenate([c.bias[:q], [-0.5 * square * center @ center, 1.0]]),
            turn=block_diag(c.factor, np.array([[1.0], [0.0]])),
            centers=np.vstack([self.centers, np.ones((1, len(self.offsets)))]),
            sums=np.append(self.sums, [[0.0]], axis=0),
            more=np.append(squares, [0.0, 0.0])[:, None],
            back=None,
        )

    @property
    def linear(self) -> Floats:
        """Weight (D, m) of y, to be computed beside other functions of z; without columns if y has to be clipped."""
        return self.weight[:, : 0 if self.clipped else -1]

    @property
    def level(self) -> Floats:
        """Bias (m,) of y likewise."""
        return self.bias[: 0 if self.clipped else -1]

    def write(self, nodes: Nodes, z: str, y: str, columns: Floats) -> str:
        """Log-density (n, 1) of features z (n, D), and of values (n, b) that times `columns` (b, m + 1) are [y, 1]."""
        if self.clipped:
            y = nodes.add("Gemm", [z, nodes.const(self.weight), nodes.const(self.bias)])
            y = nodes.add("Clip", [y, nodes.const(-FEATURE_LIMIT), nodes.const(FEATURE_LIMIT)])
            columns = np.eye(len(self.bias))
        exact = nodes.add("Cast", [y], to=nodes.double)
        w = nodes.add("Gemm", [exact, nodes.const64(columns @ self.turn)])
        joint = nodes.add("Gemm", [w, nodes.const64(self.centers), nodes.const64(self.offsets)])
        # Much faster along rows than a logarithm of a sum of exponentials, or a maximum along columns.
        total = nodes.add("ReduceMax", [joint, nodes.integers([1])], keepdims=1)
        total = nodes.add("Gemm", [nodes.square(w), nodes.const64(self.sums), total])
        total = nodes.add("Cast", [total], to=nodes.float32)
        if self.more is not None:
            # Each y is one of the values, or a multiple of one.
            total = nodes.add("Gemm", [nodes.square(y), nodes.const(np.square(columns) @ self.more), total])
        if self.residual_factor:
            residual = z if self.back is None else nodes.add("Gemm", [y, nodes.const(columns @ self.back), z])
            factors = np.full((len(self.weight), 1), -0.5 * self.residual_factor**2)
            total = nodes.add("Gemm", [nodes.square(residual), nodes.const(factors), total])
        return total
