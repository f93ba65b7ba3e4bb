"""A torch module with an encoder of its own as one graph."""

from __future__ import annotations

import copy
import os
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor

from density_regression.export.graph import Graph
from density_regression.export.onnx import write_onnx
from density_regression.network import Predictor
from density_regression.tables import OwnUnits, Scaling

__all__ = ["to_onnx"]


def to_onnx(model: Predictor, path: str | os.PathLike[str], example: Tensor, *, int8: bool = False) -> float:
    """Write a torch module, such as a `DensityRegression`, as one ONNX graph in float32.

    Input `X` (n, ...); outputs `mean` and `std`, each of the shape that the module predicts and in the target's units,
    and `log_density` where there is one; any number of rows, but positions as in the example. Inputs that are NaN are
    not looked for. The file is tried by ONNX Runtime before it is written. Regressors have a method of this name.

    Parameters
    ----------
    model : Predictor
        A fitted `DensityRegression`, or a module of the rivals; it is left as it is.
    path : path
        File to write, whole or not at all.
    example : Tensor of shape (n, ...)
        Some inputs, of which only shape and type are looked at.
    int8 : bool
        Whether to write the encoder's weights in eight bits, a quarter of their size.

    Returns
    -------
    float
        Largest difference from what the module gives on random inputs, near and far, relative.

    Raises
    ------
    ExportError
        If some part of the model has no ONNX operator, or the file does not give the same results; a `ValueError`.

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
    scaling = _target_scaling(copied)
    # The graph brings results into the target's units by itself.
    copied.scale_targets(None, None)
    graph = Graph(copied, OwnUnits.of(shape[-1]), scaling, dtype=torch.float32, shape=shape)
    about = {"producer": f"density-regression {version('density-regression')}", "method": type(model).__name__}
    about |= {"encoder": "int8"} if int8 else {}
    return write_onnx(graph, path, int8=int8, about=about)


def _target_scaling(model: Predictor) -> Scaling:
    if model.target_center is None or model.target_scale is None:
        return Scaling(np.zeros(model.targets), np.ones(model.targets))
    return Scaling(model.target_center.double().numpy(), model.target_scale.double().numpy())
