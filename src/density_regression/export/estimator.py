"""What an estimator has to do with graphs."""

from __future__ import annotations

import copy
import json
import os
from importlib.metadata import version

from sklearn.utils.validation import check_is_fitted
from torch.export import ExportedProgram

from density_regression.export.graph import DTYPES, Dtype, Graph, export_program
from density_regression.export.onnx import write_onnx
from density_regression.network import Predictor
from density_regression.tables import Scaling

__all__ = ["ExportedEstimator"]


class ExportedEstimator:
    """An estimator that can be written as one graph; part of `DeepRegressor`."""

    model_: Predictor
    x_scaling_: Scaling
    y_scaling_: Scaling

    def to_onnx(self, path: str | os.PathLike[str], *, dtype: Dtype = "float64", int8: bool = False) -> float:
        """Write the fitted model as one ONNX graph, from rows in their own units to results in the target's.

        Input `X` (n, c); outputs `mean` and `std`, each (n, k), and `log_density` (n,) where there is one; any number
        of rows, which are not checked as `predict` checks them. The file is tried by ONNX Runtime before it is written.

        Parameters
        ----------
        path : path
            File to write, whole or not at all.
        dtype : "float64" or "float32"
            Of inputs and results. float32 saves a little time, and digits where a column is large and varies little.
        int8 : bool
            Whether to write the encoder's weights in eight bits, a quarter of their size. See what it does to the
            results, by what is returned and on rows of your own.

        Returns
        -------
        float
            Largest difference from what `predict` gives on rows near and far, relative: rounding, of the weights too
            if they are written in eight bits, and of the scaling in float32.
        """
        about = {"producer": f"density-regression {version('density-regression')}", "method": type(self).__name__}
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            about["columns"] = json.dumps([str(name) for name in names])
        about |= {"encoder": "int8"} if int8 else {}
        return write_onnx(self._graph(dtype), path, reference=self._graph("float64"), int8=int8, about=about)

    def to_program(self, *, dtype: Dtype = "float64") -> ExportedProgram:
        """The same graph by `torch.export`, to compile ahead of time or to save with `torch.export.save`."""
        return export_program(self._graph(dtype))

    def _graph(self, dtype: Dtype) -> Graph:
        check_is_fitted(self)
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {sorted(DTYPES)}, got {dtype!r}.")
        return Graph(copy.deepcopy(self.model_).cpu(), self.x_scaling_, self.y_scaling_, dtype=DTYPES[dtype])
