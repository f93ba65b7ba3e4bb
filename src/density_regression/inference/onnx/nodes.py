"""Builder of ONNX graphs, node by node."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from density_regression.inference.fused import as_float64
from density_regression.inference.onnx.graph import INPUT, LOG_MOMENTS, OUTPUTS, PARTS, Graph
from density_regression.io.extras import import_extra
from density_regression.tabular.laws import LOG_RANGE
from density_regression.tabular.table import Floats

__all__ = ["ENCODER", "IR_VERSION", "Nodes"]

OPSET: Final = 18
IR_VERSION: Final = 10
ENCODER: Final = "encoder"
"""Contained in the names of the encoder's weights."""


class Nodes:
    """Builder of an ONNX graph with inputs and results of `dtype`, and float32 between them; values are names.

    All names but those of inputs and results begin with `prefix`.
    """

    def __init__(self, dtype: torch.dtype, prefix: str = "") -> None:
        self._prefix = prefix
        self._onnx = import_extra("onnx", needed_by="Exporting", extra="onnx")
        self._io_type = np.dtype(np.float64 if dtype == torch.float64 else np.float32)
        self._nodes: list[Any] = []
        self._constants: dict[tuple[Any, ...], str] = {}
        self._tensors: list[Any] = []
        self._functions: list[Any] = []
        self._opsets = {"": OPSET}

    def add(self, op: str, inputs: Sequence[str], *, output: str | None = None, **attributes: Any) -> str:
        """Add a node; returns the name of its output."""
        name = output or f"{self._prefix}{op.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def add_first(self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> str:
        """Add a node with several outputs; returns the name of the first."""
        names = [f"{self._prefix}{op.lower()}_{len(self._nodes)}_{i}" for i in range(outputs)]
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), names, **attributes))
        return names[0]

    def include(self, proto: Any, value: str) -> str:
        """Add all nodes of another model, with this value for its input; returns the name of its output."""
        proto = self._onnx.compose.add_prefix(proto, "own.")
        # Runtimes remove the Identity.
        self.add("Identity", [value], output=proto.graph.input[0].name)
        self._nodes.extend(proto.graph.node)
        self._tensors.extend(proto.graph.initializer)
        self._functions.extend(proto.functions)
        self._opsets |= {opset.domain: opset.version for opset in proto.opset_import}
        return str(proto.graph.output[0].name)

    def layers(self, z: str, layers: Sequence[nn.Linear]) -> str:
        """Linear layers of an encoder, each followed by a ReLU."""
        for layer in layers:
            z = self.relu_layer(z, layer.weight, layer.bias)
        return z

    def relu_layer(self, z: str, weight: Any, bias: Any) -> str:
        """One such layer, of weight (outputs, inputs) and bias (outputs,)."""
        parts = [z, self.const(weight, name=ENCODER), self.const(bias)]
        return self.add("Relu", [self.add("Gemm", parts, transB=1)])

    def split(self, value: str, sizes: Sequence[int]) -> list[str]:
        """Split the columns into consecutive parts of these sizes."""
        names = [f"split_{len(self._nodes)}_{i}" for i in range(len(sizes))]
        self._nodes.append(self._onnx.helper.make_node("Split", [value, self.integers(sizes)], names, axis=1))
        return names

    def square(self, value: str) -> str:
        """Elementwise square."""
        return self.add("Mul", [value, value])

    def clip(self, value: str, low: Floats, high: Floats) -> str:
        """Clip columns (n, k), in the type of results, to ranges of their own, (k,)."""
        if len(low) == 1:
            return self.add("Clip", [value, self.io_const(low[0]), self.io_const(high[0])])
        return self.add("Min", [self.add("Max", [value, self.io_const(low)]), self.io_const(high)])

    def write_mean(self, values: str, columns: Floats, graph: Graph) -> None:
        """Write the output `mean` (n, k): values (n, m) times columns (m, k), in the target's units."""
        # One product, as multiplying and adding by themselves take longer.
        scaled = self.io_const(columns * as_float64(graph.y_scale))
        self.add("Gemm", [values, scaled, self.io_const(graph.y_center)], output=OUTPUTS[0])

    def const(self, values: Any, *, name: str = "constant") -> str:
        """A constant in float32."""
        return self._constant(values, np.float32, name)

    def const64(self, values: Any) -> str:
        """A constant in float64."""
        return self._constant(values, np.float64)

    def io_const(self, values: Any) -> str:
        """A constant in the type of inputs and results."""
        return self._constant(values, self._io_type)

    def integers(self, values: int | Sequence[int]) -> str:
        """A constant of axes, sizes or indices."""
        return self._constant(values, np.int64)

    def text(self, value: str) -> str:
        """A constant string."""
        key = ("text", value)
        if key not in self._constants:
            name = self._constants[key] = f"{self._prefix}text_{len(self._constants)}"
            self._tensors.append(
                self._onnx.helper.make_tensor(name, self._onnx.TensorProto.STRING, [], [value.encode()])
            )
        return self._constants[key]

    @property
    def double(self) -> int:
        """The type of float64, to cast to."""
        return int(self._onnx.TensorProto.DOUBLE)

    @property
    def float32(self) -> int:
        """The type of float32, to cast to."""
        return int(self._onnx.TensorProto.FLOAT)

    @property
    def int64(self) -> int:
        """The type of whole numbers, to cast to."""
        return int(self._onnx.TensorProto.INT64)

    @property
    def parts(self) -> tuple[list[Any], list[Any]]:
        """Nodes and constants so far."""
        return self._nodes, self._tensors

    def to_float32(self, value: str) -> str:
        """A value in float32, given in the type of inputs and results."""
        return self._cast(value, self._onnx.TensorProto.FLOAT)

    def to_io_type(self, value: str) -> str:
        """A value in the type of inputs and results, given in float32."""
        return self._cast(value, self._onnx.TensorProto.DOUBLE)

    def model(self, graph: Graph) -> Any:
        """The finished model, of nodes that write the mean and standard deviation of the law's Normal."""
        if graph.law == "log" or graph.quantile is not None:
            self._write_law(graph)
        helper, kind = self._onnx.helper, self._onnx.helper.np_dtype_to_tensor_dtype(self._io_type)
        outputs = [
            helper.make_tensor_value_info(name, self._onnx.TensorProto.FLOAT, ["rows"])
            if name == OUTPUTS[2]
            else helper.make_tensor_value_info(name, kind, ["rows", len(graph.y_center)])
            for name in graph.outputs
        ]
        inputs = [helper.make_tensor_value_info(INPUT, kind, ["rows", len(graph.x_center)])]
        body = helper.make_graph(self._nodes, "density_regression", inputs, outputs, self._tensors)
        opsets = [helper.make_opsetid(domain, number) for domain, number in self._opsets.items()]
        return helper.make_model(body, opset_imports=opsets, functions=self._functions, ir_version=IR_VERSION)

    def _write_law(self, graph: Graph) -> None:
        """Write the results of `Graph`, in the target's units, from those of the nodes so far."""
        normal = {name: f"normal_{name}" for name in (*OUTPUTS[:2], *PARTS * (graph.has_parts and graph.law == "log"))}
        for node in self._nodes:
            node.input[:] = [normal.get(name, name) for name in node.input]
            node.output[:] = [normal.get(name, name) for name in node.output]
        mean, std, *parts = normal.values()
        logs, largest = graph.law == "log", float(graph.largest)
        limits = LOG_RANGE[graph.results] if logs else (-largest, largest)
        results = {OUTPUTS[0]: mean, OUTPUTS[1]: std}
        if logs:
            # As `log_normal_moments` has it.
            variance, half = self.square(std), self.io_const(0.5)
            half_variance = self.add("Mul", [variance, half])
            t = self.add("Tanh", [half_variance])
            share = self.add(
                "Div", [self.add("Mul", [t, self.io_const(2.0)]), self.add("Add", [t, self.io_const(1.0)])]
            )
            log_share = self.add("Mul", [self.add("Log", [share]), half])
            results[OUTPUTS[0]] = self.add("Add", [mean, half_variance])
            results[OUTPUTS[1]] = self.add("Add", [self.add("Add", [mean, variance]), log_share])
        if graph.quantile is not None:
            width = self.add("Mul", [std, self.io_const(graph.quantile)])
            results |= {name: self.add(op, [mean, width]) for name, op in zip(OUTPUTS[3:], ("Sub", "Add"), strict=True)}
        low, high = (self.io_const(limit) for limit in limits)
        for name, value in results.items():
            clipped = self.add("Clip", [value, low, high])
            self.add("Exp" if logs else "Identity", [clipped], output=name)
        for name, part in zip(PARTS, parts, strict=False):
            share = self.add("Div", [part, std])
            self.add("Mul", [share, OUTPUTS[1]], output=name)
        for name, value in zip(LOG_MOMENTS * graph.has_log_moments, (mean, std), strict=False):
            self.add("Identity", [value], output=name)

    def _cast(self, value: str, kind: int) -> str:
        return value if self._io_type == np.float32 else self.add("Cast", [value], to=kind)

    def _constant(self, values: Any, dtype: Any, name: str = "constant") -> str:
        array = np.asarray(as_float64(values) if isinstance(values, Tensor) else values, dtype=dtype)
        key = (name, array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"{self._prefix}{name}_{len(self._constants)}"
            self._tensors.append(self._onnx.numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]
