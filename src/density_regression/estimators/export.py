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
from density_regression.estimators.tables import table_to_predict
from density_regression.inference.onnx.columns import ColumnInputs
from density_regression.inference.onnx.graph import (
    DTYPES,
    Dtype,
    ExportError,
    Graph,
    export_program,
    refuse_lost_digits,
)
from density_regression.inference.onnx.write import OnnxDifference, compare_onnx, write_onnx
from density_regression.nn.model import DensityRegression
from density_regression.nn.runtime import usual_torch
from density_regression.tabular.table import Scaling

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
        parts: bool = False,
    ) -> float:
        """Write the fitted model as one ONNX graph, from rows in their own units to results in the target's.

        Input `X` (n, c), any number of rows, which are not validated; outputs `mean` and `std`, each (n, k), and
        `log_density` (n,) where there is one; after `conformalize` also `low` and `high`, each (n, k). The file is
        checked with ONNX Runtime before it is written.

        Fitted to a frame with text, dates or gaps, it has one input for each column, of the column's name and of shape
        (n,): numbers and booleans in `dtype`, NaN for gaps; text and dates, in ISO form, as strings, "" for gaps. It
        has a further output `familiarity` (n,) where there is a density.

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
        parts : bool
            Whether to write what the standard deviation consists of, too: of a `DensityRegressor` the outputs `noise`,
            `disagreement` and `distance`, as `decompose` has them; with ``target="log"`` `log_mean` and `log_std`, the
            moments of log y, from which any quantile follows. Each is (n, k).

        Returns
        -------
        float
            Largest relative difference from `predict` on random rows, near and far, by the rounding of results, of
            inputs (float32) and of weights (int8); with ``target="log"``, between logarithms. An `ExportError` says why
            a model cannot be written as a graph.
        """
        about, inputs = {"method": type(self).__name__}, self._inputs(dtype, parts)
        if hasattr(self, "feature_names_in_"):
            about["columns"] = json.dumps([str(name) for name in self.feature_names_in_])
        coverage = self._exported_coverage(coverage)
        if coverage is not None:
            about["coverage"] = f"{coverage:g}"
        if inputs is None:
            reference = self._graph("float64", coverage, parts=parts)
            graph = self._graph(dtype, coverage, parts=parts)
            return write_onnx(graph, path, reference=reference, int8=int8, about=about)
        # Of the columns, numbers alone are in that type: others have too many digits for it once they are coded.
        graph, about = self._graph("float64", coverage, results=dtype, parts=parts), about | inputs.about
        return write_onnx(graph, path, reference=graph, inputs=inputs, int8=int8, about=about)

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
        if (inputs := self._inputs("float64")) is not None:
            table = inputs.random_table(np.ones(1000)) if X is None else table_to_predict(self, X)
            return compare_onnx(path, graph, table, inputs)
        if X is not None:
            return compare_onnx(path, graph, self._rows(X))
        center, scale = self.x_scaling_
        return compare_onnx(path, graph, center + scale * np.random.default_rng(0).normal(size=(1000, len(center))))

    @usual_torch()
    def to_program(self, *, dtype: Dtype = "float64", coverage: float | None = None) -> ExportedProgram:
        """The same graph by `torch.export`, to compile ahead of time or to save with `torch.export.save`.

        An `ExportError` says that the model reads text, dates or gaps, of which torch knows nothing.
        """
        check_is_fitted(self)
        if self.columns_ is not None:
            raise ExportError("torch.export has no text, and this model reads text, dates or gaps: use to_onnx.")
        return export_program(self._graph(dtype, self._exported_coverage(coverage)))

    def _inputs(self, dtype: Dtype, parts: bool = False) -> ColumnInputs | None:
        """Inputs for text, dates and gaps, if the model reads them."""
        check_is_fitted(self)
        if self.columns_ is None:
            return None
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {sorted(DTYPES)}, got {dtype!r}.")
        if dtype != "float64":
            own = list(self.columns_.numbers)
            part, names = Scaling(*(values[own] for values in self.x_scaling_)), self.columns_.names
            refuse_lost_digits(part, DTYPES[dtype], [f"column {names[i]!r}" for i in own])
            self._refuse_lost_targets(dtype)
        levels = None
        if isinstance(self.model_, DensityRegression) and self.model_.familiar_levels is not None:
            levels = self.model_.known_levels().cpu().numpy()
        named = hasattr(self, "feature_names_in_")
        return ColumnInputs(self.columns_, named, self.x_scaling_, np.dtype(dtype), levels, parts)

    def _refuse_lost_targets(self, dtype: Dtype) -> None:
        targets = [f"target {i}" for i in range(len(self.y_scaling_.center))]
        refuse_lost_digits(self.y_scaling_, DTYPES[dtype], targets)

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

    def _graph(
        self, dtype: Dtype, coverage: float | None = None, *, results: Dtype | None = None, parts: bool = False
    ) -> Graph:
        check_is_fitted(self)
        if dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {sorted(DTYPES)}, got {dtype!r}.")
        # float64 keeps all digits of rows: `predict` reads them as float64 too.
        if dtype != "float64":
            columns = getattr(self, "feature_names_in_", range(len(self.x_scaling_.center)))
            refuse_lost_digits(self.x_scaling_, DTYPES[dtype], [f"column {name!r}" for name in columns])
            self._refuse_lost_targets(dtype)
        model = copy.deepcopy(self.model_).cpu()
        quantile = None if coverage is None else self.conformal_.quantile(coverage)
        scalings = self.x_scaling_, self.y_scaling_
        own, other = DTYPES[dtype], DTYPES[results or dtype]
        return Graph(model, *scalings, dtype=own, results=other, law=self.target_, quantile=quantile, parts=parts)
