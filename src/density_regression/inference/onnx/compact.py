"""The default model and Gaussian networks as ONNX graphs of few nodes, whose overhead dominates single rows."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from scipy.linalg import block_diag

from density_regression.inference.fused import FLOAT32_LIMIT, Constants, Layers, as_float64
from density_regression.inference.onnx.graph import INPUT, OUTPUTS, Graph
from density_regression.inference.onnx.nearest import Nearest
from density_regression.inference.onnx.nodes import Nodes
from density_regression.inference.onnx.parts import write_parts
from density_regression.inference.onnx.quadratic_forms import QuadraticForms
from density_regression.nn.density.base import FEATURE_LIMIT
from density_regression.nn.encoders.embedding import BIN_SIZE, SMOOTH_RANGE
from density_regression.nn.heads import LOG_STD_LIMIT
from density_regression.nn.model import DensityRegression
from density_regression.nn.network import LinearGaussian, Network, Predictor
from density_regression.tabular.table import Floats

__all__ = ["compact_model", "compact_model_after_encoder"]

LARGEST_STEP: Final = 4.0
"""Largest w for which `_log_std` computes softplus(a) - softplus(a - w) at once: its rounding grows with e^w."""

SATURATED: Final = 128.0
"""A number whose sigmoid is 1, and by which division is exact."""

SELECTED_BY_PRODUCT: Final = 64
"""Most columns that are repeated by a matrix product, several times faster than Gather for a batch of narrow tables."""

ResultsWriter = Callable[[Nodes, str], None]
"""Adds the nodes from the features of this name to all results."""


def compact_model(graph: Graph) -> Any:
    """ONNX model of a `graph` of the default or of Gaussian networks, with `MLP`s as encoders; None of any other."""
    mixture = graph.model.mixture()
    members: Sequence[Predictor] = mixture or [graph.model]
    known = [Layers.of(member.encoder) if isinstance(member, Network) else None for member in members]
    layers = [own for own in known if own is not None]
    bounds = [own.bounds(graph.limit) for own in layers]
    if len(layers) < len(members) or not all(own.max() < FLOAT32_LIMIT for own in bounds):
        return None
    nodes, largest = Nodes(graph.dtype), max(own.max() for own in bounds)
    if mixture:
        heads = [head for member in mixture if (head := member.linear_gaussian()) is not None]
        # Squares of the members' means must not overflow.
        if len(heads) < len(mixture) or largest > FEATURE_LIMIT or any(own.with_inputs for own in layers):
            return None
        if not all(_same_embedding(own, layers[0]) for own in layers):
            return None
        inputs = _embedded(nodes, _scaled_inputs(nodes, graph), layers[0])
        _write_ensemble(nodes, inputs, layers, heads, graph)
        return nodes.model(graph)
    write_results = _results_writer(graph, bounds[0])
    if write_results is None:
        return None
    inputs = _scaled_inputs(nodes, graph)
    z = nodes.relu_layer(_embedded(nodes, inputs, layers[0]), *_first_layer(layers[0]))
    z = nodes.layers(z, layers[0].linear[1:])
    if layers[0].with_inputs:
        z = nodes.add("Concat", [z, inputs], axis=1)
    write_results(nodes, _clipped(nodes, z) if largest > FEATURE_LIMIT else z)
    return nodes.model(graph)


def compact_model_after_encoder(graph: Graph) -> Callable[[Any], Any] | None:
    """Function from the ONNX model of the encoder to that of the graph; None if the rest of the model is unknown."""
    if not isinstance(graph.model, Network):
        return None
    write_results = _results_writer(graph, np.full(graph.model.features, FEATURE_LIMIT))
    if write_results is None:
        return None

    def complete(encoder: Any) -> Any:
        nodes = Nodes(graph.dtype)
        z = nodes.include(encoder, _scaled_inputs(nodes, graph))
        clipped = _clipped(nodes, z)
        write_results(nodes, nodes.add("Where", [nodes.add("IsNaN", [z]), nodes.const(FEATURE_LIMIT), clipped]))
        return nodes.model(graph)

    return complete


def _results_writer(graph: Graph, bounds: Floats) -> ResultsWriter | None:
    """Writer of density, tempering and head for features within +-`bounds` (D,); None if they are unknown."""
    model = graph.model
    if isinstance(model, DensityRegression):
        constants = Constants.of(model, bounds, log_scale=np.log(as_float64(graph.y_scale)))
        return None if constants is None else lambda nodes, z: _write_density(nodes, z, constants, bounds, graph)
    head = model.linear_gaussian() if isinstance(model, Network) else None
    return None if head is None else lambda nodes, z: _write_gaussian(nodes, z, head, graph)


def _scaled_inputs(nodes: Nodes, graph: Graph) -> str:
    inputs = nodes.add("Sub", [INPUT, nodes.io_const(graph.x_center)])
    if graph.x_rest is not None:
        inputs = nodes.add("Sub", [inputs, nodes.io_const(graph.x_rest)])
    inputs = nodes.add("Div", [inputs, nodes.io_const(graph.x_scale)])
    return nodes.to_float32(nodes.add("Clip", [inputs, nodes.io_const(-graph.limit), nodes.io_const(graph.limit)]))


def _embedded(nodes: Nodes, inputs: str, layers: Layers) -> str:
    """Embedded inputs (n, width), but for what `_first_layer` does in their stead: a factor, and the bins' means."""
    embedding = layers.embedding
    if embedding is None:
        return inputs
    root = nodes.add("Sqrt", [nodes.add("Add", [nodes.square(inputs), nodes.const(SMOOTH_RANGE**2)])])
    smooth = nodes.add("Div", [inputs, root])
    if not len(embedding.column):
        return smooth
    column = embedding.column.tolist()
    if embedding.columns <= SELECTED_BY_PRODUCT:
        # Exact, as all but one of the terms are zero.
        choice = nodes.const(np.eye(embedding.columns)[:, column])
        above = nodes.add("Gemm", [inputs, choice, nodes.const(-embedding.low)])
    else:
        of_bin = nodes.add("Gather", [inputs, nodes.integers(column)], axis=1)
        above = nodes.add("Sub", [of_bin, nodes.const(embedding.low)])
    steps = nodes.add("Mul", [above, nodes.const(embedding.slope)])
    bins = nodes.add("Clip", [steps, nodes.const(0.0), nodes.const(BIN_SIZE)])
    return nodes.add("Concat", [smooth, bins], axis=1)


