"""A fitted regressor as one graph, from rows in their own units to mean and standard deviation: ONNX, torch.export."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from density_regression._extras import import_extra
from density_regression._files import write_whole
from density_regression._numeric import LARGE
from density_regression.model import DensityRegression
from density_regression.network import Predictor
from density_regression.tables import Scaling

__all__ = ["DTYPES", "Dtype", "ExportError", "Graph", "export_program", "write_onnx"]

Dtype = Literal["float64", "float32"]
DTYPES: Final[dict[str, torch.dtype]] = {"float64": torch.float64, "float32": torch.float32}

TOLERANCE: Final = 1e-3
"""Largest relative difference that is taken for rounding, which grows far away."""

INPUT: Final = "X"
OUTPUTS: Final = ("mean", "std", "log_density")
"""Names in the graph; the last only of a model with a density."""


class ExportError(ValueError):
    """A model, or a part of it, cannot be written as a graph."""


class Graph(nn.Module):
    """Scaling, encoder, density, head and the target's units in one module without any choice left to make.

    Parameters
    ----------
    model : Predictor
        Fitted to scaled rows.
    x_scaling, y_scaling : Scaling
        Of inputs and targets.
    one_target : bool
        Whether results are (n,) rather than (n, k).
    dtype : torch.dtype
        Of inputs and results: rows are scaled in it, and the network computes in float32.
    """

    x_center: Tensor
    x_scale: Tensor
    y_center: Tensor
    y_scale: Tensor
    largest: Tensor

    def __init__(
        self, model: Predictor, x_scaling: Scaling, y_scaling: Scaling, *, one_target: bool, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.model = model.requires_grad_(False)
        self.one_target = one_target
        self.dtype = dtype
        self.register_buffer("largest", torch.tensor(torch.finfo(dtype).max, dtype=dtype))
        for name, scaling in (("x", x_scaling), ("y", y_scaling)):
            for part, values in zip(("center", "scale"), scaling, strict=True):
                self.register_buffer(f"{name}_{part}", _representable(values, dtype))
        # A standard deviation is e^80 at most, times the scale.
        self.may_overflow = bool(self.y_scale.max() > 1e-36 * self.largest)

    @property
    def has_density(self) -> bool:
        """Whether the log-density is among the results."""
        return isinstance(self.model, DensityRegression) and self.model.density is not None

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Mean and deviation of rows (n, c), each (n,) or (n, k), and their log-density (n,) if there is one."""
        scaled = ((x - self.x_center) / self.x_scale).clamp(-LARGE, LARGE).float()
        mean, log_std = self.model.moments(scaled)
        mean = mean.to(self.dtype) * self.y_scale + self.y_center
        std = log_std.to(self.dtype).exp() * self.y_scale
        if self.may_overflow:
            mean, std = mean.maximum(-self.largest).minimum(self.largest), std.minimum(self.largest)
        results = (mean.squeeze(1), std.squeeze(1)) if self.one_target else (mean, std)
        if not self.has_density:
            return results
        # One pass of the encoder serves both: the exporter sees that they are the same.
        return (*results, cast(DensityRegression, self.model).log_density(scaled))


def export_program(graph: Graph) -> ExportedProgram:
    """The graph by `torch.export`, for any number of rows.

    Raises
    ------
    ExportError
        If some part of the model depends on more than the rows.
    """
    if graph.model.no_graph:
        raise ExportError(f"A {type(graph.model).__name__} cannot be written as a graph: {graph.model.no_graph}.")
    graph.eval()
    rows = torch.zeros(3, len(graph.x_center), dtype=graph.dtype)
    try:
        with torch.no_grad():
            return torch.export.export(graph, (rows,), dynamic_shapes=({0: Dim("rows")},), strict=False)
    # Whatever an encoder does that a graph cannot hold, torch has an exception of its own for it.
    except Exception as error:
        raise ExportError(f"This model cannot be written as a graph: {_first_line(error)}") from error


