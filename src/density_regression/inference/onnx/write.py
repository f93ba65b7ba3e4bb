"""Write ONNX files: compact graphs where there is one, else by torch's exporter. Each is checked with ONNX Runtime."""

import logging
import math
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from density_regression.inference.onnx.columns import ColumnInputs
from density_regression.inference.onnx.compact import compact_model, compact_model_after_encoder
from density_regression.inference.onnx.graph import (
    INPUT,
    LOG_MOMENTS,
    OUTPUTS,
    PARTS,
    ExportError,
    Graph,
    export_features,
    export_program,
    first_line,
)
from density_regression.inference.onnx.nodes import ENCODER
from density_regression.io.extras import import_extra
from density_regression.io.files import named, write_whole
from density_regression.tabular.columns import Table
from density_regression.tabular.laws import LOG_RANGE
from density_regression.tabular.table import Floats

__all__ = ["OnnxDifference", "compare_onnx", "write_onnx"]

TOLERANCE: Final = 1e-3
"""Largest relative difference from torch's results that a file may always have."""

ROUNDING_FACTOR: Final = 10.0
"""A file may also differ by this many times the effect of rounding the inputs once (`_rounding_effect`)."""

DISTANCES: Final = (1.0, 3.0, 1e3, 1e9)
"""Standard deviations of the random rows on which a file is checked."""

CHECKED_ROWS: Final = 128
CHECKED_VALUES: Final = 2**20
"""Number of such rows at each distance, and most values in them, as one image may have many."""

COMPARED_ROWS: Final = 8192
"""Rows that `compare_onnx` computes at once."""

SMALLEST_MATRIX: Final = 64
"""Weights that a matrix must have to be quantised; smaller ones would save nothing."""


class OnnxDifference(NamedTuple):
    """Differences between the results of an ONNX file and the model's on some rows.

    `mean` and `typical` are the largest and the median distance between the means, in standard deviations of the
    prediction; `std` is the largest relative difference between the standard deviations.
    """

    mean: float
    typical: float
    std: float


@torch.no_grad()
def compare_onnx(
    path: str | os.PathLike[str], graph: Graph, rows: Floats | Table, inputs: ColumnInputs | None = None
) -> OnnxDifference:
    """Compare the results of an ONNX file with those of a graph in float64, on rows (n, c) in their own units.

    With `inputs` the rows are a table, whose columns these code.
    """
    runtime = import_extra("onnxruntime", needed_by="Exporting", extra="onnx")
    content = named(path, "path").read_bytes()
    parts = [rows[start : start + COMPARED_ROWS] for start in range(0, len(rows), COMPARED_ROWS)]
    try:
        session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
        dtype = np.float32 if any(part.type == "tensor(float)" for part in session.get_inputs()) else np.float64
        if inputs is not None:
            inputs = inputs._replace(parts=any(part.name in PARTS + LOG_MOMENTS for part in session.get_outputs()))
        found = [session.run(OUTPUTS[:2], _feeds(part, dtype, inputs)) for part in parts]
    except Exception as error:
        raise ExportError(f"{path} is not a file of this model: {first_line(error)}") from error
    expected = [graph(_coded(part, inputs))[:2] for part in parts]
    mean, std = (np.concatenate(part, dtype=np.float64) for part in zip(*found, strict=True))
    own_mean, own_std = (torch.cat(part).numpy() for part in zip(*expected, strict=True))
    moved = np.abs(mean - own_mean) / own_std
    return OnnxDifference(float(moved.max()), float(np.median(moved)), float(np.abs(std / own_std - 1.0).max()))


