"""The default model and Gaussian networks as ONNX written by hand, with as few nodes as it takes.

A graph of a small network pays for each node what its arithmetic costs; that of a batch, for columns, of which sixteen
are multiplied at once. The constants are those of `lean.Constants`; shifts ride along as a column of ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from density_regression._numeric import LARGE
from density_regression.export.ensemble import write_mixture
from density_regression.export.graph import INPUT, OUTPUTS, Graph
from density_regression.export.nodes import ENCODER, Nodes
from density_regression.export.squares import Squares
from density_regression.head import LOG_STD_LIMIT
from density_regression.lean import LARGEST, Array, Constants, Layers, numbers
from density_regression.model import DensityRegression
from density_regression.network import LinearGaussian, Network, Predictor

__all__ = ["lean_after", "lean_model"]

WIDE: Final = 512
"""Features from which on the density's multiplications are few beside the network's, and only its nodes count."""

STEP: Final = 4.0
"""Longest step in which s goes through its range: e to its power times float32's rounding is lost."""

PASSED: Final = 100.0
"""A number of which the sigmoid is 1."""


Tail = Callable[[Nodes, str], None]
"""Writes results of features."""


def lean_model(graph: Graph) -> Any:
    """An ONNX model that gives what `graph` gives; None if it is not a default or of Gaussian networks on `MLP`s."""
    model = graph.model
    mixture = model.mixture()
    members: Sequence[Predictor] = mixture or [model]
    layers = [Layers.of(member.encoder) if isinstance(member, Network) else None for member in members]
    known = [own for own in layers if own is not None and own.bounds(graph.farthest).max() < LARGEST]
    if len(known) < len(layers) or graph.may_overflow or model.no_graph:
        return None
    nodes = Nodes(graph.dtype)
    if mixture:
        # Squares of their means must not overflow.
        large = any(own.with_inputs or own.bounds(graph.farthest).max() > LARGE for own in known)
        heads = [head for member in mixture if (head := member.linear_gaussian()) is not None]
        if large or len(heads) < len(mixture):
            return None
        write_mixture(nodes, _inputs(nodes, graph), known, heads, graph)
        return nodes.model(graph)
    tail = _tail(graph, known[0].bounds(graph.farthest))
    if tail is None:
        return None
    tail(nodes, _features(nodes, _inputs(nodes, graph), known[0], graph))
    return nodes.model(graph)


def lean_after(graph: Graph) -> Callable[[Any], Any] | None:
    """What makes an ONNX model of one that gives features of scaled inputs; None if these are not all it takes."""
    model = graph.model
    if not isinstance(model, Network) or graph.may_overflow or model.no_graph:
        return None
    tail = _tail(graph, np.full(model.features, LARGE))
    if tail is None:
        return None

    def finished(encoder: Any) -> Any:
        nodes = Nodes(graph.dtype)
        z = nodes.include(encoder, _inputs(nodes, graph))
        within = nodes.add("Clip", [z, nodes.const(-LARGE), nodes.const(LARGE)])
        tail(nodes, nodes.add("Where", [nodes.add("IsNaN", [z]), nodes.const(LARGE), within]))
        return nodes.model(graph)

    return finished


def _tail(graph: Graph, bounds: Array) -> Tail | None:
    """What writes density, tempering and head of features within such bounds (D,); None if they are of another kind."""
    model = graph.model
    if isinstance(model, DensityRegression):
        constants = Constants.of(model, bounds, log_scale=np.log(numbers(graph.y_scale)))
        return None if constants is None else lambda nodes, z: _write_density(nodes, z, constants, graph)
    head = model.linear_gaussian() if isinstance(model, Network) else None
    return None if head is None else lambda nodes, z: _write_gaussian(nodes, z, head, graph)


def _features(nodes: Nodes, inputs: str, layers: Layers, graph: Graph) -> str:
    """From scaled inputs to features, held within +-`LARGE`, with the inputs beside them where they stand there."""
    z = inputs
    for layer in layers.linear:
        weight = nodes.const(layer.weight, name=ENCODER)
        z = nodes.add("Relu", [nodes.add("Gemm", [z, weight, nodes.const(layer.bias)], transB=1)])
    if layers.with_inputs:
        z = nodes.add("Concat", [z, inputs], axis=1)
    if layers.bounds(graph.farthest).max() > LARGE:
        z = nodes.add("Clip", [z, nodes.const(-LARGE), nodes.const(LARGE)])
    return z


def _inputs(nodes: Nodes, graph: Graph) -> str:
    """Scaled inputs."""
    inputs = nodes.add("Sub", [INPUT, nodes.own(graph.x_center)])
    if graph.x_rest is not None:
        inputs = nodes.add("Sub", [inputs, nodes.own(graph.x_rest)])
    inputs = nodes.add("Div", [inputs, nodes.own(graph.x_scale)])
    return nodes.single(nodes.add("Clip", [inputs, nodes.own(-graph.farthest), nodes.own(graph.farthest)]))


def _write_gaussian(nodes: Nodes, z: str, head: LinearGaussian, graph: Graph) -> None:
    """Mean and log standard deviation, linear in the features."""
    layer, limit = head
    k = layer.out_features // 2
    log_scale = np.log(numbers(graph.y_scale))
    bias = numbers(layer.bias)
    bias[k:] += log_scale
    both = nodes.double(nodes.add("Gemm", [z, nodes.const(numbers(layer.weight).T), nodes.const(bias)]))
    # To split them takes longer than a product.
    first, second = np.split(np.eye(2 * k), 2, axis=1)
    log_std = nodes.within(nodes.add("Gemm", [both, nodes.own(second)]), log_scale - limit, log_scale + limit)
    nodes.add("Exp", [log_std], output=OUTPUTS[1])
    nodes.write_mean(both, first, graph)