def write_onnx(graph: Graph, path: str | os.PathLike[str], *, about: dict[str, str] | None = None) -> float:
    """Write the graph as an ONNX file, whole or not at all.

    Parameters
    ----------
    graph : Graph
        On the CPU.
    path : path
        File to write.
    about : dict of str, optional
        What the file is to say of itself.

    Returns
    -------
    float
        Largest difference between ONNX Runtime's results and torch's on random rows, near and far, relative to their
        size (that of a mean, to the standard deviation if it is larger).

    Raises
    ------
    ExportError
        If some part of the model has no ONNX operator, or the file does not give the same results.
    """
    import_extra("onnxscript", needed_by="Exporting", extra="onnx")
    runtime = import_extra("onnxruntime", needed_by="Exporting", extra="onnx")
    program = export_program(graph)
    try:
        content = _content(program, about or {}, optimise=True)
        session = _session(runtime, content)
    except Exception:
        # The exporter's own optimiser makes invalid graphs of some models; ONNX Runtime has another one.
        try:
            content = _content(program, about or {}, optimise=False)
            session = _session(runtime, content)
        except Exception as error:
            raise ExportError(f"This model cannot be written as ONNX: {_first_line(error)}") from error
    difference = _difference(graph, session)
    if not difference < TOLERANCE:
        raise ExportError(f"ONNX Runtime's results differ from torch's, by {difference:.1e} relative.")
    write_whole(Path(path), content)
    return difference


def _content(program: ExportedProgram, about: dict[str, str], *, optimise: bool) -> bytes:
    """An ONNX file."""
    with _quiet():
        exported = torch.onnx.export(program, dynamo=True, verbose=False, optimize=optimise)
    assert exported is not None
    proto = _named(exported.model_proto)
    for key, value in about.items():
        proto.metadata_props.add(key=key, value=value)
    content: bytes = proto.SerializeToString()
    return content


def _session(runtime: Any, content: bytes) -> Any:
    return runtime.InferenceSession(content, providers=["CPUExecutionProvider"])


@torch.no_grad()
def _difference(graph: Graph, session: Any) -> float:
    """Largest relative difference of the results on random rows."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(512, len(graph.x_center), generator=generator, dtype=torch.float64)
    # Near, far, and as far as numbers go.
    size = torch.tensor([1.0, 3.0, 1e3, 1e9]).repeat_interleave(128)[:, None]
    x = (graph.x_center + graph.x_scale * (size * rows)).to(graph.dtype)
    x = x.clamp(torch.finfo(graph.dtype).min, torch.finfo(graph.dtype).max)
    expected = graph(x)
    found = [torch.from_numpy(np.asarray(part)) for part in session.run(None, {INPUT: x.numpy()})]
    mean, std = expected[:2]
    worst = [((found[0] - mean).abs() / std.maximum(mean.abs())).max(), ((found[1] - std).abs() / std).max()]
    if graph.has_density:
        worst.append(((found[2] - expected[2]).abs() / expected[2].abs().clamp_min(1.0)).max())
    return float(torch.stack([part.double() for part in worst]).max())


def _named(proto: Any) -> Any:
    """The model with our names for its input, outputs and rows, whatever the exporter called them."""
    graph = proto.graph
    given = [graph.input[0].name, *(output.name for output in graph.output)]
    names: dict[str, str] = dict(zip(given, (INPUT, *OUTPUTS), strict=False))

    def rename(name: str) -> str:
        # A value within the graph may have one of these names already.
        return names.get(name, f"{name}_" if name in (INPUT, *OUTPUTS) else name)

    for node in graph.node:
        node.input[:] = [rename(name) for name in node.input]
        node.output[:] = [rename(name) for name in node.output]
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = rename(value.name)
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    return proto


def _representable(values: Any, dtype: torch.dtype) -> Tensor:
    """Numbers in `dtype`; those too large or too small for it are its largest or smallest."""
    limits = torch.finfo(dtype)
    result = torch.from_numpy(np.asarray(values)).clamp(limits.min, limits.max).to(dtype)
    return torch.where(result == 0, torch.where(torch.from_numpy(np.asarray(values)) == 0, 0.0, limits.tiny), result)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks about packages that nobody asked for."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
