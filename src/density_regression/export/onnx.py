"""ONNX files: what is the default's is written by hand, what is not by torch's exporter; and each is tried."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from density_regression._extras import import_extra
from density_regression._files import named, write_whole
from density_regression.export.graph import (
    INPUT,
    OUTPUTS,
    ExportError,
    Graph,
    export_features,
    export_program,
    first_line,
)
from density_regression.export.int8 import SMALLEST, quantise_encoder
from density_regression.export.lean import lean_after, lean_model
from density_regression.tables import Floats

__all__ = ["OnnxDifference", "compare_onnx", "write_onnx"]

TOLERANCE: Final = 1e-3
"""Largest relative difference that is taken for rounding, which grows far away."""

ROUNDINGS: Final = 10.0
"""Of the inputs alone; beyond, a difference is more than what rounding along the way makes of them."""

DISTANCES: Final = (1.0, 3.0, 1e3, 1e9)
"""At which a file is tried, in standard deviations: near, far, and as far as numbers go."""

ROWS: Final = 128
VALUES: Final = 2**20
"""Rows at each of these distances, and most numbers in them: of large images a few will do."""


CHUNK: Final = 8192
"""Rows that are compared at once."""


class OnnxDifference(NamedTuple):
    """How far the results of an ONNX file are from the model's on some rows.

    Attributes
    ----------
    mean : float
        Largest distance between the means, in standard deviations of the prediction.
    typical : float
        The median of these distances.
    std : float
        Largest relative difference between the standard deviations.
    """

    mean: float
    typical: float
    std: float


@torch.no_grad()
def compare_onnx(path: str | os.PathLike[str], graph: Graph, rows: Floats) -> OnnxDifference:
    """Compare the results of an ONNX file with those of a graph in float64, on rows (n, c) in their own units."""
    runtime = import_extra("onnxruntime", needed_by="Exporting", extra="onnx")
    content = named(path, "path").read_bytes()
    try:
        session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
        dtype = np.float32 if session.get_inputs()[0].type == "tensor(float)" else np.float64
        found = [session.run(OUTPUTS[:2], {INPUT: part.astype(dtype)}) for part in _chunks(rows)]
    except Exception as error:
        raise ExportError(f"{path} is not a file of this model: {first_line(error)}") from error
    expected = [graph(torch.from_numpy(part)) for part in _chunks(rows)]
    mean, std = (np.concatenate([part[i] for part in found]).astype(np.float64) for i in (0, 1))
    own_mean, own_std = (torch.cat([part[i] for part in expected]).numpy() for i in (0, 1))
    moved = np.abs(mean - own_mean) / own_std
    return OnnxDifference(float(moved.max()), float(np.median(moved)), float(np.abs(std / own_std - 1.0).max()))


def _chunks(rows: Floats) -> Iterator[Floats]:
    for start in range(0, len(rows), CHUNK):
        yield np.ascontiguousarray(rows[start : start + CHUNK])


def write_onnx(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    reference: Graph | None = None,
    int8: bool = False,
    about: dict[str, str] | None = None,
) -> float:
    """Write the graph as an ONNX file, whole or not at all.

    Parameters
    ----------
    graph : Graph
        On the CPU.
    path : path
        File to write.
    reference : Graph, optional
        The same in float64, to tell what the graph's own type loses as well.
    int8 : bool
        Whether to write the encoder's weights in eight bits.
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
    path = named(path, "path")
    import_extra("onnxscript", needed_by="Exporting", extra="onnx")
    runtime = import_extra("onnxruntime", needed_by="Exporting", extra="onnx")
    problem: ExportError | None = None
    for proto in _models(graph):
        if int8 and not quantise_encoder(proto):
            raise ExportError(f"int8 was asked for, but no matrix of the encoder in the graph has {SMALLEST} weights.")
        for key, value in (about or {}).items():
            proto.metadata_props.add(key=key, value=value)
        content = proto.SerializeToString()
        try:
            session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
            differences = _differences(graph, session, graph)
        # ONNX Runtime has an exception of its own for everything.
        except Exception as error:
            problem = ExportError(f"This model cannot be written as ONNX: {first_line(error)}")
            problem.__cause__ = error
            continue
        allowed = math.inf if int8 else (ROUNDINGS * _roughness(graph)).clamp_min(TOLERANCE)
        if (differences < allowed).all():
            break
        problem = ExportError(f"ONNX Runtime's results differ from torch's, by {differences.max():.1e} relative.")
    else:
        assert problem is not None
        raise problem
    write_whole(path, content)
    if reference is not None:
        differences = differences.maximum(_differences(graph, session, reference))
    return float(differences.max())


