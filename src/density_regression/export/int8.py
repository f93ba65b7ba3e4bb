"""An encoder's weights as whole numbers of eight bits, a quarter of their size in a file.

Weights alone: numbers between layers would need one scale for all rows of a batch, and a single row far away would then
take the digits of all others. A runtime that likes floats better unpacks the weights when it loads the file.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from density_regression._extras import import_extra
from density_regression.export.nodes import ENCODER

__all__ = ["SMALLEST", "quantise_encoder"]

SMALLEST: Final = 64
"""Numbers in a matrix from which on it is worth it."""


def quantise_encoder(proto: Any) -> int:
    """Write the encoder's matrices of an ONNX model in int8, each row with a scale of its own; returns how many."""
    onnx = import_extra("onnx", needed_by="Exporting", extra="onnx")
    graph, count = proto.graph, 0
    for tensor in list(graph.initializer):
        values = onnx.numpy_helper.to_array(tensor)
        if ENCODER not in tensor.name or values.dtype != np.float32 or values.ndim < 2 or values.size < SMALLEST:
            continue
        rows = np.abs(values).reshape(len(values), -1).max(axis=1)
        scale = np.maximum(rows / 127.0, np.finfo(np.float32).tiny).astype(np.float32)
        steps = np.rint(values / scale.reshape(-1, *[1] * (values.ndim - 1))).astype(np.int8)
        names = [f"{tensor.name}_int8", f"{tensor.name}_scale"]
        parts = zip((steps, scale), names, strict=True)
        graph.initializer.extend([onnx.numpy_helper.from_array(part, name) for part, name in parts])
        graph.node.insert(0, onnx.helper.make_node("DequantizeLinear", names, [tensor.name], axis=0))
        graph.initializer.remove(tensor)
        count += 1
    return count
