"""The default model and Gaussian networks as ONNX written by hand, with as few nodes as it takes.

A graph of a small network pays for each node what its arithmetic costs. The constants are those of `lean.Constants`;
shifts ride along as a column of ones, sums are products with ones, which are faster than reductions.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from density_regression._numeric import FAR, LARGE
from density_regression.export.ensemble import write_mixture
from density_regression.export.graph import INPUT, OUTPUTS, Graph
from density_regression.export.nodes import ENCODER, Nodes
from density_regression.head import LOG_STD_LIMIT
from density_regression.lean import LARGEST, Array, Constants, Layers, numbers
from density_regression.model import DensityRegression
from density_regression.network import Network

__all__ = ["lean_model"]

WIDE: Final = 512
"""Features from which on it takes longer to put them beside the inputs than to multiply both apart."""


def lean_model(graph: Graph) -> Any:
    """An ONNX model that gives what `graph` gives; None if it is neither a default nor of Gaussian networks."""
    model = graph.model
    members: Any = getattr(model, "networks", [model])
    layers = [Layers.of(member.encoder) if isinstance(member, Network) else None for member in members]
    known = [own for own in layers if own is not None and own.bounds().max() < LARGEST]
    if len(known) < len(layers) or graph.may_overflow or model.no_graph:
        return None
    nodes = Nodes(graph.dtype)
    if isinstance(model, DensityRegression):
        constants = Constants.of(model, log_scale=np.log(numbers(graph.y_scale)))
        if constants is None:
            return None
        _write_density(nodes, _features(nodes, known[0], graph), constants, graph)
    elif all(hasattr(member, "log_std_limit") for member in members):
        if hasattr(model, "networks"):
            # Squares of their means must not overflow.
            if any(own.with_inputs or own.bounds().max() > LARGE for own in known):
                return None
            write_mixture(nodes, _inputs(nodes, graph), members, graph)
        else:
            _write_gaussian(nodes, _features(nodes, known[0], graph), graph)
    else:
        return None
    return nodes.model(graph)


class _Features(list[tuple[str, slice]]):
    """Names of parts of the features, and which of them they are."""

    def product(self, nodes: Nodes, weight: Array, bias: Array) -> str:
        """Their product with a matrix (D, m), and a bias (m,)."""
        value = nodes.const(bias)
        for name, part in reversed(self):
            value = nodes.add("Gemm", [name, nodes.const(weight[part]), value])
        return value

    def left_over(self, nodes: Nodes, c: Constants, t: str) -> str:
        """Log-norm (n, K) of each component less half the squared length of what t (n, q + 1) does not explain."""
        value = nodes.const(c.log_norm)
        for name, part in reversed(self):
            back = c.back[:, part]
            left = nodes.add("Gemm", [t, nodes.const(-back), name])
            weight = np.full((back.shape[1], len(c.log_norm)), -0.5 * c.unit**2)
            value = nodes.add("Gemm", [nodes.square(left), nodes.const(weight), value])
        return value


def _features(nodes: Nodes, layers: Layers, graph: Graph) -> _Features:
    """From inputs in their own units to features."""
    z = inputs = _inputs(nodes, graph)
    for layer in layers.linear:
        weight = nodes.const(layer.weight, name=ENCODER)
        z = nodes.add("Relu", [nodes.add("Gemm", [z, weight, nodes.const(layer.bias)], transB=1)])
    bounds, width = layers.bounds(), layers.linear[-1].out_features
    apart = layers.with_inputs and width >= WIDE
    if layers.with_inputs and not apart:
        z = nodes.add("Concat", [z, inputs], axis=1)
    if bounds.max() > LARGE:
        z = nodes.add("Clip", [z, nodes.const(-LARGE), nodes.const(LARGE)])
    return _Features([(z, slice(width)), (inputs, slice(width, None))] if apart else [(z, slice(None))])


def _inputs(nodes: Nodes, graph: Graph) -> str:
    """Scaled inputs."""
    inputs = nodes.add("Sub", [INPUT, nodes.own(graph.x_center)])
    inputs = nodes.add("Div", [inputs, nodes.own(graph.x_scale)])
    return nodes.single(nodes.add("Clip", [inputs, nodes.own(-FAR), nodes.own(FAR)]))


def _write_gaussian(nodes: Nodes, z: _Features, graph: Graph) -> None:
    """Mean and log standard deviation, linear in the features."""
    model: Any = graph.model
    k, limit = model.targets, model.log_std_limit
    log_scale = np.log(numbers(graph.y_scale))
    bias = numbers(model.linear.bias)
    bias[k:] += log_scale
    location, log_std = nodes.split(z.product(nodes, numbers(model.linear.weight).T, bias), [k, k])
    log_std = nodes.within(log_std, log_scale - limit, log_scale + limit)
    _write_outputs(nodes, location, log_std, graph)


def _write_outputs(nodes: Nodes, location: str, log_std: str, graph: Graph) -> None:
    nodes.add("Exp", [nodes.double(log_std)], output=OUTPUTS[1])
    # A constant without a shape is not broadcast, which takes ten times as long.
    scale, center = (part[0] if len(part) == 1 else part for part in (graph.y_scale, graph.y_center))
    scaled = nodes.add("Mul", [nodes.double(location), nodes.own(scale)])
    nodes.add("Add", [scaled, nodes.own(center)], output=OUTPUTS[0])


def _write_density(nodes: Nodes, z: _Features, c: Constants, graph: Graph) -> None:
    """Density, tempering and head."""
    k, q = len(c.detail), len(c.factor)
    # Of s one distance is enough here, the other differs by a constant.
    weight, bias = c.weight[:, : q + 1 + 2 * k], c.bias[: q + 1 + 2 * k]
    t, location, above = nodes.split(z.product(nodes, weight, bias), [q + 1, k, k])
    if c.clip_whitened:
        t = nodes.add("Clip", [t, nodes.const(-LARGE), nodes.const(LARGE)])
    norm = z.left_over(nodes, c, t) if c.unit else nodes.const(c.log_norm)
    squares = nodes.square(nodes.add("Gemm", [t, nodes.const(np.vstack([c.factor, -c.shift]))]))
    joint = nodes.add("Gemm", [squares, nodes.const(-0.5 * c.membership), norm])
    one = len(c.log_norm) == 1
    log_density = joint if one else nodes.add("ReduceLogSumExp", [joint, nodes.axes(1)], keepdims=1)
    nodes.add("Squeeze", [log_density, nodes.axes(1)], output=OUTPUTS[2])
    # For one target its constant goes into the logarithm.
    inside = math.exp(2 * c.constant[0] / c.exponent) if k == 1 and abs(c.constant[0]) < 40 * c.exponent else 1.0
    line = (np.array([[-c.slope * inside]]), np.array([c.level * inside]))
    growth = nodes.add("Gemm", [log_density, nodes.const(line[0]), nodes.const(line[1])])
    growth = nodes.add("Log", [nodes.add("Clip", [growth, nodes.const(inside)])])
    if inside == 1.0:
        growth = nodes.add("Gemm", [growth, nodes.const(np.ones((1, k))), nodes.const(2 * c.constant / c.exponent)])
    above = nodes.within(above, np.full(k, -20.0), c.width + 20.0)
    shift = nodes.const(np.concatenate([np.zeros(k), -c.width]))
    ends = nodes.add("Softplus", [nodes.add("Gemm", [above, nodes.const(np.hstack([np.eye(k), np.eye(k)])), shift])])
    difference = nodes.const(np.vstack([np.diag(-c.detail), np.diag(c.detail)]))
    log_std = nodes.add("Gemm", [ends, difference, growth], beta=0.5 * c.exponent)
    if c.clip_std:
        scale = np.log(numbers(graph.y_scale))
        log_std = nodes.within(log_std, scale - LOG_STD_LIMIT, scale + LOG_STD_LIMIT)
    _write_outputs(nodes, location, log_std, graph)