def write_onnx(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    reference: Graph | None = None,
    inputs: ColumnInputs | None = None,
    int8: bool = False,
    about: dict[str, str] | None = None,
) -> float:
    """Write a graph on the CPU as an ONNX file with metadata `about`, whole or not at all; see `to_onnx`.

    Returns the largest difference between ONNX Runtime's results and torch's on random rows, near and far, relative to
    their size (for a mean, to the standard deviation if that is larger). With the same graph in float64 as `reference`
    that includes what the graph's own type loses. With `inputs` the file reads the columns of a table, which these code
    in float64, and which the graph reads likewise.

    Raises
    ------
    ExportError
        If some part of the model has no ONNX operator, or the file does not give the same results.
    """
    path = named(path, "path")
    runtime = import_extra("onnxruntime", needed_by="Exporting", extra="onnx")
    about = {"producer": f"density-regression {version('density-regression')}", **(about or {})}
    about |= {"encoder": "int8"} if int8 else {}
    problem: ExportError | None = None
    for proto in _models(graph):
        if int8 and not _quantise_encoder(proto):
            least = f"{SMALLEST_MATRIX} weights"
            raise ExportError(f"int8 was asked for, but no matrix of the encoder in the graph has {least}.")
        try:
            content = _content(proto if inputs is None else inputs.put_before(proto), about)
            session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
            differences = _differences(graph, session, graph, inputs)
        # ONNX Runtime has many kinds of exceptions.
        except Exception as error:
            problem = ExportError(f"This model cannot be written as ONNX: {first_line(error)}")
            problem.__cause__ = error
            continue
        allowed = math.inf if int8 else (ROUNDING_FACTOR * _rounding_effect(graph)).clamp_min(TOLERANCE)
        if (differences < allowed).all():
            break
        problem = ExportError(f"ONNX Runtime's results differ from torch's, by {differences.max():.1e} relative.")
    else:
        assert problem is not None
        raise problem
    write_whole(path, content)
    if reference is not None:
        differences = differences.maximum(_differences(graph, session, reference, inputs))
    return float(differences.max())


def _content(proto: Any, about: dict[str, str]) -> bytes:
    """A model with metadata, as bytes."""
    for key, value in about.items():
        proto.metadata_props.add(key=key, value=value)
    return bytes(proto.SerializeToString())


def _models(graph: Graph) -> Iterator[Any]:
    """ONNX models of a graph, the fastest first."""
    if len(graph.shape) == 1 and not graph.may_overflow and not graph.model.no_graph:
        compact = compact_model(graph)
        if compact is not None:
            yield compact
            return
        complete = compact_model_after_encoder(graph)
        if complete is not None:
            yield from map(complete, _exported(export_features(graph)))
    yield from (_with_our_names(proto, graph.outputs) for proto in _exported(export_program(graph)))


def _exported(program: ExportedProgram) -> Iterator[Any]:
    """ONNX models by torch's exporter, with and without its optimiser, which makes invalid graphs of some models."""
    # Here and not before: graphs that are written by hand do not need it, and it takes two seconds.
    import_extra("onnxscript", needed_by="Exporting", extra="onnx")
    logger = logging.getLogger("torch.onnx")
    for optimise in (True, False):
        level = logger.level
        # It warns about missing packages that are not needed.
        logger.setLevel(logging.ERROR)
        try:
            exported = torch.onnx.export(program, dynamo=True, verbose=False, optimize=optimise)
        except Exception as error:
            raise ExportError(f"This model cannot be written as ONNX: {first_line(error)}") from error
        finally:
            logger.setLevel(level)
        assert exported is not None
        yield exported.model_proto


def _quantise_encoder(proto: Any) -> int:
    """Quantise the encoder's matrices of an ONNX model to int8, with one scale per row; returns how many.

    Activations stay in float32: with one scale for a batch, a single row far away would take the digits of all others.
    """
    onnx = import_extra("onnx", needed_by="Exporting", extra="onnx")
    graph, count = proto.graph, 0
    for tensor in list(graph.initializer):
        values = onnx.numpy_helper.to_array(tensor)
        if ENCODER not in tensor.name or values.dtype != np.float32 or values.ndim < 2 or values.size < SMALLEST_MATRIX:
            continue
        largest = np.abs(values).reshape(len(values), -1).max(axis=1)
        scale = np.maximum(largest / 127.0, np.finfo(np.float32).tiny).astype(np.float32)
        steps = np.rint(values / scale.reshape(-1, *[1] * (values.ndim - 1))).astype(np.int8)
        names = [f"{tensor.name}_int8", f"{tensor.name}_scale"]
        parts = zip((steps, scale), names, strict=True)
        graph.initializer.extend([onnx.numpy_helper.from_array(part, name) for part, name in parts])
        graph.node.insert(0, onnx.helper.make_node("DequantizeLinear", names, [tensor.name], axis=0))
        graph.initializer.remove(tensor)
        count += 1
    return count


@torch.no_grad()
def _differences(graph: Graph, session: Any, reference: Graph, inputs: ColumnInputs | None) -> Tensor:
    """Largest relative differences at each of `DISTANCES` between a session's results and those of a reference."""
    if inputs is not None:
        table = inputs.random_table(np.repeat(DISTANCES, CHECKED_ROWS), rounded=reference is graph)
        expected = reference(_coded(table, inputs))
        found = session.run(graph.outputs, inputs.feeds(table))
        return _largest([torch.from_numpy(part) for part in found], expected, graph)
    rows = _random_rows(reference, graph.dtype)
    found = session.run(None, {INPUT: rows.to(graph.dtype).numpy()})
    # The reference reads rows in its own type, as `predict` does.
    return _largest([torch.from_numpy(part) for part in found], reference(rows.to(reference.dtype)), graph)