def _write_density(nodes: Nodes, z: str, c: Constants, graph: Graph) -> None:
    """Density, tempering and head, of features."""
    k, q = len(c.detail), len(c.factor)
    wide = len(c.weight) >= WIDE and not c.clip_whitened
    squares = Squares.of(c).all_squared(c.unit) if wide else Squares.of(c)
    # s, of which one distance is enough here, once for each step through its range.
    steps = max(math.ceil(c.width.max() / STEP), 1)
    starts = np.concatenate([c.width * i / steps for i in range(steps)])
    means, above = slice(q + 1, q + 1 + k), slice(q + 1 + k, q + 1 + 2 * k)
    nothing = np.zeros((len(c.weight), 1))
    weight = np.hstack([c.weight[:, means], *[c.weight[:, above]] * steps, nothing, squares.linear])
    bias = np.concatenate([c.bias[means], np.tile(c.bias[above], steps) - starts, [PASSED], squares.level])
    first = len(squares.bias) if wide else 0
    if wide:
        # Rows of zeros in the products that follow cost less than a second product here.
        weight, bias = np.hstack([squares.weight, weight]), np.append(squares.bias, bias)
        squares = squares.among(len(bias))
    head = nodes.add("Gemm", [z, nodes.const(weight), nodes.const(bias)])
    u = head if wide else nodes.add("Gemm", [z, nodes.const(squares.weight), nodes.const(squares.bias)])
    location, passed, linear = np.split(np.eye(len(bias))[:, first:], [k, k + len(starts) + 1], axis=1)
    joint = _joint(nodes, z, u, [(head, linear)] if linear.size else [], squares, c)
    log_density = _write_log_density(nodes, joint, len(c.log_norm), None if wide else squares.one)
    log_std = nodes.double(_log_std(nodes, (nodes.add("Sigmoid", [head]), passed), log_density, c, steps))
    if c.clip_std:
        scale = np.log(numbers(graph.y_scale))
        log_std = nodes.within(log_std, scale - LOG_STD_LIMIT, scale + LOG_STD_LIMIT)
    nodes.add("Exp", [log_std], output=OUTPUTS[1])
    nodes.write_mean(nodes.double(head), location, graph)


def _joint(nodes: Nodes, z: str, u: str, products: list[tuple[str, Array]], squares: Squares, c: Constants) -> str:
    """Log-densities (n, K) of components by features and their functions u, beside other products to be added."""
    if c.clip_whitened:
        u = nodes.add("Clip", [u, nodes.const(-LARGE), nodes.const(LARGE)])
    rest, scale = [], -0.5 * c.unit**2
    if c.unit:
        left = z if squares.back is None else nodes.add("Gemm", [u, nodes.const(-squares.back), z])
        rest = [nodes.add("ReduceSum", [nodes.square(left), nodes.axes(1)], keepdims=1)]
    if not np.array_equal(squares.forms, np.eye(len(squares.forms))):
        shift = [nodes.const(squares.shift)] if squares.shift.any() else []
        u = nodes.add("Gemm", [u, nodes.const(squares.forms), *shift])
    for values, columns in [*products, (nodes.square(u), squares.sums)]:
        rest, scale = [nodes.add("Gemm", [values, nodes.const(columns), *rest], beta=scale)], 1.0
    return rest[0]


def _write_log_density(nodes: Nodes, joint: str, components: int, one: int | None) -> tuple[str, Array]:
    """The log-density, by that of components (n, K); returns columns, and by what (columns, 1) to multiply them."""
    if one is not None and components > 1:
        # log p = log p_i - log(p_i / p) for any component i: for a batch, faster than ReduceLogSumExp.
        each = nodes.add("Sub", [joint, nodes.add("LogSoftmax", [joint], axis=1)])
        nodes.add("Gather", [each, nodes.place(one)], axis=1, output=OUTPUTS[2])
        return each, np.eye(components)[:, [one]]
    if components > 1:
        joint = nodes.add("ReduceLogSumExp", [joint, nodes.axes(1)], keepdims=1)
    nodes.add("Squeeze", [joint, nodes.axes(1)], output=OUTPUTS[2])
    return joint, np.ones((1, 1))


def _log_std(nodes: Nodes, passed: tuple[str, Array], log_density: tuple[str, Array], c: Constants, steps: int) -> str:
    """Log standard deviations (n, k): logarithms of the tempering's growth and of how far s has passed each step.

    Of the sigmoids that say how far, and of the log-density: columns, and by what to multiply them to have it.

    softplus(a) - softplus(a - w) = w - log(e^w - (e^w - 1) sigmoid(a)), which needs no clipping, however large a.
    """
    k = len(c.detail)
    step = np.tile(c.width / steps, steps)
    passing = np.hstack([np.zeros((len(step), 1)), np.diag(-np.expm1(step))])
    passing = passed[1] @ np.vstack([passing, np.append(c.level, np.exp(step))])
    factors = nodes.add("Gemm", [passed[0], nodes.const(passing)])
    growing = np.append(-c.slope, np.zeros(len(step)))[None]
    factors = nodes.add("Gemm", [log_density[0], nodes.const(log_density[1] @ growing), factors])
    # All are at least 1, the growth because it is clipped.
    logs = nodes.add("Log", [nodes.add("Clip", [factors, nodes.const(1.0)])])
    powers = np.vstack([np.full((1, k), 0.5 * c.exponent), *[np.diag(c.detail)] * steps])
    return nodes.add("Gemm", [logs, nodes.const(powers), nodes.const(c.constant - c.detail * c.width)])
