"""The default model as ONNX written by hand, with as few nodes as it takes.

A graph of a small network pays for each node what its arithmetic costs, so constants are folded into the matrices
beside them: centres and shifts ride along as a column of ones, scales as factors of a product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from torch import nn

from density_regression._numeric import LARGE
from density_regression.density import RobustTempering
from density_regression.encoders import MLP, WithInputs
from density_regression.export.graph import INPUT, OUTPUTS, Graph
from density_regression.export.nodes import Array, Nodes, numbers
from density_regression.head import LOG_STD_LIMIT, MeanHead
from density_regression.model import DensityRegression
from density_regression.network import Network

__all__ = ["lean_model"]

LARGEST: Final = 1e37
"""Features that stay below this are never NaN."""


def lean_model(graph: Graph) -> Any:
    """An ONNX model that gives what `graph` gives; None if its parts are not those of a default."""
    model = graph.model
    if not isinstance(model, Network) or graph.may_overflow:
        return None
    encoder = model.encoder.encoder if isinstance(model.encoder, WithInputs) else model.encoder
    if not isinstance(encoder, MLP):
        return None
    layers = [layer for layer in encoder if isinstance(layer, nn.Linear)]
    write = _writer(model)
    if write is None or not _stays_finite(layers):
        return None
    nodes = Nodes(graph.dtype)
    inputs = nodes.add("Sub", [INPUT, nodes.own(graph.x_center)])
    inputs = nodes.add("Div", [inputs, nodes.own(graph.x_scale)])
    inputs = nodes.single(nodes.add("Clip", [inputs, nodes.own(-LARGE), nodes.own(LARGE)]))
    z = inputs
    for layer in layers:
        product = nodes.add("Gemm", [z, nodes.const(layer.weight), nodes.const(layer.bias)], transB=1)
        z = nodes.add("Relu", [product])
    if isinstance(model.encoder, WithInputs):
        z = nodes.add("Concat", [z, inputs], axis=1)
    write(nodes, nodes.add("Clip", [z, nodes.const(-LARGE), nodes.const(LARGE)]), graph)
    return nodes.model(graph)


def _writer(model: Network) -> Callable[[Nodes, str, Graph], None] | None:
    """What writes the rest of a model, from features to outputs."""
    if not isinstance(model, DensityRegression):
        return _write_gaussian if hasattr(model, "log_std_limit") and not model.no_graph else None
    if model.density is None or model.density.quadratics() is None:
        return None
    # Squared distances, in units of the residual's scale, must not overflow.
    known = type(model.head) is MeanHead and type(model.tempering) is RobustTempering
    return _write_density if known and model.density.whitening.residual_scale > 1e-4 else None


def _write_gaussian(nodes: Nodes, z: str, graph: Graph) -> None:
    """Mean and log standard deviation, linear in the features."""
    model: Any = graph.model
    k, limit = model.targets, model.log_std_limit
    log_scale = np.log(numbers(graph.y_scale))
    bias = numbers(model.linear.bias)
    bias[k:] += log_scale
    y = nodes.add("Gemm", [z, nodes.const(model.linear.weight), nodes.const(bias)], transB=1)
    location, log_std = nodes.split(y, [k, k])
    log_std = nodes.within(log_std, log_scale - limit, log_scale + limit)
    _write_outputs(nodes, location, log_std, graph)


def _write_outputs(nodes: Nodes, location: str, log_std: str, graph: Graph) -> None:
    nodes.add("Exp", [nodes.double(log_std)], output=OUTPUTS[1])
    scaled = nodes.add("Mul", [nodes.double(location), nodes.own(graph.y_scale)])
    nodes.add("Add", [scaled, nodes.own(graph.y_center)], output=OUTPUTS[0])


class _Parts(NamedTuple):
    """A fitted model's numbers, in float64, for the features that are not padding."""

    center: Array  # (D,)
    directions: Array  # (D, q)
    reconstruction: Array  # (q, D)
    residual_scale: float | None
    factor: Array  # (q, K q)
    shift: Array  # (K q,)
    log_norm: Array  # (K,)
    weight: Array  # (D, 2 k), of the head
    bias: Array  # (2 k,)

    @classmethod
    def of(cls, model: DensityRegression) -> _Parts:
        """Taken from a model."""
        encoder = model.encoder.encoder if isinstance(model.encoder, WithInputs) else model.encoder
        layers = [layer for layer in encoder.modules() if isinstance(layer, nn.Linear)]
        width = layers[-1].out_features + (layers[0].in_features if isinstance(model.encoder, WithInputs) else 0)
        density = model.density
        assert density is not None
        whitening = density.whitening
        kept = whitening.kept
        quadratics = density.quadratics()
        assert quadratics is not None
        factor, shift, log_norm = quadratics
        tensors = (
            whitening.center[:width],
            whitening.projection[:width, :kept],
            whitening.reconstruction[:kept, :width],
            factor,
            shift,
            log_norm + whitening.log_det,
            model.head.linear.weight[:, :width].T,
            model.head.linear.bias,
        )
        center, directions, reconstruction, *rest = (numbers(part) for part in tensors)
        scale = float(whitening.residual_scale) if whitening.has_residual else None
        return cls(center, directions, reconstruction, scale, *rest)


