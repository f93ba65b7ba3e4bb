"""Fitted regressors as graphs that others run: ONNX, and torch.export."""

from density_regression.export.estimator import ExportedEstimator
from density_regression.export.graph import ExportError, Graph, export_program
from density_regression.export.module import to_onnx
from density_regression.export.onnx import OnnxDifference, compare_onnx, write_onnx

__all__ = [
    "ExportError",
    "ExportedEstimator",
    "Graph",
    "OnnxDifference",
    "compare_onnx",
    "export_program",
    "to_onnx",
    "write_onnx",
]