def _first_layer(layers: Layers) -> tuple[Floats, Floats]:
    """Weight and bias of the first layer, as it reads what `_embedded` writes."""
    weight, bias = as_float64(layers.linear[0].weight), as_float64(layers.linear[0].bias)
    if layers.embedding is None:
        return weight, bias
    c = layers.columns
    bias = bias - weight[:, c:] @ as_float64(layers.embedding.mean)
    return np.hstack([SMOOTH_RANGE * weight[:, :c], weight[:, c:]]), bias


def _same_embedding(one: Layers, other: Layers) -> bool:
    if one.embedding is None or other.embedding is None:
        return one.embedding is other.embedding
    pairs = zip(one.embedding.buffers(), other.embedding.buffers(), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def _clipped(nodes: Nodes, value: str) -> str:
    return nodes.add("Clip", [value, nodes.const(-FEATURE_LIMIT), nodes.const(FEATURE_LIMIT)])


def _write_gaussian(nodes: Nodes, z: str, head: LinearGaussian, graph: Graph) -> None:
    """Mean and log standard deviation, linear in the features."""
    layer, limit = head
    k = layer.out_features // 2
    log_scale = np.log(as_float64(graph.y_scale))
    bias = as_float64(layer.bias)
    bias[k:] += log_scale
    both = nodes.to_io_type(nodes.add("Gemm", [z, nodes.const(as_float64(layer.weight).T), nodes.const(bias)]))
    # A product is faster than Split.
    first, second = np.split(np.eye(2 * k), 2, axis=1)
    log_std = nodes.clip(nodes.add("Gemm", [both, nodes.io_const(second)]), log_scale - limit, log_scale + limit)
    nodes.add("Exp", [log_std], output=OUTPUTS[1])
    nodes.write_mean(both, first, graph)


def _write_ensemble(
    nodes: Nodes, inputs: str, encoders: Sequence[Layers], heads: Sequence[LinearGaussian], graph: Graph
) -> None:
    """Mean and standard deviation of an equal mixture of M Gaussian networks whose encoders are `MLP`s.

    The first layers are one product, and so are all heads, by a block-diagonal matrix.
    """
    k, limit, members = heads[0].layer.out_features // 2, heads[0].log_std_limit, len(heads)
    first = [_first_layer(encoder) for encoder in encoders]
    z = nodes.relu_layer(inputs, *(np.concatenate(part) for part in zip(*first, strict=True)))
    if len(encoders[0].linear) > 1:
        parts = nodes.split(z, [encoder.linear[0].out_features for encoder in encoders])
        features = [nodes.layers(part, own.linear[1:]) for part, own in zip(parts, encoders, strict=True)]
        z = nodes.add("Concat", features, axis=1)
    # All means, then all log variances.
    twice = np.repeat([1.0, 2.0], k)
    weights = [as_float64(head.layer.weight).T * twice for head in heads]
    biases = [as_float64(head.layer.bias) * twice for head in heads]
    halves = slice(k), slice(k, None)
    weight = nodes.const(np.hstack([block_diag(*(own[:, half] for own in weights)) for half in halves]))
    bias = nodes.const(np.concatenate([own[half] for half in halves for own in biases]))
    means, log_vars = nodes.split(nodes.add("Gemm", [z, weight, bias]), [k * members] * 2)
    log_vars = nodes.add("Clip", [log_vars, nodes.const(-2.0 * limit), nodes.const(2.0 * limit)])
    # Law of total variance: the average of the variances and the variance of the means.
    average = np.kron(np.full((members, 1), 1.0 / members), np.eye(k))
    centering = np.eye(k * members) - np.kron(np.full((members, members), 1.0 / members), np.eye(k))
    within = nodes.add("Gemm", [nodes.add("Exp", [log_vars]), nodes.const(average)])
    between = nodes.square(nodes.add("Gemm", [means, nodes.const(centering)]))
    variance = nodes.add("Gemm", [between, nodes.const(average), within])
    std = nodes.add("Sqrt", [nodes.to_io_type(variance)])
    nodes.add("Gemm", [std, nodes.io_const(np.diag(as_float64(graph.y_scale)))], output=OUTPUTS[1])
    nodes.write_mean(nodes.to_io_type(means), average, graph)


def _write_density(nodes: Nodes, z: str, c: Constants, bounds: Floats, graph: Graph) -> None:
    """Log-density, standard deviation and mean of a default model with features within +-`bounds` (D,)."""
    k, q = len(c.detail), len(c.factor)
    forms = Nearest.of(c, bounds) if c.shared else QuadraticForms.of(c)
    # Columns: means; a of `Constants` less the start of each step through its range; SATURATED; those of the density.
    steps = max(math.ceil(c.width.max() / LARGEST_STEP), 1)
    starts = np.concatenate([c.width * i / steps for i in range(steps)])
    means, above = slice(q + 1, q + 1 + k), slice(q + 1 + k, q + 1 + k + len(c.width))
    zeros = np.zeros((len(c.weight), 1))
    weight = np.hstack([c.weight[:, means], *[c.weight[:, above]] * steps, zeros, forms.linear])
    bias = np.concatenate([c.bias[means], np.tile(c.bias[above], steps) - starts, [SATURATED], forms.level])
    head = nodes.add("Gemm", [z, nodes.const(weight), nodes.const(bias)])
    location, stepped, linear = np.split(np.eye(len(bias)), [k, k + len(starts) + 1], axis=1)
    if isinstance(forms, Nearest):
        one = stepped[:, -1:] / SATURATED
        log_density = _write_log_density(nodes, forms.write(nodes, z, head, np.hstack([linear, one])), 1, None)
    else:
        u = nodes.add("Gemm", [z, nodes.const(forms.weight), nodes.const(forms.bias)])
        joint = _joint(nodes, z, u, [(head, linear)] if linear.size else [], forms, c)
        log_density = _write_log_density(nodes, joint, len(c.log_norm), forms.reference)
    sigmoids = nodes.add("Sigmoid", [head]), stepped
    logs = _logs(nodes, sigmoids, log_density, c, steps)
    if graph.has_parts:
        write_parts(nodes, logs, c, steps, graph)
    log_std = nodes.to_io_type(_log_std(nodes, logs, c, steps))
    if c.clip_std:
        log_scale = np.log(as_float64(graph.y_scale))
        log_std = nodes.clip(log_std, log_scale - LOG_STD_LIMIT, log_scale + LOG_STD_LIMIT)
    nodes.add("Exp", [log_std], output=OUTPUTS[1])
    nodes.write_mean(nodes.to_io_type(head), location, graph)


def _joint(
    nodes: Nodes, z: str, u: str, products: list[tuple[str, Floats]], forms: QuadraticForms, c: Constants
) -> str:
    """Log-densities (n, K) of the components, to which these products are added."""
    u = _clipped(nodes, u) if c.clip_whitened else u
    total, scale = [], -0.5 * c.residual_factor**2
    if c.residual_factor:
        residual = z if forms.back is None else nodes.add("Gemm", [u, nodes.const(-forms.back), z])
        total = [nodes.add("ReduceSum", [nodes.square(residual), nodes.integers([1])], keepdims=1)]
    if not np.array_equal(forms.forms, np.eye(len(forms.forms))):
        shift = [nodes.const(forms.shift)] if forms.shift.any() else []
        u = nodes.add("Gemm", [u, nodes.const(forms.forms), *shift])
    for values, columns in [*products, (nodes.square(u), forms.sums)]:
        total, scale = [nodes.add("Gemm", [values, nodes.const(columns), *total], beta=scale)], 1.0
    return total[0]


def _write_log_density(nodes: Nodes, joint: str, components: int, reference: int | None) -> tuple[str, Floats]:
    """Write the log-density from that of components (n, K); returns values (n, m) and weights (m, 1) to form it."""
    if reference is not None and components > 1:
        # log p = log p_i - log(p_i / p) for any component i; LogSoftmax is faster than ReduceLogSumExp on a batch.
        each = nodes.add("Sub", [joint, nodes.add("LogSoftmax", [joint], axis=1)])
        nodes.add("Gather", [each, nodes.integers(reference)], axis=1, output=OUTPUTS[2])
        return each, np.eye(components)[:, [reference]]
    if components > 1:
        joint = nodes.add("ReduceLogSumExp", [joint, nodes.integers([1])], keepdims=1)
    nodes.add("Squeeze", [joint, nodes.integers([1])], output=OUTPUTS[2])
    return joint, np.ones((1, 1))


def _logs(nodes: Nodes, sigmoids: tuple[str, Floats], log_density: tuple[str, Floats], c: Constants, steps: int) -> str:
    """Logarithms (n, 1 + steps b) of the growth and of `Constants`' b differences of softplus, step by step.

    Sigmoids and log-density are values and weights to form them.

    With 1 + e^a = 1 / (1 - sigmoid(a)), the difference of softplus needs no clipping however large a is:

        softplus(a) - softplus(a - w) = -log(1 - sigmoid(a) + e^-w sigmoid(a)) = w - log(e^w - (e^w - 1) sigmoid(a))

    A wide range w is the sum of such steps. Their logarithms and that of the growth, level - slope log p, are taken at
    once and then weighted.
    """
    step = np.tile(c.width / steps, steps)
    weights = np.hstack([np.zeros((len(step), 1)), np.diag(-np.expm1(step))])
    weights = sigmoids[1] @ np.vstack([weights, np.append(c.level, np.exp(step))])
    factors = nodes.add("Gemm", [sigmoids[0], nodes.const(weights)])
    slopes = np.append(-c.slope, np.zeros(len(step)))[None]
    factors = nodes.add("Gemm", [log_density[0], nodes.const(log_density[1] @ slopes), factors])
    # Those of the steps are at least 1 anyway.
    return nodes.add("Log", [nodes.add("Clip", [factors, nodes.const(1.0)])])


def _log_std(nodes: Nodes, logs: str, c: Constants, steps: int) -> str:
    """Log standard deviations (n, k) of `Constants` from those logarithms."""
    k = len(c.detail)
    growth, others = np.full((1, k), c.exponent), np.zeros((len(c.ratio_low), k))
    noise = np.vstack([np.diag(c.detail), others])
    constant = nodes.const(c.constant - c.detail * c.width[:k])
    if not len(c.ratio_low):
        return nodes.add("Gemm", [logs, nodes.const(np.vstack([0.5 * growth, *[noise] * steps])), constant])
    log_noise = nodes.add("Gemm", [logs, nodes.const(np.vstack([0.0 * growth, *[noise] * steps])), constant])
    powers = np.vstack([growth, *[np.vstack([others, -np.eye(k)])] * steps])
    ratio = nodes.add("Gemm", [logs, nodes.const(powers), nodes.const(c.ratio_low + c.width[k:])])
    return nodes.add("Gemm", [nodes.add("Softplus", [ratio]), nodes.const(0.5 * np.eye(k)), log_noise])
