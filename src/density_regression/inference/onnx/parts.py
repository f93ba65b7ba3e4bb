"""Nodes that divide the standard deviation into noise, disagreement and distance."""

from __future__ import annotations

import math

import numpy as np

from density_regression.inference.fused import Constants, as_float64
from density_regression.inference.onnx.graph import PARTS, Graph
from density_regression.inference.onnx.nodes import Nodes
from density_regression.nn.heads import ADDED_RATIO, LOG_STD_LIMIT

__all__ = ["write_parts"]


def write_parts(nodes: Nodes, logs: str, c: Constants, steps: int, graph: Graph) -> None:
    """Write the `PARTS` (n, k), in the type of results, as `DensityRegression.decompose` defines them.

    With the noise N and the ratio r of `Constants`, before and after the growth g, the variance is N (1 + r g), and
    that of a familiar row N (1 + r): the distance is their difference, and the disagreement what N (1 + r) exceeds the
    noise alone by, N (1 + `ADDED_RATIO`). All in the type of results: differences of squares need its digits.
    """
    k, b = len(c.detail), len(c.width)
    logs, zeros = nodes.to_io_type(logs), np.zeros((1, k))
    half_noise = np.vstack([np.diag(c.detail), np.zeros((b - k, k))])

    def affine(weights: list[np.ndarray], constant: np.ndarray | None = None) -> str:
        bias = [] if constant is None else [nodes.io_const(constant)]
        return nodes.add("Gemm", [logs, nodes.io_const(np.vstack(weights)), *bias])

    base = affine([zeros, *[half_noise] * steps], c.constant - c.detail * c.width[:k])
    growth = affine([np.full((1, k), c.exponent), np.zeros((steps * b, k))])
    if len(c.ratio_low):
        falling = np.vstack([np.zeros((k, k)), -np.eye(k)])
        ratio = affine([zeros, *[falling] * steps], c.ratio_low + c.width[k:])
        typical, total = (_half_softplus(nodes, part, base) for part in (ratio, nodes.add("Add", [ratio, growth])))
        noise = nodes.add("Add", [base, nodes.io_const(0.5 * math.log1p(ADDED_RATIO))])
    else:
        noise = typical = base
        total = nodes.add("Add", [base, nodes.add("Mul", [growth, nodes.io_const(0.5)])])
    if c.clip_std:
        log_scale = np.log(as_float64(graph.y_scale))
        ends = log_scale - LOG_STD_LIMIT, log_scale + LOG_STD_LIMIT
        noise, typical, total = (nodes.clip(part, *ends) for part in (noise, typical, total))
    noise = nodes.add("Min", [noise, typical])
    nodes.add("Exp", [noise], output=PARTS[0])
    _write_without(nodes, typical, noise, PARTS[1])
    _write_without(nodes, total, typical, PARTS[2])


def _half_softplus(nodes: Nodes, value: str, base: str) -> str:
    """Base + softplus(value) / 2: of |value| the exponential cannot overflow."""
    half, one = nodes.io_const(0.5), nodes.io_const(1.0)
    above = nodes.add("Max", [value, nodes.io_const(0.0)])
    tail = nodes.add("Exp", [nodes.add("Neg", [nodes.add("Abs", [value])])])
    softplus = nodes.add("Add", [above, nodes.add("Log", [nodes.add("Add", [tail, one])])])
    return nodes.add("Add", [base, nodes.add("Mul", [softplus, half])])


def _write_without(nodes: Nodes, log_std: str, part: str, output: str) -> None:
    """Write the root of std^2 - part^2, from the logarithms of both."""
    twice = nodes.add("Mul", [nodes.add("Sub", [part, log_std]), nodes.io_const(2.0)])
    share = nodes.add("Sub", [nodes.io_const(1.0), nodes.add("Exp", [twice])])
    root = nodes.add("Sqrt", [nodes.add("Max", [share, nodes.io_const(0.0)])])
    nodes.add("Mul", [nodes.add("Exp", [log_std]), root], output=output)
