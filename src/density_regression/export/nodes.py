"""An ONNX graph that grows node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from density_regression._extras import import_extra
from density_regression.export.graph import INPUT, OUTPUTS, Graph
from density_regression.lean import Array, numbers

__all__ = ["ENCODER", "Nodes"]

OPSET: Final = 18
VERSION: Final = 10
"""Of the operators, and of the format."""

ENCODER: Final = "encoder"
"""In the names of an encoder's weights."""


class Nodes:
    """A graph that grows node by node."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._onnx = import_extra("onnx", needed_by="Exporting", extra="onnx")
        self._own = np.float64 if dtype == torch.float64 else np.float32
        self._nodes: list[Any] = []
        self._constants: dict[tuple[Any, ...], str] = {}
        self._tensors: list[Any] = []
        self._functions: list[Any] = []
        self._opsets = {"": OPSET}

    def add(self, op: str, inputs: Sequence[str], *, output: str | None = None, **attributes: Any) -> str:
        """A node; returns the name of its output."""
        name = output or f"{op.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def include(self, proto: Any, value: str) -> str:
        """All nodes of another model, of this value instead of its input; returns the name of its output."""
        proto = self._onnx.compose.add_prefix(proto, "own.")
        # A node that a runtime takes out.
        self.add("Identity", [value], output=proto.graph.input[0].name)
        self._nodes.extend(proto.graph.node)
        self._tensors.extend(proto.graph.initializer)
        self._functions.extend(proto.functions)
        self._opsets |= {opset.domain: opset.version for opset in proto.opset_import}
        return str(proto.graph.output[0].name)

    def split(self, value: str, sizes: Sequence[int]) -> list[str]:
        """Some columns after another."""
        names = [f"split_{len(self._nodes)}_{i}" for i in range(len(sizes))]
        inputs = [value, self._constant(np.array(sizes, dtype=np.int64))]
        self._nodes.append(self._onnx.helper.make_node("Split", inputs, names, axis=1))
        return names

    def square(self, value: str) -> str:
        """Every number squared."""
        return self.add("Mul", [value, value])

    def within(self, value: str, low: Array, high: Array) -> str:
        """Columns (n, k), in the type of results, held within ends of their own (k,)."""
        if len(low) == 1:
            return self.add("Clip", [value, self.own(low[0]), self.own(high[0])])
        return self.add("Min", [self.add("Max", [value, self.own(low)]), self.own(high)])

    def write_mean(self, values: str, columns: Array, graph: Graph) -> None:
        """The means (n, k), in their own units, which are such a product of values in the type of results.

        To multiply and to add by themselves would go row by row, which takes longer than one product.
        """
        scale = self.own(columns * numbers(graph.y_scale))
        self.add("Gemm", [values, scale, self.own(graph.y_center)], output=OUTPUTS[0])

    def const(self, values: Any, *, name: str = "constant") -> str:
        """Numbers in float32."""
        values = numbers(values) if isinstance(values, Tensor) else values
        return self._constant(np.asarray(values, dtype=np.float32), name)

    def own(self, values: Any) -> str:
        """Numbers in the type of inputs and results."""
        values = numbers(values) if isinstance(values, Tensor) else values
        return self._constant(np.asarray(values, dtype=self._own))

    def axes(self, axis: int) -> str:
        """An axis, as reductions take it."""
        return self._constant(np.array([axis], dtype=np.int64))

    def place(self, column: int) -> str:
        """Which column, as Gather takes it."""
        return self._constant(np.array(column, dtype=np.int64))

    def single(self, value: str) -> str:
        """In float32."""
        return value if self._own is np.float32 else self.add("Cast", [value], to=self._onnx.TensorProto.FLOAT)

    def double(self, value: str) -> str:
        """In the type of inputs and results."""
        return value if self._own is np.float32 else self.add("Cast", [value], to=self._onnx.TensorProto.DOUBLE)

    def model(self, graph: Graph) -> Any:
        """The finished model."""
        helper, kind = self._onnx.helper, self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(self._own))
        single = self._onnx.TensorProto.FLOAT
        outputs = [helper.make_tensor_value_info(name, kind, ["rows", len(graph.y_center)]) for name in OUTPUTS[:2]]
        if graph.has_density:
            outputs.append(helper.make_tensor_value_info(OUTPUTS[2], single, ["rows"]))
        inputs = [helper.make_tensor_value_info(INPUT, kind, ["rows", len(graph.x_center)])]
        body = helper.make_graph(self._nodes, "density_regression", inputs, outputs, self._tensors)
        opsets = [helper.make_opsetid(domain, number) for domain, number in self._opsets.items()]
        return helper.make_model(body, opset_imports=opsets, functions=self._functions, ir_version=VERSION)

    def _constant(self, values: Any, name: str = "constant") -> str:
        key = (name, values.dtype.str, values.shape, values.tobytes())
        if key not in self._constants:
            self._constants[key] = f"{name}_{len(self._constants)}"
            self._tensors.append(self._onnx.numpy_helper.from_array(values, self._constants[key]))
        return self._constants[key]