@torch.no_grad()
def _rounding_effect(graph: Graph) -> Tensor:
    """Largest relative change of torch's own results at each of `DISTANCES` if inputs change by a rounding of float32.

    No two programs agree more closely; far away, where a network subtracts large numbers, this can be much.
    """
    eps = torch.finfo(torch.float32).eps
    changed, rows = (_random_rows(graph, graph.dtype, change).to(graph.dtype) for change in (eps, 0.0))
    return _largest(graph(changed), graph(rows), graph)


def _feeds(rows: Any, dtype: Any, inputs: ColumnInputs | None) -> dict[str, Any]:
    return {INPUT: rows.astype(dtype)} if inputs is None else inputs._replace(dtype=dtype).feeds(rows)


def _coded(rows: Any, inputs: ColumnInputs | None) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows) if inputs is None else inputs.columns.code(rows))


def _random_rows(graph: Graph, dtype: torch.dtype, change: float = 0.0) -> Tensor:
    """Random rows in float64, as many at each of `DISTANCES`, changed by +-`change` relative to their size."""
    generator = torch.Generator().manual_seed(0)
    count = max(min(CHECKED_ROWS, CHECKED_VALUES // math.prod(graph.shape)), 1)
    rows = torch.randn(count * len(DISTANCES), *graph.shape, generator=generator, dtype=torch.float64)
    signs = torch.randn(rows.shape, generator=generator).sign()
    size = torch.tensor(DISTANCES).repeat_interleave(count).view(-1, *[1] * len(graph.shape))
    limits = torch.finfo(dtype)
    return (graph.x_center + graph.x_scale * (size * rows * (1.0 + change * signs))).clamp(limits.min, limits.max)


def _largest(found: Sequence[Tensor], expected: Sequence[Tensor], graph: Graph) -> Tensor:
    """Largest difference between two results at each of `DISTANCES`, relative to the size of the second."""
    worst = [_relative(i, found, expected, graph).double() for i in range(len(expected))]
    return torch.stack([part.reshape(len(DISTANCES), -1).amax(1) for part in worst]).amax(0)


def _relative(place: int, all_found: Sequence[Tensor], all_expected: Sequence[Tensor], graph: Graph) -> Tensor:
    """Differences of one of the results, relative to its size; of what is log-normal the differences of logarithms."""
    name, found, expected, (mean, std) = graph.outputs[place], all_found[place], all_expected[place], all_expected[:2]
    if name in PARTS:
        # Shares of the variance: a part that is hardly any is a root of what rounding leaves.
        return (found / all_found[1]).square().sub((expected / std).square()).abs()
    if name in LOG_MOMENTS:
        return (found - expected).abs() / all_expected[-1].maximum(expected.abs())
    if name != "log_density" and graph.law == "identity":
        sizes = {"mean": std.maximum(mean.abs()), "std": std}
        ends = std if graph.quantile is None else mean.abs() + (1.0 + graph.quantile) * std
        return (found - expected).abs() / sizes.get(name, ends)
    if name != "log_density":
        # Results of another type may have another range.
        low, high = LOG_RANGE[graph.results]
        found, expected, log_std = (part.double().log().clamp(low, high) for part in (found, expected, std))
        if name == "mean":
            # Of a std beyond the range the mean is what is left of two huge numbers.
            found = found.where(log_std < high, expected)
    return (found - expected).abs() / expected.abs().clamp_min(1.0)


def _with_our_names(proto: Any, outputs: Sequence[str]) -> Any:
    """Rename input, outputs and the dimension of rows of a model by torch's exporter."""
    graph = proto.graph
    given = [graph.input[0].name, *(output.name for output in graph.output)]
    names: dict[str, str] = dict(zip(given, (INPUT, *outputs), strict=True))

    def rename(name: str) -> str:
        # A value within the graph may have one of our names already.
        return names.get(name, f"{name}_" if name in (INPUT, *OUTPUTS, *PARTS, *LOG_MOMENTS) else name)

    for node in graph.node:
        node.input[:] = [rename(name) for name in node.input]
        node.output[:] = [rename(name) for name in node.output]
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = rename(value.name)
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    return proto
