"""Fitted regressors as graphs that others run: ONNX, and torch.export."""

from density_regression.export.graph import DTYPES, Dtype, ExportError, Graph, export_program
from density_regression.export.onnx import write_onnx

__all__ = ["DTYPES", "Dtype", "ExportError", "Graph", "export_program", "write_onnx"]
