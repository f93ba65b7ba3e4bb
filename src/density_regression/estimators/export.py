"""Export methods of regressors: ONNX and torch.export."""

import copy
import json
import os

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch.export import ExportedProgram

from density_regression.estimators.conformal import check_coverage
from density_regression.estimators.hooks import RegressorHooks
from density_regression.inference.onnx.graph import (
    DTYPES,
    Dtype,
    ExportError,
    Graph,
    export_program,
    refuse_lost_digits,
)
from density_regression.inference.onnx.write import OnnxDifference, compare_onnx, write_onnx
from density_regression.nn.runtime import usual_torch

__all__ = ["Export"]


class Export(RegressorHooks):
    """Export methods shared by all regressors."""

    @usual_torch()
    def to_onnx(
        self,
        path: str | os.PathLike[str],
        *,
        dtype: Dtype = "float64",
        int8: bool = False,
        coverage: float | None = None,
    ) -> float:
        """Write the fitted model as one ONNX graph, from rows in their own units to results in the target's.

        Input `X` (n, c), any number of rows, which are not validated; outputs `mean` and `std`, each (n, k), and
        `log_density` (n,) where there is one; after `conformalize` also `low` and `high`, each (n, k). The file is
        checked with ONNX Runtime before it is written.

        Parameters
        ----------
        path : path
            File to write, whole or not at all.
        dtype : "float64" or "float32"
            Of inputs and results. float32 saves a little time, but is refused if it has too few digits for a column or
            target, such as seconds since 1970 that span an hour.
        int8 : bool
            Whether to write the encoder's weights in eight bits, a quarter of their size. How much this changes the
            results depends on the model: see `check_onnx`.
        coverage : float, optional
            Of the intervals from `low` to `high` of a model after `conformalize`; 0.95 by default, as in
            `predict_interval`.

        Returns
        -------
        float
            Largest relative difference from `predict` on random rows, near and far, by the rounding of results, of
            inputs (float32) and of weights (int8); with ``target="log"``, between logarithms. An `ExportError` says why
            a model cannot be written as a graph.
        """
        about = {"method": type(self).__name__}
        if hasattr(self, "feature_names_in_"):
            about["columns"] = json.dumps([str(name) for name in self.feature_names_in_])
        coverage = self._exported_coverage(coverage)
        if coverage is not None:
            about["coverage"] = f"{coverage:g}"
        graph, reference = (self._graph(kind, coverage) for kind in (dtype, "float64"))
        return write_onnx(graph, path, reference=reference, int8=int8, about=about)

    @usual_torch()
    def check_onnx(self, path: str | os.PathLike[str], X: ArrayLike | None = None) -> OnnxDifference:
        """Compare the results of a file written by `to_onnx` with those of `predict`.

        Parameters
        ----------
        path : path
            The file.
        X : array-like or data frame of shape (n, c), optional
            Rows to compare them on, preferably held out. By default a thousand random rows, each column drawn from
            the normal distribution with its mean and standard deviation in training.

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
    def to_program(self, *, dtype: Dtype = "float64", coverage: float | None = None) -> ExportedProgram:
        """The same graph by `torch.export`, to compile ahead of time or to save with `torch.export.save`."""
        return export_program(self._graph(dtype, self._exported_coverage(coverage)))

    def _exported_coverage(self, coverage: float | None) -> float | None:
        """Coverage of the intervals in the graph; None without intervals."""
        check_is_fitted(self)
        if self.conformal_ is None:
            if coverage is not None:
                raise ValueError(
                    f"coverage={coverage!r} is that of intervals, which a graph has after conformalize only."
                )
            return None
        if self.conformal_.ratio is not None:
            raise ExportError(
                "Intervals of weighted rows are not in the graph, as their width depends on the density of each row: "
                "call conformalize without shifted before exporting."
            )
        return check_coverage(0.95 if coverage is None else coverage)

    def _graph(self, dtype: Dtype, coverage: float | None = None) -> Graph:
        check_is_fitted(self)
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {sorted(DTYPES)}, got {dtype!r}.")
        # float64 keeps all digits of rows: `predict` reads them as float64 too.
        if dtype != "float64":
            columns = getattr(self, "feature_names_in_", range(len(self.x_scaling_.center)))
            refuse_lost_digits(self.x_scaling_, DTYPES[dtype], [f"column {name!r}" for name in columns])
            targets = [f"target {i}" for i in range(len(self.y_scaling_.center))]
            refuse_lost_digits(self.y_scaling_, DTYPES[dtype], targets)
        model = copy.deepcopy(self.model_).cpu()
        quantile = None if coverage is None else self.conformal_.quantile(coverage)
        scalings = self.x_scaling_, self.y_scaling_
        return Graph(model, *scalings, dtype=DTYPES[dtype], law=self.target_, quantile=quantile)
