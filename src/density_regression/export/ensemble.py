"""A mixture of Gaussian networks as ONNX written by hand, with as few nodes as it takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import block_diag

from density_regression.export.graph import OUTPUTS, Graph
from density_regression.export.nodes import ENCODER, Nodes
from density_regression.lean import Layers, numbers
from density_regression.network import LinearGaussian

__all__ = ["write_mixture"]


def write_mixture(
    nodes: Nodes, inputs: str, encoders: Sequence[Layers], members: Sequence[LinearGaussian], graph: Graph
) -> None:
    """Moments of an equal mixture of Gaussian networks whose encoders are `MLP`s."""
    k, limit = members[0].layer.out_features // 2, members[0].log_std_limit
    each = [encoder.linear for encoder in encoders]
    first = [layers[0] for layers in each]
    weight = nodes.const(np.vstack([numbers(layer.weight) for layer in first]), name=ENCODER)
    bias = nodes.const(np.concatenate([numbers(layer.bias) for layer in first]))
    joint = nodes.add("Relu", [nodes.add("Gemm", [inputs, weight, bias], transB=1)])
    if len(each[0]) > 1:
        features = []
        for own, layers in zip(nodes.split(joint, [layer.out_features for layer in first]), each, strict=True):
            z = own
            for layer in layers[1:]:
                weight = nodes.const(layer.weight, name=ENCODER)
                z = nodes.add("Relu", [nodes.add("Gemm", [z, weight, nodes.const(layer.bias)], transB=1)])
            features.append(z)
        joint = nodes.add("Concat", features, axis=1)
    # All heads as one product: the means of all members, then their log variances.
    heads = [numbers(member.layer.weight).T * np.repeat([1.0, 2.0], k) for member in members]
    biases = [numbers(member.layer.bias) * np.repeat([1.0, 2.0], k) for member in members]
    weight = nodes.const(np.hstack([block_diag(*(head[:, part] for head in heads)) for part in _halves(k)]))
    bias = nodes.const(np.concatenate([own[part] for part in _halves(k) for own in biases]))
    means, log_vars = nodes.split(nodes.add("Gemm", [joint, weight, bias]), [k * len(members)] * 2)
    log_vars = nodes.add("Clip", [log_vars, nodes.const(-2.0 * limit), nodes.const(2.0 * limit)])
    average = np.kron(np.full((len(members), 1), 1.0 / len(members)), np.eye(k))
    apart = np.eye(k * len(members)) - np.kron(np.full((len(members),) * 2, 1.0 / len(members)), np.eye(k))
    noise = nodes.add("Gemm", [nodes.add("Exp", [log_vars]), nodes.const(average)])
    disagreement = nodes.square(nodes.add("Gemm", [means, nodes.const(apart)]))
    variance = nodes.add("Gemm", [disagreement, nodes.const(average), noise])
    std = nodes.add("Sqrt", [nodes.double(variance)])
    nodes.add("Gemm", [std, nodes.own(np.diag(numbers(graph.y_scale)))], output=OUTPUTS[1])
    nodes.write_mean(nodes.double(means), average, graph)


def _halves(k: int) -> tuple[slice, slice]:
    return slice(k), slice(k, None)
