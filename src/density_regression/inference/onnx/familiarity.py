"""Nodes from the log-density of rows to their familiarity: the share of held-out rows that are no more familiar."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from density_regression.inference.onnx.nodes import Nodes

__all__ = ["FAMILIARITY", "write_familiarity"]

FAMILIARITY: Final = "familiarity"
"""Name of the output."""


def write_familiarity(nodes: Nodes, log_density: str, levels: NDArray[np.float32]) -> str:
    """Share (n,), in float64, of sorted levels (m,) that are at most each log-density (n,), both in float32.

    The levels are searched by blocks of about the root of m: the last block that begins no higher, then its levels.
    """
    size = math.ceil(math.sqrt(len(levels)))
    blocks = np.full((size, size), np.inf, dtype=np.float32)
    blocks.flat[: len(levels)] = levels
    values = nodes.add("Unsqueeze", [log_density, nodes.integers([1])])

    def count(of: str) -> str:
        reached = nodes.add("Cast", [nodes.add("LessOrEqual", [of, values])], to=nodes.double)
        return nodes.add("ReduceSum", [reached, nodes.integers([1])], keepdims=0)

    begun = nodes.add("Sub", [count(nodes.const(blocks[:, :1].T)), nodes.io_const(1.0)])
    before = nodes.add("Max", [begun, nodes.io_const(0.0)])
    block = nodes.add("Cast", [before], to=nodes.int64)
    inside = count(nodes.add("Gather", [nodes.const(blocks), block]))
    total = nodes.add("Add", [nodes.add("Mul", [before, nodes.io_const(float(size))]), inside])
    return nodes.add("Div", [total, nodes.io_const(float(len(levels)))])
