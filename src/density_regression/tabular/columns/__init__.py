"""Columns of a table as people have them, text, dates and gaps among them, as numbers that a network reads."""

from density_regression.tabular.columns.columns import Columns
from density_regression.tabular.columns.frames import column_names, is_frame, read_frame
from density_regression.tabular.columns.values import Table, Values, of_array

__all__ = ["Columns", "Table", "Values", "column_names", "is_frame", "of_array", "read_frame"]