def _models(graph: Graph) -> Iterator[Any]:
    """ONNX models of a graph, the best first."""
    if len(graph.shape) > 1:
        yield from map(_named, _exported(export_program(graph)))
        return
    lean = lean_model(graph)
    if lean is not None:
        yield lean
        return
    after = lean_after(graph)
    if after is not None:
        yield from map(after, _exported(export_features(graph)))
    yield from map(_named, _exported(export_program(graph)))


def _exported(program: ExportedProgram) -> Iterator[Any]:
    """What torch's exporter makes of a program."""
    # The exporter's own optimiser makes invalid graphs of some models; ONNX Runtime has another one.
    for optimise in (True, False):
        try:
            with _quiet():
                exported = torch.onnx.export(program, dynamo=True, verbose=False, optimize=optimise)
        except Exception as error:
            raise ExportError(f"This model cannot be written as ONNX: {first_line(error)}") from error
        assert exported is not None
        yield exported.model_proto


@torch.no_grad()
def _differences(graph: Graph, session: Any, reference: Graph) -> Tensor:
    """Largest relative differences, at each of `DISTANCES`, of the results on random rows from those of a reference."""
    rows = _rows(reference, graph.dtype)
    found = session.run(None, {INPUT: rows.to(graph.dtype).numpy()})
    # A reference in more digits than the graph has is given all of them, as `predict` is.
    return _largest([torch.from_numpy(np.asarray(part)) for part in found], reference(rows.to(reference.dtype)))


@torch.no_grad()
def _roughness(graph: Graph) -> Tensor:
    """How far torch's own results move, at each of `DISTANCES`, if the rows do so by a rounding.

    Where a network far away takes large numbers from each other, that is more than any two programs could agree on.
    """
    nudged = graph(_rows(graph, graph.dtype, nudge=torch.finfo(torch.float32).eps).to(graph.dtype))
    return _largest(nudged, graph(_rows(graph, graph.dtype).to(graph.dtype)))


def _rows(graph: Graph, dtype: torch.dtype, nudge: float = 0.0) -> Tensor:
    """Random rows, as many at each of `DISTANCES`; moved by a part of these."""
    generator = torch.Generator().manual_seed(0)
    count = max(min(ROWS, VALUES // math.prod(graph.shape)), 1)
    rows = torch.randn(count * len(DISTANCES), *graph.shape, generator=generator, dtype=torch.float64)
    signs = torch.randn(rows.shape, generator=generator).sign()
    size = torch.tensor(DISTANCES).repeat_interleave(count).view(-1, *[1] * len(graph.shape))
    limits = torch.finfo(dtype)
    moved = size * rows * (1.0 + nudge * signs)
    return (graph.x_center + graph.x_scale * moved).clamp(limits.min, limits.max)


def _largest(found: Sequence[Tensor], expected: Sequence[Tensor]) -> Tensor:
    """Largest difference between two results at each of `DISTANCES`, relative to the size of the second."""
    mean, std, *densities = expected
    sizes = [std.maximum(mean.abs()), std, *(density.abs().clamp_min(1.0) for density in densities)]
    worst = [((a - b).abs() / size).double() for a, b, size in zip(found, expected, sizes, strict=True)]
    return torch.stack([part.reshape(len(DISTANCES), -1).amax(1) for part in worst]).amax(0)


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
