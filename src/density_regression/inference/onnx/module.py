"""Export of torch modules, of any input shape, to ONNX."""

import copy
import os

import torch
from torch import Tensor

from density_regression.inference.fused import as_float64
from density_regression.inference.onnx.graph import Graph
from density_regression.inference.onnx.write import write_onnx
from density_regression.nn.network import Predictor
from density_regression.tabular.table import OwnUnits, Scaling

__all__ = ["to_onnx"]


def to_onnx(model: Predictor, path: str | os.PathLike[str], example: Tensor, *, int8: bool = False) -> float:
    """Write a torch module, such as a `DensityRegression`, as one ONNX graph in float32.

    Input `X` (n, ...); outputs `mean` and `std`, each of the shape that the module predicts and in the target's units,
    and `log_density` where there is one. The number of rows is free, all other sizes are those of the example. NaN
    inputs are not handled. The file is checked with ONNX Runtime before it is written. Regressors have a method of this
    name.

    Parameters
    ----------
    model : Predictor
        A fitted `DensityRegression`, or a module of the baselines; not changed.
    path : path
        File to write, whole or not at all.
    example : Tensor of shape (n, ...)
        Some inputs, for their shape and type.
    int8 : bool
        Whether to write the encoder's weights in eight bits, a quarter of their size.

    Returns
    -------
    float
        Largest relative difference from the module's results on random inputs, near and far. An `ExportError` says
        that some part of the model has no ONNX operator, or that the file does not give the same results.

    Examples
    --------
    >>> import torch
    >>> from density_regression import MLP, DensityRegression, to_onnx
    >>> model = DensityRegression(MLP(3, (8,)), features=8)
    >>> to_onnx(model, "model.onnx", torch.zeros(1, 3))  # doctest: +SKIP
    """
    if not isinstance(model, Predictor):
        raise ValueError(f"model must be a module of this package, such as a DensityRegression, got {type(model)}.")
    if not isinstance(example, Tensor) or example.ndim < 2 or not example.is_floating_point():
        got = f"{tuple(example.shape)} of {example.dtype}" if isinstance(example, Tensor) else type(example).__name__
        raise ValueError(f"example must be a tensor (n, ...) of floating-point numbers, as the model reads, got {got}.")
    shape = tuple(example.shape[1:])
    copied = copy.deepcopy(model).cpu().float().eval()
    scaling: Scaling = OwnUnits.of(model.targets)
    if copied.target_center is not None and copied.target_scale is not None:
        scaling = Scaling(as_float64(copied.target_center), as_float64(copied.target_scale))
    # The graph itself converts results to the target's units.
    copied.scale_targets(None, None)
    graph = Graph(copied, OwnUnits.of(shape[-1]), scaling, dtype=torch.float32, shape=shape)
    return write_onnx(graph, path, int8=int8, about={"method": type(model).__name__})