def _write_density(nodes: Nodes, z: str, graph: Graph) -> None:
    """Density, tempering and head."""
    model = graph.model
    assert isinstance(model, DensityRegression)
    assert isinstance(model.tempering, RobustTempering)
    parts = _Parts.of(model)
    head, tempering = model.head, model.tempering
    k, q, components = head.targets, parts.directions.shape[1], len(parts.log_norm)
    low, high, level, detail, offset = (
        numbers(part) for part in (head.s_low, head.s_high, head.level, head.detail, head.offset)
    )
    # One product: whitened features and a one; the location; and s, stretched to a range of one width.
    beta = 8.0 / np.clip(high - low, 1e-3, 8.0)
    weight = np.hstack(
        [parts.directions, np.zeros((len(parts.center), 1)), parts.weight[:, :k], parts.weight[:, k:] * beta]
    )
    bias = np.concatenate([-parts.center @ parts.directions, [1.0], parts.bias[:k], beta * parts.bias[k:]])
    y = nodes.add("Gemm", [z, nodes.const(weight), nodes.const(bias)])
    t, location, s = nodes.split(y, [q + 1, k, k])
    t = nodes.add("Clip", [t, nodes.const(-LARGE), nodes.const(LARGE)])
    # log p: half the squared length of what is left over, and the components' distances.
    half: list[str] = []
    if parts.residual_scale is not None:
        unit = 1.0 / parts.residual_scale
        back = -np.vstack([parts.reconstruction, parts.center])
        left = nodes.add("Gemm", [t, nodes.const(back), z], alpha=unit, beta=unit)
        # Faster than a reduction.
        half = [nodes.add("Gemm", [nodes.square(left), nodes.const(np.full((len(parts.center), 1), -0.5))])]
    apart = np.block([[parts.factor, np.zeros((q, 1))], [-parts.shift, np.ones((1, 1))]])
    squares = nodes.square(nodes.add("Gemm", [t, nodes.const(apart)]))
    sums = np.vstack([-0.5 * np.kron(np.eye(components), np.ones((q, 1))), parts.log_norm])
    joint = nodes.add("Gemm", [squares, nodes.const(sums), *half])
    log_density = joint if components == 1 else nodes.add("ReduceLogSumExp", [joint, nodes.axes(1)], keepdims=1)
    nodes.add("Squeeze", [log_density, nodes.axes(1)], output=OUTPUTS[2])
    # log std = constant + g / 2 log(1 + 2 e) - lambda / 2 (s within its range).
    exponent, reach, spread, reference = (
        float(part) for part in (tempering.exponent, tempering.learnt_reach, tempering.spread, tempering.reference)
    )
    constant = -0.5 * (level + detail * (low - level) + offset + math.log(2)) + np.log(numbers(graph.y_scale))
    slope = 2.0 / (reach * spread)
    begin = reference - tempering.start * spread
    # For one target its constant goes into the logarithm.
    inside = math.exp(2 * constant[0] / exponent) if k == 1 and abs(constant[0]) < 40 * exponent else 1.0
    line = (np.array([[-slope * inside]]), np.array([inside * (1 + slope * begin)]))
    excess = nodes.add("Gemm", [log_density, nodes.const(line[0]), nodes.const(line[1])])
    growth = nodes.add("Log", [nodes.add("Clip", [excess, nodes.const(inside)])])
    if inside == 1.0:
        growth = nodes.add("Gemm", [growth, nodes.const(np.ones((1, k))), nodes.const(2 * constant / exponent)])
    # Its distances from both ends of the range, beyond which nothing changes.
    s = nodes.within(s, beta * low - 20.0, beta * high + 20.0)
    both = (np.hstack([np.eye(k), np.eye(k)]), -np.concatenate([beta * low, beta * high]))
    ends = nodes.add("Gemm", [s, nodes.const(both[0]), nodes.const(both[1])])
    difference = np.vstack([np.diag(-0.5 * detail / beta), np.diag(0.5 * detail / beta)])
    log_std = nodes.add("Gemm", [nodes.add("Softplus", [ends]), nodes.const(difference), growth], beta=0.5 * exponent)
    scale = np.log(numbers(graph.y_scale))
    if not _within_limits(constant - scale, detail * (high - low), exponent, slope, begin):
        log_std = nodes.within(log_std, scale - LOG_STD_LIMIT, scale + LOG_STD_LIMIT)
    _write_outputs(nodes, location, log_std, graph)


def _within_limits(constant: Array, width: Array, exponent: float, slope: float, begin: float) -> bool:
    """Whether no log std can leave +-`LOG_STD_LIMIT`."""
    farthest = 0.5 * exponent * math.log1p(slope * (abs(begin) + LARGEST))
    return bool((np.abs(constant) + 0.5 * np.abs(width) + farthest + 1.0 < LOG_STD_LIMIT).all())


def _stays_finite(layers: Sequence[nn.Linear]) -> bool:
    """Whether features of scaled inputs, at most `LARGE`, cannot overflow on the way."""
    bound = LARGE
    for layer in layers:
        sums = layer.weight.abs().double().sum(1) * bound + layer.bias.abs().double()
        bound = float(sums.max())
    return bound < LARGEST
