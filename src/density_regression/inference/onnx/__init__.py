"""Fitted regressors as graphs that others run: ONNX, and torch.export."""

from density_regression.inference.onnx.graph import ExportError, Graph, export_program
from density_regression.inference.onnx.module import to_onnx
from density_regression.inference.onnx.write import OnnxDifference, compare_onnx, write_onnx

__all__ = ["ExportError", "Graph", "OnnxDifference", "compare_onnx", "export_program", "to_onnx", "write_onnx"]
