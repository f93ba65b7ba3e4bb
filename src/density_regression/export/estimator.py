"""What an estimator has to do with graphs."""

from __future__ import annotations

import copy
import json
import os
from importlib.metadata import version

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch.export import ExportedProgram

from density_regression.export.graph import DTYPES, Dtype, Graph, export_program, refuse_lost_digits
from density_regression.export.onnx import OnnxDifference, compare_onnx, write_onnx
from density_regression.loop import usual_torch
from density_regression.network import Predictor
from density_regression.tables import Floats, Scaling

__all__ = ["ExportedEstimator"]


class ExportedEstimator:
    """An estimator that can be written as one graph; part of `DeepRegressor`."""

    model_: Predictor
    x_scaling_: Scaling
    y_scaling_: Scaling

    def _rows(self, X: ArrayLike) -> Floats:
        """Rows to predict, checked."""
        raise NotImplementedError

    @usual_torch()
    def to_onnx(self, path: str | os.PathLike[str], *, dtype: Dtype = "float64", int8: bool = False) -> float:
        """Write the fitted model as one ONNX graph, from rows in their own units to results in the target's.

        Input `X` (n, c); outputs `mean` and `std`, each (n, k), and `log_density` (n,) where there is one; any number
        of rows, which are not checked as `predict` checks them. The file is tried by ONNX Runtime before it is written.

        Parameters
        ----------
        path : path
            File to write, whole or not at all.
        dtype : "float64" or "float32"
            Of inputs and results. float32 saves a little time. A column or target with too large an offset for it, such
            as seconds since 1970 that span an hour, is refused.
        int8 : bool
            Whether to write the encoder's weights in eight bits, a quarter of their size. How far that moves results
            depends on the model: see `check_onnx`.

        Returns
        -------
        float
            Largest difference from what `predict` gives on rows near and far, relative: rounding, of the weights too
            if they are written in eight bits, and of the inputs in float32.

        Raises
        ------
        ExportError
            If the model cannot be written as such a graph; a `ValueError`.
        """
        about = {"producer": f"density-regression {version('density-regression')}", "method": type(self).__name__}
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            about["columns"] = json.dumps([str(name) for name in names])
        about |= {"encoder": "int8"} if int8 else {}
        return write_onnx(self._graph(dtype), path, reference=self._graph("float64"), int8=int8, about=about)

    @usual_torch()
    def check_onnx(self, path: str | os.PathLike[str], X: ArrayLike | None = None) -> OnnxDifference:
        """How far the results of a file that `to_onnx` wrote are from those of `predict`.

        Parameters
        ----------
        path : path
            The file.
        X : array-like or data frame of shape (n, c), optional
            Rows to compare them on, best held-out ones. If left out, a thousand are drawn at random, each column by
            itself from a normal distribution with the mean and standard deviation that it had in training.

        Returns
        -------
        OnnxDifference
            Named tuple ``(mean, typical, std)``: the largest and the median distance between the means, in standard
            deviations of the prediction, and the largest relative difference between the standard deviations.
        """
        graph = self._graph("float64")
        if X is not None:
            return compare_onnx(path, graph, self._rows(X))
        center, scale = self.x_scaling_
        return compare_onnx(path, graph, center + scale * np.random.default_rng(0).normal(size=(1000, len(center))))

    @usual_torch()
    def to_program(self, *, dtype: Dtype = "float64") -> ExportedProgram:
        """The same graph by `torch.export`, to compile ahead of time or to save with `torch.export.save`."""
        return export_program(self._graph(dtype))

    def _graph(self, dtype: Dtype) -> Graph:
        check_is_fitted(self)
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {sorted(DTYPES)}, got {dtype!r}.")
        # Predictions, too, are made of rows in float64.
        if dtype != "float64":
            names = getattr(self, "feature_names_in_", range(len(self.x_scaling_.center)))
            refuse_lost_digits(self.x_scaling_, DTYPES[dtype], [f"column {name!r}" for name in names])
            refuse_lost_digits(
                self.y_scaling_, DTYPES[dtype], [f"target {i}" for i in range(len(self.y_scaling_.center))]
            )
        return Graph(copy.deepcopy(self.model_).cpu(), self.x_scaling_, self.y_scaling_, dtype=DTYPES[dtype])
